//! Volume capabilities: how a workload wants to use a volume.

use std::sync::Arc;

use csi::v1;
use csi::v1::volume_capability::access_mode::Mode;
use csi::v1::volume_capability::{AccessType, MountVolume};

use super::{LARGEST_MAP, Result, missing, optional};
use crate::builder::Definition;
use crate::error::Error;
use crate::slots::MountGroup;
use crate::types::{Access, AccessMode, Capability, MountOptions};

/// What this driver can be asked for, as its slots say.
#[derive(Clone)]
pub(crate) struct Rules {
    mount_group: Option<Arc<dyn MountGroup>>,
    writers: Writers,
}

/// Are the modes that tell one writer on a node from several understood?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writers {
    Tracked,
    Untracked,
}

impl Rules {
    pub(crate) fn of(definition: &Definition) -> Self {
        let node = definition.node.as_ref();
        let tracked = node.is_some_and(|table| table.writer_tracking.is_some());
        Self {
            mount_group: node.and_then(|table| table.mount_group.clone()),
            writers: if tracked { Writers::Tracked } else { Writers::Untracked },
        }
    }

    /// The one capability of a request that must have it.
    pub(crate) fn required(&self, wire: Option<v1::VolumeCapability>) -> Result<Capability> {
        self.one("volume_capability", wire.ok_or_else(|| missing("volume_capability"))?)
    }

    pub(crate) fn optional(&self, wire: Option<v1::VolumeCapability>) -> Result<Option<Capability>> {
        wire.map(|wire| self.one("volume_capability", wire)).transpose()
    }

    /// A list that must not be empty. The volume has to serve all of them.
    pub(crate) fn at_least_one(&self, wire: Vec<v1::VolumeCapability>) -> Result<Vec<Capability>> {
        match wire.is_empty() {
            true => Err(missing("volume_capabilities")),
            false => self.any(wire),
        }
    }

    pub(crate) fn any(&self, wire: Vec<v1::VolumeCapability>) -> Result<Vec<Capability>> {
        wire.into_iter().map(|wire| self.one("volume_capabilities", wire)).collect()
    }

    fn one(&self, field: &'static str, wire: v1::VolumeCapability) -> Result<Capability> {
        let access = match wire.access_type {
            None => return Err(Error::invalid(field, "access type is unset: neither block nor mount")),
            Some(AccessType::Block(_)) => Access::Block,
            Some(AccessType::Mount(mount)) => Access::Mount(self.mount(field, mount)?),
        };
        let mode = wire.access_mode.ok_or_else(|| Error::invalid(field, "access mode is missing"))?.mode;
        Ok(Capability { access, mode: self.mode(field, mode)? })
    }

    fn mode(&self, field: &'static str, number: i32) -> Result<AccessMode> {
        let mode = match Mode::try_from(number) {
            Err(_) => return Err(Error::invalid(field, format!("access mode {number} is unknown"))),
            Ok(Mode::Unknown) => return Err(Error::invalid(field, "access mode is UNKNOWN")),
            Ok(Mode::SingleNodeWriter) => AccessMode::SingleNodeWriter,
            Ok(Mode::SingleNodeReaderOnly) => AccessMode::SingleNodeReaderOnly,
            Ok(Mode::MultiNodeReaderOnly) => AccessMode::MultiNodeReaderOnly,
            Ok(Mode::MultiNodeSingleWriter) => AccessMode::MultiNodeSingleWriter,
            Ok(Mode::MultiNodeMultiWriter) => AccessMode::MultiNodeMultiWriter,
            Ok(Mode::SingleNodeSingleWriter) => AccessMode::SingleNodeSingleWriter,
            Ok(Mode::SingleNodeMultiWriter) => AccessMode::SingleNodeMultiWriter,
        };
        match (mode, self.writers) {
            // A driver that cannot count writers would break the promise that this mode makes.
            (AccessMode::SingleNodeSingleWriter | AccessMode::SingleNodeMultiWriter, Writers::Untracked) => {
                Err(Error::invalid(field, format!("this driver does not support access mode {}", mode.name())))
            }
            _ => Ok(mode),
        }
    }

    fn mount(&self, field: &'static str, wire: MountVolume) -> Result<MountOptions> {
        let fs_type = optional(field, wire.fs_type)?;
        let size: usize = wire.mount_flags.iter().map(String::len).sum();
        if size > LARGEST_MAP {
            return Err(Error::invalid(field, format!("mount_flags hold {size} bytes, more than {LARGEST_MAP}")));
        }
        let group = optional(field, wire.volume_mount_group)?;
        let group = match (group.is_empty(), &self.mount_group) {
            (true, _) => None,
            (false, Some(slot)) => slot.check_group(&group).map(|()| Some(group))?,
            (false, None) => return Err(Error::invalid(field, "this driver does not support volume_mount_group")),
        };
        let fs_type = (!fs_type.is_empty()).then_some(fs_type);
        Ok(MountOptions { fs_type, flags: wire.mount_flags, group })
    }
}

/// A capability as it goes back to the caller in a confirmation.
impl From<Capability> for v1::VolumeCapability {
    fn from(capability: Capability) -> Self {
        let access_type = match capability.access {
            Access::Block => AccessType::Block(v1::volume_capability::BlockVolume {}),
            Access::Mount(MountOptions { fs_type, flags, group }) => AccessType::Mount(MountVolume {
                fs_type: fs_type.unwrap_or_default(),
                mount_flags: flags,
                volume_mount_group: group.unwrap_or_default(),
            }),
        };
        let mode = match capability.mode {
            AccessMode::SingleNodeWriter => Mode::SingleNodeWriter,
            AccessMode::SingleNodeReaderOnly => Mode::SingleNodeReaderOnly,
            AccessMode::MultiNodeReaderOnly => Mode::MultiNodeReaderOnly,
            AccessMode::MultiNodeSingleWriter => Mode::MultiNodeSingleWriter,
            AccessMode::MultiNodeMultiWriter => Mode::MultiNodeMultiWriter,
            AccessMode::SingleNodeSingleWriter => Mode::SingleNodeSingleWriter,
            AccessMode::SingleNodeMultiWriter => Mode::SingleNodeMultiWriter,
        };
        let access_mode = v1::volume_capability::AccessMode { mode: mode.into() };
        Self { access_mode: Some(access_mode), access_type: Some(access_type) }
    }
}
