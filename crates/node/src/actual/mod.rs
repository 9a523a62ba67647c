//! What this machine has: the agent's memory of it, rebuilt from disk at every start (NODE-6.1).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use api::{Amount, Uid};
use lifecycle::node::Held;
use lifecycle::node::selinux::Label;
use tokio::time::Instant;

use crate::layout::{Name, Plugin};

/// The unique name of a volume on this machine (NODE-2.2).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeId(Arc<str>);

impl VolumeId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for VolumeId {
    fn from(name: String) -> Self {
        Self(name.into())
    }
}

impl fmt::Debug for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a volume is: enough to take it away again when nobody can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A CSI driver's.
    Csi { driver: Name, handle: Box<str>, shape: Shape },
    /// One that the machine makes by itself, and its name in paths.
    InTree { plugin: Plugin, name: Name },
    /// A device of this machine that pods get as it is, and its PersistentVolume's name.
    LocalDevice { name: Name },
}

/// How a CSI volume reaches its pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// Mounted for the machine, and shown to each pod.
    Filesystem,
    /// A device; its PersistentVolume's name is part of its paths.
    Block { volume: Name },
    /// A pod's own, never attached and never staged.
    Inline,
}

impl What {
    pub fn driver(&self) -> Option<&Name> {
        match self {
            Self::Csi { driver, .. } => Some(driver),
            Self::InTree { .. } | Self::LocalDevice { .. } => None,
        }
    }

    pub fn is_block(&self) -> bool {
        matches!(self, Self::Csi { shape: Shape::Block { .. }, .. } | Self::LocalDevice { .. })
    }

    pub fn is_inline(&self) -> bool {
        matches!(self, Self::Csi { shape: Shape::Inline, .. })
    }

    /// As metrics name it: `kubernetes.io/csi:driver`.
    pub fn plugin_label(&self) -> String {
        match self {
            Self::Csi { driver, .. } => format!("{}:{driver}", Plugin::Csi.name()),
            Self::InTree { plugin, .. } => plugin.name().to_owned(),
            Self::LocalDevice { .. } => Plugin::Local.name().to_owned(),
        }
    }
}

/// Whether a controller has to attach it. Unknown only for what was found on disk, until the node was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attachable {
    Yes,
    No,
    Unknown,
}

/// A volume that is, or may be, on this machine.
#[derive(Debug, Clone)]
pub struct Entry {
    pub what: What,
    pub attachable: Attachable,
    pub device: Held,
    pub pods: BTreeMap<Uid, PodEntry>,
    /// The SELinux context of what is here of it.
    pub context: Option<Label>,
    /// How large its filesystem is known to be.
    pub size: Option<Amount>,
    /// The size that the driver refused to grow to while it is in use; not asked again for it (NODE-18.1).
    pub refused: Option<Amount>,
}

/// What a pod has, or may have.
#[derive(Debug, Clone)]
pub struct PodEntry {
    /// The volume's name in paths: the PersistentVolume's, or the pod's own.
    pub spec: Name,
    pub held: Held,
    pub told: Told,
    /// When the driver wants to be asked again.
    pub republish: Option<Instant>,
}

impl PodEntry {
    /// What an earlier run left.
    pub fn found(spec: &Name, held: Held) -> Self {
        Self { spec: spec.clone(), held, told: Told::Maybe, republish: None }
    }
}

/// Whether a pod may work with what it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// Nobody said to it that the volume is there, and whoever starts it waits for that. If its claim goes before, so does
    /// the volume.
    Never,
    /// It was said, or an earlier run may have said it.
    Maybe,
}

impl Entry {
    pub fn new(what: What, attachable: Attachable) -> Self {
        Self { what, attachable, device: Held::No, pods: BTreeMap::new(), context: None, size: None, refused: None }
    }

    /// Whether nothing of it can be left.
    pub fn is_empty(&self) -> bool {
        self.device.is_none() && self.pods.is_empty()
    }
}
