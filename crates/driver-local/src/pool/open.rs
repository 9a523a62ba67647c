//! Opening a pool: is this directory one, may we have it, and what can it do?

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::{FlockOperation, Mode, OFlags};

use super::draft::ensure_private_dir;
use super::ledger::Ledger;
use super::{Copying, Features, Place, Pool};
use crate::config::{Config, MissingPool, PoolConfig, Role};
use crate::record::{self, PoolRecord, ReadError};
use linux::{SysError, durable, image, loopdev, tree};

const IDENTITY: &str = "pool.json";
/// A fresh filesystem has this folder in its root; a directory with nothing else is still empty.
const LOST_AND_FOUND: &str = "lost+found";

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("pool {path} does not exist; make the directory, mount its disk, or allow pools to be made")]
    Absent { path: PathBuf },
    #[error("pool {path} is not a directory; name one, which is made if it does not exist")]
    NotADirectory { path: PathBuf },
    #[error(
        "{path} is not empty and holds no {IDENTITY}: it is not a pool, and a pool is only made in an empty directory"
    )]
    NotAPool { path: PathBuf },
    #[error(
        "{path} is empty and is not a pool yet; is its disk mounted? Start once without --no-init to make a pool here"
    )]
    NotMadeYet { path: PathBuf },
    #[error("pool {path} belongs to the driver {owner:?}, not to {ours:?}")]
    OtherDriver { path: PathBuf, owner: String, ours: String },
    #[error("pool {path} is read-only; remount it read-write or choose another directory")]
    ReadOnly { path: PathBuf },
    #[error("pool {path} is in use by the driver process {holder}; one process per role may hold a pool")]
    InUse { path: PathBuf, holder: String },
    #[error("the identity of pool {path} cannot be read")]
    Identity {
        path: PathBuf,
        #[source]
        source: ReadError,
    },
    #[error("pool {path}")]
    Sys {
        path: PathBuf,
        #[source]
        source: SysError,
    },
    #[error("pool {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl Pool {
    /// Opens a pool, or makes one in an empty directory where that is allowed.
    pub fn open(pool: &PoolConfig, config: &Config) -> Result<Self, OpenError> {
        let root = settle_root(&pool.path, config.missing_pool)?;
        let identity = identify(&root, config)?;
        check_writable(&root)?;
        let instance = take_instance_locks(&root, config.role)?;
        for folder in Place::ALL.map(Place::folder).into_iter().chain([".tmp", ".trash"]) {
            ensure_private_dir(&root.join(folder)).map_err(io_at(&root))?;
        }
        let features = probe(&root)?;
        Ok(Self {
            name: pool.name.clone(),
            uuid: identity.uuid,
            features,
            overcommit: config.overcommit,
            reserve: config.reserve,
            sole_writer: config.role == Role::All,
            ledger: Mutex::new(Ledger::default()),
            _instance: instance,
            root,
        })
    }
}

fn io_at(path: &Path) -> impl Fn(io::Error) -> OpenError + '_ {
    move |source| match rustix::io::Errno::from_io_error(&source) {
        Some(rustix::io::Errno::ROFS) => OpenError::ReadOnly { path: path.to_owned() },
        _ => OpenError::Io { path: path.to_owned(), source },
    }
}

fn sys_at(path: &Path) -> impl Fn(SysError) -> OpenError + '_ {
    move |source| {
        if source.is(rustix::io::Errno::ROFS) {
            OpenError::ReadOnly { path: path.to_owned() }
        } else {
            OpenError::Sys { path: path.to_owned(), source }
        }
    }
}

/// The directory as one absolute path without links, so that it can be found in the mount table.
fn settle_root(path: &Path, missing: MissingPool) -> Result<PathBuf, OpenError> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => {}
        Ok(_) => return Err(OpenError::NotADirectory { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match missing {
            MissingPool::Refuse => return Err(OpenError::Absent { path: path.to_owned() }),
            MissingPool::Create => {
                use std::os::unix::fs::DirBuilderExt as _;
                fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io_at(path))?;
            }
        },
        Err(error) => return Err(io_at(path)(error)),
    }
    fs::canonicalize(path).map_err(io_at(path))
}

fn identify(root: &Path, config: &Config) -> Result<PoolRecord, OpenError> {
    match record::read::<PoolRecord>(&root.join(IDENTITY)) {
        Ok(found) if found.driver == config.driver_name => Ok(found),
        Ok(found) => {
            Err(OpenError::OtherDriver { path: root.to_owned(), owner: found.driver, ours: config.driver_name.clone() })
        }
        Err(ReadError::Missing(_)) => found_pool(root, config),
        Err(source) => Err(OpenError::Identity { path: root.to_owned(), source }),
    }
}

/// Makes a pool in an empty directory.
fn found_pool(root: &Path, config: &Config) -> Result<PoolRecord, OpenError> {
    for entry in fs::read_dir(root).map_err(io_at(root))? {
        if entry.map_err(io_at(root))?.file_name() != LOST_AND_FOUND {
            return Err(OpenError::NotAPool { path: root.to_owned() });
        }
    }
    if config.missing_pool == MissingPool::Refuse {
        return Err(OpenError::NotMadeYet { path: root.to_owned() });
    }
    let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid").map_err(io_at(root))?.trim().to_owned();
    let identity = PoolRecord { uuid, driver: config.driver_name.clone() };
    let bytes = record::seal(&identity).map_err(io_at(root))?;
    durable::write_file_atomic(root, IDENTITY.as_ref(), &bytes, 0o600).map_err(sys_at(root))?;
    tracing::info!(pool = %root.display(), uuid = %identity.uuid, "made a new pool");
    Ok(identity)
}

/// A full pool is still a pool, a read-only one is not.
fn check_writable(root: &Path) -> Result<(), OpenError> {
    match rustix::fs::access(root, rustix::fs::Access::WRITE_OK) {
        Ok(()) => Ok(()),
        Err(error) => Err(io_at(root)(error.into())),
    }
}

fn take_instance_locks(root: &Path, role: Role) -> Result<Vec<OwnedFd>, OpenError> {
    let names: &[&str] = match role {
        Role::All => &[".lock.controller", ".lock.node"],
        Role::Controller => &[".lock.controller"],
        Role::Node => &[".lock.node"],
    };
    names.iter().map(|name| take_instance_lock(root, name)).collect()
}

fn take_instance_lock(root: &Path, name: &str) -> Result<OwnedFd, OpenError> {
    let path = root.join(name);
    // Held for reading, or the pool could not be remounted read-only while a driver runs.
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let fd = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600)).map_err(|error| io_at(root)(error.into()))?;
    if rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive).is_err() {
        let holder = fs::read_to_string(&path).unwrap_or_default().trim().to_owned();
        let holder = if holder.is_empty() { "(unknown)".to_owned() } else { holder };
        return Err(OpenError::InUse { path: root.to_owned(), holder });
    }
    // The process id helps whoever meets the lock; on a full disk the lock holds without it.
    if let Err(error) = fs::write(&path, std::process::id().to_string()) {
        tracing::warn!(path = %path.display(), error = %error, "could not note the process id in the lock file");
    }
    Ok(fd)
}

fn probe(root: &Path) -> Result<Features, OpenError> {
    let reflink = image::supports_reflink(&root.join(".tmp")).map_err(sys_at(root))?;
    let features = Features {
        copying: if reflink { Copying::Reflink } else { Copying::Full },
        subvolumes: tree::is_btrfs(root).map_err(sys_at(root))?,
        loop_devices: loopdev::available(),
    };
    tracing::info!(pool = %root.display(), ?features, "opened the pool");
    Ok(features)
}
