//! Copies at one moment: snapshots, restores and clones are all a copy of an origin into a draft.
//!
//! Where files can share extents a copy is instant. Elsewhere every byte is copied, and a copy of something that nobody
//! is writing can go on after a restart where it stopped. A mounted origin is frozen while it is copied, so that the
//! copy is what the filesystem would be after a clean unmount; the freeze has a budget, and a copy that does not fit it
//! is refused rather than left inconsistent.

use std::ffi::OsString;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use driver_sdk::{Error, Reason, SnapshotId, Source, VolumeId, failpoint};
use rustix::io::Errno;

use crate::core::{Core, Found, VOLUME_PREFIX};
use crate::fault;
use crate::loss;
use crate::node::{Flush, SyncedSource, Unwritten};
use crate::params::Spec;
use crate::pool::{COPY_INTENT, Copying, Draft, Hold, Object, ObjectLock, Pool};
use crate::record::{
    self, AccessKind, CopyIntent, Format, Kind, Provisioning, SnapshotRecord, SourceStamp, VolumeRecord,
};
use linux::flush::OpenMount;
use linux::freeze::{FreezeError, Frozen, Held};
use linux::holders::Holders;
use linux::mountinfo::{Mount, MountTable};
use linux::{durable, image, loopdev, tree};

/// What is copied.
#[derive(Debug)]
pub(crate) struct Origin<'a> {
    pub(crate) id: String,
    pub(crate) found: Found<'a>,
    pub(crate) size: u64,
    pub(crate) kind: Kind,
    pub(crate) access: AccessKind,
    pub(crate) format: Format,
    pub(crate) block_size: u32,
}

impl<'a> Origin<'a> {
    pub(crate) fn of_volume(found: Found<'a>, record: &VolumeRecord) -> Self {
        Self {
            id: record.id.clone(),
            found,
            size: record.size,
            kind: record.kind,
            access: record.access,
            format: record.format.clone(),
            block_size: record.block_size,
        }
    }

    /// A copy is the same kind of volume as its origin.
    pub(crate) fn check_fits(&self, spec: &Spec) -> Result<(), Error> {
        if self.access != spec.access {
            return Err(Error::invalid(
                "volume_content_source",
                "a block source gives block volumes, a mount source mount volumes",
            ));
        }
        match (spec.fs, self.format.fs()) {
            (Some(asked), Some(has)) if asked != has => Err(Error::invalid(
                "volume_content_source",
                format!("the source holds {has} and {asked} is asked for; a copy keeps its filesystem"),
            )),
            _ => Ok(()),
        }
    }

    /// Bytes on disk, which a copy or the divergence from a shared copy may need again.
    pub(crate) fn allocated(&self) -> u64 {
        match self.kind {
            Kind::Image => fs::metadata(self.found.object.image()).map_or(0, |meta| meta.blocks().saturating_mul(512)),
            Kind::Directory | Kind::Subvolume => self.size,
        }
    }
}

/// How an origin is in use right now.
#[derive(Debug, PartialEq, Eq)]
enum InUse {
    /// Nobody writes to it.
    Idle,
    /// Its filesystem is mounted so; freezing it stops all writers.
    Mounted(Vec<Mount>),
    /// It is shown as this device. Someone may write to it and nothing can stop them.
    Raw(PathBuf),
    /// It is shown as a directory. Someone may write to it and nothing can stop them.
    Directory,
}

impl Core {
    /// The source of a copy, held for as long as the lock lives. Its record is read once it is locked.
    pub(crate) fn origin(&self, source: &Source) -> Result<(Origin<'_>, ObjectLock), Error> {
        match source {
            Source::Volume(id) => {
                let (found, record, lock) = self.held_volume(id, Hold::Shared)?;
                Ok((Origin::of_volume(found, &record), lock))
            }
            Source::Snapshot(id) => {
                let (found, _) = self.snapshot(id)?;
                let lock = self.hold(&found, Hold::Shared)?;
                let record: SnapshotRecord = found.object.record().map_err(fault::record)?;
                let origin = Origin {
                    id: record.id.clone(),
                    found,
                    size: record.size,
                    kind: record.kind,
                    access: record.access,
                    format: record.format,
                    block_size: record.block_size,
                };
                Ok((origin, lock))
            }
        }
    }

