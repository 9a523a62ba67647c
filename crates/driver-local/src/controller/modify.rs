//! ControllerModifyVolume: tuning that takes effect at once on a volume in use, and at its next stage otherwise.

use driver_sdk::{Error, ModifyVolume, failpoint};

use super::copy::open_rw;
use crate::core::{Core, Found};
use crate::fault;
use crate::params;
use crate::pool::Hold;
use crate::record::{Kind, Provisioning, Tuning, VolumeRecord};
use linux::image;
use linux::loopdev::{self, BackingFile, LoopDevice};

impl Core {
    pub fn modify_volume(&self, request: &ModifyVolume) -> Result<(), Error> {
        let (found, _) = self.volume(&request.volume)?;
        let lock = self.hold(&found, Hold::Exclusive)?;
        let mut record: VolumeRecord = found.object.record().map_err(fault::record)?;
        let wanted = params::retune(&record.tuning, &request.changes)?;
        if record.kind != Kind::Image {
            let needs_image = "this volume is a directory: it has no device to tune and no space of its own to reserve";
            return if wanted == record.tuning {
                Ok(())
            } else {
                Err(Error::invalid("mutable_parameters", needs_image))
            };
        }
        if wanted.provisioning == Provisioning::Thick && record.tuning.provisioning == Provisioning::Thin {
            allocate(&found, &record)?;
        }
        failpoint::hit("modify.allocated");
        record.tuning = wanted;
        // The record first: a crash before the device is told is mended by the repeat or by the next stage.
        found.object.write_record(&record).map_err(|error| fault::sys(error).leaving_residue())?;
        failpoint::hit("modify.recorded");
        let backing = BackingFile::of(open_rw(&found.object.image())?).map_err(fault::sys)?;
        for status in loopdev::find(backing).map_err(fault::sys)? {
            tune(&status.device, &record.tuning)?;
        }
        failpoint::hit("modify.tuned");
        drop(lock);
        Ok(())
    }
}

/// Gives a thin image all its blocks. Nothing is reserved for that: it had a right to them. Nor is anything left to be
/// undone when they run out half way: blocks that it got are blocks that it need not ask for again.
fn allocate(found: &Found<'_>, record: &VolumeRecord) -> Result<(), Error> {
    let image = open_rw(&found.object.image())?;
    image::grow(&image, record.size, Provisioning::Thick.into()).map_err(fault::sys)
}

/// Applies a volume's tuning to its device.
pub(crate) fn tune(device: &LoopDevice, tuning: &Tuning) -> Result<(), Error> {
    let got = device.set_direct_io(tuning.direct_io).map_err(fault::sys)?;
    if got != tuning.direct_io {
        tracing::warn!(device = %device.path.display(), "the pool's filesystem does not allow direct I/O; going without");
    }
    if let Some(kib) = tuning.read_ahead_kib {
        device.set_read_ahead_kib(kib).map_err(fault::sys)?;
    }
    Ok(())
}
