//! What a binder and a provisioner tell each other when they are in one process.
//!
//! Between processes the binder asks with an annotation on the claim, which is a write and a trip through the watch. In
//! one process it asks here. Nothing is lost with the process: the next binder decides the same and asks again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::{Key, Uid};

/// A claim to make a volume for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    pub claim: Key,
    pub uid: Uid,
}

type Wake = Arc<dyn Fn(&Asked) + Send + Sync>;

/// Who makes volumes in this process, and for which claims they were asked. Clones are the same.
#[derive(Clone, Default)]
pub struct Handoff {
    makers: Arc<Mutex<BTreeMap<String, Maker>>>,
}

#[derive(Default)]
struct Maker {
    wake: Option<Wake>,
    asked: BTreeSet<Uid>,
}

impl fmt::Debug for Handoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let makers = self.lock();
        f.debug_list().entries(makers.iter().map(|(name, maker)| (name, maker.asked.len()))).finish()
    }
}

impl Handoff {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Maker>> {
        self.makers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A provisioner of this process answers to `name`; `wake` is called for each claim that it is asked for.
    pub fn serve(&self, name: &str, wake: impl Fn(&Asked) + Send + Sync + 'static) {
        self.lock().entry(name.to_owned()).or_default().wake = Some(Arc::new(wake));
    }

    /// Whether a provisioner of this process answers to `name`.
    pub fn serves(&self, name: &str) -> bool {
        self.lock().get(name).is_some_and(|maker| maker.wake.is_some())
    }

    /// The binder found nothing for a claim: whoever answers to `name` makes a volume for it.
    pub fn ask(&self, name: &str, asked: &Asked) {
        let wake = {
            let mut makers = self.lock();
            let Some(maker) = makers.get_mut(name) else { return };
            maker.asked.insert(asked.uid.clone()).then(|| maker.wake.clone()).flatten()
        };
        if let Some(wake) = wake {
            wake(asked);
        }
    }

    /// Whether the binder asked for this claim.
    pub fn is_asked(&self, name: &str, uid: &Uid) -> bool {
        self.lock().get(name).is_some_and(|maker| maker.asked.contains(uid))
    }

    /// The claim has a volume, or is gone.
    pub fn forget(&self, uid: &Uid) {
        for maker in self.lock().values_mut() {
            maker.asked.remove(uid);
        }
    }
}
