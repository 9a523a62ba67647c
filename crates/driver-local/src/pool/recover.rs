//! What a pool looks like after a crash, and back to order: LOCAL-G.5.
//!
//! Recovery never decides about data. It thaws, removes what was never acknowledged, finishes what was begun to be
//! removed, lets go of loop devices nobody uses, and reports the rest.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use driver_sdk::Error;

use super::draft::remove_object;
use super::{Object, Place, Pool, names};
use crate::config::Role;
use crate::fault;
use crate::node::{open_to_freeze, still_held};
use crate::raw_devices::lift_earlier_protection;
use crate::record::{self, AccessKind, CopyIntent, ReadError, VolumeRecord};
use linux::durable::TEMP_PREFIX;
use linux::freeze::{self, Thaw};
use linux::mountinfo::MountTable;
use linux::{loopdev, mounts};

/// Ids of inline volumes begin so; they are made by the node's process.
pub(crate) const INLINE_PREFIX: &str = "inline-";
/// In a draft: a copy that can be resumed.
pub(crate) const COPY_INTENT: &str = "copy.json";
/// In an inline volume: it is being removed.
pub(crate) const DOOMED: &str = "doomed";

/// How long an idle loop device may take to let go of its image.
const LOOP_PATIENCE: Duration = Duration::from_secs(2);

/// Something that should not be there, or not like this. Nothing was done to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    pub path: PathBuf,
    pub why: String,
}

/// What recovery did and found.
#[derive(Debug, Default)]
pub struct Recovered {
    pub drafts_removed: usize,
    pub copies_to_resume: usize,
    pub trash_removed: usize,
    pub loops_released: usize,
    pub thawed: usize,
    pub orphans: Vec<Orphan>,
}

impl Pool {
    pub fn recover(&self, role: Role, boot_id: &str) -> Result<Recovered, Error> {
        let mut done = Recovered::default();
        // Beside a controller's process runs the node's, which keeps volumes of a full pool frozen.
        if role != Role::Controller {
            done.thawed = self.thaw_everything()?;
        }
        self.clear_drafts(role, &mut done)?;
        if role != Role::Controller {
            self.finish_doomed_volumes()?;
            self.release_idle_loops(boot_id, &mut done)?;
        }
        self.empty_trash(role, &mut done)?;
        if role != Role::Node {
            self.remove_half_written_files()?;
        }
        self.build_ledger()?;
        self.find_orphans(&mut done)?;
        Ok(done)
    }

