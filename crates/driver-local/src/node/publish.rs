//! NodePublishVolume and NodeUnpublishVolume.
//!
//! A mount volume is shown by a bind mount of its staging path that is read-only from its first moment if it is to be
//! (LOCAL-0.14). A block volume is shown by a bind mount of its device node; since such a mount cannot stop writers
//! (LOCAL-0.13), the device itself is made read-only, and mixed uses of one device are refused.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use driver_sdk::{Access, Error, Publication, PublishVolume, VolumeId, failpoint};

use super::seen::{device_of, directory_mounts, mounts_of_loop};
use super::stage::{nothing_mounted_at, open_image, parse_flags, unmount};
use super::{check_use, group, settled};
use crate::core::{Core, Found};
use crate::fault;
use crate::pool::{Hold, Place};
use crate::record::{AccessKind, Kind, NodeNotes, Published, VolumeRecord};
use linux::loopdev::LoopDevice;
use linux::mountinfo::{Mount, MountTable};
use linux::mounts::{self, BindOptions, MountError};

/// What is bound to a target.
enum Shown {
    Directory(PathBuf),
    Node(LoopDevice),
}

impl Core {
    pub fn publish(&self, request: &PublishVolume) -> Result<(), Error> {
        let (found, _) = self.volume(&request.volume)?;
        let lock = self.hold(&found, Hold::Exclusive)?;
        let record: VolumeRecord = found.object.record().map_err(fault::record)?;
        check_use(&request.capability, &record)?;
        let attachment = self.attachment(&found, &record)?;
        let staging = request.staging.as_deref().ok_or_else(|| Error::precondition("a staging path is required"))?;
        let staging = settled(staging)?;
        let notes = found.object.notes(&self.boot_id);
        let staged_read_only = notes.staged.as_ref().is_some_and(|staged| staged.read_only);
        let read_only = request.readonly
            || request.capability.mode.is_read_only()
            || staged_read_only
            || attachment.is_some_and(|attachment| attachment.read_only);
        let target = settled(&request.target)?;
        let shown = self.what_to_show(&found, &record, &staging)?;
        if already_shown(&found, &record, &target, read_only)? {
            return Ok(());
        }
        let entry = Published { mode: request.capability.mode, read_only, fingerprint: request.fingerprint.clone() };
        self.note_publication(&found, notes, &target, entry)?;
        failpoint::hit("publish.noted");
        if let Shown::Node(device) = &shown {
            self.settle_device_mode(&found, device, read_only)?;
        }
        show(&shown, &target, request, read_only)?;
        if let (Access::Mount(options), false) = (&request.capability.access, read_only)
            && let Some(owner) = &options.group
        {
            group::give(&target, owner).map_err(Error::leaving_residue)?;
        }
        failpoint::hit("publish.done");
        drop(lock);
        Ok(())
    }

    /// The staged volume, as the kernel shows it.
    fn what_to_show(&self, found: &Found<'_>, record: &VolumeRecord, staging: &Path) -> Result<Shown, Error> {
        let not_staged = || {
            Error::precondition(format!("volume {} is not staged at {}; stage it first", record.id, staging.display()))
        };
        if record.kind == Kind::Image && record.access == AccessKind::Block {
            let image = open_image(found, &record.id)?;
            let status = device_of(&image)?.attached.ok_or_else(not_staged)?;
            return Ok(Shown::Node(status.device));
        }
        if self.is_staged_at(found, staging)? { Ok(Shown::Directory(staging.to_owned())) } else { Err(not_staged()) }
    }

    fn note_publication(
        &self,
        found: &Found<'_>,
        mut notes: NodeNotes,
        target: &Path,
        entry: Published,
    ) -> Result<(), Error> {
        if notes.published.get(target) == Some(&entry) {
            return Ok(());
        }
        notes.published.insert(target.to_owned(), entry);
        found.object.write_notes(&notes).map_err(fault::sys)
    }

