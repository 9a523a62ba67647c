//! Opening a pool: is this directory one, may we have it, and what can it do?

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use driver_sdk::Error;
use rustix::fs::{FlockOperation, Mode, OFlags};

use super::draft::ensure_private_dir;
use super::ledger::Ledger;
use super::registry::{self, Memory};
use super::{Copying, Features, Place, Pool, Tenancy, ballast};
use crate::config::{Config, MissingPool, PoolConfig, Role};
use crate::record::{self, PoolRecord, Provisioning, ReadError};
use linux::mountinfo::MountTable;
use linux::{SysError, durable, image, loopdev, tree};

const IDENTITY: &str = "pool.json";
/// A fresh filesystem has this folder in its root; a directory with nothing else is still empty.
const LOST_AND_FOUND: &str = "lost+found";

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The pool is remembered and is not there. Nothing was made in its place.
    #[error(transparent)]
    Missing(#[from] MissingPoolError),
    #[error("the state directory {dir} cannot remember the pool {path}; name another one with --state-dir")]
    State {
        dir: PathBuf,
        path: PathBuf,
        #[source]
        source: SysError,
    },
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

/// A pool that is remembered and that its directory does not hold now.
#[derive(Debug, thiserror::Error)]
#[error("pool missing: {name:?} is not at {path}: {why}; mount its disk{forget}")]
pub struct MissingPoolError {
    name: String,
    path: PathBuf,
    why: String,
    /// How a pool that is gone for good is forgotten, where pools are remembered.
    forget: String,
}

impl From<MissingPoolError> for Error {
    fn from(error: MissingPoolError) -> Self {
        Error::unavailable(error.to_string())
    }
}

impl Pool {
    /// Opens a pool, or makes one in an empty directory where that is allowed and no pool was before.
    pub fn open(pool: &PoolConfig, config: &Config) -> Result<Self, OpenError> {
        let memory = config.state_dir.as_deref().map_or(Memory::Nothing, |state| registry::recall(state, &pool.path));
        let (root, identity) = match &memory {
            Memory::Nothing => {
                let root = settle_root(&pool.path, config.missing_pool)?;
                let identity = identify(&root, config)?;
                (root, identity)
            }
            Memory::Pool(known) => confirm(pool, config.state_dir.as_deref(), Some(&known.uuid))?,
            Memory::Unreadable(error) => {
                tracing::warn!(pool = %pool.name, error = %error, "the memory of a pool cannot be read");
                confirm(pool, config.state_dir.as_deref(), None)?
            }
        };
        refuse_other_driver(&root, &identity, config)?;
        if let (Some(state), Memory::Nothing | Memory::Unreadable(_)) = (&config.state_dir, &memory) {
            let remembered = registry::remember(state, &pool.path, &identity);
            remembered.map_err(|source| OpenError::State { dir: state.clone(), path: root.clone(), source })?;
        }
        check_writable(&root)?;
        ballast::release_if_full(&root).map_err(sys_at(&root))?;
        let instance = take_instance_locks(&root, config.role)?;
        for folder in Place::ALL.map(Place::folder).into_iter().chain([".tmp", ".trash"]) {
            ensure_private_dir(&root.join(folder)).map_err(io_at(&root))?;
        }
        let features = probe(&root)?;
        Ok(Self {
            name: pool.name.clone(),
            entry: pool.clone(),
            state_dir: config.state_dir.clone(),
            uuid: identity.uuid,
            overcommit: config.overcommit,
            provisioning: default_provisioning(&features, config),
            stuck_trash: Mutex::default(),
            level: Mutex::default(),
            reserve: config.reserve,
            sole_writer: config.role == Role::All,
            ledger: Mutex::new(Ledger::default()),
            features,
            _instance: instance,
            root,
        })
    }

    /// Is the pool still where it was opened? Its disk may have been unmounted, or may have died, since.
    pub fn confirm(&self) -> Result<(), MissingPoolError> {
        confirm(&self.entry, self.state_dir.as_deref(), Some(&self.uuid)).map(drop)
    }
}

/// Finds a known pool in its directory, by its id. Nothing is written.
fn confirm(
    pool: &PoolConfig,
    state: Option<&Path>,
    known: Option<&String>,
) -> Result<(PathBuf, PoolRecord), MissingPoolError> {
    let (name, path) = (pool.name.clone(), pool.path.clone());
    let missing = |why: String| {
        let forget = state.map(|state| {
            let (state, path) = (state.display(), pool.path.display());
            format!(", or forget it if it is gone for good: orlop driver --state-dir {state} --forget-pool {path}")
        });
        MissingPoolError { name, path, why, forget: forget.unwrap_or_default() }
    };
    let root = match fs::canonicalize(&pool.path) {
        Ok(root) => root,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(missing("the directory does not exist".to_owned()));
        }
        Err(error) => return Err(missing(format!("the directory cannot be entered: {error}"))),
    };
    match record::read::<PoolRecord>(&root.join(IDENTITY)) {
        Ok(found) if known.is_none_or(|known| *known == found.uuid) => Ok((root, found)),
        Ok(found) => Err(missing(format!(
            "the directory holds the pool {}, and {} is expected",
            found.uuid,
            known.map_or("another", String::as_str)
        ))),
        Err(ReadError::Missing(_)) => Err(missing(format!("the directory holds no {IDENTITY}"))),
        Err(error @ ReadError::Io { .. }) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            Err(missing(format!("{error}{cause}")))
        }
        Err(error @ (ReadError::Damaged { .. } | ReadError::Newer { .. })) => Err(missing(error.to_string())),
    }
}

