//! NodeGetVolumeStats and the node's view of a volume's condition.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use driver_sdk::{Condition, Error, Kind as What, StatsQuery, Unit, Usage, VolumeId};

use super::seen::{device_of, mounts_of_loop};
use super::settled;
use super::stage::open_image;
use crate::controller::data_fault;
use crate::core::{Core, Found};
use crate::fault;
use crate::record::{AccessKind, Kind, VolumeRecord};
use linux::loopdev::LoopDevice;
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
        let usage = usage.map_err(fault::sys)?;
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

    /// The path, if this volume is staged or published there; otherwise the path is what was not found (fact 2).
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
        Ok(match filesystem_fault(&found, self, &status.device)? {
            Some(why) => Condition::Abnormal(why),
            None => Condition::Normal("the device and its filesystem are in order".to_owned()),
        })
    }
}

/// Errors that the filesystem itself has noted.
fn filesystem_fault(found: &Found<'_>, core: &Core, device: &LoopDevice) -> Result<Option<String>, Error> {
    let name = device.path.file_name().unwrap_or_default();
    let errors = Path::new("/sys/fs/ext4").join(name).join("errors_count");
    let count = fs::read_to_string(errors).ok().and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0);
    if count > 0 {
        return Ok(Some(format!("the filesystem has noted {count} errors; unmount and check it")));
    }
    let meant_read_only = found.object.notes(&core.boot_id).staged.is_some_and(|staged| staged.read_only);
    let table = MountTable::read().map_err(fault::sys)?;
    let turned = mounts_of_loop(&table, device).any(|mount| mount.super_options.iter().any(|option| option == "ro"));
    Ok((turned && !meant_read_only).then(|| "the filesystem has turned read-only".to_owned()))
}

fn block_usage(found: &Found<'_>, record: &VolumeRecord) -> Result<Vec<Usage>, Error> {
    let image = open_image(found, &record.id)?;
    let meta = image.metadata().map_err(|error| fault::io("reading the image's size", error))?;
    let total = record.size;
    let used = meta.blocks().saturating_mul(512).min(total);
    Ok(vec![Usage { unit: Unit::Bytes, total, used, available: total - used }])
}