    /// A device is writable or not for everyone who sees it.
    fn settle_device_mode(&self, found: &Found<'_>, device: &LoopDevice, read_only: bool) -> Result<(), Error> {
        let table = MountTable::read().map_err(fault::sys)?;
        let now = device.is_read_only().map_err(fault::sys)?;
        let notes = found.object.notes(&self.boot_id);
        if now != read_only
            && let Some(other) = table.of_block_node(device.major, device.minor).next()
        {
            return Err(Error::precondition(format!(
                "the device is shown {} at {}, and one device cannot be both",
                if now { "read-only" } else { "read-write" },
                other.mount_point.display()
            )));
        }
        // A device that was staged read-only stays so.
        if !read_only && notes.staged.is_some_and(|staged| staged.read_only) {
            return Ok(());
        }
        device.set_read_only(read_only).map_err(fault::sys)
    }

    /// Where the volume is published, from the mount table, with what the notes add.
    pub fn published(&self, id: &VolumeId) -> Result<Vec<Publication>, Error> {
        let (found, _) = self.volume(id)?;
        let notes = found.object.notes(&self.boot_id);
        let table = MountTable::read().map_err(fault::sys)?;
        let staging = notes.staged.as_ref().map(|staged| staged.path.as_path());
        let mut targets = super::all_mounts(&found, &table)?;
        targets.sort_unstable();
        targets.dedup();
        targets.retain(|target| Some(target.as_path()) != staging);
        Ok(targets
            .into_iter()
            .map(|target| {
                let noted = notes.published.get(&target);
                Publication {
                    mode: noted.map_or(driver_sdk::AccessMode::SingleNodeWriter, |noted| noted.mode),
                    fingerprint: noted.map(|noted| noted.fingerprint.clone()),
                    target,
                }
            })
            .collect())
    }

    pub fn unpublish(&self, id: &VolumeId, target: &Path) -> Result<(), Error> {
        let Ok(target) = settled(target) else {
            // The directory above the target is gone: nothing can be mounted there.
            return Ok(());
        };
        let Some(found) = self.find(Place::Volumes, id.as_str())? else {
            nothing_mounted_at(&target, id)?;
            return remove_target(&target);
        };
        let lock = self.hold(&found, Hold::Exclusive)?;
        let table = MountTable::read().map_err(fault::sys)?;
        if table.top(&target).is_some() && !super::all_mounts(&found, &table)?.contains(&target) {
            return Err(Error::precondition(format!("what is mounted at {} is not volume {id}", target.display())));
        }
        unmount(&target)?;
        failpoint::hit("unpublish.unmounted");
        remove_target(&target)?;
        failpoint::hit("unpublish.removed");
        let mut notes = found.object.notes(&self.boot_id);
        // Without its mount a note says nothing, so that one which cannot be rewritten (a full pool) does no harm.
        if notes.published.remove(&target).is_some()
            && let Err(error) = found.object.write_notes(&notes)
        {
            tracing::warn!(volume = %id, error = %fault::sys(error).chain(), "could not take back the note of a publication");
        }
        failpoint::hit("unpublish.noted");
        drop(lock);
        Ok(())
    }
}

