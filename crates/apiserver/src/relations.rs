//! What belongs to which node, kept up to date with the stored pods, volumes and claims.
//!
//! As [`crate::rights`], the view follows the store when it is asked: each change is read once, and a request that arrives
//! after a pod was bound is judged by that.

use std::sync::{Mutex, PoisonError};

use crate::auth::NodeIndex;
use crate::store::{Change, List, Scope, Start, Store, Stored, Watch};
use crate::verbs::decode;

/// Pods, volumes and claims as of the last look.
#[derive(Debug, Default)]
pub(crate) struct Relations(Mutex<View>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Followed {
    Pods,
    Volumes,
    Claims,
}

impl Followed {
    const ALL: [Self; 3] = [Self::Pods, Self::Volumes, Self::Claims];

    fn resource(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Volumes => "persistentvolumes",
            Self::Claims => "persistentvolumeclaims",
        }
    }

    fn apply(self, index: &mut NodeIndex, stored: &Stored) {
        match self {
            Self::Pods => index.apply_pod(stored.key.namespace().unwrap_or_default(), &decode(stored)),
            Self::Volumes => index.apply_volume(&decode(stored)),
            Self::Claims => index.apply_claim(stored.key.namespace().unwrap_or_default(), &decode(stored)),
        }
    }

    fn remove(self, index: &mut NodeIndex, stored: &Stored) {
        match self {
            Self::Pods => index.remove_pod(stored.key.namespace().unwrap_or_default(), stored.key.name()),
            Self::Volumes => index.remove_volume(stored.key.name()),
            Self::Claims => index.remove_claim(stored.key.namespace().unwrap_or_default(), stored.key.name()),
        }
    }
}

#[derive(Debug, Default)]
struct View {
    index: NodeIndex,
    /// Empty until the first look and after one of them fell behind.
    changes: Vec<(Followed, Watch)>,
}

impl Relations {
    /// Asks something about the pods, volumes and claims of this moment.
    pub(crate) fn with<T>(&self, store: &Store, question: impl FnOnce(&NodeIndex) -> T) -> T {
        let mut view = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Fewer than all: history was dropped between the list and the watch of one of them.
        if view.changes.len() < Followed::ALL.len() || !view.catch_up() {
            view.start_over(store);
        }
        question(&view.index)
    }
}

impl View {
    /// Takes the changes since the last look; false when history has moved past it.
    fn catch_up(&mut self) -> bool {
        for (followed, changes) in &mut self.changes {
            loop {
                match changes.try_next() {
                    Ok(None) => break,
                    Err(_) => return false,
                    Ok(Some(event)) => match &event.change {
                        Change::Created { new } | Change::Updated { new, .. } => followed.apply(&mut self.index, new),
                        Change::Deleted { old } => followed.remove(&mut self.index, old),
                    },
                }
            }
        }
        true
    }

    fn start_over(&mut self, store: &Store) {
        *self = Self::default();
        for followed in Followed::ALL {
            let scope = Scope::all(followed.resource());
            let Ok(page) = store.list(&List::latest(&scope)) else { continue };
            page.items.iter().for_each(|stored| followed.apply(&mut self.index, stored));
            if let Ok(changes) = store.watch(scope, Start::After(page.revision)) {
                self.changes.push((followed, changes));
            }
        }
    }
}
