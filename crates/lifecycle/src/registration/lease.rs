//! Who holds a node's lease: this process, an earlier process of this machine that has surely ended, or another holder.
//!
//! # Invariants
//! 1. A name proves nothing: a cloned machine has the same host name, data directory and machine id, and a copy of a running
//!    machine has the same boot id and memory, too. Only a renewal that this process wrote itself shows that the lease is its
//!    own; it is recognised by the mark that every renewal carries.
//! 2. The lease of an earlier process is taken without waiting only on proof that this process ended and that nothing was
//!    written since. In all other cases the holder is watched for the whole duration of the lease.
//! 3. An absent lease is no proof either: it goes with the Node object, while the agent that held it goes on. An agent that is
//!    not the first one in its directory watches the absence for the whole duration of a lease.

use std::fmt;

use api::object::Revision;
use api::{Lease, Node};

use crate::decision::Lookup;

/// What every message begins with that says that two machines use one node's name.
pub const ANOTHER_MACHINE: &str = "another machine uses this node's name:";

/// The reason of the event on the Node.
pub const ANOTHER_MACHINE_EVENT: &str = "NodeNameInUse";

/// How the holder identities of agents begin. A kubelet signs with the node's name.
const AGENT: &str = "orlop/";

/// Which agent signs a node's lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentIdentity {
    /// The host and the agent's directory.
    pub place: String,
    /// A digest of the machine id, which clones of a disk share.
    pub machine: String,
    /// A digest of the boot id, which only copies of a running machine share.
    pub boot: String,
}

impl AgentIdentity {
    /// The holder identity of one process of this agent; `process` is random.
    pub fn holder(&self, process: &str) -> String {
        let Self { place, machine, boot } = self;
        format!("{AGENT}{place}_{machine}_{boot}_{process}")
    }

    /// The same without what differs between two starts of the machine.
    fn is_of_this_boot(&self, holder: &str) -> bool {
        let marks = holder.strip_prefix(AGENT).and_then(|rest| rest.rsplit_once('_'));
        marks.is_some_and(|(rest, _)| rest.ends_with(&format!("_{}_{}", self.machine, self.boot)))
    }
}

/// The renewals of one process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OwnRenewals {
    pub holder: String,
    /// The last one whose answer came: its mark, and the lease's revision after it.
    pub answered: Option<(String, Revision)>,
    /// Marks of those sent since whose answers did not come: any of them may have been stored.
    pub unanswered: Vec<String>,
}

impl OwnRenewals {
    /// Whether the last renewal of the lease is one of these. Others may have changed the lease's labels since.
    fn wrote(&self, lease: &Lease) -> bool {
        let mark = lease.renewal();
        let answered = self.answered.as_ref().is_some_and(|(answered, _)| answered == mark);
        *lease.holder == *self.holder && (answered || self.unanswered.iter().any(|sent| sent == mark))
    }

    /// Whether the lease is just as the last of these renewals left it.
    fn left(&self, lease: &Lease) -> bool {
        let unchanged =
            |answered: &(String, Revision)| answered.0 != lease.renewal() || answered.1 == lease.meta.revision;
        self.wrote(lease) && self.answered.as_ref().is_none_or(unchanged)
    }
}

/// What proves that an earlier process of this agent has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// This process holds the lock on the agent's directory, and both run on one boot of one machine.
    LockOfThisBoot,
    /// This process holds the lock, and the API server keeps its objects on this machine, too: a clone has its own.
    LockBesideTheApi,
    /// Nothing does.
    None,
}

/// What an earlier process of this agent left in the agent's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Predecessor {
    pub renewals: OwnRenewals,
    pub proof: Proof,
}

/// Who holds a node's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseHolder {
    /// There is no lease, or it was given back.
    Nobody,
    ThisProcess,
    /// An earlier process of this agent, which has ended; the lease is as it left it.
    EndedPredecessor,
    /// Whether it still runs is not known: it may be renewing the lease.
    Another(OtherHolder),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherHolder {
    /// This process by its name, but the last renewal is not its own: this machine runs twice.
    CopyOfThisProcess,
    /// An agent on this boot of this machine: an earlier process, or one with another directory.
    OnThisMachine,
    /// An agent elsewhere, or on this machine before it started again: until it renews the lease these look the same.
    OnAnotherMachine,
    /// A kubelet, or a program that is not ours.
    NotAnAgent,
}

