//! SnapshotMetadata: which bytes of a snapshot are allocated, and which differ between two.

use std::fs::File;

use driver_sdk::{BlockRange, Error, SnapshotId};

use crate::core::Core;
use crate::fault;
use crate::record::{Kind, SnapshotRecord};
use linux::image;

/// Differences are told in blocks of this size.
const DELTA_BLOCK: u64 = 4096;

/// The volume's size and the ranges in it.
type Ranges = (u64, Vec<BlockRange>);

impl Core {
    pub fn allocated_ranges(&self, id: &SnapshotId, from: u64) -> Result<Ranges, Error> {
        let (image, record) = self.snapshot_image(id)?;
        let ranges: Result<Vec<_>, _> = image::data_ranges(&image, from.min(record.size)).collect();
        Ok((record.size, ranges.map_err(fault::sys)?.into_iter().map(block_range).collect()))
    }

    pub fn changed_ranges(&self, base: &SnapshotId, target: &SnapshotId, from: u64) -> Result<Ranges, Error> {
        let (base_image, base_record) = self.snapshot_image(base)?;
        let (target_image, target_record) = self.snapshot_image(target)?;
        if base_record.source != target_record.source {
            return Err(Error::invalid("base_snapshot_id", "the two snapshots are of different volumes"));
        }
        if base_record.created_ms > target_record.created_ms {
            return Err(Error::invalid("base_snapshot_id", "the base is younger than the target"));
        }
        let from = from.min(target_record.size);
        let ranges = image::changed_ranges(&base_image, &target_image, from, DELTA_BLOCK).map_err(fault::sys)?;
        let ranges: Result<Vec<_>, _> = ranges.collect();
        Ok((target_record.size, ranges.map_err(fault::sys)?.into_iter().map(block_range).collect()))
    }

    fn snapshot_image(&self, id: &SnapshotId) -> Result<(File, SnapshotRecord), Error> {
        let (found, record) = self.snapshot(id)?;
        if record.kind != Kind::Image {
            return Err(Error::precondition(format!(
                "snapshot {id} is of a directory volume, which has no blocks to tell of"
            )));
        }
        let image =
            File::open(found.object.image()).map_err(|error| fault::io("opening the snapshot's image", error))?;
        Ok((image, record))
    }
}

fn block_range(range: std::ops::Range<u64>) -> BlockRange {
    BlockRange { offset: range.start, length: range.end - range.start }
}
