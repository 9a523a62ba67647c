//! A volume on the disk of a machine that was taken out of the cluster: only that machine could delete it.

use std::fmt;
use std::time::Duration;

use api::keys::finalizer;
use api::selector::Operator;
use api::{Node, ReclaimPolicy, Source, Volume, VolumePhase};

use crate::attacher::finalizer_of;
use crate::decision::{Decision, Lookup, Notice, Reason, Standing};

/// The driver that runs on every machine, each for the volumes of its own disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineDriver {
    pub name: String,
    /// The label that names the machine in the node affinity of a volume.
    pub topology_key: String,
    /// The machine beside the API, whose provisioner runs whatever becomes of its Node object.
    pub server: String,
}

impl MachineDriver {
    /// The one machine that has the volume, if it is another one than the server's.
    pub fn machine_of<'a>(&self, volume: &'a Volume) -> Option<&'a str> {
        let Source::Csi { driver, .. } = &volume.source else { return None };
        if *driver != *self.name {
            return None;
        }
        let terms = &volume.affinity.as_ref()?.node_selector_terms;
        let mut machines = terms.iter().map(|term| {
            let named = term.match_expressions.iter().find(|demand| demand.key == *self.topology_key)?;
            match (named.operator, &*named.values) {
                (Operator::In, [machine]) => Some(machine.as_str()),
                _ => None,
            }
        });
        let first = machines.next()??;
        (first != self.server && machines.all(|other| other == Some(first))).then_some(first)
    }
}

/// A volume of a machine.
#[derive(Debug, Clone, Copy)]
pub struct VolumeHealth<'a> {
    pub volume: &'a Volume,
    pub machine: &'a str,
    /// The Node of the machine.
    pub node: Lookup<'a, Node>,
    /// For how long the watcher has known that the Node does not exist.
    pub gone_for: Duration,
    pub quarantine: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeLifecycleAction {
    /// Ask the server for the Node, then decide again.
    ReadNode,
    /// Delete the PersistentVolume, and then take off the finalizers that its provisioner and its attacher put on it. The
    /// driver is not asked.
    Forget,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeLifecycleReason {
    /// A claim has it, or its policy keeps it.
    Kept,
    /// Its machine deletes it.
    MachineDeletes,
    NodeUnread,
    /// Its machine was taken out; it may be back within this time.
    MachineMissing {
        left: Duration,
    },
    MachineGone {
        machine: Box<str>,
    },
}

pub type VolumeDecision = Decision<VolumeLifecycleAction, VolumeLifecycleReason>;

/// Says what to do about a volume of another machine.
pub fn decide(health: &VolumeHealth<'_>) -> VolumeDecision {
    use VolumeLifecycleReason as Why;
    if !awaits_deletion(health.volume) {
        return Decision::rest(Why::Kept);
    }
    match health.node {
        Lookup::Found(_) => Decision::rest(Why::MachineDeletes),
        Lookup::NotCached => Decision::act(Why::NodeUnread, VolumeLifecycleAction::ReadNode),
        Lookup::Absent if health.gone_for < health.quarantine => {
            Decision::rest(Why::MachineMissing { left: health.quarantine - health.gone_for })
        }
        Lookup::Absent => {
            Decision::act(Why::MachineGone { machine: health.machine.into() }, VolumeLifecycleAction::Forget)
        }
    }
}

/// Whether only the programs on its machine can end the volume now: its claim is gone and its data is to be deleted, or its
/// object is being deleted and has their finalizers.
pub fn awaits_deletion(volume: &Volume) -> bool {
    let released = matches!(volume.phase, VolumePhase::Released | VolumePhase::Failed);
    match volume.meta.is_deleting() {
        false => released && volume.reclaim == ReclaimPolicy::Delete,
        // A person may delete a volume that its policy keeps.
        true => volume.phase != VolumePhase::Bound && machine_finalizers(volume).next().is_some(),
    }
}

/// The finalizers that only the programs on the volume's machine take off: its provisioner's and its attacher's.
pub fn machine_finalizers(volume: &Volume) -> impl Iterator<Item = &str> {
    let attacher = match &volume.source {
        Source::Csi { driver, .. } => Some(finalizer_of(driver)),
        _ => None,
    };
    let held = volume.meta.finalizers.iter().map(|held| held.as_str());
    held.filter(move |held| *held == finalizer::EXTERNAL_PROVISIONER.text() || attacher.as_deref() == Some(*held))
}

impl fmt::Display for VolumeLifecycleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept => f.write_str("a claim has the volume, or its policy keeps it"),
            Self::MachineDeletes => f.write_str("the machine of the volume deletes it"),
            Self::NodeUnread => f.write_str("the server is asked for the machine's Node"),
            Self::MachineMissing { left } => {
                write!(f, "the machine of the volume has no Node; it is waited for {} s more", left.as_secs())
            }
            Self::MachineGone { machine } => write!(
                f,
                "its claim is deleted and its machine {machine:?} was taken out of the cluster, so that nothing can delete \
                 its data; should that disk come back, `orlop orphans` shows the volume there"
            ),
        }
    }
}

