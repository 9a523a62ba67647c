//! How much a driver is given to do at once (CTRL-14.46).
//!
//! An attachment that waits for its attacher takes a place. It gives the place back when it is attached, gone, or said to
//! have failed: then its attacher waits, too, and others may go on.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::{Attachment, Word};
use lifecycle::attach::wish::OVERDUE;
use tokio::time::Instant;

/// Who waits for a place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Waiter {
    /// A volume by its unique name.
    Volume(Box<str>),
    Node(Box<str>),
}

#[derive(Debug)]
pub(super) struct Gate {
    limit: usize,
    drivers: Mutex<BTreeMap<Word, Places>>,
}

#[derive(Debug, Default)]
struct Places {
    /// Attachments by name, and since when.
    taken: BTreeMap<Box<str>, Instant>,
    waiting: Line,
}

/// Who waits, in the order in which they came. Detaches are not passed over for attaches.
#[derive(Debug, Default)]
struct Line {
    places: BTreeMap<Waiter, u64>,
    order: BTreeMap<u64, Waiter>,
    /// How many have come so far.
    came: u64,
}

impl Line {
    /// Whoever waits already keeps his place.
    fn join(&mut self, waiter: Waiter) {
        if !self.places.contains_key(&waiter) {
            self.came += 1;
            self.order.insert(self.came, waiter.clone());
            self.places.insert(waiter, self.came);
        }
    }

    fn leave(&mut self, waiter: &Waiter) {
        if let Some(place) = self.places.remove(waiter) {
            self.order.remove(&place);
        }
    }

    fn next(&mut self) -> Option<Waiter> {
        let (_, first) = self.order.pop_first()?;
        self.places.remove(&first);
        Some(first)
    }

    fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

impl Gate {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), drivers: Mutex::default() }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Word, Places>> {
        self.drivers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for an attachment, or lets somebody wait for one.
    pub(super) fn enter(&self, driver: &Word, attachment: &str, waiter: Waiter) -> bool {
        let mut drivers = self.lock();
        let places = drivers.entry(driver.clone()).or_default();
        let now = Instant::now();
        if places.taken.len() >= self.limit {
            places.taken.retain(|_, since| now.duration_since(*since) < OVERDUE);
        }
        if places.taken.contains_key(attachment) || places.taken.len() < self.limit {
            places.taken.entry(attachment.into()).or_insert(now);
            places.waiting.leave(&waiter);
            return true;
        }
        places.waiting.join(waiter);
        false
    }

    /// News of an attachment: gives who may go on.
    pub(super) fn follow(&self, attachment: &Attachment, gone: bool) -> Option<Waiter> {
        match gone || !waits(attachment) {
            true => self.leave(&attachment.attacher, attachment.name()),
            false => {
                let mut drivers = self.lock();
                let places = drivers.entry(attachment.attacher.clone()).or_default();
                places.taken.entry(attachment.name().into()).or_insert_with(Instant::now);
                None
            }
        }
    }

    /// Gives a place back: gives who may go on.
    pub(super) fn leave(&self, driver: &Word, attachment: &str) -> Option<Waiter> {
        let mut drivers = self.lock();
        let places = drivers.get_mut(driver)?;
        places.taken.remove(attachment)?;
        let next = if places.taken.len() < self.limit { places.waiting.next() } else { None };
        if places.taken.is_empty() && places.waiting.is_empty() {
            drivers.remove(driver);
        }
        next
    }

    /// Somebody who may have been called had no use for a place: gives who may go on instead, one for each driver that has
    /// room. Without this a place would stay empty for as long as nobody gives one back.
    pub(super) fn pass_on(&self) -> Vec<Waiter> {
        let mut drivers = self.lock();
        let roomy = drivers.values_mut().filter(|places| places.taken.len() < self.limit);
        roomy.filter_map(|places| places.waiting.next()).collect()
    }

    /// When whoever waits looks again, should nobody call him.
    pub(super) fn patience(&self) -> Duration {
        OVERDUE
    }
}

/// Whether an attacher is expected to do something about it now.
fn waits(attachment: &Attachment) -> bool {
    match attachment.meta.is_deleting() {
        true => attachment.detach_error.is_none(),
        false => !attachment.attached && attachment.attach_error.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(name: &str, attached: bool) -> Attachment {
        let object = serde_json::json!({
            "metadata": {"name": name}, "status": {"attached": attached},
            "spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "v"}},
        });
        serde_json::from_value(object).unwrap()
    }

    fn volume(name: &str) -> Waiter {
        Waiter::Volume(name.into())
    }

    /// Rule: CTRL-14.46
    #[tokio::test(start_paused = true)]
    async fn whoever_finds_no_place_is_called_when_there_is_one() {
        let gate = Gate::new(1);
        assert!(gate.enter(&"d".into(), "a", volume("a")));
        assert!(gate.enter(&"d".into(), "a", volume("a")), "it has its place");
        assert!(!gate.enter(&"d".into(), "b", volume("b")));
        assert!(gate.enter(&"other".into(), "b", volume("b")), "another driver");
        assert_eq!(gate.follow(&attachment("a", false), false), None);
        assert_eq!(gate.follow(&attachment("a", true), false), Some(volume("b")));
        assert!(gate.enter(&"d".into(), "b", volume("b")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_that_its_waiter_has_no_use_for_goes_to_the_next_one() {
        let gate = Gate::new(1);
        assert!(gate.enter(&"d".into(), "a", volume("a")));
        assert!(!gate.enter(&"d".into(), "b", volume("b")) && !gate.enter(&"d".into(), "c", volume("c")));
        assert_eq!(gate.pass_on(), [], "there is no room");
        assert_eq!(gate.follow(&attachment("a", true), false), Some(volume("b")));
        // Its pod is gone by now.
        assert_eq!(gate.pass_on(), [volume("c")]);
        assert_eq!(gate.pass_on(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn who_came_first_is_called_first_whatever_he_is_called() {
        let gate = Gate::new(1);
        assert!(gate.enter(&"d".into(), "x", volume("x")));
        let node = Waiter::Node("n".into());
        assert!(!gate.enter(&"d".into(), "y", node.clone()));
        assert!(!gate.enter(&"d".into(), "a", volume("a")));
        assert!(!gate.enter(&"d".into(), "y", node.clone()), "it keeps its place");
        assert_eq!(gate.leave(&"d".into(), "x"), Some(node));
    }

    #[tokio::test(start_paused = true)]
    async fn an_attacher_that_says_nothing_does_not_hold_up_the_others_for_ever() {
        let gate = Gate::new(1);
        assert!(gate.enter(&"d".into(), "a", volume("a")));
        tokio::time::advance(OVERDUE).await;
        assert!(gate.enter(&"d".into(), "b", volume("b")));
    }
}
