//! ControllerExpandVolume: the image and its device grow; the filesystem grows on the node.
//!
//! The record gets the new size only after the image has it. A crash in between leaves an image that is larger than its
//! record says, which the next attempt finds and finishes. Nothing ever shrinks.

use driver_sdk::{Access, Error, ExpandVolume, Expanded, failpoint};

use super::copy::open_rw;
use crate::core::{Core, Found};
use crate::fault;
use crate::params;
use crate::pool::{Hold, Promise};
use crate::record::{AccessKind, Kind, VolumeRecord};
use linux::image;
use linux::loopdev::{self, BackingFile};

impl Core {
    pub fn expand_volume(&self, request: &ExpandVolume) -> Result<Expanded, Error> {
        let (found, _) = self.volume(&request.volume)?;
        let lock = self.hold(&found, Hold::Exclusive)?;
        let mut record: VolumeRecord = found.object.record().map_err(fault::record)?;
        check_capability(request, &record)?;
        let node_must_expand = record.kind == Kind::Image && record.access == AccessKind::Mount;
        if request.capacity.required <= record.size {
            if request.capacity.limit.is_some_and(|limit| limit < record.size) {
                return Err(Error::out_of_range(format!(
                    "the volume has {} bytes already and cannot shrink",
                    record.size
                )));
            }
            return Ok(Expanded { capacity: record.size, node_must_expand });
        }
        let size = params::choose_size(request.capacity, record.size, self.config.largest_volume)?;
        let more = size - record.size;
        let space = found.pool.reserve(Promise { size: more, need: more })?;
        failpoint::hit("expand.reserved");
        if record.kind == Kind::Image {
            grow_image(&found, &record, size)?;
        }
        failpoint::hit("expand.grown");
        record.size = size;
        found.object.write_record(&record).map_err(|error| fault::sys(error).leaving_residue())?;
        failpoint::hit("expand.recorded");
        space.settle_growth(&record.id, size);
        drop(lock);
        Ok(Expanded { capacity: size, node_must_expand })
    }
}

fn check_capability(request: &ExpandVolume, record: &VolumeRecord) -> Result<(), Error> {
    let asked = request.capability.as_ref().map(|capability| match capability.access {
        Access::Block => AccessKind::Block,
        Access::Mount(_) => AccessKind::Mount,
    });
    match asked {
        Some(kind) if kind != record.access => {
            Err(Error::invalid("volume_capability", "it says block for a mount volume, or mount for a block volume"))
        }
        _ => Ok(()),
    }
}

fn grow_image(found: &Found<'_>, record: &VolumeRecord, size: u64) -> Result<(), Error> {
    let image = open_rw(&found.object.image())?;
    image::grow(&image, size, record.tuning.provisioning.into()).map_err(fault::sys)?;
    image.sync_all().map_err(|error| fault::io("syncing the grown image", error))?;
    failpoint::hit("expand.image_grown");
    let backing = BackingFile::of(&image).map_err(fault::sys)?;
    for status in loopdev::find(backing).map_err(fault::sys)? {
        status.device.refresh_capacity().map_err(fault::sys)?;
    }
    Ok(())
}
