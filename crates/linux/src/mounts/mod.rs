//! Mounting, binding and unmounting (LOCAL-F.9).
//!
//! # Invariants
//! 1. A mount appears at its target complete: all options are set on a detached mount, which is then moved into place
//!    in one step. There is no moment at which a read-only publish is writable (LOCAL-0.14).
//! 2. The target is opened once, without following a symbolic link, and the mount goes onto that descriptor
//!    (LOCAL-R16).
//! 3. [`unmount_all`] removes every layer at exactly the target and is never lazy: a lazy unmount hides a filesystem that
//!    is still active, and the next stage would mount it twice. Only [`unmount_top`] can be told to, for a filesystem that
//!    does not answer any more.

mod flags;
mod rights;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxAttributes, StatxFlags, fstat, open, openat, statx};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags as OldFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount,
    mount_bind, mount_change, move_mount, open_tree, unmount,
};

pub use flags::{Access, BadFlag, BindOptions, MountFlags};
pub use rights::Rights;

use super::mountinfo::{MountTable, MountTableError, canonical_mount_point};
use super::patience::{Next, Patience};
use super::{SysError, ioctl};

#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error(transparent)]
    Sys(#[from] SysError),
    #[error("{} is a symbolic link, which neither end of a mount may be", .0.display())]
    IsSymlink(PathBuf),
    #[error("{fs_type} does not take the mount option {option:?}{}", Log(.log))]
    BadOption { fs_type: String, option: String, log: String, source: Errno },
    #[error("could not mount {} as {fs_type}{}", .device.display(), Log(.log))]
    Refused { fs_type: String, device: PathBuf, log: String, source: Errno },
}

impl MountError {
    pub fn errno(&self) -> Option<Errno> {
        match self {
            MountError::Sys(error) => error.errno(),
            MountError::IsSymlink(_) => None,
            MountError::BadOption { source, .. } | MountError::Refused { source, .. } => Some(*source),
        }
    }
}

/// What the kernel wrote into the log of the filesystem context, as a bracketed tail.
struct Log<'a>(&'a str);

impl std::fmt::Display for Log<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " ({})", self.0) }
    }
}

/// Mounts the filesystem on `device` at the directory `target`.
pub fn mount_fs(device: &Path, target: &Path, fs_type: &str, flags: &MountFlags) -> Result<(), MountError> {
    let target_fd = open_end(target)?;
    let context = match fsopen(fs_type, FsOpenFlags::FSOPEN_CLOEXEC) {
        Ok(context) => context,
        // Only here does ENOSYS mean "old kernel"; XFS also answers it for a wrong sector size (LOCAL-0.15).
        Err(Errno::NOSYS) => return mount_old(device, &target_fd, fs_type, flags),
        Err(source) => {
            let (fs_type, device) = (fs_type.to_owned(), device.to_path_buf());
            return Err(MountError::Refused { fs_type, device, log: String::new(), source });
        }
    };
    configure(&context, device, fs_type, flags)?;
    let detached = fsconfig_create(&context)
        .and_then(|()| fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, flags.mount_attributes()))
        .map_err(|source| MountError::Refused {
            fs_type: fs_type.to_owned(),
            device: device.to_path_buf(),
            log: context_log(&context),
            source,
        })?;
    Ok(attach_mount(&detached, &target_fd, target)?)
}

/// Lets the kernel replay the journal of the filesystem on `device`, which must be writable.
///
/// The filesystem is mounted read-only and nowhere: replaying is all that is written, no path shows the mount, and it ends
/// with this call or with this process.
pub fn replay_journal(device: &Path, fs_type: &str) -> Result<(), MountError> {
    mount_nowhere(device, fs_type, true).map(drop)
}

/// Opens the root of the filesystem on `device` through a mount that no path shows. It ends when the answer is closed.
pub(crate) fn mount_detached(device: &Path, fs_type: &str, read_only: bool) -> Result<OwnedFd, MountError> {
    let mounted = mount_nowhere(device, fs_type, read_only)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(&mounted, ".", flags, Mode::empty()).map_err(SysError::on("open the filesystem on", device))?)
}

