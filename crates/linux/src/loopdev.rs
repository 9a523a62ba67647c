//! Loop devices: image files as block devices (LOCAL-F.1).
//!
//! # Invariants
//! 1. A device is known by the file behind it, `(st_dev, st_ino)`, never by a path: paths are renamed, unlinked and
//!    differ between namespaces.
//! 2. [`attach`] hands back the open device. The caller keeps it open until the mount stands, because an autoclear
//!    device without an opener is gone (LOCAL-0.12, LOCAL-R10).
//! 3. [`detach_and_wait`] clears a device only while it still belongs to the given file, and says "detached" only when
//!    the kernel says so: `LOOP_CLR_FD` succeeds on a busy device and merely arms autoclear (LOCAL-0.11).
//! 4. Looking for a file's device opens no other device, but the first time it is seen: a device that somebody has open
//!    does not let go, and with many volumes that end at once there would always be somebody who looks.
//!
//! # Not here
//! Guarding against a second attachment of one image (LOCAL-0.10): the kernel allows it, so the caller holds a flock on
//! the image around [`find`] and [`attach`].

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use linux_raw_sys::loop_device::{
    _bindgen_ty_1 as LoopFlag, LO_FLAGS_AUTOCLEAR, LO_FLAGS_DIRECT_IO, LO_FLAGS_READ_ONLY,
};
use rustix::fs::{Mode, OFlags, fstat, ioctl_blksszget, major, minor, open};
use rustix::io::Errno;

use super::mounts::Rights;
use super::patience::{Next, Patience};
use super::{SysError, ioctl};

const CONTROL: &str = "/dev/loop-control";
const SYS_BLOCK: &str = "/sys/block";

/// The file behind a loop device, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BackingFile {
    pub dev: u64,
    pub ino: u64,
}

impl BackingFile {
    pub fn of(image: impl AsFd) -> Result<BackingFile, SysError> {
        let stat = fstat(image).map_err(SysError::doing("identify an image file"))?;
        Ok(BackingFile { dev: stat.st_dev, ino: stat.st_ino })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopDevice {
    pub path: PathBuf,
    pub index: u32,
    pub major: u32,
    pub minor: u32,
}

/// A loop device that is bound to a file, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopStatus {
    pub device: LoopDevice,
    pub backing: BackingFile,
    pub read_only: bool,
    pub autoclear: bool,
    pub direct_io: bool,
    pub offset: u64,
    pub size_limit: u64,
    /// Logical block size in bytes.
    pub block_size: u32,
}

/// How to attach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attach {
    pub read_only: bool,
    pub autoclear: bool,
    /// Wanted, not promised: see [`Attached::direct_io`].
    pub direct_io: bool,
    /// Logical block size in bytes; always explicit, because a filesystem made for one size may not mount on another
    /// (LOCAL-0.15).
    pub block_size: u32,
}

/// A fresh attachment. Dropping `fd` lets go of an autoclear device.
#[derive(Debug)]
pub struct Attached {
    pub device: LoopDevice,
    pub fd: OwnedFd,
    /// Whether the kernel really does direct I/O; it falls back silently where the backing filesystem cannot.
    pub direct_io: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum LoopError {
    #[error(transparent)]
    Sys(#[from] SysError),
    /// The kernel has the device but our `/dev` does not show it.
    #[error("{} does not exist although the kernel has made the device: /dev must be the host's devtmpfs", .0.display())]
    NodeMissing(PathBuf),
    #[error("no free loop device after {0} attempts; other programs took each one first")]
    Contended(usize),
}

/// Whether this process can attach loop devices and mount what is on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoopSupport {
    Yes,
    No(String),
}

pub fn available() -> LoopSupport {
    match open(CONTROL, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        // Root of a user namespace may come as far as the device, and is refused the mount.
        Ok(_) if Rights::ask() < Rights::Devices => LoopSupport::No(
            "this process may not mount what is on them (no CAP_SYS_ADMIN outside user namespaces)".to_owned(),
        ),
        Ok(_) => LoopSupport::Yes,
        Err(Errno::NOENT) => LoopSupport::No(format!("{CONTROL} does not exist (no loop driver, or a private /dev)")),
        Err(errno) => LoopSupport::No(format!("{CONTROL} cannot be opened: {errno}")),
    }
}

/// Every loop device bound to this file. More than one is a double attachment (LOCAL-0.10).
pub fn find(backing: BackingFile) -> Result<Vec<LoopStatus>, LoopError> {
    Bound::read()?.of(backing)
}

/// The machine's loop devices by the files behind them, for whoever asks for many files: a look at all devices for each file
/// takes seconds with a thousand of both.
#[derive(Debug, Clone)]
pub struct Bound(BTreeMap<BackingFile, Vec<u32>>);

impl Bound {
    pub fn read() -> Result<Bound, LoopError> {
        let mut devices: BTreeMap<BackingFile, Vec<u32>> = BTreeMap::new();
        for index in bound_indexes()? {
            if let Some(backing) = backing_of(index)? {
                devices.entry(backing).or_default().push(index);
            }
        }
        Ok(Bound(devices))
    }

