//! Directories that things are made in.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};

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
    let why = || format!("{flag} {} cannot be made; name a directory that can be written", path.display());
    std::fs::create_dir_all(path).with_context(why)
}

/// A file can only be made in a directory that is there.
pub(crate) fn require_parent(flag: &str, file: &Path) -> anyhow::Result<()> {
    match file.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) if !parent.is_dir() => {
            bail!("{flag} {}: there is no directory {}; make it first", file.display(), parent.display())
        }
        _ => Ok(()),
    }
}
