//! The rights of everybody, kept up to date with the stored roles and bindings.
//!
//! The view follows the store when it is asked, not in the background: a request that arrives after a binding was
//! acknowledged is judged by it.

use std::sync::{Mutex, PoisonError};

use crate::auth::{Rbac, RbacKind};
use crate::store::{Change, List, Scope, Start, Store, Watch};
use crate::verbs::decode;

const RESOURCES: [&str; 4] = ["clusterroles", "clusterrolebindings", "roles", "rolebindings"];

/// Roles and bindings as of the last look.
#[derive(Debug, Default)]
pub(crate) struct Rights(Mutex<View>);

#[derive(Debug, Default)]
struct View {
    rbac: Rbac,
    /// Empty until the first look and after one of them fell behind.
    changes: Vec<(RbacKind, Watch)>,
}

impl Rights {
    /// Asks something about the rights of this moment.
    pub(crate) fn with<T>(&self, store: &Store, question: impl FnOnce(&Rbac) -> T) -> T {
        let mut view = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        view.follow(store);
        question(&view.rbac)
    }
}

impl View {
    fn follow(&mut self, store: &Store) {
        // Fewer than all: history was dropped between the list and the watch of one of them.
        if self.changes.len() < RESOURCES.len() || !self.catch_up() {
            self.start_over(store);
        }
    }

    /// Takes what changed since the last look; false when history has moved past it.
    fn catch_up(&mut self) -> bool {
        for (kind, changes) in &mut self.changes {
            loop {
                match changes.try_next() {
                    Ok(None) => break,
                    Err(_) => return false,
                    Ok(Some(event)) => match &event.change {
                        Change::Created { new } | Change::Updated { new, .. } => self.rbac.apply(*kind, &decode(new)),
                        Change::Deleted { old } => {
                            self.rbac.remove(*kind, old.key.namespace().unwrap_or_default(), old.key.name());
                        }
                    },
                }
            }
        }
        true
    }

    fn start_over(&mut self, store: &Store) {
        *self = Self::default();
        for resource in RESOURCES {
            let Some(kind) = RbacKind::of_resource(resource) else { continue };
            let scope = Scope::all(resource);
            let Ok(page) = store.list(&List::latest(&scope)) else { continue };
            page.items.iter().for_each(|stored| self.rbac.apply(kind, &decode(stored)));
            if let Ok(changes) = store.watch(scope, Start::After(page.revision)) {
                self.changes.push((kind, changes));
            }
        }
    }
}
