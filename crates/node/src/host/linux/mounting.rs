//! Mounts, binds and unmounts.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use linux::command::{CommandError, Run, Tool};
use linux::holders;
use linux::mountinfo::{self, MountTable, Watch};
use linux::mounts::{self, BindOptions, MountError, UnmountError};
use linux::subpath::{self, SubPathError};
use rustix::io::Errno;

use super::isolate::Call;
use super::{failed, refused};
use crate::host::{Access, Force, HostError, Mount, MountCall, Mounts, SubPath};

pub(super) const TABLE: &str = "/proc/thread-self/mountinfo";

const MOUNT: Tool = Tool { name: "mount", package: "mount" };

/// How long a reading counts while no mount comes or goes. The kernel tells of those, and not of a filesystem that makes
/// itself read-only.
const FRESH: Duration = Duration::from_secs(1);

/// The last reading of the mount table: with hundreds of mounts, and everybody asking, it is read once and not each time.
#[derive(Debug, Default)]
pub(super) struct Table {
    last: Mutex<Option<Reading>>,
}

#[derive(Debug)]
struct Reading {
    watch: Watch,
    at: Instant,
    mounts: Mounts,
}

impl Table {
    pub(super) fn read(&self, call: &Call) -> Result<Mounts, HostError> {
        // Whoever waits here waits for a reading that began after the question, or finds that one was enough.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let watch = match last.take() {
            None => Watch::new().map_err(|error| failed(call, &error))?,
            Some(reading) => {
                let changed = reading.watch.changed().map_err(|error| failed(call, &error))?;
                if !changed && reading.at.elapsed() < FRESH {
                    return Ok(last.insert(reading).mounts.clone());
                }
                reading.watch
            }
        };
        let at = Instant::now();
        let table = MountTable::read().map_err(|error| refused(call, None, &error))?;
        let mounts = Mounts(in_order(&table).into_iter().map(shown).collect());
        Ok(last.insert(Reading { watch, at, mounts }).mounts.clone())
    }
}

/// The order of the kernel, but of mounts on top of each other the visible one last.
fn in_order(table: &MountTable) -> Vec<&mountinfo::Mount> {
    let mut layers: BTreeMap<&OsStr, usize> = BTreeMap::new();
    for mount in table.iter() {
        *layers.entry(mount.mount_point.as_os_str()).or_default() += 1;
    }
    let mut ordered = Vec::new();
    for mount in table.iter() {
        match layers.get_mut(mount.mount_point.as_os_str()) {
            Some(1) => ordered.push(mount),
            // All layers come where the first line of them is.
            Some(stacked @ 2..) => {
                *stacked = 0;
                ordered.extend(table.at(&mount.mount_point));
            }
            Some(0) | None => {}
        }
    }
    ordered
}

fn shown(mount: &mountinfo::Mount) -> Mount {
    Mount {
        point: mount.mount_point.clone(),
        device: (mount.major, mount.minor),
        root: mount.root.clone(),
        fs_type: mount.fs_type.clone(),
        source: mount.source.clone(),
        read_only: mount.is_read_only(),
        shared: mount.shared,
    }
}

pub(super) fn bind(call: &Call, target: &std::path::Path, access: Access) -> Result<(), HostError> {
    let options = BindOptions { read_only: access == Access::ReadOnly, ..BindOptions::default() };
    mounts::bind(&call.path, target, options).map_err(|error| not_mounted(call, error))
}

fn not_mounted(call: &Call, error: MountError) -> HostError {
    match error {
        MountError::Sys(error) => failed(call, &error),
        error => refused(call, error.errno(), &error),
    }
}

fn not_unmounted(call: &Call, error: UnmountError) -> HostError {
    match error {
        UnmountError::Sys(error) => failed(call, &error),
        // Who it is says what to do about it (NODE-31.26).
        UnmountError::Busy(ref place) => {
            let message = format!("{error}: {}", holders::of_mount(place));
            call.refused(Errno::BUSY.raw_os_error(), message)
        }
        error => refused(call, None, &error),
    }
}

pub(super) fn make_shared(call: &Call) -> Result<(), HostError> {
    mounts::make_shared(&call.path).map_err(|error| not_unmounted(call, error))
}

pub(super) fn mount(call: &Call, mount: &MountCall, deadline: Duration) -> Result<(), HostError> {
    let mut run = Run::new(MOUNT, deadline);
    if !mount.fs_type.is_empty() {
        run = run.args(["-t", &mount.fs_type]);
    }
    if !mount.options.is_empty() {
        run = run.args(["-o", &mount.options.join(",")]);
    }
    // What follows is no option, whatever it begins with.
    let run = run.args(["--", &mount.source]).path(&mount.target);
    // mount(8) does not always say as what it tried.
    run.go().map(drop).map_err(|error| match (tool(call, &error), mount.fs_type.as_str()) {
        (HostError::Refused { doing, path, errno, message }, fs_type) if !fs_type.is_empty() => {
            HostError::Refused { doing, path, errno, message: format!("{message} (as {fs_type})") }
        }
        (error, _) => error,
    })
}

/// A tool that was killed has not answered; what it asked of the kernel may still happen.
pub(super) fn tool(call: &Call, error: &CommandError) -> HostError {
    match error {
        CommandError::TimedOut { deadline, .. } => call.hung(*deadline),
        error => refused(call, None, error),
    }
}

pub(super) fn unmount(call: &Call, force: Force) -> Result<(), HostError> {
    let force = match force {
        Force::No => mounts::Force::No,
        Force::Yes => mounts::Force::Abort,
        Force::Lazy => mounts::Force::Detach,
    };
    mounts::unmount_top(&call.path, force).map(drop).map_err(|error| not_unmounted(call, error))
}

pub(super) fn expose(call: &Call, part: &SubPath) -> Result<(), HostError> {
    let read_only = part.access == Access::ReadOnly;
    let exposed = subpath::expose(&part.volume, &part.sub_path, &part.target, read_only);
    exposed.map(drop).map_err(|error| match error {
        SubPathError::Sys(error) => failed(call, &error),
        SubPathError::Mount(error) => not_mounted(call, error),
        SubPathError::Unmount(error) => not_unmounted(call, error),
        error @ (SubPathError::NotInside(_) | SubPathError::LeadsOut(_)) => refused(call, None, &error),
    })
}
