//! Giving a mounted volume to a group (VOLUME_MOUNT_GROUP).
//!
//! The root tells whether it was done before: a volume that already belongs to the group is not walked through again.
//! Whoever uses the volume meanwhile may be hostile; [`own_tree`] follows no link and goes as deep as the tree does.

use std::path::Path;

use driver_sdk::Error;

use crate::fault;
use linux::tree::{GroupBits, Walk, is_owned, own_tree};

pub(crate) fn parse(group: &str) -> Result<u32, Error> {
    group.parse().map_err(|_| Error::invalid("volume_mount_group", format!("{group:?} is not a numeric group id")))
}

/// Hands everything in the volume to the group, unless its root says that this is done.
pub(super) fn give(root: &Path, group: &str) -> Result<(), Error> {
    let gid = parse(group)?;
    let done = || is_owned(root, gid, GroupBits::ReadWrite).map_err(|error| fault::sys(error).leaving_residue());
    if done()? {
        return Ok(());
    }
    own_tree(root, gid, GroupBits::ReadWrite, &mut |_| Walk::GoOn)
        .map_err(|error| Error::backend("giving the volume to its group", error).leaving_residue())?;
    // A file that cannot change hands (an immutable one) stops nothing; the root is what everybody enters through.
    if done()? {
        return Ok(());
    }
    Err(Error::precondition(format!("{} could not be given to group {gid}", root.display())).leaving_residue())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use rustix::fs::{Mode, OFlags};

    use super::*;

    #[test]
    fn a_tree_deeper_than_a_path_can_name_is_given_and_links_are_not_followed() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: giving files away needs root");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("volume");
        std::fs::create_dir(&root).unwrap();
        let outside = place.path().join("outside");
        std::fs::write(&outside, "").unwrap();
        std::os::unix::fs::symlink(&outside, root.join("link")).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut dir = rustix::fs::open(&root, flags, Mode::empty()).unwrap();
        for _ in 0..2500 {
            rustix::fs::mkdirat(&dir, "d", Mode::RWXU).unwrap();
            dir = rustix::fs::openat(&dir, "d", flags, Mode::empty()).unwrap();
        }
        give(&root, "4711").unwrap();
        assert_eq!(rustix::fs::fstat(&dir).unwrap().st_gid, 4711, "the innermost directory");
        assert_eq!(std::fs::metadata(&root).unwrap().mode() & 0o2770, 0o2770);
        assert_ne!(std::fs::metadata(&outside).unwrap().gid(), 4711);
        give(&root, "4711").unwrap();
        linux::tree::remove_tree(&root).unwrap();
    }
}
