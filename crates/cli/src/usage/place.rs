//! Directories that things are made in.

use std::fs::DirBuilder;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use rustix::fs::{Access, access};
use rustix::io::Errno;

/// The kernel's limit for the path of a unix socket.
const SOCKET_PATH: usize = 107;
/// The socket that lies deepest below a data directory: with a node agent, without one.
const DEEPEST: [&str; 2] = ["node/plugins_registry/local.csi.orlop.dev-reg.sock", "csi.sock"];

/// A data directory holds sockets, and the kernel takes only so many bytes for the path of one.
pub(crate) fn require_room_for_sockets(data: &Path) -> anyhow::Result<()> {
    let full = std::path::absolute(data).with_context(|| format!("--data {}", data.display()))?;
    let [with_agent, without] = DEEPEST;
    let deepest = if crate::stack::may_mount() { with_agent } else { without };
    let (length, most) = (full.as_os_str().as_bytes().len(), SOCKET_PATH - 1 - deepest.len());
    if length > most {
        bail!(
            "--data {} is too long: it holds sockets, whose paths the kernel limits; its full path has {length} bytes and may \
             have {most}. Choose a shorter one, such as /var/lib/orlop",
            data.display()
        );
    }
    Ok(())
}

/// Makes a directory that a flag names, and those above it.
pub(crate) fn make_directory(flag: &str, path: &Path) -> anyhow::Result<()> {
    if path.exists() && !path.is_dir() {
        bail!("{flag} {} is a file; name a directory, which is made if it does not exist", path.display());
    }
    std::fs::create_dir_all(path).with_context(|| unmakeable(flag, path))
}

fn unmakeable(flag: &str, path: &Path) -> String {
    format!("{flag} {} cannot be made; name a directory that can be written", path.display())
}

/// Makes the directory of everything that a stack has, and those above it. What is made here is its owner's alone: keys,
/// objects and volumes are in it, and nobody needs a way through it. The agent's own directory below is closed to others as
/// a kubelet's is: pods and `orlop mount` get their volumes by mounts, not by this path. What exists keeps its mode.
pub(crate) fn make_private_directory(flag: &str, path: &Path) -> anyhow::Result<()> {
    if !path.exists() {
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            make_directory(flag, parent)?;
        }
        return DirBuilder::new().mode(0o700).create(path).with_context(|| unmakeable(flag, path));
    }
    make_directory(flag, path)?;
    let owner = std::fs::metadata(path).with_context(|| format!("{flag} {}", path.display()))?.uid();
    let me = rustix::process::geteuid();
    match access(path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) if owner == me.as_raw() => Ok(()),
        Ok(()) => {
            let directory = path.display();
            tracing::warn!(%directory, owner, "the directory is somebody else's, who can replace what is in it");
            Ok(())
        }
        Err(Errno::ACCESS) => bail!(
            "{flag} {} belongs to user {owner} and is closed to user {}: run this as that user, or name another directory",
            path.display(),
            me.as_raw()
        ),
        Err(error) => Err(error)
            .with_context(|| format!("{flag} {} cannot be written; name a directory that can", path.display())),
    }
}

/// A file can only be made in a directory that is there.
pub(crate) fn require_parent(flag: &str, file: &Path) -> anyhow::Result<()> {
    if file.is_dir() {
        bail!("{flag} {} is a directory; name a file", file.display());
    }
    match file.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) if !parent.is_dir() => {
            bail!("{flag} {}: there is no directory {}; make it first", file.display(), parent.display())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_directory_that_is_made_is_its_owners_alone_and_one_that_exists_keeps_its_mode() {
        let place = tempfile::tempdir().unwrap();
        let data = place.path().join("srv/data");
        make_private_directory("--data", &data).unwrap();
        assert_eq!(mode(&data), 0o700);
        assert_ne!(mode(data.parent().unwrap()), 0o700, "those above it are as a shell would make them");
        std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o750)).unwrap();
        make_private_directory("--data", &data).unwrap();
        assert_eq!(mode(&data), 0o750);
    }
}