fn mount_nowhere(device: &Path, fs_type: &str, read_only: bool) -> Result<OwnedFd, MountError> {
    let refused = |log: String, source| MountError::Refused {
        fs_type: fs_type.to_owned(),
        device: device.to_path_buf(),
        log,
        source,
    };
    let context = fsopen(fs_type, FsOpenFlags::FSOPEN_CLOEXEC).map_err(|errno| refused(String::new(), errno))?;
    let flags = match read_only {
        true => MountFlags::default().read_only().map_err(|_| refused(String::new(), Errno::INVAL))?,
        false => MountFlags::default(),
    };
    configure(&context, device, fs_type, &flags)?;
    fsconfig_create(&context)
        .and_then(|()| fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, flags.mount_attributes()))
        .map_err(|errno| refused(context_log(&context), errno))
}

fn configure(context: &OwnedFd, device: &Path, fs_type: &str, flags: &MountFlags) -> Result<(), MountError> {
    let bad_option = |option: &str, source| MountError::BadOption {
        fs_type: fs_type.to_owned(),
        option: option.to_owned(),
        log: context_log(context),
        source,
    };
    fsconfig_set_string(context, "source", device).map_err(|errno| bad_option("source", errno))?;
    if flags.is_read_only() {
        // The superblock too: a read-only device cannot carry a writable one.
        fsconfig_set_flag(context, "ro").map_err(|errno| bad_option("ro", errno))?;
    }
    for (key, value) in flags.fs_options() {
        let set = match value {
            Some(value) => fsconfig_set_string(context, key.as_str(), value.as_str()),
            None => fsconfig_set_flag(context, key.as_str()),
        };
        set.map_err(|errno| bad_option(key, errno))?;
    }
    Ok(())
}

/// Reads the messages the kernel left in a filesystem context; each is a letter for its level, a space and a text.
fn context_log(context: &OwnedFd) -> String {
    let mut messages = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = rustix::io::read(context, &mut buffer) {
        let text = String::from_utf8_lossy(&buffer[..length]);
        let text = text.trim();
        messages.push(text.split_once(' ').map_or(text, |(_, text)| text).to_owned());
    }
    messages.join("; ")
}

/// The one call of old kernels. Filesystem options go as text; attributes are the same bits under other names.
fn mount_old(device: &Path, target: &OwnedFd, fs_type: &str, flags: &MountFlags) -> Result<(), MountError> {
    let attributes = flags.mount_attributes();
    let old = [
        (MountAttrFlags::MOUNT_ATTR_RDONLY, OldFlags::RDONLY),
        (MountAttrFlags::MOUNT_ATTR_NOSUID, OldFlags::NOSUID),
        (MountAttrFlags::MOUNT_ATTR_NODEV, OldFlags::NODEV),
        (MountAttrFlags::MOUNT_ATTR_NOEXEC, OldFlags::NOEXEC),
        (MountAttrFlags::MOUNT_ATTR_NOATIME, OldFlags::NOATIME),
        (MountAttrFlags::MOUNT_ATTR_STRICTATIME, OldFlags::STRICTATIME),
        (MountAttrFlags::MOUNT_ATTR_NODIRATIME, OldFlags::NODIRATIME),
        (MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW, OldFlags::NOSYMFOLLOW),
    ];
    let bits = old.into_iter().filter(|(new, _)| attributes.contains(*new)).map(|(_, old)| old).collect();
    let words = flags.fs_options().iter().map(|(key, value)| match value {
        Some(value) if value.contains(',') => format!("{key}=\"{value}\""),
        Some(value) => format!("{key}={value}"),
        None => key.clone(),
    });
    let data = std::ffi::CString::new(words.collect::<Vec<_>>().join(",")).unwrap_or_default();
    let by_fd = PathBuf::from(format!("/proc/self/fd/{}", target.as_raw_fd()));
    mount(device, &by_fd, fs_type, bits, data.as_c_str()).map_err(|source| MountError::Refused {
        fs_type: fs_type.to_owned(),
        device: device.to_path_buf(),
        log: String::new(),
        source,
    })
}