impl Reason for VolumeLifecycleReason {
    fn code(&self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::MachineDeletes => "machine_deletes",
            Self::NodeUnread => "node_unread",
            Self::MachineMissing { .. } => "machine_missing",
            Self::MachineGone { .. } => "machine_gone",
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Self::Kept => Standing::Settled,
            Self::MachineDeletes | Self::MachineMissing { .. } => Standing::Waiting,
            Self::NodeUnread | Self::MachineGone { .. } => Standing::Moving,
        }
    }

    fn notice(&self) -> Option<Notice> {
        match self {
            Self::MachineGone { .. } => {
                Some(Notice::warning("VolumeForgotten", format!("Removing the PersistentVolume: {self}")))
            }
            Self::Kept | Self::MachineDeletes | Self::NodeUnread | Self::MachineMissing { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const KEY: &str = "topology.d/node";

    fn driver() -> MachineDriver {
        MachineDriver { name: "d".to_owned(), topology_key: KEY.to_owned(), server: "server".to_owned() }
    }

    fn volume(change: impl FnOnce(&mut Value)) -> Volume {
        let term = json!({"matchExpressions": [{"key": KEY, "operator": "In", "values": ["m"]}]});
        let mut volume = json!({"metadata": {"name": "v"}, "status": {"phase": "Released"}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Delete",
            "csi": {"driver": "d", "volumeHandle": "h"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}});
        change(&mut volume);
        serde_json::from_value(volume).expect("a volume")
    }

    #[test]
    fn a_volume_belongs_to_the_one_machine_that_its_affinity_names() {
        let term =
            |key: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": "In", "values": values}]});
        for (case, terms, machine) in [
            ("its machine", json!([term(KEY, json!(["m"]))]), Some("m")),
            ("twice the same", json!([term(KEY, json!(["m"])), term(KEY, json!(["m"]))]), Some("m")),
            ("the server's own", json!([term(KEY, json!(["server"]))]), None),
            ("two machines", json!([term(KEY, json!(["m", "o"]))]), None),
            ("one or another", json!([term(KEY, json!(["m"])), term(KEY, json!(["o"]))]), None),
            ("one or anything", json!([term(KEY, json!(["m"])), term("zone", json!(["z"]))]), None),
            ("another label", json!([term("zone", json!(["m"]))]), None),
            ("nothing", json!([]), None),
        ] {
            let volume = volume(|volume| volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"] = terms);
            assert_eq!(driver().machine_of(&volume), machine, "{case}");
        }
        let theirs = volume(|volume| volume["spec"]["csi"]["driver"] = json!("other"));
        assert_eq!(driver().machine_of(&theirs), None);
    }

    #[test]
    fn a_volume_is_forgotten_only_when_its_claim_and_its_machine_are_gone() {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "m"}})).expect("a node");
        let going = |finalizers: &[&str]| {
            volume(|volume| {
                volume["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
                volume["metadata"]["finalizers"] = json!(finalizers);
            })
        };
        let forget = Some(VolumeLifecycleAction::Forget);
        for (case, volume, node, waited, want) in [
            ("released", volume(|_| ()), Lookup::Absent, 40, forget),
            ("failed", volume(|volume| volume["status"]["phase"] = json!("Failed")), Lookup::Absent, 40, forget),
            ("too early", volume(|_| ()), Lookup::Absent, 39, None),
            ("nobody asked", volume(|_| ()), Lookup::NotCached, 99, Some(VolumeLifecycleAction::ReadNode)),
            ("the machine is there", volume(|_| ()), Lookup::Found(&node), 99, None),
            ("a claim has it", volume(|volume| volume["status"]["phase"] = json!("Bound")), Lookup::Absent, 99, None),
            (
                "it is kept",
                volume(|volume| volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain")),
                Lookup::Absent,
                99,
                None,
            ),
            ("half done", going(&[finalizer::EXTERNAL_PROVISIONER.text()]), Lookup::Absent, 99, forget),
            ("its attacher is gone, too", going(&[&finalizer_of("d")]), Lookup::Absent, 99, forget),
            ("others hold it", going(&["x/y", &finalizer_of("other")]), Lookup::Absent, 99, None),
        ] {
            let decided = decide(&VolumeHealth {
                volume: &volume,
                machine: "m",
                node,
                gone_for: Duration::from_secs(waited),
                quarantine: Duration::from_secs(40),
            });
            assert_eq!(decided.actions, Vec::from_iter(want), "{case}");
        }
    }
}
