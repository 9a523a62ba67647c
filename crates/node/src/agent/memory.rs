//! What the agent remembers while it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use api::{Key, Uid};
use lifecycle::node::{Because, Step};
use tokio::time::Instant;

use crate::actual::{Entry, VolumeId};
use crate::desired::Desired;
use crate::layout::Name;

/// What is wanted, what is there, and what went wrong.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) desired: Desired,
    pub(crate) actual: BTreeMap<VolumeId, Entry>,
    /// Operations that failed, and when they are tried again.
    pub(crate) failures: BTreeMap<VolumeId, BTreeMap<Step, Failed>>,
    /// Where pods stand with their volumes, as last decided.
    pub(crate) stands: BTreeMap<(VolumeId, Uid), Because>,
    /// Mounts that do not answer, with the machine's words.
    pub(crate) silent: BTreeMap<(VolumeId, Uid), Box<str>>,
    /// What drivers said of the condition of pods' volumes: nothing bad, or their words. A volume that its driver has not
    /// been asked about in this life of the agent is not in it.
    pub(crate) conditions: BTreeMap<(VolumeId, Uid), Option<Box<str>>>,
    /// Drivers that cannot be asked, and since when; kept only where something follows from it.
    pub(crate) away: BTreeMap<Box<str>, Instant>,
    /// What the node's status lists as in use, as the server stored it.
    pub(crate) reported: BTreeSet<Box<str>>,
    /// Whether every pod was resolved once and the node was read: only then anything may be taken away.
    pub(crate) known: bool,
    /// Metadata that could not be read, and whose volumes may be mounted.
    pub(crate) unread: Vec<Unread>,
}

/// An operation that failed.
#[derive(Debug, Clone)]
pub(crate) struct Failed {
    pub(crate) times: u32,
    pub(crate) until: Instant,
    pub(crate) because: Because,
}

/// A volume of which only its directory is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unread {
    /// Staged by this driver.
    Staged { driver: Name, directory: PathBuf },
    /// A pod's filesystem volume.
    Published { pod: Uid, spec: Name },
    /// A block volume.
    Block { volume: Name },
}

impl Unread {
    /// The PersistentVolume it is of, as far as its path tells.
    pub(crate) fn volume(&self) -> Option<Key> {
        match self {
            Self::Staged { .. } => None,
            Self::Published { spec: name, .. } | Self::Block { volume: name } => Some(Key::cluster(name.as_str())),
        }
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Staged { driver, directory } => {
                write!(f, "what {driver} staged in {}", directory.display())
            }
            Self::Published { pod, spec } => write!(f, "the volume {spec} of the pod with uid {pod}"),
            Self::Block { volume } => write!(f, "the device of the volume {volume}"),
        }
    }
}

impl World {
    /// What the node's status should list as in use (NODE-20).
    pub(crate) fn in_use(&self, attaches: impl Fn(&str) -> bool) -> BTreeSet<Box<str>> {
        use crate::actual::{Attachable, What};
        let wanted = self.desired.volumes().filter(|(_, wish)| match &wish.what {
            What::Csi { driver, .. } => !wish.what.is_inline() && attaches(driver.as_str()),
            What::InTree { .. } | What::LocalDevice { .. } => false,
        });
        let held = self.actual.iter().filter(|(_, entry)| entry.attachable == Attachable::Yes);
        let wanted = wanted.map(|(id, _)| id.as_str().into());
        wanted.chain(held.map(|(id, _)| id.as_str().into())).collect()
    }

    /// Something outside changed: what failed is tried again at once (NODE-31.11).
    pub(crate) fn forgive(&mut self, id: &VolumeId) {
        if let Some(failures) = self.failures.get_mut(id) {
            let now = Instant::now();
            for failed in failures.values_mut() {
                failed.until = failed.until.min(now);
            }
        }
    }

    /// The volumes that a pod has, or may have.
    pub(crate) fn held_by(&self, pod: &Uid) -> Vec<VolumeId> {
        self.actual.iter().filter(|(_, entry)| entry.pods.contains_key(pod)).map(|(id, _)| id.clone()).collect()
    }

    /// Whether a volume is wanted or there.
    pub(crate) fn knows(&self, id: &VolumeId) -> bool {
        self.actual.contains_key(id) || self.desired.wants(id)
    }

    /// Every volume that is wanted or there.
    pub(crate) fn volumes(&self) -> BTreeSet<VolumeId> {
        self.desired.volumes().map(|(id, _)| id.clone()).chain(self.actual.keys().cloned()).collect()
    }
}
