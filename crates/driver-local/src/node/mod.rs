//! The node's half: staging, publishing, and all the way back.
//!
//! What is mounted where is asked of the kernel every time. Notes on disk only add what the kernel cannot know: with
//! which capability something was staged, in which mode it was published.

mod expand;
mod filesystem;
mod flush;
mod group;
mod health;
mod inline;
mod publish;
mod seen;
mod stage;
mod stats;

pub(crate) use flush::{Flush, SyncedSource, Unwritten, open_to_freeze};
pub(crate) use group::parse as parse_group;
pub(crate) use seen::{all_mounts, mounts_of_loop, shown_directories, still_held};

use std::path::{Path, PathBuf};

use driver_sdk::{Access, Capability, Error};
use sha2::{Digest as _, Sha256};

use crate::core::{Core, Found};
use crate::fault;
use crate::record::{AccessKind, Attachment, VolumeRecord};

impl Core {
    /// How the volume is attached to this node. Without attaching, every volume is.
    fn attachment(&self, found: &Found<'_>, record: &VolumeRecord) -> Result<Option<Attachment>, Error> {
        if !self.attach_required() || record.inline.is_some() {
            return Ok(None);
        }
        let mut attachments = found.object.attachments().map_err(fault::record)?;
        match attachments.nodes.remove(&self.config.node_id) {
            Some(attachment) => Ok(Some(attachment)),
            None => Err(Error::precondition(format!(
                "volume {} is not attached to node {}; attach it first (ControllerPublishVolume)",
                record.id, self.config.node_id
            ))),
        }
    }
}

/// Can the volume be used in the way that is asked for?
fn check_use(capability: &Capability, record: &VolumeRecord) -> Result<(), Error> {
    let (asked, fs) = match &capability.access {
        Access::Block => (AccessKind::Block, None),
        Access::Mount(options) => (AccessKind::Mount, options.fs_type.as_deref()),
    };
    if asked != record.access {
        let (is, not) = match record.access {
            AccessKind::Block => ("block", "mounted"),
            AccessKind::Mount => ("mount", "used as a block device"),
        };
        return Err(Error::precondition(format!("volume {} is a {is} volume and cannot be {not}", record.id)));
    }
    match (fs, record.format.fs()) {
        (Some(asked), Some(has)) if asked != has.to_string() => {
            Err(Error::precondition(format!("volume {} is {has}, and {asked} is asked for", record.id)))
        }
        _ => Ok(()),
    }
}

/// Two requests with the same capability have the same hash. Mount flags may be secret, so they are kept only so.
fn capability_hash(capability: &Capability) -> String {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    };
    add(capability.mode.name());
    match &capability.access {
        Access::Block => add("block"),
        Access::Mount(options) => {
            add("mount");
            add(options.fs_type.as_deref().unwrap_or_default());
            add(options.group.as_deref().unwrap_or_default());
            options.flags.iter().for_each(|flag| add(flag));
        }
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The path as the mount table has it: everything but the last step resolved, the last step not followed (LOCAL-R16).
fn settled(path: &Path) -> Result<PathBuf, Error> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::invalid("target_path", format!("{} has no last step", path.display())));
    };
    match parent.canonicalize() {
        Ok(parent) => Ok(parent.join(name)),
        Err(error) => {
            Err(Error::precondition(format!("the directory {} cannot be used", parent.display())).because(error))
        }
    }
}
