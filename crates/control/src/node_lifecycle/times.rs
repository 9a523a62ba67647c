//! Observations of this process, with times by its own clock.
//!
//! Tokio's clock stands still while this machine is suspended: no machine could report to it then, and that time does not
//! count against them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::node::Readiness;
use api::object::{Revision, Uid, UnixSeconds};
use api::{Key, Lease, Node, Pod};
use lifecycle::Lookup;
use lifecycle::node_lifecycle::pod::evicts_pods;
use tokio::time::Instant;

/// When each node was last heard of, by name.
#[derive(Debug, Default)]
pub(super) struct Heard(Mutex<BTreeMap<Box<str>, LastWord>>);

/// The signs of life of a node, as they were last seen.
#[derive(Debug)]
struct LastWord {
    uid: Uid,
    lease: Option<(Uid, Revision)>,
    ready: (Readiness, Option<UnixSeconds>),
    at: Instant,
}

impl Heard {
    /// For how long the node has been silent; none if it never had a lease while this process looked. A lease that changes is
    /// a sign of life, and so is a condition that the agent wrote; that the condition becomes Unknown is not.
    pub(super) fn silence(&self, node: &Node, lease: Option<&Lease>) -> Option<Duration> {
        let mut held = self.lock();
        let renewal = lease.map(|lease| (lease.meta.uid.clone(), lease.meta.revision));
        let said = (node.ready, node.ready_since);
        match held.get_mut(node.name()).filter(|known| known.uid == node.meta.uid) {
            Some(known) => {
                let renewed = renewal.is_some() && known.lease != renewal;
                let spoke = node.ready != Readiness::Unknown && known.ready != said;
                if renewed || spoke {
                    known.at = Instant::now();
                }
                known.lease = renewal.or(known.lease.take());
                known.ready = said;
                known.lease.as_ref().map(|_| known.at.elapsed())
            }
            None => {
                let exists = renewal.is_some();
                let word = LastWord { uid: node.meta.uid.clone(), lease: renewal, ready: said, at: Instant::now() };
                held.insert(node.name().into(), word);
                exists.then_some(Duration::ZERO)
            }
        }
    }

    /// The shortest silence of any other node that has a lease.
    pub(super) fn others(&self, node: &str) -> Option<Duration> {
        let held = self.lock();
        let others = held.iter().filter(|(name, word)| &***name != node && word.lease.is_some());
        others.map(|(_, word)| word.at.elapsed()).min()
    }

    /// The nodes that have been silent for this long.
    pub(super) fn silent(&self, grace: Duration) -> Vec<Key> {
        let held = self.lock();
        let silent = held.iter().filter(|(_, word)| word.lease.is_some() && word.at.elapsed() >= grace);
        silent.map(|(name, _)| Key::cluster(name)).collect()
    }

