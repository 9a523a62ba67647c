//! NodeStageVolume and NodeUnstageVolume.
//!
//! A mount volume is staged when its filesystem is mounted at the staging path; its loop device goes by itself with the
//! last mount. A block volume is staged when its image has a loop device. A directory volume is staged by a bind mount.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use driver_sdk::{Access, Error, Kind as What, StageVolume, VolumeId, failpoint};

use super::flush::{Flush, writable_mounts};
use super::seen::{device_of, directory_mounts, mounts_of_loop, still_held};
use super::{capability_hash, check_use, filesystem, group, settled};
use crate::controller::tune;
use crate::core::{Core, Found};
use crate::fault;
use crate::pool::{Hold, ObjectLock, Place};
use crate::record::{AccessKind, Format, Kind, NodeNotes, Staged, VolumeRecord};
use linux::loopdev::{self, Attach, Detach, LoopStatus};
use linux::mountinfo::MountTable;
use linux::mounts::{self, BindOptions, MountFlags, UnmountError};

/// How long a loop device may take to go after the last unmount.
const LOOP_PATIENCE: Duration = Duration::from_secs(10);
/// After this time it is looked at who holds a device.
const MOMENT: Duration = Duration::from_millis(500);

/// One stage call, looked up and checked.
pub(super) struct Staging<'a> {
    pub(super) found: &'a Found<'a>,
    pub(super) lock: &'a ObjectLock,
    pub(super) record: VolumeRecord,
    pub(super) path: &'a Path,
    pub(super) flags: MountFlags,
    pub(super) read_only: bool,
}

impl Core {
    pub fn stage(&self, request: &StageVolume) -> Result<(), Error> {
        let (found, _) = self.volume(&request.volume)?;
        let lock = self.hold(&found, Hold::Exclusive)?;
        let record: VolumeRecord = found.object.record().map_err(fault::record)?;
        check_use(&request.capability, &record)?;
        let attachment = self.attachment(&found, &record)?;
        let path = settled(&request.staging)?;
        if !path.is_dir() {
            return Err(Error::precondition(format!("the staging path {} is not a directory", path.display())));
        }
        let wanted = Staged {
            path: path.clone(),
            capability: capability_hash(&request.capability),
            read_only: request.capability.mode.is_read_only()
                || attachment.is_some_and(|attachment| attachment.read_only),
        };
        let (flags, owner) = match &request.capability.access {
            Access::Block => (MountFlags::default(), None),
            Access::Mount(options) => (parse_flags(&options.flags)?, options.group.as_deref()),
        };
        let read_only = wanted.read_only || flags.is_read_only();
        self.note_staging(&found, &wanted)?;
        // Volumes of an earlier version have no reserved space for a mark.
        if let Err(error) = crate::loss::reserve_room(&found.object) {
            tracing::warn!(volume = %record.id, %error, "could not reserve space for a mark of lost writes");
        }
        failpoint::hit("stage.noted");
        let staging = Staging { found: &found, lock: &lock, record, path: &path, flags, read_only };
        let done = match (staging.record.kind, staging.record.access) {
            (Kind::Image, AccessKind::Mount) => self.stage_filesystem(&staging),
            (Kind::Image, AccessKind::Block) => self.stage_device(&staging),
            (Kind::Directory | Kind::Subvolume, _) => stage_directory(&staging),
        };
        done.and_then(|()| match owner {
            Some(owner) if !read_only => group::give(&path, owner),
            _ => Ok(()),
        })
        .inspect(|()| failpoint::hit("stage.done"))
    }

    /// Notes what is about to be staged, unless something else is.
    fn note_staging(&self, found: &Found<'_>, wanted: &Staged) -> Result<(), Error> {
        let mut notes = found.object.notes(&self.boot_id);
        if notes.staged.as_ref() == Some(wanted) {
            return Ok(());
        }
        if let Some(now) = &notes.staged
            && self.is_staged_at(found, &now.path)?
        {
            return Err(if now.path == wanted.path {
                Error::exists(format!("it is staged at {} with another capability", now.path.display()))
            } else {
                Error::precondition(format!("it is staged at {}; a volume has one staging path", now.path.display()))
            });
        }
        notes.staged = Some(wanted.clone());
        found.object.write_notes(&notes).map_err(fault::sys)
    }

    /// Does the kernel show the volume staged there?
    pub(super) fn is_staged_at(&self, found: &Found<'_>, path: &Path) -> Result<bool, Error> {
        let record: VolumeRecord = found.object.record().map_err(fault::record)?;
        let table = MountTable::read().map_err(fault::sys)?;
        if record.kind != Kind::Image {
            return Ok(directory_mounts(found, &table).any(|mount| mount.mount_point == path));
        }
        let image = File::open(found.object.image()).map_err(|error| fault::io("opening the volume's image", error))?;
        let Some(status) = device_of(&image)?.attached else { return Ok(false) };
        Ok(match record.access {
            AccessKind::Block => true,
            AccessKind::Mount => mounts_of_loop(&table, &status.device).any(|mount| mount.mount_point == path),
        })
    }

