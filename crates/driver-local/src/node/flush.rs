//! Writing a volume to disk before it is let go, and marking it when that fails.
//!
//! A filesystem that cannot write to its image drops what it could not write and goes on. Only the first sync afterwards is
//! told. So a volume is synced before it is unmounted, and a failure is noted beside the volume before anything else is done.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use driver_sdk::Error;

use super::health::{self, Health};
use super::seen::{directory_mounts, mounts_of_loop};
use crate::core::{Core, Found};
use crate::fault;
use crate::loss::{self, LossEvent, LossMark, UnnotedLoss};
use crate::pool::Ballast;
use linux::SysError;
use linux::bounded::{self, Bounded};
use linux::flush::{OpenMount, OpenMountError, open_for_sync};
use linux::loopdev::{self, BackingFile, LoopDevice, LoopStatus};
use linux::mountinfo::{Mount, MountTable};

/// How long a volume may take to be written to disk before the caller is told to repeat its call. It is written on meanwhile.
const SYNC_PATIENCE: Duration = Duration::from_secs(60);

/// A caller is told so often that a volume cannot be written. Then it is unmounted with its mark: it must not stay for ever.
const TOLD_AT_MOST: u32 = 3;

/// A volume's files, opened before the first sync so that no error between two syncs is missed.
#[derive(Debug)]
pub(crate) struct Flush {
    /// Names the volume among the requests that may hang.
    key: String,
    mounted: Option<Arc<OpenMount>>,
    device: Option<(LoopStatus, Arc<File>)>,
    image: Option<Arc<File>>,
}

/// What failed to be written.
#[derive(Debug)]
pub(crate) struct Unwritten {
    doing: &'static str,
    error: SysError,
}

/// What a synced source of a copy does while it is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyncedSource {
    Writes,
    /// Its filesystem has ended its work after an error, and its volume is marked.
    WritesNoMore,
}

impl Flush {
    /// Opens what is to be synced. `mounts` are mounts of the volume; the first that its path shows is taken.
    pub(crate) fn open<'m>(found: &Found<'_>, mounts: impl Iterator<Item = &'m Mount>) -> Result<Self, Error> {
        let key = found.object.dir().display().to_string();
        let mounted = open_visible(mounts)?.map(Arc::new);
        let image = match open_for_sync(&found.object.image()) {
            Ok(image) => image,
            // A directory volume has none. A volume that lost its image must not be stuck on the node for it.
            Err(error) if error.is(rustix::io::Errno::NOENT) => {
                return Ok(Self { key, mounted, device: None, image: None });
            }
            Err(error) => return Err(fault::sys(error)),
        };
        let backing = BackingFile::of(&image).map_err(fault::sys)?;
        let device = match loopdev::find(backing).map_err(fault::sys)?.into_iter().next() {
            Some(status) => {
                let file = open_for_sync(&status.device.path).map_err(fault::sys)?;
                Some((status, Arc::new(file)))
            }
            None => None,
        };
        Ok(Self { key, mounted, device, image: Some(Arc::new(image)) })
    }

    pub(crate) fn mounted(&self) -> Option<&Arc<OpenMount>> {
        self.mounted.as_ref()
    }

    /// Writes everything that is still open: the filesystem to its device, the device to the image, the image to disk.
    pub(crate) fn sync(&self) -> Bounded<Result<(), Unwritten>> {
        self.sync_from(self.mounted.clone())
    }

    /// Writes out what is below a filesystem that itself writes no more.
    fn sync_below_filesystem(&self) -> Bounded<Result<(), Unwritten>> {
        self.sync_from(None)
    }

    fn sync_from(&self, mounted: Option<Arc<OpenMount>>) -> Bounded<Result<(), Unwritten>> {
        let (device, image) = (self.device.clone(), self.image.clone());
        bounded::within(&self.key, SYNC_PATIENCE, move || {
            if let Some(mounted) = mounted {
                let doing = "writing the filesystem to its device";
                mounted.sync().map_err(|error| Unwritten { doing, error })?;
            }
            if let Some((status, file)) = device {
                sync_file("writing the device to the image", &file, &status.device.path)?;
            }
            if let Some(image) = image {
                sync_file("writing the image to disk", &image, "image".as_ref())?;
            }
            Ok(())
        })
    }

    /// The loss of a mounted filesystem that writes no more. A sync of one that the kernel made read-only does nothing
    /// and succeeds, with writes in memory that are lost.
    fn lost_filesystem(&self) -> Result<Option<Unwritten>, Error> {
        let (Some(mounted), Some((status, _))) = (&self.mounted, &self.device) else { return Ok(None) };
        let table = MountTable::read().map_err(fault::sys)?;
        Ok(match health::of_filesystem(status, &mounted.place, &table) {
            Health::Lost { doing, error } => {
                Some(Unwritten { doing, error: SysError::new("write out", std::io::Error::other(error)) })
            }
            Health::Good | Health::Wrong(_) => None,
        })
    }

    /// Lets go of the mount, which is busy while it is open.
    pub(super) fn close_mount(&mut self) {
        self.mounted = None;
    }

    /// Lets go of the device, which stays attached while it is open.
    pub(super) fn close_device(&mut self) {
        self.device = None;
    }

    /// Which staging of the volume this is.
    fn staging(&self, boot_id: &str) -> String {
        let number = self.device.as_ref().and_then(|(status, _)| status.device.attachment_number().ok().flatten());
        format!("{boot_id}/{}", number.map_or_else(|| "no device".to_owned(), |number| number.to_string()))
    }
}

