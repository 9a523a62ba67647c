//! NodeGetVolumeStats and the node's view of a volume's condition.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use driver_sdk::{Condition, Error, Kind as What, StatsQuery, Unit, Usage, VolumeId};

use super::health::{self, Health};
use super::seen::device_of;
use super::settled;
use super::stage::open_image;
use crate::controller::data_fault;
use crate::core::{Core, Found};
use crate::fault;
use crate::loss::{self, LossEvent};
use crate::pool::Hold;
use crate::record::{AccessKind, Kind, VolumeRecord};
use linux::mountinfo::MountTable;
use linux::statfs;

impl Core {
    pub fn stats(&self, query: &StatsQuery) -> Result<Vec<Usage>, Error> {
        let (found, record) = self.volume(&query.volume)?;
        let path = self.own_path(&found, &record, &query.path)?;
        if record.access == AccessKind::Block {
            return block_usage(&found, &record);
        }
        let usage = statfs::usage(&path);
        // Somebody may have unpublished it meanwhile: then the numbers are those of whatever is below, or of nothing.
        self.own_path(&found, &record, &query.path)?;
        let usage = match usage {
            Ok(usage) => usage,
            // A filesystem that was shut down. Without numbers the caller still gets the condition, which says so.
            Err(error) if error.is(rustix::io::Errno::IO) => return Ok(Vec::new()),
            Err(error) => return Err(fault::sys(error)),
        };
        let bytes = Usage { unit: Unit::Bytes, total: usage.total, used: usage.used, available: usage.available };
        // btrfs counts no inodes; zeros would be read as "full".
        let inodes = usage.inodes.map(|inodes| Usage {
            unit: Unit::Inodes,
            total: inodes.total,
            used: inodes.used,
            available: inodes.free,
        });
        Ok(std::iter::once(bytes).chain(inodes).collect())
    }

    /// The path, if this volume is staged or published there; otherwise the path is what was not found (LOCAL-0.2).
    pub(super) fn own_path(&self, found: &Found<'_>, record: &VolumeRecord, path: &Path) -> Result<PathBuf, Error> {
        let missing = || Error::not_found(What::Path, path.to_string_lossy());
        if !path.is_absolute() {
            return Err(missing());
        }
        let settled = settled(path).map_err(|_| missing())?;
        let table = MountTable::read().map_err(fault::sys)?;
        if super::all_mounts(found, &table)?.contains(&settled) {
            return Ok(settled);
        }
        // A block volume's staging path is a plain directory; only our note ties it to the volume.
        let staged = found.object.notes(&self.boot_id).staged;
        let by_note =
            record.access == AccessKind::Block && staged.is_some_and(|staged| settled.starts_with(&staged.path));
        if by_note { Ok(settled) } else { Err(missing()) }
    }

    pub fn node_condition(&self, id: &VolumeId, path: &Path) -> Result<Condition, Error> {
        let (found, record) = self.volume(id)?;
        if let Some(why) = data_fault(&found, &record) {
            return Ok(Condition::Abnormal(why));
        }
        if let Some(why) = self.loss_condition(&found, &record.id) {
            return Ok(Condition::Abnormal(why));
        }
        if record.kind != Kind::Image {
            return Ok(Condition::Normal("the directory is there".to_owned()));
        }
        let image = open_image(&found, &record.id)?;
        let Some(status) = device_of(&image)?.attached else {
            return Ok(Condition::Abnormal(format!("nothing is attached, although {} is in use", path.display())));
        };
        let size = status.device.size().map_err(fault::sys)?;
        if size < record.size {
            return Ok(Condition::Abnormal(format!("its device has {size} bytes and should have {}", record.size)));
        }
        if record.access == AccessKind::Block {
            return Ok(Condition::Normal("the device is in order".to_owned()));
        }
        let table = MountTable::read().map_err(fault::sys)?;
        match health::of_filesystem(&status, path, &table) {
            Health::Good => Ok(Condition::Normal("the device and its filesystem are in order".to_owned())),
            Health::Wrong(why) => Ok(Condition::Abnormal(why)),
            Health::Lost { doing, error } => {
                Ok(Condition::Abnormal(self.mark_seen_loss(&found, &record, doing, &error)))
            }
        }
    }

    /// Marks a volume whose mounted filesystem has lost writes, and gives what its condition says.
    fn mark_seen_loss(&self, found: &Found<'_>, record: &VolumeRecord, doing: &str, error: &str) -> String {
        let event = LossEvent { doing, error, now_ms: self.config.clock.now_ms(), telling: None };
        // Another call works on the volume: the mark comes with the next question, or with that call.
        let marked = self.hold(found, Hold::Exclusive).and_then(|_lock| loss::mark(&found.object, event));
        if let Err(failed) = marked {
            tracing::warn!(volume = %record.id, error = %failed.chain(), "could not mark a volume that lost writes");
        }
        loss::condition(&found.object, &record.id, &found.pool.root)
            .unwrap_or_else(|| format!("{} {doing} failed ({error})", loss::CONDITION_PREFIX))
    }
}

fn block_usage(found: &Found<'_>, record: &VolumeRecord) -> Result<Vec<Usage>, Error> {
    let image = open_image(found, &record.id)?;
    let meta = image.metadata().map_err(|error| fault::io("reading the image's size", error))?;
    let total = record.size;
    let used = meta.blocks().saturating_mul(512).min(total);
    Ok(vec![Usage { unit: Unit::Bytes, total, used, available: total - used }])
}
