//! Giving a mounted volume to a group (VOLUME_MOUNT_GROUP).
//!
//! The root tells whether it was done before: a volume that already belongs to the group is not walked through again.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown};
use std::path::Path;

use driver_sdk::Error;

use crate::fault;

/// Group may read, write and enter; new files inherit the group.
const DIRECTORY_BITS: u32 = 0o2770;
const FILE_BITS: u32 = 0o0660;

pub(crate) fn parse(group: &str) -> Result<u32, Error> {
    group.parse().map_err(|_| Error::invalid("volume_mount_group", format!("{group:?} is not a numeric group id")))
}

/// Hands everything in the volume to the group, unless its root says that this is done.
pub(super) fn give(root: &Path, group: &str) -> Result<(), Error> {
    let gid = parse(group)?;
    let meta = fs::symlink_metadata(root).map_err(|error| fault::io(format!("reading {}", root.display()), error))?;
    if meta.gid() == gid && meta.mode() & DIRECTORY_BITS == DIRECTORY_BITS {
        return Ok(());
    }
    walk(root, gid, meta.dev()).map_err(|error| fault::io("giving the volume to its group", error).leaving_residue())
}

/// Children first: the root is marked only when everything below is done, so that an interrupted walk is repeated.
fn walk(path: &Path, gid: u32, device: u64) -> std::io::Result<()> {
    let meta = fs::symlink_metadata(path)?;
    if meta.dev() != device {
        return Ok(());
    }
    if meta.is_dir() {
        for entry in fs::read_dir(path)? {
            walk(&entry?.path(), gid, device)?;
        }
    }
    lchown(path, None, Some(gid))?;
    let bits = if meta.is_dir() { DIRECTORY_BITS } else { FILE_BITS };
    if meta.is_dir() || meta.is_file() {
        fs::set_permissions(path, fs::Permissions::from_mode(meta.mode() & 0o7777 | bits))?;
    }
    Ok(())
}