fn sync_file(doing: &'static str, file: &File, path: &std::path::Path) -> Result<(), Unwritten> {
    file.sync_all().map_err(SysError::on("write out", path)).map_err(|error| Unwritten { doing, error })
}

/// Opens the first mount that its path really shows. `None` without a mount, and of a filesystem that was shut down,
/// which opens nothing: unmounting it is all that is left. If all of them are covered that is an error.
fn open_visible<'m>(mounts: impl Iterator<Item = &'m Mount>) -> Result<Option<OpenMount>, Error> {
    match OpenMount::open_first(mounts) {
        Ok(opened) => Ok(opened),
        Err(OpenMountError::Sys(error)) if error.is(rustix::io::Errno::IO) => Ok(None),
        Err(OpenMountError::Sys(error)) => Err(fault::sys(error)),
        Err(error @ OpenMountError::Covered(_)) => Err(Error::precondition(format!("{error}; unmount what covers it"))),
    }
}

/// Opens the mounted filesystem of a volume's device to be frozen or thawed, also where other mounts cover all of its
/// mounts. What is opened is never what covers it. `None` without a mount, and of a filesystem that was shut down.
pub(crate) fn open_to_freeze(device: &LoopDevice, table: &MountTable) -> Result<Option<OpenMount>, Error> {
    let mounts: Vec<&Mount> = mounts_of_loop(table, device).collect();
    let failed = match OpenMount::open_first(mounts.iter().copied()) {
        Ok(opened) => return Ok(opened),
        Err(OpenMountError::Sys(error)) if error.is(rustix::io::Errno::IO) => return Ok(None),
        Err(failed) => failed,
    };
    let Some(mount) = mounts.first() else { return Ok(None) };
    match OpenMount::open_covered(&device.path, mount) {
        Ok(opened) => Ok(Some(opened)),
        Err(error) => {
            tracing::warn!(device = %device.path.display(), %error, "a covered filesystem cannot be opened");
            Err(Error::backend("opening a volume's filesystem", failed))
        }
    }
}

/// The mounts through which a volume's files are written.
pub(super) fn writable_mounts<'t>(found: &Found<'_>, table: &'t MountTable) -> Result<Vec<&'t Mount>, Error> {
    let mut mounts: Vec<&Mount> = directory_mounts(found, table).collect();
    if let Ok(image) = File::open(found.object.image()) {
        let backing = BackingFile::of(&image).map_err(fault::sys)?;
        for status in loopdev::find(backing).map_err(fault::sys)? {
            mounts.extend(mounts_of_loop(table, &status.device));
        }
    }
    Ok(mounts)
}