    /// Removes unfinished copies whose source is gone or was changed: they can never go on. A source in a pool that is missing
    /// may still be there. A copy that runs holds its draft and is left alone.
    pub(crate) fn drop_dead_copies(&self) {
        for pool in self.open_pools() {
            for (id, intent) in pool.unfinished_copies() {
                let source = match intent.request.split_once('.') {
                    Some(_) => Source::Snapshot(SnapshotId::new(&intent.request)),
                    None if intent.request.starts_with(VOLUME_PREFIX) => Source::Volume(VolumeId::new(&intent.request)),
                    None => Source::Snapshot(SnapshotId::new(&intent.request)),
                };
                let why = match self.origin(&source) {
                    Ok((origin, _lock)) => match open(&origin.found.object.image()).and_then(|image| stamp(&image)) {
                        Ok(now) if now != intent.stamp => "its source has changed",
                        Ok(_) | Err(_) => continue,
                    },
                    Err(error) if matches!(error.reason(), Reason::NotFound { .. }) => "its source is gone",
                    Err(_) => continue,
                };
                if let Some(dead) = Draft::unfinished_copy(pool, &id, &intent) {
                    tracing::info!(copy = %id, source = %intent.request, why, "an unfinished copy is removed");
                    drop(dead);
                }
            }
        }
    }

    /// Removes unfinished copies of an object that was just deleted, or of a member of it.
    pub(crate) fn drop_copies_of(&self, gone: &str) {
        let member = format!("{gone}.");
        for pool in self.open_pools() {
            let copies = pool.unfinished_copies().into_iter();
            for (id, intent) in copies.filter(|(_, of)| of.request == gone || of.request.starts_with(&member)) {
                drop(Draft::unfinished_copy(pool, &id, &intent));
            }
        }
    }