    pub fn unstage(&self, id: &VolumeId, staging: &Path) -> Result<(), Error> {
        let path = match settled(staging) {
            Ok(path) => path,
            // The directory above is gone, and with it whatever was staged there.
            Err(_) => staging.to_owned(),
        };
        let Some(found) = self.find(Place::Volumes, id.as_str())? else { return nothing_mounted_at(&path, id) };
        let lock = self.hold(&found, Hold::Exclusive)?;
        let table = MountTable::read().map_err(fault::sys)?;
        let shown = super::all_mounts(&found, &table)?;
        if let Some(other) = shown.iter().find(|place| **place != path) {
            // Tearing down under a workload would be worse than any error; a repeat after unpublishing succeeds.
            return Err(Error::busy(format!("volume {id} is still shown at {}; unpublish it first", other.display())));
        }
        if table.top(&path).is_some() && shown.is_empty() {
            return Err(Error::precondition(format!("what is mounted at {} is not volume {id}", path.display())));
        }
        uncover(&path, &found)?;
        // What is in an inline volume goes with it, so that nothing is lost if it is not written.
        let is_kept = !found.object.record::<VolumeRecord>().is_ok_and(|record| record.inline.is_some());
        let mut flush =
            Flush::open(&found, writable_mounts(&found, &MountTable::read().map_err(fault::sys)?)?.into_iter())?;
        if is_kept {
            self.flush_or_tell(&found, &flush)?;
        }
        failpoint::hit("unstage.synced");
        flush.close_mount();
        unmount(&path)?;
        failpoint::hit("unstage.unmounted");
        // Unmounting writes, too.
        if is_kept {
            self.flush_or_tell(&found, &flush)?;
        }
        flush.close_device();
        release_device(&found)?;
        failpoint::hit("unstage.released");
        // Nothing shows the volume any more, so nothing is left to be noted.
        let notes = NodeNotes { boot_id: self.boot_id.clone(), ..Default::default() };
        found.object.write_notes(&notes).map_err(|error| fault::sys(error).leaving_residue())?;
        failpoint::hit("unstage.noted");
        drop(lock);
        Ok(())
    }

    fn stage_filesystem(&self, staging: &Staging<'_>) -> Result<(), Error> {
        let Staging { found, record, path, .. } = staging;
        let image = open_image(found, &record.id)?;
        let device = device_of(&image)?;
        let table = MountTable::read().map_err(fault::sys)?;
        match (&device.attached, &record.format) {
            (Some(status), Format::Made { fs, filled }) if mounts_of_loop(&table, &status.device).next().is_some() => {
                adopt_mount(status, &table, path)?;
                return filesystem::finish_growing(staging, &status.device, (*fs, *filled));
            }
            // Another mount namespace has a copy of an earlier mount, or a person attached the image.
            (Some(status), Format::Made { fs, filled }) => {
                return filesystem::mount_again(staging, status, &table, (*fs, *filled));
            }
            // Mounted although the record says that it is not ready to be: a crash while the journal of a copy was
            // replayed. Nobody was told that it is staged.
            (Some(status), _) => {
                adopt_mount(status, &table, path)?;
                unmount(path)?;
                release_device(found)?;
            }
            (None, _) if table.top(path).is_some() => {
                return Err(Error::precondition(format!("something else is mounted at {}", path.display())));
            }
            (None, _) => {}
        }
        self.mark_earlier_loss(found, &image)?;
        filesystem::prepare_and_mount(self, staging, &image)
    }

    fn stage_device(&self, staging: &Staging<'_>) -> Result<(), Error> {
        let Staging { found, record, read_only, .. } = staging;
        let image = open_image(found, &record.id)?;
        if let Some(status) = device_of(&image)?.attached {
            if status.offset != 0 || status.size_limit != 0 {
                return Err(Error::precondition(format!(
                    "{} shows only a part of the volume's image",
                    status.device.path.display()
                )));
            }
            status.device.refresh_capacity().map_err(fault::sys)?;
            return tune(&status.device, &record.tuning);
        }
        self.mark_earlier_loss(found, &image)?;
        // No autoclear: a bind mount of the node does not hold the device open, and nothing else may (LOCAL-F.1).
        let how = Attach {
            read_only: *read_only,
            autoclear: false,
            direct_io: record.tuning.direct_io,
            block_size: record.block_size,
        };
        let attached = loopdev::attach(&image, how).map_err(fault::sys)?;
        failpoint::hit("stage.device_attached");
        tune(&attached.device, &record.tuning).map_err(Error::leaving_residue)
    }
}