    /// A frozen filesystem is the worst a crash can leave (LOCAL-0.20). The guard process thaws first; this is the net.
    /// Each volume's own filesystem is thawed, and never one that is mounted over it. Every volume is tried; the first
    /// error is returned then.
    fn thaw_everything(&self) -> Result<usize, Error> {
        let table = MountTable::read().map_err(fault::sys)?;
        let (mut thawed, mut failed, mut loops) = (0, None, Loops::default());
        for id in self.list(Place::Volumes)? {
            for status in loops.of(&self.object(Place::Volumes, &id))? {
                let opened = match open_to_freeze(&status.device, &table) {
                    Ok(Some(opened)) => opened,
                    Ok(None) => continue,
                    Err(error) => {
                        tracing::error!(volume = %id, error = %error.chain(), "the volume may be frozen");
                        continue;
                    }
                };
                match freeze::thaw(&opened.dir) {
                    Ok(Thaw::Thawed) => thawed += 1,
                    Ok(Thaw::WasNotFrozen) => {}
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
        }
        failed.map_or(Ok(thawed), |error| Err(fault::sys(error)))
    }

    fn list(&self, place: Place) -> Result<Vec<String>, Error> {
        self.ids(place).map_err(|error| fault::io("listing the pool", error))
    }

    fn clear_drafts(&self, role: Role, done: &mut Recovered) -> Result<(), Error> {
        for name in self.hidden(self.tmp(), role)? {
            let dir = self.tmp().join(&name);
            if record::read::<CopyIntent>(&dir.join(COPY_INTENT)).is_ok() {
                done.copies_to_resume += 1;
                continue;
            }
            remove_object(&Object::at(dir)).map_err(fault::sys)?;
            done.drafts_removed += 1;
        }
        Ok(())
    }

    /// Entries of a hidden folder that are this role's to clear.
    fn hidden(&self, folder: PathBuf, role: Role) -> Result<Vec<String>, Error> {
        let all = names(&folder).map_err(|error| fault::io("listing the pool", error))?;
        Ok(all
            .into_iter()
            .filter(|name| match role {
                Role::All => true,
                Role::Controller => !name.starts_with(INLINE_PREFIX),
                Role::Node => name.starts_with(INLINE_PREFIX),
            })
            .collect())
    }

    /// An inline volume whose removal had begun: its mounts go, then the volume.
    fn finish_doomed_volumes(&self) -> Result<(), Error> {
        for id in self.list(Place::Volumes)? {
            let object = self.object(Place::Volumes, &id);
            if !object.dir().join(DOOMED).exists() {
                continue;
            }
            let target =
                object.record::<VolumeRecord>().ok().and_then(|record| record.inline).map(|inline| inline.target);
            let places = target.into_iter().chain([object.private_staging()]);
            match places.map(|path| mounts::unmount_all(&path)).collect::<Result<Vec<_>, _>>() {
                Ok(_) => {
                    // A look of its own: what was mounted a moment ago may have had the only device.
                    release_loops(&object, &MountTable::read().map_err(fault::sys)?, &mut Loops::default())?;
                    self.discard(Place::Volumes, &id)?.remove();
                }
                // Still in use somewhere: the caller repeats its call, or the next start does this again.
                Err(error) => tracing::warn!(volume = %id, error = %error, "an inline volume cannot be unmounted yet"),
            }
        }
        Ok(())
    }

    /// Loop devices of block volumes do not go by themselves. One that is not staged and not shown anywhere is idle.
    /// One that is staged may be read-only because its pool was full; it is again if the pool still is.
    fn release_idle_loops(&self, boot_id: &str, done: &mut Recovered) -> Result<(), Error> {
        let (table, mut loops) = (MountTable::read().map_err(fault::sys)?, Loops::default());
        for id in self.list(Place::Volumes)? {
            let object = self.object(Place::Volumes, &id);
            let Ok(record) = object.record::<VolumeRecord>() else { continue };
            if record.access != AccessKind::Block {
                continue;
            }
            let notes = object.notes(boot_id);
            if notes.staged.is_some() {
                for status in loops.of(&object)? {
                    lift_earlier_protection(&notes, &status.device)?;
                }
                continue;
            }
            done.loops_released += release_loops(&object, &table, &mut loops)?;
        }
        Ok(())
    }

    fn empty_trash(&self, role: Role, done: &mut Recovered) -> Result<(), Error> {
        let (table, mut loops) = (MountTable::read().map_err(fault::sys)?, Loops::default());
        for name in self.hidden(self.trash(), role)? {
            let object = Object::at(self.trash().join(&name));
            done.loops_released += release_loops(&object, &table, &mut loops)?;
            match remove_object(&object) {
                Ok(()) => done.trash_removed += 1,
                Err(error) => {
                    done.orphans.push(Orphan { path: object.dir().to_owned(), why: error.to_string() });
                    self.stuck_trash().push(object);
                }
            }
        }
        Ok(())
    }

    /// Files that were being written when a driver died. They were never seen under their own name.
    fn remove_half_written_files(&self) -> Result<(), Error> {
        let mut folders = vec![self.root.clone()];
        for place in Place::ALL {
            folders.extend(self.list(place)?.into_iter().map(|id| self.object(place, &id).dir().to_owned()));
        }
        for folder in folders {
            for name in names(&folder).unwrap_or_default().into_iter().filter(|name| name.starts_with(TEMP_PREFIX)) {
                let path = folder.join(name);
                fs::remove_file(&path).map_err(|error| fault::io(format!("removing {}", path.display()), error))?;
            }
        }
        Ok(())
    }

    /// Objects whose record is missing or damaged: reported, never touched (LOCAL-R27).
    fn find_orphans(&self, done: &mut Recovered) -> Result<(), Error> {
        for place in Place::ALL {
            for id in self.list(place)? {
                let object = self.object(place, &id);
                let why = match object.record::<serde_json::Value>() {
                    Ok(_) => continue,
                    Err(ReadError::Missing(_)) => "it has no record".to_owned(),
                    Err(error) => error.to_string(),
                };
                done.orphans.push(Orphan { path: object.dir().to_owned(), why });
            }
        }
        Ok(())
    }
}

impl Pool {
    /// Unfinished copies in this pool: the id of what each would become, and what it copies.
    pub(crate) fn unfinished_copies(&self) -> Vec<(String, CopyIntent)> {
        let names = names(&self.tmp()).unwrap_or_default();
        let intent = |id: String| record::read(&self.tmp().join(&id).join(COPY_INTENT)).ok().map(|intent| (id, intent));
        names.into_iter().filter_map(intent).collect()
    }
}

/// What is hidden in the pool at `root` and waits for something: copies that were never finished, and deleted objects that
/// could not be removed. Of a pool in use, some of it may be work that is under way.
pub fn leftovers(root: &Path) -> io::Result<Vec<Orphan>> {
    let mut found = Vec::new();
    for name in names(&root.join(".tmp"))? {
        let path = root.join(".tmp").join(name);
        if let Ok(intent) = record::read::<CopyIntent>(&path.join(COPY_INTENT)) {
            let (of, done) = (intent.request, crate::params::shown(intent.copied));
            let why = format!("an unfinished copy of {of}, {done} copied; it goes on when it is asked for again");
            found.push(Orphan { path, why });
        }
    }
    for name in names(&root.join(".trash"))? {
        let why = "deleted, and not removed yet; tried again within minutes".to_owned();
        found.push(Orphan { path: root.join(".trash").join(name), why });
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

/// The loop devices of a pool's images. The machine's devices are looked at once, when the first image is met: a pool without
/// images needs no loop devices, nor the files that tell of them. While a pool is brought to order nothing of it is attached.
#[derive(Debug, Default)]
struct Loops(Option<loopdev::Bound>);

impl Loops {
    fn of(&mut self, object: &Object) -> Result<Vec<loopdev::LoopStatus>, Error> {
        let image = match fs::File::open(object.image()) {
            Ok(image) => image,
            // A stray file among the directories is nobody's image.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(Vec::new());
            }
            Err(error) => return Err(fault::io(format!("opening {}", object.image().display()), error)),
        };
        let backing = loopdev::BackingFile::of(&image).map_err(fault::sys)?;
        let bound = match self.0.take() {
            Some(bound) => bound,
            None => loopdev::Bound::read().map_err(fault::sys)?,
        };
        self.0.insert(bound).of(backing).map_err(fault::sys)
    }
}

fn release_loops(object: &Object, table: &MountTable, loops: &mut Loops) -> Result<usize, Error> {
    let mut released = 0;
    for status in loops.of(object)? {
        let device = &status.device;
        let shown = table.of_device(device.major, device.minor).next().is_some()
            || table.of_block_node(device.major, device.minor).next().is_some();
        if shown {
            continue;
        }
        match loopdev::detach_and_wait(device, status.backing, LOOP_PATIENCE).map_err(fault::sys)? {
            loopdev::Detach::Detached => released += 1,
            loopdev::Detach::StillBusy => {
                tracing::warn!(why = still_held(device), "a loop device that shows nothing does not let go");
            }
        }
    }
    Ok(released)
}