    /// A draft that holds a copy of one origin.
    pub(crate) fn draft_copy<'p>(
        &self,
        pool: &'p Pool,
        id: &str,
        origin: &Origin<'_>,
        provisioning: Provisioning,
    ) -> Result<Draft<'p>, Error> {
        let instant = copies_instantly(pool, origin) && provisioning == Provisioning::Thin;
        let draft = if instant || origin.kind != Kind::Image {
            let draft = Draft::begin(pool, id)?;
            self.cut(&[(origin, draft.object().clone())])?;
            draft
        } else {
            self.copy_resumably(pool, id, origin)?
        };
        loss::copy_mark(&origin.found.object, &origin.id, draft.object())?;
        Ok(draft)
    }

    /// Copies several origins at one moment, each into its own object's directory.
    pub(crate) fn cut(&self, pairs: &[(&Origin<'_>, Object)]) -> Result<u64, Error> {
        let table = MountTable::read().map_err(fault::sys)?;
        let mut mounted = Vec::new();
        for (origin, _) in pairs {
            match in_use(origin, &table)? {
                InUse::Idle => {}
                InUse::Mounted(mounts) => mounted.push((*origin, open_mounted(origin, &mounts)?)),
                // Alone it is what it would be after a power cut, provided that nothing is written meanwhile.
                InUse::Raw(_) if pairs.len() == 1 => {
                    self.sync_for_copy(&origin.found, &Flush::open(&origin.found, std::iter::empty())?)?;
                }
                InUse::Raw(_) => return Err(unstoppable(origin, "a raw device")),
                // A snapshot of one subvolume is one moment by itself; of two it is two.
                InUse::Directory if origin.kind == Kind::Subvolume && pairs.len() == 1 => {}
                InUse::Directory => return Err(unstoppable(origin, "a directory")),
            }
        }
        let mut writers = Vec::new();
        for (origin, flush) in &mounted {
            match self.sync_for_copy(&origin.found, flush)? {
                SyncedSource::Writes => writers.push((*origin, flush)),
                // Freezing it would fail: freezing begins with a sync.
                SyncedSource::WritesNoMore => {}
            }
        }
        let created = self.config.clock.now_ms();
        let frozen = self.freeze(&writers)?;
        failpoint::hit("cut.frozen");
        let began = Instant::now();
        let copied = pairs.iter().try_for_each(|(origin, into)| {
            let deadline = frozen.as_ref().map(|_| began + self.config.freeze_budget);
            copy_data(origin, into, deadline)
        });
        failpoint::hit("cut.copied");
        let held = frozen.map_or(Ok(Held::ToTheEnd), Frozen::thaw);
        failpoint::hit("cut.thawed");
        let held = held.map_err(|error| Error::backend("thawing the volume", error).leaving_residue())?;
        copied?;
        if held == Held::EndedEarly {
            return Err(Error::precondition("the filesystem did not stay frozen for the whole copy; nothing was kept"));
        }
        // A write that failed between the first sync and the freeze is told now.
        for (origin, flush) in &mounted {
            self.sync_for_copy(&origin.found, flush)?;
        }
        for (origin, into) in pairs {
            sync_data(origin.kind, into)?;
        }
        Ok(created)
    }

    fn freeze(&self, mounted: &[(&Origin<'_>, &Flush)]) -> Result<Option<Frozen>, Error> {
        let mut mounts: Vec<Arc<OpenMount>> =
            mounted.iter().filter_map(|(_, flush)| flush.mounted()).map(Arc::clone).collect();
        if mounts.is_empty() {
            return Ok(None);
        }
        mounts.sort_unstable_by(|one, other| one.place.cmp(&other.place));
        // The guard gets the directories that are open here: by its path it could open a mount that covers the volume's.
        let opened = mounts.iter().map(|mount| mount.path_for_other_processes());
        let guard: Vec<OsString> = self.config.freeze_guard.iter().cloned().chain(opened).collect();
        let error = match Frozen::freeze(&guard, &mounts, self.config.freeze_budget) {
            Ok(frozen) => return Ok(Some(frozen)),
            Err(error) => error,
        };
        Err(match error {
            // Most likely another copy of the same volume, which ends soon.
            FreezeError::AlreadyFrozen(_) | FreezeError::TooSlow { .. } => Error::busy(error.to_string()),
            FreezeError::Sys(error) if error.is(Errno::IO) || error.is_out_of_space() => {
                let place = error.path.clone();
                let failed =
                    mounted.iter().find(|(_, flush)| flush.mounted().map(|mount| &mount.place) == place.as_ref());
                match failed {
                    Some((origin, _)) => self.mark_unwritten(&origin.found, &Unwritten::freezing(error), None)?,
                    None => Error::backend("freezing the volume for a consistent copy", error),
                }
            }
            other => Error::backend("freezing the volume for a consistent copy", other),
        })
    }

    /// A full copy of an image. Of one that nobody writes, what is copied stays copied across restarts.
    fn copy_resumably<'p>(&self, pool: &'p Pool, id: &str, origin: &Origin<'_>) -> Result<Draft<'p>, Error> {
        let table = MountTable::read().map_err(fault::sys)?;
        if !matches!(in_use(origin, &table)?, InUse::Idle) {
            let draft = Draft::begin(pool, id)?;
            self.cut(&[(origin, draft.object().clone())])?;
            return Ok(draft);
        }
        let source = open(&origin.found.object.image())?;
        let stamp = stamp(&source)?;
        let (draft, mut intent) = match resumable(pool, id, &stamp) {
            Some(found) => found,
            None => {
                let draft = Draft::begin(pool, id)?;
                image::create_sparse(&draft.object().image(), origin.size).map_err(fault::sys)?;
                let request = origin.id.clone();
                (draft, CopyIntent { request, stamp, copied: 0, created_ms: self.config.clock.now_ms() })
            }
        };
        let target = open_rw(&draft.object().image())?;
        let from = intent.copied;
        let dir = draft.object().dir().to_owned();
        let mut progress = |copied: u64| {
            intent.copied = copied;
            failpoint::hit("copy.progress");
            match write_intent(&dir, &intent) {
                Ok(()) => ControlFlow::Continue(()),
                // Without the note a restart begins from the last one: slower, not wrong.
                Err(error) => {
                    tracing::warn!(error = %error.chain(), "could not note the progress of a copy");
                    ControlFlow::Continue(())
                }
            }
        };
        let copied = image::copy_sparse(&source, &target, from, &mut progress);
        if let Err(error) = copied {
            let error = fault::sys(error);
            // Out of space frees the space; anything else leaves the copy for the next attempt.
            if !matches!(error.reason(), driver_sdk::Reason::NoSpace(_)) {
                draft.keep();
                return Err(error.leaving_residue());
            }
            return Err(error);
        }
        target.sync_all().map_err(|error| fault::io("syncing the copy", error))?;
        remove_intent(&dir)?;
        failpoint::hit("copy.finished");
        Ok(draft)
    }
}

/// An earlier attempt at this copy, if its source has not changed since.
fn resumable<'p>(pool: &'p Pool, id: &str, stamp: &SourceStamp) -> Option<(Draft<'p>, CopyIntent)> {
    let draft = Draft::leftover(pool, id)?;
    match record::read::<CopyIntent>(&draft.object().dir().join(COPY_INTENT)) {
        Ok(intent) if intent.stamp == *stamp => {
            tracing::info!(id, copied = intent.copied, "resuming a copy");
            Some((draft, intent))
        }
        // Dropping the draft removes what cannot be used.
        Ok(_) | Err(_) => None,
    }
}

fn write_intent(dir: &std::path::Path, intent: &CopyIntent) -> Result<(), Error> {
    let bytes = record::seal(intent).map_err(|error| fault::io("encoding a note", error))?;
    durable::write_file_atomic(dir, COPY_INTENT.as_ref(), &bytes, 0o600).map_err(fault::sys)
}

fn remove_intent(dir: &std::path::Path) -> Result<(), Error> {
    match fs::remove_file(dir.join(COPY_INTENT)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(fault::io("removing a note", error)),
        _ => Ok(()),
    }
}

fn open(path: &std::path::Path) -> Result<File, Error> {
    File::open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Error::precondition(format!("the data at {} is missing although its record is there", path.display()))
        }
        _ => fault::io(format!("opening {}", path.display()), error),
    })
}