/// The image has a device already: fine if that is our mount, otherwise it is not ours to touch.
fn adopt_mount(status: &LoopStatus, table: &MountTable, path: &Path) -> Result<(), Error> {
    let mut mounts = mounts_of_loop(table, &status.device).peekable();
    let device = status.device.path.display();
    if mounts.peek().is_none() {
        return Err(Error::busy(format!(
            "the volume's image is attached to {device}, which nobody mounted; detach it (losetup -d)"
        )));
    }
    match table.top(path) {
        Some(top) if mounts.any(|mount| mount.id == top.id) => Ok(()),
        _ => Err(Error::precondition(format!("the volume's device {device} is mounted elsewhere"))),
    }
}

fn stage_directory(staging: &Staging<'_>) -> Result<(), Error> {
    let Staging { found, path, read_only, flags, .. } = staging;
    let table = MountTable::read().map_err(fault::sys)?;
    if directory_mounts(found, &table).any(|mount| mount.mount_point == *path) {
        return Ok(());
    }
    if table.top(path).is_some() {
        return Err(Error::precondition(format!("something else is mounted at {}", path.display())));
    }
    let options = BindOptions { read_only: *read_only, ..flags.bind_options() };
    mounts::bind(&found.object.data(), path, options).map_err(|error| Error::backend("mounting the directory", error))
}

/// Lets go of the volume's device once nothing shows it. A device that goes by itself is only waited for.
fn release_device(found: &Found<'_>) -> Result<(), Error> {
    let image = match File::open(found.object.image()) {
        Ok(image) => image,
        // A volume that lost its image has nothing left to let go of, and must not be stuck on the node for it.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(fault::io("opening the volume's image", error)),
    };
    let device = device_of(&image)?;
    let Some(status) = device.attached else { return Ok(()) };
    let wait = |patience| {
        let done = if status.autoclear {
            loopdev::wait_until_free(device.backing, patience)
        } else {
            loopdev::detach_and_wait(&status.device, device.backing, patience)
        };
        done.map_err(|error| fault::sys(error).leaving_residue())
    };
    // Who has it open lets go soon. A mount does not, such as the copy of ours in a mount namespace that was made meanwhile:
    // the caller hears of it at once, and its other volumes need not wait behind this one.
    if wait(MOMENT)? == Detach::Detached {
        return Ok(());
    }
    let mounts = linux::holders::mounts_of_device(status.device.major, status.device.minor);
    if !mounts.is_empty() {
        return Err(Error::busy(format!(
            "the volume's device {} is still in use: {mounts}",
            status.device.path.display()
        )));
    }
    match wait(LOOP_PATIENCE)? {
        Detach::Detached => Ok(()),
        Detach::StillBusy => Err(Error::busy(still_held(&status.device))),
    }
}

/// Unmounts what stands above the volume's own mount at its staging path, so that the volume can be synced there.
fn uncover(path: &Path, found: &Found<'_>) -> Result<(), Error> {
    loop {
        let table = MountTable::read().map_err(fault::sys)?;
        let own: Vec<u64> = writable_mounts(found, &table)?.iter().map(|mount| mount.id).collect();
        let layers: Vec<u64> = table.at(path).map(|mount| mount.id).collect();
        let is_covered =
            layers.iter().any(|id| own.contains(id)) && layers.last().is_some_and(|top| !own.contains(top));
        if !is_covered {
            return Ok(());
        }
        mounts::unmount_top(path, mounts::Force::No).map_err(|error| unmount_error(path, error))?;
    }
}

pub(super) fn unmount(path: &Path) -> Result<(), Error> {
    mounts::unmount_all(path).map(drop).map_err(|error| unmount_error(path, error))
}

fn unmount_error(path: &Path, error: UnmountError) -> Error {
    match error {
        UnmountError::Busy(place) => {
            let holders = linux::holders::of_mount(&place);
            Error::busy(format!("{} is in use and cannot be unmounted: {holders}", place.display()))
        }
        other => Error::backend(format!("unmounting {}", path.display()), other).leaving_residue(),
    }
}

pub(super) fn open_image(found: &Found<'_>, id: &str) -> Result<File, Error> {
    let path = found.object.image();
    File::options().read(true).write(true).open(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Error::precondition(format!("the image of volume {id} is missing; its record is there"))
        }
        _ => fault::io(format!("opening the image of volume {id}"), error),
    })
}

pub(super) fn parse_flags(flags: &[String]) -> Result<MountFlags, Error> {
    MountFlags::parse(flags).map_err(|error| Error::invalid("mount_flags", error.to_string()))
}

/// Undoing something for a volume that is gone: done if nothing is there.
pub(super) fn nothing_mounted_at(path: &Path, id: &VolumeId) -> Result<(), Error> {
    let table = MountTable::read().map_err(fault::sys)?;
    if table.top(path).is_none() { Ok(()) } else { Err(Error::not_found(What::Volume, id.as_str())) }
}