    pub(super) fn forget(&self, node: &str) {
        self.lock().remove(node);
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<str>, LastWord>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Since when nodes do not exist that pods or volumes name. Only the server's own word counts.
#[derive(Debug, Default)]
pub(super) struct Absences(Mutex<BTreeMap<Box<str>, Instant>>);

impl Absences {
    /// The server said that there is no such node. Gives for how long it has said so.
    pub(super) fn note(&self, node: &str) -> Duration {
        self.lock().entry(node.into()).or_insert_with(Instant::now).elapsed()
    }

    /// The node exists.
    pub(super) fn end(&self, node: &str) {
        self.lock().remove(node);
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Since when pods are on nodes whose taints evict, by pod.
#[derive(Debug, Default)]
pub(super) struct Tainted(Mutex<BTreeMap<Key, (Uid, Instant)>>);

impl Tainted {
    /// For how long the pod has been seen on a node with such a taint.
    pub(super) fn seen(&self, pod: &Pod, node: Lookup<'_, Node>) -> Duration {
        let mut held = self.lock();
        let key = &pod.meta.key;
        match (node, held.get(key)) {
            (Lookup::Found(node), _) if !evicts_pods(node) => {
                held.remove(key);
                Duration::ZERO
            }
            (_, Some((uid, since))) if *uid == pod.meta.uid => since.elapsed(),
            (Lookup::Found(_), _) => {
                held.insert(key.clone(), (pod.meta.uid.clone(), Instant::now()));
                Duration::ZERO
            }
            (Lookup::Absent | Lookup::NotCached, _) => Duration::ZERO,
        }
    }

    pub(super) fn forget(&self, pod: &Key) {
        self.lock().remove(pod);
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, (Uid, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn node(name: &str, uid: &str, ready: &str, changed: &str) -> Node {
        let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": changed});
        let node = json!({"metadata": {"name": name, "uid": uid}, "status": {"conditions": [condition]}});
        serde_json::from_value(node).expect("a node")
    }

    /// By its holder's clock every renewal is of the same moment, long ago.
    fn lease(revision: u64) -> Lease {
        let meta =
            json!({"name": "n", "namespace": "kube-node-lease", "uid": "l", "resourceVersion": revision.to_string()});
        serde_json::from_value(json!({"metadata": meta, "spec": {"renewTime": "2001-01-01T00:00:00.000000Z"}}))
            .expect("a lease")
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_change_of_the_lease_or_a_word_of_the_agent_ends_the_silence() {
        let (heard, then) = (Heard::default(), "2001-01-01T00:00:00Z");
        let ready = node("n", "1", "True", then);
        assert_eq!(heard.silence(&ready, None), None, "no lease was seen");
        sleep(60 * SECOND).await;
        assert_eq!(heard.silence(&ready, Some(&lease(1))), Some(Duration::ZERO), "the lease is new to this process");
        sleep(10 * SECOND).await;
        assert_eq!(heard.silence(&ready, Some(&lease(1))), Some(10 * SECOND));
        assert_eq!(heard.silence(&ready, None), Some(10 * SECOND), "a lease that is deleted is no sign of life");
        assert_eq!(heard.silence(&ready, Some(&lease(2))), Some(Duration::ZERO));
        sleep(50 * SECOND).await;
        let unknown = node("n", "1", "Unknown", "2001-01-01T00:02:00Z");
        assert_eq!(heard.silence(&unknown, Some(&lease(2))), Some(50 * SECOND), "this was written about it, not by it");
        let spoke = node("n", "1", "True", "2001-01-01T00:02:01Z");
        assert_eq!(heard.silence(&spoke, Some(&lease(2))), Some(Duration::ZERO), "its agent wrote this");
        sleep(SECOND).await;
        assert_eq!(heard.silence(&node("n", "2", "True", then), Some(&lease(2))), Some(Duration::ZERO), "another node");
    }

    #[tokio::test(start_paused = true)]
    async fn others_are_those_with_a_lease_and_the_last_that_was_heard_counts() {
        let (heard, then) = (Heard::default(), "2001-01-01T00:00:00Z");
        let word = |name: &str, lease: Option<&Lease>| {
            heard.silence(&node(name, name, "True", then), lease);
        };
        word("a", Some(&lease(1)));
        word("made-by-hand", None);
        assert_eq!(heard.others("a"), None);
        sleep(5 * SECOND).await;
        word("b", Some(&lease(1)));
        sleep(SECOND).await;
        assert_eq!((heard.others("a"), heard.others("b")), (Some(SECOND), Some(6 * SECOND)));
        assert_eq!(heard.silent(6 * SECOND), [Key::cluster("a")]);
        heard.forget("b");
        assert_eq!(heard.others("a"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pods_time_begins_with_the_first_taint_and_ends_with_the_last() {
        let tainted = Tainted::default();
        let node = |taints| -> Node {
            serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {"taints": taints}})).expect("a node")
        };
        let (well, lost) = (node(json!([])), node(json!([{"key": "x", "effect": "NoExecute"}])));
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "d", "uid": "u"}})).expect("a pod");
        assert_eq!(tainted.seen(&pod, Lookup::Found(&lost)), Duration::ZERO);
        sleep(SECOND).await;
        assert_eq!(tainted.seen(&pod, Lookup::NotCached), SECOND, "not to know the node changes nothing");
        assert_eq!(tainted.seen(&pod, Lookup::Found(&lost)), SECOND);
        assert_eq!(tainted.seen(&pod, Lookup::Found(&well)), Duration::ZERO);
        assert_eq!(tainted.seen(&pod, Lookup::Found(&lost)), Duration::ZERO, "it begins again");
    }
}
