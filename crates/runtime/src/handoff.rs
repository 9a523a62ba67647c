//! What the controllers of one process tell each other directly.
//!
//! Between processes the binder asks a provisioner with an annotation on the claim, which is a write and a trip through the
//! watch. In one process it asks here. Nothing is lost with the process: the next binder decides the same and asks again.
//!
//! An attacher writes on an attachment what it is about to publish. In one process whoever makes the attachment asks here
//! what that will be, and stores both with one write. An attacher that was not asked writes it as ever.

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

/// An attachment that is about to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coming<'a> {
    /// The PersistentVolume's name.
    pub volume: &'a str,
    pub handle: &'a str,
    pub node: &'a str,
}

/// What an attacher would write on it before anything else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notes {
    pub finalizer: String,
    pub annotations: BTreeMap<&'static str, String>,
}

type Wake = Arc<dyn Fn(&Asked) + Send + Sync>;
type Foresight = Arc<dyn Fn(Coming<'_>) -> Option<Notes> + Send + Sync>;

/// Who makes volumes in this process, for which claims they were asked, and who attaches. Clones are the same.
#[derive(Clone, Default)]
pub struct Handoff {
    makers: Arc<Mutex<BTreeMap<String, Maker>>>,
    attachers: Arc<Mutex<BTreeMap<String, Foresight>>>,
}

/// A provisioner that answers to a name; until it is dropped. What it was asked for stays asked, for the next one.
#[must_use]
pub struct Making {
    handoff: Handoff,
    name: String,
    wake: Wake,
}

impl fmt::Debug for Making {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Making").field(&self.name).finish()
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if let Some(maker) = self.handoff.lock().get_mut(&self.name) {
            // A successor under the same name goes on.
            maker.wake.take_if(|wake| Arc::ptr_eq(wake, &self.wake));
        }
    }
}

/// An attacher that works; until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Attaching {
    handoff: Handoff,
    driver: String,
}

impl Drop for Attaching {
    fn drop(&mut self) {
        self.handoff.foresights().remove(&self.driver);
    }
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
    pub fn serve(&self, name: &str, wake: impl Fn(&Asked) + Send + Sync + 'static) -> Making {
        let wake: Wake = Arc::new(wake);
        self.lock().entry(name.to_owned()).or_default().wake = Some(wake.clone());
        Making { handoff: self.clone(), name: name.to_owned(), wake }
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

    fn foresights(&self) -> MutexGuard<'_, BTreeMap<String, Foresight>> {
        self.attachers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An attacher of this process works for `driver`; `foresight` says what it would write on an attachment first.
    pub fn attaches(
        &self,
        driver: &str,
        foresight: impl Fn(Coming<'_>) -> Option<Notes> + Send + Sync + 'static,
    ) -> Attaching {
        self.foresights().insert(driver.to_owned(), Arc::new(foresight));
        Attaching { handoff: self.clone(), driver: driver.to_owned() }
    }

    /// What the attacher of a driver would write on a coming attachment, if it is in this process and can tell.
    pub fn notes(&self, driver: &str, coming: Coming<'_>) -> Option<Notes> {
        let foresight = self.foresights().get(driver).cloned()?;
        foresight(coming)
    }

    /// The claim has a volume, or is gone.
    pub fn forget(&self, uid: &Uid) {
        for maker in self.lock().values_mut() {
            maker.asked.remove(uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provisioner_answers_until_it_ends_and_its_successor_goes_on() {
        let handoff = Handoff::default();
        let woken = Arc::new(Mutex::new(Vec::new()));
        let serve = |who: &'static str| {
            let woken = woken.clone();
            handoff.serve("p", move |asked: &Asked| woken.lock().unwrap().push(format!("{who} {}", asked.uid)))
        };
        let ask = |uid: &str| handoff.ask("p", &Asked { claim: Key::namespaced("n", uid), uid: Uid::from(uid) });
        let first = serve("first");
        ask("1");
        let second = serve("second");
        drop(first);
        ask("2");
        assert!(handoff.serves("p"));
        drop(second);
        ask("3");
        assert!(!handoff.serves("p") && handoff.is_asked("p", &Uid::from("3")), "who comes next finds it asked for");
        assert_eq!(*woken.lock().unwrap(), ["first 1", "second 2"]);
        assert_eq!(Arc::strong_count(&woken), 1, "nobody is held");
    }

    #[test]
    fn notes_are_there_while_the_attacher_works_and_not_longer() {
        let handoff = Handoff::default();
        let coming = Coming { volume: "v", handle: "h", node: "n" };
        assert_eq!(handoff.notes("d", coming), None);
        let attaching = handoff.attaches("d", |coming| {
            let annotations = BTreeMap::from([("at", coming.node.to_owned())]);
            (coming.handle == "h").then(|| Notes { finalizer: "f".to_owned(), annotations })
        });
        let notes = handoff.clone().notes("d", coming).expect("the attacher says so");
        assert_eq!((notes.finalizer.as_str(), notes.annotations["at"].as_str()), ("f", "n"));
        assert_eq!(handoff.notes("d", Coming { handle: "other", ..coming }), None);
        assert_eq!(handoff.notes("other", coming), None);
        drop(attaching);
        assert_eq!(handoff.notes("d", coming), None);
    }
}