/// Judges a lease as the server showed it.
pub fn lease_holder(
    lease: Lookup<'_, Lease>,
    identity: &AgentIdentity,
    own: &OwnRenewals,
    predecessor: Option<&Predecessor>,
) -> LeaseHolder {
    let Some(lease) = lease.found().filter(|lease| !lease.holder.is_empty()) else { return LeaseHolder::Nobody };
    if own.wrote(lease) {
        return LeaseHolder::ThisProcess;
    }
    if *lease.holder == *own.holder {
        return LeaseHolder::Another(OtherHolder::CopyOfThisProcess);
    }
    let ended = predecessor.filter(|before| before.renewals.left(lease)).map(|before| before.proof);
    match ended {
        Some(Proof::LockBesideTheApi) => return LeaseHolder::EndedPredecessor,
        Some(Proof::LockOfThisBoot) if identity.is_of_this_boot(&lease.holder) => return LeaseHolder::EndedPredecessor,
        Some(Proof::LockOfThisBoot | Proof::None) | None => {}
    }
    let other = if identity.is_of_this_boot(&lease.holder) {
        OtherHolder::OnThisMachine
    } else if lease.holder.starts_with(AGENT) {
        OtherHolder::OnAnotherMachine
    } else {
        OtherHolder::NotAnAgent
    };
    LeaseHolder::Another(other)
}

/// What an agent knows of the time before a lease was absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentHistory {
    /// No agent has worked in this directory before: there is no other copy of it.
    FirstStart,
    /// An agent has worked here before. Another machine may be a copy of this one and may have the node's volumes mounted.
    WorkedBefore,
}

/// What to do about a lease that is absent: it went with the Node, or there never was one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbsentLease {
    /// No other agent can be waiting for it, or hold volumes for it.
    TakeNow,
    /// The agent that had it before creates it again soon after the Node is back; only if it stays absent for the whole
    /// duration of a lease is that agent gone.
    WatchFirst,
}

/// Decides about an absent lease. `is_held` says whether this process may act for the node at this moment.
pub fn absent_lease(is_held: bool, history: AgentHistory, predecessor: Option<&Predecessor>) -> AbsentLease {
    let is_beside_the_api = predecessor.is_some_and(|before| before.proof == Proof::LockBesideTheApi);
    match history {
        AgentHistory::FirstStart => AbsentLease::TakeNow,
        AgentHistory::WorkedBefore if is_held || is_beside_the_api => AbsentLease::TakeNow,
        AgentHistory::WorkedBefore => AbsentLease::WatchFirst,
    }
}

/// Why an agent does nothing: another holder renews the lease of its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRefusal {
    pub node: String,
    pub holder: String,
    pub other: OtherHolder,
}

impl LeaseRefusal {
    /// Whether two machines use the node's name.
    pub fn is_another_machine(&self) -> bool {
        matches!(self.other, OtherHolder::CopyOfThisProcess | OtherHolder::OnAnotherMachine)
    }
}

impl fmt::Display for LeaseRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, holder, other } = self;
        match other {
            OtherHolder::CopyOfThisProcess => write!(
                f,
                "{ANOTHER_MACHINE} the lease of node {node} was renewed as {holder}, which is this process, and this \
                 process did not do it; this machine runs twice, as copies of a running machine do. Stop one of them, or \
                 give one another host name and data directory"
            ),
            OtherHolder::OnAnotherMachine => write!(
                f,
                "{ANOTHER_MACHINE} {holder} renews the lease of node {node}; stop that agent, or give this machine another \
                 node name, and if it is a clone another data directory, too"
            ),
            OtherHolder::OnThisMachine => write!(
                f,
                "{holder} looks after node {node} and renews its lease: another agent on this machine; stop it, or give \
                 this agent another node name"
            ),
            OtherHolder::NotAnAgent => write!(
                f,
                "{holder} looks after node {node} and renews its lease: a kubelet, or another program of that name; stop \
                 it, or give this agent another node name"
            ),
        }
    }
}