/// Opens one end of a mount without following a link in its last component.
fn open_end(path: &Path) -> Result<OwnedFd, MountError> {
    let fd = open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
        .map_err(SysError::on("open", path))?;
    let mode = fstat(&fd).map_err(SysError::on("inspect", path))?.st_mode;
    match FileType::from_raw_mode(mode) {
        FileType::Symlink => Err(MountError::IsSymlink(path.to_path_buf())),
        _ => Ok(fd),
    }
}

fn attach_mount(detached: &OwnedFd, target_fd: &OwnedFd, target: &Path) -> Result<(), SysError> {
    let empty_paths = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(detached, "", target_fd, "", empty_paths).map_err(SysError::on("attach a mount at", target))
}

/// Shows `source`, a directory or a device node, at `target` as well.
pub fn bind(source: &Path, target: &Path, options: BindOptions) -> Result<(), MountError> {
    bind_open(&open_end(source)?, source, target, options)
}

/// As [`bind`], for a source that was found and opened before; `source` only names it.
pub fn bind_open(source_fd: &OwnedFd, source: &Path, target: &Path, options: BindOptions) -> Result<(), MountError> {
    let target_fd = open_end(target)?;
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(source_fd, "", clone).map_err(SysError::on("take a bind mount of", source))?;
    let attributes = options.attributes();
    if !attributes.is_empty() {
        ioctl::mount_set_attributes(tree.as_fd(), u64::from(attributes.bits()))
            .map_err(SysError::on("set the attributes of a bind mount of", source))?;
    }
    Ok(attach_mount(&tree, &target_fd, target)?)
}

/// Lets others see what is mounted below the directory `path`, by a bind mount onto itself, unless they do already.
///
/// What is mounted below goes onto the new mount. Under it nobody could see it, and nobody could unmount it.
pub fn make_shared(path: &Path) -> Result<(), UnmountError> {
    let path = std::fs::canonicalize(path).map_err(SysError::on("resolve", path))?;
    let table = MountTable::read()?;
    let enclosing = table.enclosing(&path);
    if enclosing.is_some_and(|mount| mount.shared) {
        return Ok(());
    }
    // A bind mount that is not shared yet is what an attempt that was cut short has left.
    if enclosing.is_none_or(|mount| mount.mount_point != path) {
        let parent = enclosing.map(|mount| mount.id);
        let below = table.below(&path).filter(|mount| Some(mount.parent) == parent);
        let opened = below.map(|mount| open_mount(&mount.mount_point).map(|fd| (fd, mount.mount_point.as_path())));
        let opened: Vec<_> = opened.collect::<Result<_, _>>()?;
        mount_bind(&path, &path).map_err(SysError::on("bind onto itself", &path))?;
        for (fd, point) in opened {
            move_mount(&fd, "", CWD, point, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
                .map_err(SysError::on("move the mount at", point))?;
        }
    }
    let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    Ok(mount_change(&path, shared).map_err(SysError::on("share the mounts of", &path))?)
}

/// Opens what is mounted at `point`, to be moved. What it is on is not asked.
fn open_mount(point: &Path) -> Result<OwnedFd, SysError> {
    open(point, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).map_err(SysError::on("open", point))
}

/// How hard to unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    /// A mount in use is refused.
    No,
    /// What waits for the filesystem's server is told that it is gone. Then as above.
    Abort,
    /// As `Abort`, and the mount leaves the tree at once, whoever still uses it.
    Detach,
}

/// Unmounts what is seen at exactly `target`, one layer. Nothing there, or no such path, is success.
///
/// The target itself is never looked at, so a mount whose server or device is gone is unmounted like any other.
pub fn unmount_top(target: &Path, force: Force) -> Result<Unmounted, UnmountError> {
    let Some(point) = canonical_mount_point(target)? else { return Ok(Unmounted { layers: 0 }) };
    let before = MountTable::read()?.at(&point).count();
    if before == 0 {
        return Ok(Unmounted { layers: 0 });
    }
    let answer = match force {
        Force::No => unmount_patiently(&point),
        Force::Abort => unmount(&point, UnmountFlags::NOFOLLOW | UnmountFlags::FORCE),
        Force::Detach => unmount(&point, UnmountFlags::NOFOLLOW | UnmountFlags::FORCE | UnmountFlags::DETACH),
    };
    match answer {
        Ok(()) => Ok(Unmounted { layers: 1 }),
        Err(Errno::BUSY) => Err(UnmountError::Busy(point)),
        Err(Errno::INVAL | Errno::NOENT) if MountTable::read()?.at(&point).count() < before => {
            Ok(Unmounted { layers: 0 })
        }
        Err(Errno::INVAL | Errno::NOENT) => Err(UnmountError::Covered(point)),
        Err(errno) => Err(SysError::on("unmount", &point)(errno).into()),
    }
}

