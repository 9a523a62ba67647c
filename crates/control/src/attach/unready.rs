//! For how long this process has seen each node not ready.
//!
//! # Invariants
//! 1. Only what this process saw itself counts: the times in a node's condition are of another machine's clock, and whatever
//!    they show changes the measured time only by starting it again.
//! 2. Time in which this machine was suspended does not count: nobody could report to a server on it, and this process saw
//!    nothing. Tokio's clock stands still then.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::Node;
use api::node::Readiness;
use api::object::{Uid, UnixSeconds};
use tokio::time::Instant;

/// The nodes that are not ready, by name.
#[derive(Debug, Default)]
pub(super) struct UnreadyTimes(Mutex<BTreeMap<Box<str>, UnreadySince>>);

/// A node's condition Ready, and when this process first saw it so.
#[derive(Debug)]
struct UnreadySince {
    uid: Uid,
    ready: Readiness,
    changed: Option<UnixSeconds>,
    first_seen: Instant,
}

impl UnreadyTimes {
    /// How long the node has been seen not ready, and without a change. Nothing for one that is ready.
    pub(super) fn seen(&self, node: &Node) -> Duration {
        let mut times = self.lock();
        if node.ready == Readiness::Ready {
            times.remove(node.name());
            return Duration::ZERO;
        }
        let known = times.get(node.name()).filter(|known| {
            known.uid == node.meta.uid && (known.ready, known.changed) == (node.ready, node.ready_since)
        });
        if let Some(known) = known {
            return known.first_seen.elapsed();
        }
        let (uid, ready, changed) = (node.meta.uid.clone(), node.ready, node.ready_since);
        times.insert(node.name().into(), UnreadySince { uid, ready, changed, first_seen: Instant::now() });
        Duration::ZERO
    }

    /// The node is gone.
    pub(super) fn forget(&self, node: &str) {
        self.lock().remove(node);
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<str>, UnreadySince>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::time::sleep;

    use super::*;

    fn node(uid: &str, ready: &str, changed: &str) -> Node {
        let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": changed});
        let node = json!({"metadata": {"name": "n", "uid": uid}, "status": {"conditions": [condition]}});
        serde_json::from_value(node).expect("a node")
    }

    #[tokio::test(start_paused = true)]
    async fn time_counts_from_the_first_sight_and_every_change_starts_it_again() {
        let (times, second) = (UnreadyTimes::default(), Duration::from_secs(1));
        // By the other machine's clock it is long ago.
        let lost = node("1", "Unknown", "2001-01-01T00:00:00Z");
        assert_eq!(times.seen(&lost), Duration::ZERO);
        sleep(60 * second).await;
        assert_eq!(times.seen(&lost), 60 * second);
        for other in [
            node("1", "Unknown", "2001-01-01T00:00:09Z"),
            node("1", "False", "2001-01-01T00:00:09Z"),
            node("2", "False", "2001-01-01T00:00:09Z"),
        ] {
            assert_eq!(times.seen(&other), Duration::ZERO, "{other:?}");
            sleep(second).await;
            assert_eq!(times.seen(&other), second);
        }
        let last = node("2", "False", "2001-01-01T00:00:09Z");
        assert_eq!(times.seen(&node("2", "True", "2001-01-01T00:00:09Z")), Duration::ZERO);
        assert_eq!(times.seen(&last), Duration::ZERO, "it was ready in between");
        sleep(second).await;
        times.forget("n");
        assert_eq!(times.seen(&last), Duration::ZERO);
    }
}