/// What to do after a sync failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterFailure {
    /// The caller is told, and the volume stays mounted.
    Tell,
    /// The caller was told before; the mark stays, and the volume is let go.
    LetGo,
}

/// A caller that repeats its call was told of the loss. A filesystem that was shut down never writes again, so that the
/// repeat lets it go; another one may still write what is left.
fn after_failure(times_told: u32, shut_down: bool) -> AfterFailure {
    match times_told {
        0 => AfterFailure::Tell,
        _ if shut_down => AfterFailure::LetGo,
        1..TOLD_AT_MOST => AfterFailure::Tell,
        _ => AfterFailure::LetGo,
    }
}

impl Core {
    /// Syncs a volume that is to be let go. An error means that it stays where it is.
    pub(super) fn flush_or_tell(&self, found: &Found<'_>, flush: &Flush) -> Result<(), Error> {
        let answer = match flush.sync() {
            Bounded::Done(answer) => answer,
            Bounded::StillRunning => return Err(still_writing()),
        };
        let shut_down = flush.mounted.is_none() && self.is_shut_down(found)?;
        let lost = flush.lost_filesystem()?;
        let writes_no_more = shut_down || lost.is_some();
        let failure = match (answer.err().or(lost), self.unnoted_loss(found)) {
            (Some(failure), _) => failure,
            (None, _) if shut_down => Unwritten {
                doing: "using the filesystem",
                error: SysError::new("open it: the filesystem was shut down", rustix::io::Errno::IO),
            },
            (None, Some(loss)) => Unwritten::earlier(loss),
            (None, None) => return Ok(()),
        };
        let staging = flush.staging(&self.boot_id);
        let told = LossMark::of(&found.object).times_told(&staging);
        let dead = writes_no_more
            || failure.was_made_read_only()
            || flush.mounted.as_ref().is_some_and(|mounted| !health::answers(&mounted.place));
        let error = self.mark_unwritten(found, &failure, Some(&staging))?;
        match after_failure(told, dead) {
            AfterFailure::Tell => Err(error),
            AfterFailure::LetGo => Ok(()),
        }
    }

    /// Is the volume mounted and was its filesystem shut down?
    fn is_shut_down(&self, found: &Found<'_>) -> Result<bool, Error> {
        let table = MountTable::read().map_err(fault::sys)?;
        Ok(writable_mounts(found, &table)?.first().is_some_and(|mount| !health::answers(&mount.mount_point)))
    }

    /// Marks a volume and gives the error to be answered. An error of the marking itself comes as the outer one.
    pub(crate) fn mark_unwritten(
        &self,
        found: &Found<'_>,
        failure: &Unwritten,
        telling: Option<&str>,
    ) -> Result<Error, Error> {
        let text = match failure.error.errno() {
            Some(errno) => errno.to_string(),
            None => failure.error.source.to_string(),
        };
        let event = LossEvent { doing: failure.doing, error: &text, now_ms: self.config.clock.now_ms(), telling };
        if let Err(error) = self.note_loss(found, event) {
            let error_number = failure.error.errno().unwrap_or(rustix::io::Errno::IO);
            let loss = UnnotedLoss { doing: failure.doing, error: error_number };
            self.unnoted_losses().insert(found.object.dir().to_owned(), loss);
            return Err(error);
        }
        self.unnoted_losses().remove(found.object.dir());
        Ok(Error::data_loss(format!(
            "{} {} failed ({text}); the volume is marked, and repeating the call goes on without what was lost",
            loss::CONDITION_PREFIX,
            failure.doing
        )))
    }

    pub(crate) fn unnoted_losses(&self) -> MutexGuard<'_, BTreeMap<PathBuf, UnnotedLoss>> {
        self.unnoted_losses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The loss of a volume whose mark could not be written. The kernel tells of a failed write once, so it is kept here until
    /// the mark is on disk.
    pub(crate) fn unnoted_loss(&self, found: &Found<'_>) -> Option<UnnotedLoss> {
        self.unnoted_losses().get(found.object.dir()).copied()
    }

