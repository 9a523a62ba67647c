//! NodeExpandVolume: the filesystem grows to its device.

use driver_sdk::{Error, NodeExpand, failpoint};

use super::filesystem::grow_online;
use super::seen::device_of;
use super::stage::open_image;
use crate::core::Core;
use crate::fault;
use crate::pool::Hold;
use crate::record::{Format, Kind, VolumeRecord};

impl Core {
    pub fn node_expand(&self, request: &NodeExpand) -> Result<u64, Error> {
        let (found, record) = self.volume(&request.volume)?;
        let path = self.own_path(&found, &record, &request.path)?;
        let lock = self.hold(&found, Hold::Exclusive)?;
        let record: VolumeRecord = found.object.record().map_err(fault::record)?;
        let required = request.capacity.map_or(0, |range| range.required);
        if required > record.size {
            return Err(Error::out_of_range(format!(
                "the volume has {} bytes and {required} are asked for; the controller expands it first",
                record.size
            )));
        }
        if record.kind != Kind::Image {
            return Ok(record.size);
        }
        let image = open_image(&found, &record.id)?;
        let Some(status) = device_of(&image)?.attached else {
            return Err(Error::precondition(format!("volume {} has no device; stage it first", record.id)));
        };
        let size = status.device.refresh_capacity().map_err(fault::sys)?;
        failpoint::hit("node_expand.device_grown");
        if let Format::Made { fs, filled } = record.format
            && filled < size
        {
            grow_online(fs, &status.device.path, &path)?;
            failpoint::hit("node_expand.filesystem_grown");
            let grown = VolumeRecord { format: Format::Made { fs, filled: size }, ..record.clone() };
            found.object.write_record(&grown).map_err(|error| fault::sys(error).leaving_residue())?;
        }
        failpoint::hit("node_expand.grown");
        drop(lock);
        Ok(record.size)
    }
}
