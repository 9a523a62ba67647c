//! Block devices: making, checking and growing the filesystems on them (NODE-29.5, NODE-29.6), and holding them
//! (NODE-17.1).

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use linux::fs::{self, CheckError, FsType, GrowError, Mkfs, MkfsError, Probe};
use linux::holders;
use linux::loopdev::{self, Attach, Detach, LoopError};
use linux::mountinfo::{MountTable, canonical_mount_point};
use rustix::fs::{FileType, fstat, ioctl_blksszget};
use rustix::io::Errno;

use super::isolate::Call;
use super::{Options, failed, mounting, refused};
use crate::host::{HostError, MountCall};

/// What the kernel makes up whenever it is read.
const RANDOM_UUID: &str = "/proc/sys/kernel/random/uuid";

/// How long a loop device that nobody uses may take to let go.
const LETTING_GO: Duration = Duration::from_secs(5);

/// Only zeros are unformatted: whatever else is on a device is somebody's.
pub(super) fn format_and_mount(call: &Call, mount: &MountCall, options: Options) -> Result<(), HostError> {
    let device = call.path.as_path();
    let read_only = mount.options.iter().any(|option| option == "ro");
    let wanted = if mount.fs_type.is_empty() { FsType::default().name() } else { mount.fs_type.as_str() };
    let found = fs::probe(device).map_err(|error| refused(call, None, &error))?;
    match found {
        Probe::Empty if read_only => {
            return Err(call.refused(0, "there is no filesystem on it, and none can be made read-only"));
        }
        Probe::Empty => format(call, wanted, options.format)?,
        Probe::Known(fs_type, _) if !read_only => check(call, fs_type)?,
        Probe::Known(..) | Probe::Foreign(_) => {}
    }
    let mut mount = MountCall { fs_type: wanted.to_owned(), ..mount.clone() };
    mount.source = device.display().to_string();
    mount.options.push("defaults".to_owned());
    mounting::mount(call, &mount, options.tool).map_err(|error| explain(error, &found, wanted))
}

/// Says what is on a device that cannot be mounted as what it was taken for.
fn explain(error: HostError, found: &Probe, wanted: &str) -> HostError {
    let there = match found {
        Probe::Known(fs_type, _) if fs_type.name() != wanted => fs_type.name(),
        Probe::Foreign(what) => what,
        Probe::Known(..) | Probe::Empty => return error,
    };
    match error {
        HostError::Refused { path, message, .. } => {
            HostError::WrongFilesystem { path, wanted: wanted.to_owned(), there: there.to_owned(), message }
        }
        other @ (HostError::Hung { .. } | HostError::WrongFilesystem { .. }) => other,
    }
}

fn format(call: &Call, wanted: &str, deadline: Duration) -> Result<(), HostError> {
    let fs_type: FsType = wanted.parse().map_err(|error| refused(call, None, &error))?;
    let io = |error: std::io::Error| call.refused(error.raw_os_error().unwrap_or(0), error.to_string());
    let uuid = std::fs::read_to_string(RANDOM_UUID).map_err(io)?;
    let uuid = uuid.trim().parse().map_err(|error| refused(call, None, &error))?;
    let device = File::open(&call.path).map_err(io)?;
    let sector_size = ioctl_blksszget(&device).map_err(|errno| io(errno.into()))?;
    drop(device);
    tracing::info!(device = %call.path.display(), %fs_type, "an empty device gets a filesystem");
    let how = Mkfs { uuid, sector_size, lock: None };
    fs::mkfs(fs_type, &call.path, &how, deadline).map_err(|error| match &error {
        MkfsError::Command(error) => mounting::tool(call, error),
        MkfsError::Sys(error) => failed(call, error),
        MkfsError::TooSmall { .. } => refused(call, None, &error),
    })
}

/// Errors that a person must look at stop the mount; a check that could not be made does not.
fn check(call: &Call, fs_type: FsType) -> Result<(), HostError> {
    match fs::check(fs_type, &call.path) {
        Ok(_) => Ok(()),
        Err(error @ CheckError::Unrepaired { .. }) => Err(refused(call, None, &error)),
        Err(error) => {
            tracing::warn!(device = %call.path.display(), error = runtime::causes(&error), "a filesystem could not be checked");
            Ok(())
        }
    }
}

pub(super) fn grow(call: &Call) -> Result<(), HostError> {
    let point = canonical_mount_point(&call.path).map_err(|error| failed(call, &error))?;
    let table = MountTable::read().map_err(|error| refused(call, None, &error))?;
    let Some(mount) = point.as_deref().and_then(|point| table.top(point)) else {
        return Err(call.refused(Errno::INVAL.raw_os_error(), "nothing is mounted there"));
    };
    // The three share their resizing, and the ext4 driver mounts all.
    let name = if matches!(mount.fs_type.as_str(), "ext2" | "ext3") { "ext4" } else { &mount.fs_type };
    let fs_type: FsType = name.parse().map_err(|error| refused(call, None, &error))?;
    let grown = fs::grow(fs_type, Path::new(&mount.source), Some(&call.path)).map_err(|error| match &error {
        GrowError::Command(error) => mounting::tool(call, error),
        GrowError::Sys(error) => failed(call, error),
        _ => refused(call, None, &error),
    })?;
    tracing::info!(path = %call.path.display(), ?grown, "a filesystem was grown to its device");
    Ok(())
}

/// A loop device keeps the node open, also when we are gone. Read-only: nobody is meant to use it.
pub(super) fn hold(call: &Call) -> Result<PathBuf, HostError> {
    if let Some(held) = held_by(call)?.first() {
        return Ok(held.device.path.clone());
    }
    let io = |error: std::io::Error| call.refused(error.raw_os_error().unwrap_or(0), error.to_string());
    // A loop device that was attached read-only stays marked so when it is free, and looks broken to whoever finds it: only
    // what cannot be written is held that way.
    let (device, read_only) = match File::options().read(true).write(true).open(&call.path) {
        Ok(device) => (device, false),
        Err(_) => (File::open(&call.path).map_err(io)?, true),
    };
    let stat = fstat(&device).map_err(|errno| io(errno.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
        return Err(call.refused(Errno::NOTBLK.raw_os_error(), "it is not a block device"));
    }
    let block_size = ioctl_blksszget(&device).map_err(|errno| io(errno.into()))?;
    let how = Attach { read_only, autoclear: false, direct_io: false, block_size };
    let attached = loopdev::attach(&device, how).map_err(|error| no_loop(call, &error))?;
    Ok(attached.device.path)
}

pub(super) fn let_go(call: &Call) -> Result<(), HostError> {
    for held in held_by(call)? {
        let end = loopdev::detach_and_wait(&held.device, held.backing, LETTING_GO);
        if end.map_err(|error| no_loop(call, &error))? == Detach::StillBusy {
            let holders = holders::of_device(held.device.major, held.device.minor);
            let message = format!("{} is in use: {holders}", held.device.path.display());
            return Err(call.refused(Errno::BUSY.raw_os_error(), message));
        }
    }
    Ok(())
}

/// By path, because the nodes of all pods that use a device are one file.
fn held_by(call: &Call) -> Result<Vec<loopdev::LoopStatus>, HostError> {
    let Some(path) = canonical_mount_point(&call.path).map_err(|error| failed(call, &error))? else {
        return Ok(Vec::new());
    };
    loopdev::opened_as(&path).map_err(|error| no_loop(call, &error))
}

fn no_loop(call: &Call, error: &LoopError) -> HostError {
    match error {
        LoopError::Sys(error) => failed(call, error),
        error => refused(call, None, error),
    }
}