    /// Writes the mark. On btrfs, space that a volume has reserved is no help, since each write takes new blocks: then the pool's
    /// ballast is.
    fn note_loss(&self, found: &Found<'_>, event: LossEvent<'_>) -> Result<(), Error> {
        match loss::mark(&found.object, event) {
            Err(_) if found.pool.release_ballast() == Ballast::Released => loss::mark(&found.object, event),
            answer => answer,
        }
    }

    /// The condition of this volume if it lost writes; `None` if it lost none.
    pub(crate) fn loss_condition(&self, found: &Found<'_>, id: &str) -> Option<String> {
        let marked = loss::condition(&found.object, id, &found.pool.root);
        marked.or_else(|| self.unnoted_loss(found).map(UnnotedLoss::sentence))
    }

    /// Syncs before a copy. A failure is marked and answered; the repeat copies the mark with the data.
    pub(crate) fn sync_for_copy(&self, found: &Found<'_>, flush: &Flush) -> Result<SyncedSource, Error> {
        let Bounded::Done(answer) = flush.sync() else { return Err(still_writing()) };
        let lost = flush.lost_filesystem()?;
        let writes_no_more = lost.is_some() || answer.as_ref().is_err_and(Unwritten::was_made_read_only);
        let unnoted = self.unnoted_loss(found);
        let is_marked = unnoted.is_none() && !matches!(LossMark::of(&found.object), LossMark::None);
        let answer = match (writes_no_more, is_marked) {
            // Every sync of this filesystem fails from now on, and the volume is marked already: so will be the copy.
            (true, true) => match flush.sync_below_filesystem() {
                Bounded::Done(answer) => answer,
                Bounded::StillRunning => return Err(still_writing()),
            },
            _ => answer.and(lost.map_or(Ok(()), Err)),
        };
        match answer.and(unnoted.map_or(Ok(()), |loss| Err(Unwritten::earlier(loss)))) {
            Ok(()) if writes_no_more => Ok(SyncedSource::WritesNoMore),
            Ok(()) => Ok(SyncedSource::Writes),
            Err(failure) => Err(self.mark_unwritten(found, &failure, None)?),
        }
    }

    /// Syncs an image before it is attached, so that an error of an earlier use is marked and not taken for one of this use.
    pub(super) fn mark_earlier_loss(&self, found: &Found<'_>, image: &File) -> Result<(), Error> {
        let synced = sync_file("writing the image to disk", image, &found.object.image());
        match (synced, self.unnoted_loss(found)) {
            (Ok(()), None) => Ok(()),
            (Ok(()), Some(loss)) => self.mark_unwritten(found, &Unwritten::earlier(loss), None).map(drop),
            (Err(failure), _) => self.mark_unwritten(found, &failure, None).map(drop),
        }
    }
}

impl Unwritten {
    /// True of a filesystem that the kernel made read-only after an error: it never writes again, as one that was shut
    /// down.
    fn was_made_read_only(&self) -> bool {
        self.error.is(rustix::io::Errno::ROFS)
    }

    /// A failure of an earlier call that is still to be marked.
    fn earlier(UnnotedLoss { doing, error }: UnnotedLoss) -> Self {
        Self { doing, error: SysError::new("write out", error) }
    }

    /// A failed freeze: freezing begins with a sync.
    pub(crate) fn freezing(error: SysError) -> Self {
        Self { doing: "writing the filesystem to its device", error }
    }
}

fn still_writing() -> Error {
    Error::busy(format!(
        "the volume does not finish writing to its pool within {} s, which may be full; nothing was unmounted: free space \
         there and repeat the call",
        SYNC_PATIENCE.as_secs()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_told_first_and_then_does_not_keep_the_volume_for_ever() {
        let rows = [
            (0, false, AfterFailure::Tell),
            (0, true, AfterFailure::Tell),
            (1, true, AfterFailure::LetGo),
            (1, false, AfterFailure::Tell),
            (2, false, AfterFailure::Tell),
            (3, false, AfterFailure::LetGo),
        ];
        for (told, shut_down, want) in rows {
            assert_eq!(after_failure(told, shut_down), want, "told {told}, shut down {shut_down}");
        }
    }
}