/// Whether the agent may act for its node now.
///
/// A Node that was deleted while the agent ran has no lease any more; what is left on this machine is still taken down.
pub fn may_act(held: bool, node: Option<&Node>, seen_before: bool) -> bool {
    held || (node.is_none() && seen_before)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn identity(boot: &str) -> AgentIdentity {
        AgentIdentity { place: "host_dir".to_owned(), machine: "m1".to_owned(), boot: boot.to_owned() }
    }

    fn lease(holder: &str, mark: &str, revision: u64) -> Lease {
        let metadata = json!({"name": "n", "resourceVersion": revision.to_string(),
            "annotations": {api::keys::annotation::LEASE_RENEWAL.text(): mark}});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"holderIdentity": holder}})).expect("a lease")
    }

    fn renewals(holder: &str, answered: Option<(&str, u64)>, unanswered: &[&str]) -> OwnRenewals {
        OwnRenewals {
            holder: holder.to_owned(),
            answered: answered.map(|(mark, revision)| (mark.to_owned(), Revision::new(revision))),
            unanswered: unanswered.iter().map(|mark| (*mark).to_owned()).collect(),
        }
    }

    fn judge(lease: &Lease, own: &OwnRenewals, predecessor: Option<Predecessor>) -> LeaseHolder {
        lease_holder(Lookup::Found(lease), &identity("b1"), own, predecessor.as_ref())
    }

    #[test]
    fn our_own_name_is_ours_only_with_a_mark_that_we_wrote() {
        let us = identity("b1").holder("p1");
        let own = renewals(&us, Some(("t1", 5)), &["t2"]);
        assert_eq!(judge(&lease(&us, "t1", 5), &own, None), LeaseHolder::ThisProcess);
        assert_eq!(judge(&lease(&us, "t1", 6), &own, None), LeaseHolder::ThisProcess, "a label was changed");
        assert_eq!(judge(&lease(&us, "t2", 6), &own, None), LeaseHolder::ThisProcess, "the answer was lost");
        let copy = LeaseHolder::Another(OtherHolder::CopyOfThisProcess);
        assert_eq!(judge(&lease(&us, "t3", 6), &own, None), copy);
        assert_eq!(judge(&lease(&us, "", 6), &own, None), copy, "doubt is not ours");
        assert_eq!(judge(&lease("", "t1", 6), &own, None), LeaseHolder::Nobody);
        assert_eq!(lease_holder(Lookup::Absent, &identity("b1"), &own, None), LeaseHolder::Nobody);
    }

    #[test]
    fn an_absent_lease_is_watched_by_agents_that_are_not_the_first_of_their_directory() {
        let before = |proof| Some(Predecessor { renewals: OwnRenewals::default(), proof });
        for (is_held, history, predecessor, want) in [
            (false, AgentHistory::FirstStart, None, AbsentLease::TakeNow),
            (false, AgentHistory::WorkedBefore, None, AbsentLease::WatchFirst),
            (true, AgentHistory::WorkedBefore, None, AbsentLease::TakeNow),
            // A clone of the disk that held the lease since has such a lock, too.
            (false, AgentHistory::WorkedBefore, before(Proof::LockOfThisBoot), AbsentLease::WatchFirst),
            (false, AgentHistory::WorkedBefore, before(Proof::LockBesideTheApi), AbsentLease::TakeNow),
        ] {
            assert_eq!(absent_lease(is_held, history, predecessor.as_ref()), want, "{history:?} {predecessor:?}");
        }
    }

    #[test]
    fn an_earlier_process_is_followed_at_once_only_on_proof() {
        let us = renewals(&identity("b1").holder("p2"), None, &[]);
        let before = |boot: &str| identity(boot).holder("p1");
        let left = |boot: &str, proof| {
            Some(Predecessor { renewals: renewals(&before(boot), Some(("t1", 5)), &["t2"]), proof })
        };
        let same_boot = LeaseHolder::Another(OtherHolder::OnThisMachine);
        let elsewhere = LeaseHolder::Another(OtherHolder::OnAnotherMachine);
        for (boot, mark, revision, proof, want) in [
            ("b1", "t1", 5, Proof::LockOfThisBoot, LeaseHolder::EndedPredecessor),
            ("b1", "t2", 6, Proof::LockOfThisBoot, LeaseHolder::EndedPredecessor),
            // A copy of the running machine went on renewing.
            ("b1", "t9", 9, Proof::LockOfThisBoot, same_boot),
            ("b1", "t1", 6, Proof::LockOfThisBoot, same_boot),
            ("b1", "t1", 5, Proof::None, same_boot),
            // A clone of the disk, or this machine before it started again.
            ("b0", "t1", 5, Proof::LockOfThisBoot, elsewhere),
            ("b0", "t1", 5, Proof::LockBesideTheApi, LeaseHolder::EndedPredecessor),
            ("b0", "t9", 9, Proof::LockBesideTheApi, elsewhere),
        ] {
            let judged = judge(&lease(&before(boot), mark, revision), &us, left(boot, proof));
            assert_eq!(judged, want, "{boot} {mark} {revision} {proof:?}");
        }
        assert_eq!(judge(&lease(&before("b1"), "t1", 5), &us, None), same_boot);
    }

    #[test]
    fn a_clone_is_another_machine_whatever_it_shares_with_this_one() {
        let us = renewals(&identity("b1").holder("p2"), None, &[]);
        let clone = identity("b2").holder("p1");
        let judged = judge(&lease(&clone, "t", 5), &us, None);
        assert_eq!(judged, LeaseHolder::Another(OtherHolder::OnAnotherMachine));
        let kubelet = judge(&lease("n", "", 5), &us, None);
        assert_eq!(kubelet, LeaseHolder::Another(OtherHolder::NotAnAgent));
        let told = |other| LeaseRefusal { node: "n".to_owned(), holder: clone.clone(), other };
        for other in [OtherHolder::CopyOfThisProcess, OtherHolder::OnAnotherMachine] {
            let told = told(other);
            assert!(told.is_another_machine() && told.to_string().starts_with(ANOTHER_MACHINE), "{told}");
        }
        for other in [OtherHolder::OnThisMachine, OtherHolder::NotAnAgent] {
            assert!(!told(other).to_string().contains(ANOTHER_MACHINE));
        }
    }

    #[test]
    fn an_agent_acts_while_it_holds_the_lease_and_for_a_node_that_was_deleted() {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "n"}})).expect("a node");
        assert!(may_act(true, Some(&node), true));
        assert!(!may_act(false, Some(&node), true));
        assert!(!may_act(false, None, false), "it was not there yet");
        assert!(may_act(false, None, true));
    }
}
