//! Why a node cannot have a pod, in upstream's words, and the sentence that counts them.

use std::collections::BTreeMap;
use std::fmt;

/// Why one node cannot have a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    Unschedulable,
    Taint {
        key: Box<str>,
        value: Box<str>,
    },
    /// The pod's own selector or affinity.
    Placement,
    /// Another pod has a claim that only one pod may have.
    ClaimInUse,
    TooManyVolumes,
    DriverMissing {
        driver: Box<str>,
    },
    /// A claim is bound to a volume that nobody knows.
    VolumeGone,
    /// A volume cannot be reached from this node.
    VolumeElsewhere,
    NothingToBind,
    NoRoom,
    Zone,
}

impl Refusal {
    /// A short name in snake case.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unschedulable => "unschedulable",
            Self::Taint { .. } => "taint",
            Self::Placement => "placement",
            Self::ClaimInUse => "claim_in_use",
            Self::TooManyVolumes => "too_many_volumes",
            Self::DriverMissing { .. } => "driver_missing",
            Self::VolumeGone => "volume_gone",
            Self::VolumeElsewhere => "volume_elsewhere",
            Self::NothingToBind => "nothing_to_bind",
            Self::NoRoom => "no_room",
            Self::Zone => "zone",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unschedulable => write!(f, "node(s) were unschedulable"),
            Self::Taint { key, value } => write!(f, "node(s) had untolerated taint {{{key}: {value}}}"),
            Self::Placement => write!(f, "node(s) didn't match Pod's node affinity/selector"),
            Self::ClaimInUse => write!(
                f,
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
            ),
            Self::TooManyVolumes => write!(f, "node(s) exceed max volume count"),
            Self::DriverMissing { driver } => write!(f, "{driver} CSI driver is not installed on the node"),
            Self::VolumeGone => {
                write!(f, "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
            }
            Self::VolumeElsewhere => write!(f, "node(s) didn't match PersistentVolume's node affinity"),
            Self::NothingToBind => write!(f, "node(s) didn't find available persistent volumes to bind"),
            Self::NoRoom => write!(f, "node(s) did not have enough free storage"),
            Self::Zone => write!(f, "node(s) had no available volume zone"),
        }
    }
}

/// How many nodes there are, and how often each reason was given. A node can give several.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    pub nodes: usize,
    pub refusals: BTreeMap<Refusal, usize>,
}

impl Tally {
    pub fn add(&mut self, refusals: Vec<Refusal>) {
        self.nodes += 1;
        for refusal in refusals {
            *self.refusals.entry(refusal).or_default() += 1;
        }
    }

    pub fn has(&self, refusal: &Refusal) -> bool {
        self.refusals.contains_key(refusal)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nodes == 0 {
            return write!(f, "no nodes available to schedule pods");
        }
        let mut parts: Vec<String> = self.refusals.iter().map(|(why, count)| format!("{count} {why}")).collect();
        parts.sort();
        write!(f, "0/{} nodes are available: {}.", self.nodes, parts.join(", "))
    }
}