    /// Those of the devices that are still bound to this file. What was bound later is not seen.
    pub fn of(&self, backing: BackingFile) -> Result<Vec<LoopStatus>, LoopError> {
        let mut found = Vec::new();
        for index in self.0.get(&backing).into_iter().flatten() {
            found.extend(status_of(*index)?.filter(|status| status.backing == backing));
        }
        Ok(found)
    }
}

/// What was seen behind each device, with the number that the kernel gave to that attachment. It gives no number twice, so
/// that what is in here is true for as long as the device has that number.
static SEEN: Mutex<BTreeMap<u32, (u64, BackingFile)>> = Mutex::new(BTreeMap::new());

/// The file behind a device. The device is opened only if its attachment was never seen.
fn backing_of(index: u32) -> Result<Option<BackingFile>, LoopError> {
    let seen = || SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(before) = sequence(index)? else {
        return Ok(status_of(index)?.map(|status| status.backing));
    };
    if let Some((_, backing)) = seen().get(&index).filter(|(number, _)| *number == before) {
        return Ok(Some(*backing));
    }
    let Some(status) = status_of(index)? else { return Ok(None) };
    if sequence(index)? == Some(before) {
        seen().insert(index, (before, status.backing));
    }
    Ok(Some(status.backing))
}

/// The number of what a device has now; `None` where the kernel does not count (before 5.15), or the device is gone.
fn sequence(index: u32) -> Result<Option<u64>, SysError> {
    let file = Path::new(SYS_BLOCK).join(format!("loop{index}/diskseq"));
    match std::fs::read_to_string(&file) {
        Ok(text) => Ok(text.trim().parse().ok()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(SysError::on("read", &file)(error)),
    }
}

/// Every loop device whose file the kernel knows by this path.
///
/// Device nodes that are bind mounts of one node are one file; only the path tells which of them is held open.
pub fn opened_as(path: &Path) -> Result<Vec<LoopStatus>, LoopError> {
    let mut found = Vec::new();
    for index in bound_indexes()? {
        if backing_path(index)?.as_deref() == Some(path) {
            found.extend(status_of(index)?);
        }
    }
    Ok(found)
}

/// The path of the file behind a device, as this mount namespace sees it; `None` when nothing is bound any more.
fn backing_path(index: u32) -> Result<Option<PathBuf>, SysError> {
    let file = Path::new(SYS_BLOCK).join(format!("loop{index}/loop/backing_file"));
    match std::fs::read(&file) {
        Ok(mut text) => {
            text.pop_if(|last| *last == b'\n');
            let path = text.strip_suffix(b" (deleted)").unwrap_or(&text);
            Ok(Some(PathBuf::from(std::ffi::OsStr::from_bytes(path))))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(SysError::on("read", &file)(error)),
    }
}

/// Every loop device that is bound to something.
pub fn bound() -> Result<Vec<LoopStatus>, LoopError> {
    let mut found = Vec::new();
    for index in bound_indexes()? {
        found.extend(status_of(index)?);
    }
    Ok(found)
}

/// The devices that have a file, sorted. None of them is opened.
fn bound_indexes() -> Result<Vec<u32>, LoopError> {
    let sys_block = Path::new(SYS_BLOCK);
    let entries = match std::fs::read_dir(sys_block) {
        Ok(entries) => entries,
        Err(error) => return Err(SysError::on("list", sys_block)(error).into()),
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry.map_err(SysError::on("list", sys_block))?.file_name();
        let Some(index) = name.to_str().and_then(|name| name.strip_prefix("loop")?.parse().ok()) else { continue };
        // The `loop` directory exists only while a file is bound.
        if sys_block.join(&name).join("loop").exists() {
            found.push(index);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The status of one device; `None` when nothing is bound to it.
pub fn status_of(index: u32) -> Result<Option<LoopStatus>, LoopError> {
    let path = node(index);
    match open_node(&path, OFlags::RDONLY) {
        Ok(fd) => Ok(read_status(&fd, index, &path)?),
        // Removed between listing and opening.
        Err(LoopError::Sys(error)) if error.is(Errno::NXIO) || error.is(Errno::NODEV) => Ok(None),
        Err(error) => Err(error),
    }
}

fn node(index: u32) -> PathBuf {
    PathBuf::from(format!("/dev/loop{index}"))
}

fn open_node(path: &Path, flags: OFlags) -> Result<OwnedFd, LoopError> {
    match open(path, flags | OFlags::CLOEXEC, Mode::empty()) {
        Ok(fd) => Ok(fd),
        Err(Errno::NOENT) => Err(LoopError::NodeMissing(path.to_path_buf())),
        Err(errno) => Err(SysError::on("open", path)(errno).into()),
    }
}

fn read_status(fd: &OwnedFd, index: u32, path: &Path) -> Result<Option<LoopStatus>, SysError> {
    let info = match ioctl::loop_status(fd) {
        Ok(info) => info,
        Err(Errno::NXIO) => return Ok(None),
        Err(errno) => return Err(SysError::on("read the loop status of", path)(errno)),
    };
    let block_size = ioctl_blksszget(fd).map_err(SysError::on("read the block size of", path))?;
    let flag = |flag: LoopFlag| info.lo_flags & flag as u32 != 0;
    Ok(Some(LoopStatus {
        device: describe(fd, index, path)?,
        backing: BackingFile { dev: info.lo_device, ino: info.lo_inode },
        read_only: flag(LO_FLAGS_READ_ONLY),
        autoclear: flag(LO_FLAGS_AUTOCLEAR),
        direct_io: flag(LO_FLAGS_DIRECT_IO),
        offset: info.lo_offset,
        size_limit: info.lo_sizelimit,
        block_size,
    }))
}

fn describe(fd: &OwnedFd, index: u32, path: &Path) -> Result<LoopDevice, SysError> {
    let rdev = fstat(fd).map_err(SysError::on("inspect", path))?.st_rdev;
    Ok(LoopDevice { path: path.to_path_buf(), index, major: major(rdev), minor: minor(rdev) })
}

/// Binds `image` to a free loop device.
///
/// Finding a free device and binding it are two steps, so somebody else may win; that is retried (LOCAL-R8). The number
/// of attempts is generous because each one needs a rival to have succeeded.
pub fn attach(image: &File, how: Attach) -> Result<Attached, LoopError> {
    const ATTEMPTS: usize = 128;
    let control_path = Path::new(CONTROL);
    let control = open(control_path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(SysError::on("open", control_path))?;
    for _ in 0..ATTEMPTS {
        let index = ioctl::loop_get_free(&control).map_err(SysError::doing("find a free loop device"))?;
        if let Some(attached) = try_attach(image, how, index)? {
            return Ok(attached);
        }
    }
    Err(LoopError::Contended(ATTEMPTS))
}

/// One attempt on one device; `None` when somebody else has it.
fn try_attach(image: &File, how: Attach, index: u32) -> Result<Option<Attached>, LoopError> {
    let path = node(index);
    // The device must be open for writing, else the kernel binds it read-only.
    let fd = match open_node(&path, OFlags::RDWR) {
        Ok(fd) => fd,
        Err(LoopError::Sys(error)) if error.is(Errno::NXIO) || error.is(Errno::NODEV) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut flags = 0;
    for (wanted, flag) in
        [(how.read_only, LO_FLAGS_READ_ONLY), (how.autoclear, LO_FLAGS_AUTOCLEAR), (how.direct_io, LO_FLAGS_DIRECT_IO)]
    {
        flags |= if wanted { flag as u32 } else { 0 };
    }
    match configure(&fd, image, flags, how.block_size) {
        Ok(()) => {}
        Err(Errno::BUSY) => return Ok(None),
        Err(errno) => return Err(SysError::on("attach an image to", &path)(errno).into()),
    }
    lift_protection(&fd, &path)?;
    // The device keeps a write error of the file it had before until one caller is told. It must not be told of this file.
    let _ = rustix::fs::fsync(&fd);
    let status = read_status(&fd, index, &path)?;
    let direct_io = status.is_some_and(|status| status.direct_io);
    if how.direct_io && !direct_io {
        tracing::warn!(device = %path.display(), "direct I/O is not possible here; data will be cached twice");
    }
    Ok(Some(Attached { device: describe(&fd, index, &path)?, fd, direct_io }))
}

/// Write protection by [`LoopDevice::set_read_only`] outlives the file it was meant for: the next one would inherit it.
/// A device that was attached read-only stays so.
fn lift_protection(fd: &OwnedFd, path: &Path) -> Result<(), SysError> {
    ioctl::block_set_read_only(fd, false).map_err(SysError::on("lift the write protection of", path))
}

/// Some kernels refuse direct I/O at configuration time instead of leaving it off; then it is left off for them.
fn configure(fd: &OwnedFd, image: &File, flags: u32, block_size: u32) -> Result<(), Errno> {
    let direct_io = LO_FLAGS_DIRECT_IO as u32;
    match ioctl::loop_configure(fd, image.as_fd(), flags, block_size) {
        Err(Errno::INVAL | Errno::OPNOTSUPP) if flags & direct_io != 0 => {
            ioctl::loop_configure(fd, image.as_fd(), flags & !direct_io, block_size)
        }
        answer => answer,
    }
}

/// Opens a device that is attached to this file already, to be used again. While it is open it stays attached.
///
/// `None` when the device has another file, or none, by now.
pub fn reopen(status: &LoopStatus) -> Result<Option<Attached>, LoopError> {
    let device = &status.device;
    let fd = match open_node(&device.path, OFlags::RDONLY) {
        Ok(fd) => fd,
        Err(LoopError::Sys(error)) if error.is(Errno::NXIO) || error.is(Errno::NODEV) => return Ok(None),
        Err(error) => return Err(error),
    };
    match read_status(&fd, device.index, &device.path)? {
        Some(now) if now.backing == status.backing => {
            Ok(Some(Attached { device: device.clone(), fd, direct_io: now.direct_io }))
        }
        _ => Ok(None),
    }
}

/// The end of an attempt to detach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Detach {
    /// The device no longer has this file.
    Detached,
    /// Somebody still uses it. It may go by itself when the last user closes it.
    StillBusy,
}

/// Detaches `device` from `backing` and waits until the kernel has let go, at most for `patience`.
///
/// A device that is mounted, or held exclusively by somebody else, is left as it is: clearing it would arm autoclear
/// behind the user's back.
pub fn detach_and_wait(device: &LoopDevice, backing: BackingFile, patience: Duration) -> Result<Detach, LoopError> {
    let mut patience = Patience::of(patience);
    loop {
        if clear_once(device, backing)? == Detach::Detached {
            return Ok(Detach::Detached);
        }
        if patience.wait() == Next::GiveUp {
            return Ok(Detach::StillBusy);
        }
    }
}

/// Asks the kernel once to let go, and tells whether it has.
fn clear_once(device: &LoopDevice, backing: BackingFile) -> Result<Detach, LoopError> {
    let still_ours = |status: Option<LoopStatus>| status.is_some_and(|status| status.backing == backing);
    {
        // An exclusive open fails while the device is mounted. While we hold it nobody can give the device another
        // file, so what we check is what we clear.
        let fd = match open_node(&device.path, OFlags::RDONLY | OFlags::EXCL) {
            Ok(fd) => fd,
            Err(LoopError::Sys(error)) if error.is(Errno::BUSY) => {
                let bound = still_ours(status_of(device.index)?);
                return Ok(if bound { Detach::StillBusy } else { Detach::Detached });
            }
            Err(LoopError::Sys(error)) if error.is(Errno::NXIO) || error.is(Errno::NODEV) => {
                return Ok(Detach::Detached);
            }
            Err(error) => return Err(error),
        };
        if !still_ours(read_status(&fd, device.index, &device.path)?) {
            return Ok(Detach::Detached);
        }
        // Whoever gets this device next, also another program, must not inherit our write protection.
        lift_protection(&fd, &device.path)?;
        match ioctl::loop_clear(&fd) {
            Ok(()) | Err(Errno::NXIO) => {}
            Err(Errno::BUSY) => return Ok(Detach::StillBusy),
            Err(errno) => return Err(SysError::on("detach", &device.path)(errno).into()),
        }
    }
    // Since 6.10 the kernel detaches when the last opener closes, which was us just now.
    let bound = still_ours(status_of(device.index)?);
    Ok(if bound { Detach::StillBusy } else { Detach::Detached })
}

/// Waits until no loop device has this file any more: the end of an unmount with autoclear (LOCAL-R11).
///
/// Whoever looks at a device has it open for that moment. Closing it is what makes an autoclear device go that has lost its
/// last user meanwhile, so that looking is also pushing.
pub fn wait_until_free(backing: BackingFile, patience: Duration) -> Result<Detach, LoopError> {
    let mut patience = Patience::of(patience);
    loop {
        if find(backing)?.is_empty() {
            return Ok(Detach::Detached);
        }
        if patience.wait() == Next::GiveUp {
            return Ok(Detach::StillBusy);
        }
    }
}

impl LoopDevice {
    fn open(&self) -> Result<OwnedFd, LoopError> {
        open_node(&self.path, OFlags::RDONLY)
    }

    /// The number that the kernel gave to the present attachment; `None` before Linux 5.15.
    pub fn attachment_number(&self) -> Result<Option<u64>, SysError> {
        sequence(self.index)
    }

    /// The device's size in bytes.
    pub fn size(&self) -> Result<u64, LoopError> {
        let size = ioctl::block_size_bytes(self.open()?);
        Ok(size.map_err(SysError::on("read the size of", &self.path))?)
    }

    /// Takes over the size of a grown image and gives it back, rounded down to whole sectors.
    pub fn refresh_capacity(&self) -> Result<u64, LoopError> {
        ioctl::loop_set_capacity(self.open()?).map_err(SysError::on("refresh the size of", &self.path))?;
        self.size()
    }

    /// Write-protects the device, or lifts the protection. It holds for every way to reach the device (LOCAL-0.13).
    pub fn set_read_only(&self, read_only: bool) -> Result<(), LoopError> {
        let set = ioctl::block_set_read_only(self.open()?, read_only);
        Ok(set.map_err(SysError::on("change the write protection of", &self.path))?)
    }

    pub fn is_read_only(&self) -> Result<bool, LoopError> {
        let flag = ioctl::block_is_read_only(self.open()?);
        Ok(flag.map_err(SysError::on("read the write protection of", &self.path))?)
    }

    /// Asks for direct I/O on or off and gives back what the kernel made of it.
    pub fn set_direct_io(&self, on: bool) -> Result<bool, LoopError> {
        let fd = self.open()?;
        match ioctl::loop_set_direct_io(&fd, on) {
            // The backing filesystem cannot; that is an answer, not a failure.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(errno) => return Err(SysError::on("change direct I/O of", &self.path)(errno).into()),
        }
        let status = read_status(&fd, self.index, &self.path)?;
        Ok(status.is_some_and(|status| status.direct_io))
    }

    pub fn set_read_ahead_kib(&self, kib: u32) -> Result<(), LoopError> {
        let set = ioctl::block_set_read_ahead(self.open()?, kib.saturating_mul(2));
        Ok(set.map_err(SysError::on("set the read-ahead of", &self.path))?)
    }

    pub fn read_ahead_kib(&self) -> Result<u64, LoopError> {
        let sectors =
            ioctl::block_read_ahead(self.open()?).map_err(SysError::on("read the read-ahead of", &self.path))?;
        Ok(sectors / 2)
    }
}

#[cfg(test)]
#[path = "loopdev_tests.rs"]
mod tests;