pub(super) fn open_rw(path: &std::path::Path) -> Result<File, Error> {
    let opened = File::options().read(true).write(true).open(path);
    opened.map_err(|error| fault::io(format!("opening {}", path.display()), error))
}

fn stamp(image: &File) -> Result<SourceStamp, Error> {
    let meta = image.metadata().map_err(|error| fault::io("reading the source's times", error))?;
    let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    Ok(SourceStamp {
        inode: meta.ino(),
        size: meta.len(),
        modified_ns: nanos(meta.mtime(), meta.mtime_nsec()),
        changed_ns: nanos(meta.ctime(), meta.ctime_nsec()),
    })
}

fn copies_instantly(pool: &Pool, origin: &Origin<'_>) -> bool {
    pool.features.copying == Copying::Reflink && pool.root == origin.found.pool.root
}

fn in_use(origin: &Origin<'_>, table: &MountTable) -> Result<InUse, Error> {
    match origin.kind {
        Kind::Directory | Kind::Subvolume => {
            let shown = crate::node::shown_directories(&origin.found, table)?;
            Ok(if shown.is_empty() { InUse::Idle } else { InUse::Directory })
        }
        Kind::Image => {
            let image = open(&origin.found.object.image())?;
            let backing = loopdev::BackingFile::of(&image).map_err(fault::sys)?;
            for status in loopdev::find(backing).map_err(fault::sys)? {
                let mounts = crate::node::mounts_of_loop(table, &status.device);
                let (major, minor) = (status.device.major, status.device.minor);
                // A device that cannot be asked counts as writable.
                let is_read_only = status.read_only || status.device.is_read_only().unwrap_or(false);
                match use_of_device(status.device.path, is_read_only, mounts) {
                    InUse::Idle => {}
                    InUse::Raw(device) if origin.access == AccessKind::Mount => {
                        refuse_mounted_elsewhere(&origin.id, &linux::holders::mounts_of_device(major, minor))?;
                        return Ok(InUse::Raw(device));
                    }
                    busy => return Ok(busy),
                }
            }
            Ok(InUse::Idle)
        }
    }
}

/// Who may write to an image that has a device. Read-only mounts on a writable device say nothing: other mounts of the
/// filesystem may be writable, and the kernel makes a filesystem read-only that could not write, with writes in memory
/// that are lost. A device without a mount is open to whoever sees it: as a raw volume, or mounted where we cannot
/// look.
fn use_of_device<'t>(device: PathBuf, is_read_only: bool, mounts: impl Iterator<Item = &'t Mount>) -> InUse {
    let mounts: Vec<Mount> = mounts.cloned().collect();
    match (mounts.is_empty(), is_read_only) {
        (true, _) => InUse::Raw(device),
        (false, true) => InUse::Idle,
        (false, false) => InUse::Mounted(mounts),
    }
}

/// A filesystem that only another mount namespace shows cannot be frozen from here, and a copy of it would mix moments.
fn refuse_mounted_elsewhere(id: &str, holders: &Holders) -> Result<(), Error> {
    if holders.is_empty() && holders.is_complete() {
        return Ok(());
    }
    Err(Error::precondition(format!(
        "{id} may be mounted where it cannot be frozen for a consistent copy ({holders}); stage it, or end what holds it"
    )))
}