/// How many layers went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unmounted {
    pub layers: u32,
}

#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    #[error(transparent)]
    Sys(#[from] SysError),
    #[error(transparent)]
    Table(#[from] MountTableError),
    #[error("{} is in use", .0.display())]
    Busy(PathBuf),
    /// The table shows a mount here that the kernel cannot reach by this path.
    #[error("a mount at {} is covered by another mount above it", .0.display())]
    Covered(PathBuf),
    #[error("{} was mounted again as fast as it was unmounted", .0.display())]
    Contended(PathBuf),
}

/// Unmounts everything that is stacked at exactly `target`. Nothing there, or no such path, is success.
///
/// The target itself is never looked at, so a mount whose server or device is gone is unmounted like any other.
pub fn unmount_all(target: &Path) -> Result<Unmounted, UnmountError> {
    const MOST_LAYERS: u32 = 256;
    let Some(point) = canonical_mount_point(target)? else { return Ok(Unmounted { layers: 0 }) };
    let mut layers = 0;
    while layers < MOST_LAYERS {
        let before = MountTable::read()?.at(&point).count();
        if before == 0 {
            return Ok(Unmounted { layers });
        }
        match unmount_patiently(&point) {
            Ok(()) => layers += 1,
            Err(Errno::BUSY) => return Err(UnmountError::Busy(point)),
            // Not mounted, or not there. Somebody may have been faster; if the table still shows it, it is covered.
            Err(Errno::INVAL | Errno::NOENT) => {
                if MountTable::read()?.at(&point).count() >= before {
                    return Err(UnmountError::Covered(point));
                }
            }
            Err(errno) => return Err(SysError::on("unmount", &point)(errno).into()),
        }
    }
    Err(UnmountError::Contended(point))
}

/// How long a mount may look busy before it counts as in use.
const BUSY_PATIENCE: Duration = Duration::from_millis(60);

/// One layer. A child that this process is just starting holds copies of our descriptors for an instant, and so does
/// udev when it looks at a device; a busy answer is believed only when it stays.
fn unmount_patiently(point: &Path) -> Result<(), Errno> {
    let mut patience = Patience::of(BUSY_PATIENCE);
    loop {
        match unmount(point, UnmountFlags::NOFOLLOW) {
            Err(Errno::BUSY) if patience.wait() == Next::LookAgain => {}
            answer => return answer,
        }
    }
}

/// Tells whether something is mounted at exactly `path`; bind mounts of the same filesystem count.
pub fn is_mount_point(path: &Path) -> Result<bool, UnmountError> {
    match statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, StatxFlags::TYPE) {
        Ok(answer) if answer.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) => {
            Ok(answer.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
        }
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        // Before 5.8 the kernel cannot tell; a corrupted mount does not answer; the table knows both.
        Ok(_) => in_table(path),
        Err(errno) if is_corruption(errno) => in_table(path),
        Err(errno) => Err(SysError::on("inspect", path)(errno).into()),
    }
}

fn in_table(path: &Path) -> Result<bool, UnmountError> {
    match canonical_mount_point(path)? {
        Some(point) => Ok(MountTable::read()?.top(&point).is_some()),
        None => Ok(false),
    }
}

/// The answers of a mount whose device or server is gone. Such a mount is unmounted, not repaired.
pub fn is_corruption(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOTCONN
            | Errno::STALE
            | Errno::IO
            | Errno::ACCESS
            | Errno::HOSTDOWN
            | Errno::AGAIN
            | Errno::NODEV
            | Errno::UCLEAN
    )
}

#[cfg(test)]
mod tests;