fn refuse_other_driver(root: &Path, identity: &PoolRecord, config: &Config) -> Result<(), OpenError> {
    if identity.driver == config.driver_name {
        return Ok(());
    }
    let (owner, ours) = (identity.driver.clone(), config.driver_name.clone());
    Err(OpenError::OtherDriver { path: root.to_owned(), owner, ours })
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
                // What the state directory remembers must not outlive the directory itself in a power cut.
                if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                    durable::fsync_dir(parent).map_err(sys_at(path))?;
                }
            }
        },
        Err(error) => return Err(io_at(path)(error)),
    }
    fs::canonicalize(path).map_err(io_at(path))
}

fn identify(root: &Path, config: &Config) -> Result<PoolRecord, OpenError> {
    match record::read::<PoolRecord>(&root.join(IDENTITY)) {
        Ok(found) => Ok(found),
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
        tenancy: tenancy(root)?,
        allocates: image::supports_allocation(&root.join(".tmp")).map_err(sys_at(root))?,
    };
    tracing::info!(pool = %root.display(), ?features, "opened the pool");
    Ok(features)
}

/// A bind mount of a directory, and a subvolume, have another root than `/` in their filesystem.
fn tenancy(root: &Path) -> Result<Tenancy, OpenError> {
    let table = MountTable::read().map_err(|error| io_at(root)(io::Error::other(error)))?;
    let alone = root != Path::new("/") && table.top(root).is_some_and(|mount| mount.root == Path::new("/"));
    Ok(if alone { Tenancy::Alone } else { Tenancy::Shared })
}

/// Where others may take the space that is free now, volumes get their blocks at once, unless the operator said otherwise or
/// promises more than there is. On btrfs that would hold nothing: each write takes new blocks.
fn default_provisioning(features: &Features, config: &Config) -> Provisioning {
    match (config.provisioning, features.tenancy) {
        (Some(asked), _) => asked,
        (None, Tenancy::Alone) => Provisioning::Thin,
        (None, Tenancy::Shared) if config.overcommit > 1.0 || features.subvolumes => Provisioning::Thin,
        (None, Tenancy::Shared) if features.allocates => Provisioning::Thick,
        (None, Tenancy::Shared) => Provisioning::Thin,
    }
}
