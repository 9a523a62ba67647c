//! Where a stack keeps its things, and what this machine lets it do.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use linux::mountinfo::MountTable;
use linux::mounts;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::process;

/// Where things are.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Holds everything: objects, keys, volumes, the socket.
    pub(crate) data: PathBuf,
    pub(crate) listen: SocketAddr,
}

impl Place {
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.data.join("kubeconfig")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.data.join("csi.sock")
    }

    pub(crate) fn pool(&self) -> PathBuf {
        self.data.join("pool")
    }

    /// The agent's directory: what a kubelet has in /var/lib/kubelet.
    pub(crate) fn root(&self) -> PathBuf {
        self.data.join("node")
    }

    /// Keeps a second stack out of the same directory for as long as the file is open.
    pub(super) fn hold(&self) -> anyhow::Result<File> {
        // The directory itself is locked by whoever makes a socket in it.
        let path = self.data.join("up.lock");
        let file = File::options().create(true).truncate(false).read(true).write(true).mode(0o600).open(&path);
        let mut file = file.with_context(|| format!("opening {}", path.display()))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                // Whoever holds it may not have written its number yet.
                let _ = file.read_to_string(&mut holder);
                let holder =
                    holder.trim().parse::<u32>().map_or_else(|_| String::new(), |pid| format!(", process {pid}"));
                bail!(
                    "{} is in use by another `orlop up`{holder}; stop that one, or give another --data",
                    self.data.display()
                )
            }
            Err(error) => return Err(error).with_context(|| format!("locking {}", path.display())),
        }
        file.set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .with_context(|| format!("writing {}", path.display()))?;
        Ok(file)
    }
}

/// Takes away the mount that the agent's directory is, unless volumes are mounted below it: those stay for the next run.
pub(crate) fn release(place: &Place) -> anyhow::Result<()> {
    release_root(&place.root())
}

/// The same for an agent's directory elsewhere.
pub(crate) fn release_root(root: &Path) -> anyhow::Result<()> {
    let Ok(root) = root.canonicalize() else { return Ok(()) };
    let table = MountTable::read().context("reading the mount table")?;
    match table.below(&root).next() {
        Some(_) => Ok(()),
        None => mounts::unmount_all(&root).map(drop).with_context(|| format!("unmounting {}", root.display())),
    }
}

/// Whether this process may mount; an agent that may not is of no use.
pub(crate) fn may_mount() -> bool {
    mounts::Rights::ask() > mounts::Rights::Nothing
}

/// What this machine's Node is called.
pub(crate) fn node_name() -> String {
    process::identity().to_lowercase()
}
