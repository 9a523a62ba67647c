//! Raw block volumes of a pool that is full.
//!
//! A raw device has no filesystem that could be frozen, and writes that its pool cannot store would fail after the
//! writer was told that they are done. So at the pool's floor the devices of thin volumes become read-only: every
//! further write ends with an error (`EPERM`). What was written before is synced at once, while there is room for it. A
//! device becomes writable again by itself when there is space, and before the volume is unpublished or unstaged.
//!
//! The kernel refuses writes of programs. It does not refuse pages that a program has mapped, nor a filesystem that was
//! mounted on the device by hand: a loss there is found when the volume is unstaged.

use std::fs::File;
use std::path::Path;

use driver_sdk::Error;

use crate::core::{Core, Found};
use crate::fault;
use crate::node::Flush;
use crate::pool::{Hold, Object, Place, Pool};
use crate::record::{AccessKind, Kind, NodeNotes, VolumeRecord};
use linux::bounded::Bounded;
use linux::loopdev::{self, BackingFile, LoopDevice, LoopStatus};

impl Core {
    /// Makes the raw devices of thin volumes read-only that are writable, and gives their volumes.
    pub(crate) fn protect_raw_devices(&self, pool: &Pool) -> Result<Vec<String>, Error> {
        let bound = loopdev::Bound::read().map_err(fault::sys)?;
        let mut ids = pool.ids(Place::Volumes).map_err(|error| fault::io("listing the pool", error))?;
        ids.retain(|id| {
            let object = pool.object(Place::Volumes, id);
            let is_thin = pool.need_of(id) > 0 && is_raw(&object);
            is_thin
                && match self.protect_raw_device(&object, id, &bound) {
                    Ok(protected) => protected,
                    Err(error) => {
                        tracing::warn!(volume = %id, error = %error.chain(), "the raw device is not protected yet");
                        false
                    }
                }
        });
        Ok(ids)
    }

    /// False for a volume that is not attached, that is being let go, or whose device is read-only already: it was
    /// staged or published so, or is protected.
    fn protect_raw_device(&self, object: &Object, id: &str, bound: &loopdev::Bound) -> Result<bool, Error> {
        let Some(LoopStatus { device, read_only, .. }) = device_of(object, |backing| bound.of(backing))? else {
            return Ok(false);
        };
        let mut volumes = self.frozen_volumes();
        if volumes.leaving.contains_key(id) || read_only || device.is_read_only().map_err(fault::sys)? {
            return Ok(false);
        }
        device.set_read_only(true).map_err(fault::sys)?;
        volumes.protected.insert(id.to_owned(), object.dir().to_owned());
        tracing::warn!(volume = %id, device = %device.path.display(), "the raw device is read-only: its pool is full");
        Ok(true)
    }

    /// Writes out what was written to raw devices before they became read-only.
    pub(crate) fn write_out_raw_devices(&self, pool: &Pool, ids: &[String]) {
        for id in ids {
            let found = Found { pool, object: pool.object(Place::Volumes, id) };
            if let Err(error) = self.write_out_raw_device(&found) {
                tracing::warn!(volume = %id, error = %error.chain(), "the raw device is not written out");
            }
        }
    }

    fn write_out_raw_device(&self, found: &Found<'_>) -> Result<(), Error> {
        match Flush::open(found, std::iter::empty())?.sync() {
            Bounded::Done(Ok(())) => Ok(()),
            Bounded::Done(Err(failure)) => {
                let _lock = self.hold(found, Hold::Exclusive)?;
                self.mark_unwritten(found, &failure, None).map(drop)
            }
            Bounded::StillRunning => Err(Error::busy("it does not finish writing to its pool")),
        }
    }

    /// Makes those protected devices writable whose volume's directory is chosen.
    pub(crate) fn release_raw_devices(&self, chosen: impl Fn(&Path) -> bool) {
        let mut volumes = self.frozen_volumes();
        volumes.protected.retain(|id, dir| {
            if !chosen(dir) {
                return true;
            }
            let released = lift_protection(&Object::at(dir.clone()));
            match &released {
                Ok(()) => tracing::info!(volume = %id, "the raw device is writable again"),
                Err(error) => tracing::error!(volume = %id, error = %error.chain(), "the raw device stays read-only"),
            }
            released.is_err()
        });
    }
}

/// Makes a device writable that an earlier driver protected, unless the volume is staged or published read-only.
pub(crate) fn lift_earlier_protection(notes: &NodeNotes, device: &LoopDevice) -> Result<(), Error> {
    let Some(staged) = &notes.staged else { return Ok(()) };
    let is_meant = staged.read_only || notes.published.values().any(|published| published.read_only);
    if !is_meant && device.is_read_only().map_err(fault::sys)? {
        device.set_read_only(false).map_err(fault::sys)?;
    }
    Ok(())
}

fn is_raw(object: &Object) -> bool {
    let record = object.record::<VolumeRecord>();
    record.is_ok_and(|record| (record.kind, record.access) == (Kind::Image, AccessKind::Block))
}

/// The device of a volume's image, if it has both.
fn device_of(
    object: &Object,
    find: impl FnOnce(BackingFile) -> Result<Vec<LoopStatus>, loopdev::LoopError>,
) -> Result<Option<LoopStatus>, Error> {
    let Ok(image) = File::open(object.image()) else { return Ok(None) };
    let backing = BackingFile::of(&image).map_err(fault::sys)?;
    Ok(find(backing).map_err(fault::sys)?.into_iter().next())
}

fn lift_protection(object: &Object) -> Result<(), Error> {
    match device_of(object, loopdev::find)? {
        Some(status) => status.device.set_read_only(false).map_err(fault::sys),
        None => Ok(()),
    }
}