/// Is the target as it should be already? Something of ours in another mode is a conflict, something else a refusal.
fn already_shown(found: &Found<'_>, record: &VolumeRecord, target: &Path, read_only: bool) -> Result<bool, Error> {
    let table = MountTable::read().map_err(fault::sys)?;
    let Some(top) = table.top(target) else { return Ok(false) };
    let (ours, now_read_only) = match (record.kind, record.access) {
        (Kind::Image, access) => {
            let image = open_image(found, &record.id)?;
            let Some(status) = device_of(&image)?.attached else { return Err(occupied(target)) };
            match access {
                AccessKind::Mount => {
                    (mounts_of_loop(&table, &status.device).any(|mount| mount.id == top.id), top.is_read_only())
                }
                AccessKind::Block => {
                    let shown =
                        table.of_block_node(status.device.major, status.device.minor).any(|mount| mount.id == top.id);
                    (shown, status.device.is_read_only().map_err(fault::sys)?)
                }
            }
        }
        (Kind::Directory | Kind::Subvolume, _) => {
            (directory_mounts(found, &table).any(|mount| mount.id == top.id), is_ro(top))
        }
    };
    match (ours, now_read_only == read_only) {
        (true, true) => Ok(true),
        (true, false) => Err(Error::exists(format!(
            "it is published at {} {}, and the other is asked for",
            target.display(),
            if now_read_only { "read-only" } else { "read-write" }
        ))),
        (false, _) => Err(occupied(target)),
    }
}

/// A bind mount's own flag; the pool below a directory volume is writable.
fn is_ro(mount: &Mount) -> bool {
    mount.has_option("ro")
}

fn occupied(target: &Path) -> Error {
    Error::precondition(format!("something else is mounted at {}", target.display()))
}

/// Makes the target and binds the volume to it. On failure nothing of ours is left there.
fn show(shown: &Shown, target: &Path, request: &PublishVolume, read_only: bool) -> Result<(), Error> {
    let made = match shown {
        Shown::Directory(_) => fs::create_dir(target),
        Shown::Node(_) => File::options().write(true).create_new(true).open(target).map(drop),
    };
    match made {
        Ok(()) => {}
        // A repeat, or a caller that makes the target itself.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => check_target(shown, target)?,
        Err(error) => return Err(fault::io(format!("making {}", target.display()), error)),
    }
    failpoint::hit("publish.target_made");
    let bound = match shown {
        Shown::Directory(staging) => {
            let options = match &request.capability.access {
                Access::Mount(options) => parse_flags(&options.flags)?.bind_options(),
                Access::Block => BindOptions::default(),
            };
            mounts::bind(staging, target, BindOptions { read_only, ..options })
        }
        Shown::Node(device) => mounts::bind(&device.path, target, BindOptions::default()),
    };
    bound.map_err(|error| {
        let refusal = match error {
            MountError::IsSymlink(_) => Error::precondition(error.to_string()),
            other => Error::backend(format!("mounting the volume at {}", target.display()), other),
        };
        match remove_target(target) {
            Ok(()) => refusal,
            Err(_) => refusal.leaving_residue(),
        }
    })
}

fn check_target(shown: &Shown, target: &Path) -> Result<(), Error> {
    let meta =
        fs::symlink_metadata(target).map_err(|error| fault::io(format!("reading {}", target.display()), error))?;
    let fits = match shown {
        Shown::Directory(_) => meta.is_dir(),
        Shown::Node(_) => meta.is_file(),
    };
    if fits {
        return Ok(());
    }
    let wanted = match shown {
        Shown::Directory(_) => "directory",
        Shown::Node(_) => "regular file",
    };
    Err(Error::precondition(format!("{} exists and is not a {wanted}", target.display())))
}

/// Removes what publishing made, and nothing else: an empty directory or an empty file (LOCAL-R23, LOCAL-R24).
pub(super) fn remove_target(target: &Path) -> Result<(), Error> {
    let meta = match fs::symlink_metadata(target) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(fault::io(format!("reading {}", target.display()), error).leaving_residue()),
    };
    let removed = if meta.is_dir() {
        fs::remove_dir(target)
    } else if meta.is_file() && meta.len() == 0 {
        fs::remove_file(target)
    } else {
        return Err(Error::busy(format!("{} is not something this driver made; it is left alone", target.display())));
    };
    match removed {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            Err(Error::busy(format!("{} is not a mount and holds files; it is left alone", target.display())))
        }
        Err(error) => Err(fault::io(format!("removing {}", target.display()), error).leaving_residue()),
    }
}