/// Opens a mounted origin so that it can be synced and frozen. One that cannot be opened is not copied: what is in its image
/// is not what its filesystem shows.
fn open_mounted(origin: &Origin<'_>, mounts: &[Mount]) -> Result<Flush, Error> {
    let flush = Flush::open(&origin.found, mounts.iter())?;
    if flush.mounted().is_none() {
        return Err(Error::precondition(format!(
            "the filesystem of {} was shut down after an error and cannot be synced for a copy; unpublish and unstage it first",
            origin.id
        )));
    }
    Ok(flush)
}

fn unstoppable(origin: &Origin<'_>, shown: &str) -> Error {
    Error::precondition(format!(
        "{} is in use as {shown} and its writers cannot be stopped for a consistent copy; unpublish it first",
        origin.id
    ))
}

/// Copies one origin's data. `deadline` is the end of the freeze, if there is one.
fn copy_data(origin: &Origin<'_>, into: &Object, deadline: Option<Instant>) -> Result<(), Error> {
    match origin.kind {
        Kind::Image => copy_image(origin, into, deadline),
        Kind::Subvolume => tree::subvolume_snapshot(&origin.found.object.data(), into.dir(), "data".as_ref(), false)
            .map_err(fault::sys),
        Kind::Directory => {
            let reflink = origin.found.pool.features.copying == Copying::Reflink;
            let data = into.data();
            fs::create_dir(&data).map_err(|error| fault::io(format!("making {}", data.display()), error))?;
            tree::copy_tree(&origin.found.object.data(), &data, reflink).map_err(fault::sys)
        }
    }
}

fn copy_image(origin: &Origin<'_>, into: &Object, deadline: Option<Instant>) -> Result<(), Error> {
    let source = open(&origin.found.object.image())?;
    let target = image::create_sparse(&into.image(), 0).map_err(fault::sys)?;
    if image::clone_file(&source, &target).map_err(fault::sys)? == image::Cloned::Reflinked {
        return Ok(());
    }
    let before = stamp(&source)?;
    let mut progress = |_| match deadline {
        Some(deadline) if Instant::now() >= deadline => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    match image::copy_sparse(&source, &target, 0, &mut progress).map_err(fault::sys)? {
        // A copy takes time, and one that mixes two moments is worse than none.
        image::Copied::Complete if stamp(&source)? != before => Err(Error::precondition(format!(
            "{} was written to while it was being copied; unpublish it first, or use a pool that shares extents (XFS, btrfs)",
            origin.id
        ))),
        image::Copied::Complete => Ok(()),
        image::Copied::Stopped(_) => Err(Error::precondition(format!(
            "{} is mounted and too large to copy while frozen in this pool; unmount it, or use a pool that shares extents \
             (XFS, btrfs)",
            origin.id
        ))),
    }
}

fn sync_data(kind: Kind, object: &Object) -> Result<(), Error> {
    match kind {
        Kind::Image => {
            let file = open(&object.image())?;
            file.sync_all().map_err(|error| fault::io("syncing the copy", error))
        }
        // A subvolume snapshot is committed by the filesystem; a directory tree is synced as a whole.
        Kind::Subvolume | Kind::Directory => {
            let dir = open(object.dir())?;
            rustix::fs::syncfs(&dir).map_err(|error| fault::io("syncing the copy", error.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filesystem_is_synced_and_frozen_for_a_copy_unless_its_device_is_read_only() {
        let read_only_pod = "40 1 7:0 / /pods/a ro - ext4 /dev/loop0 rw\n";
        let staging = "41 1 7:0 / /staging rw - ext4 /dev/loop0 rw\n";
        let read_only_filesystem = "42 1 7:0 / /pods/b rw - ext4 /dev/loop0 ro\n";
        let parsed = |text: &str| MountTable::parse(text.as_bytes()).unwrap().iter().cloned().collect::<Vec<Mount>>();
        let mounted = |text: &str| InUse::Mounted(parsed(text));
        let both = format!("{read_only_pod}{staging}");
        let (writable, protected) = (false, true);
        let rows = [
            (String::new(), writable, InUse::Raw(PathBuf::from("/dev/loop0"))),
            (staging.to_owned(), writable, mounted(staging)),
            (both.clone(), writable, mounted(&both)),
            (read_only_filesystem.to_owned(), writable, mounted(read_only_filesystem)),
            (read_only_filesystem.to_owned(), protected, InUse::Idle),
        ];
        for (text, device, want) in rows {
            let table = MountTable::parse(text.as_bytes()).unwrap();
            let found = use_of_device(PathBuf::from("/dev/loop0"), device, table.iter());
            assert_eq!(found, want, "{text}device read-only: {device}");
        }
    }
}
