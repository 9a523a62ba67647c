//! DeleteVolume and the check that nobody uses what is to go.

use std::fs::File;
use std::io;
use std::time::Duration;

use driver_sdk::{Error, VolumeId, failpoint};

use crate::core::{Core, Found};
use crate::fault;
use crate::node::still_held;
use crate::pool::{Draft, Hold, Place};
use crate::record::{Kind, VolumeRecord};
use linux::loopdev::{self, BackingFile, Detach};
use linux::mountinfo::MountTable;

/// How long an idle loop device may take to let go of its image.
const LOOP_PATIENCE: Duration = Duration::from_secs(10);

impl Core {
    pub fn delete_volume(&self, id: &VolumeId) -> Result<(), Error> {
        self.drop_drafts(id.as_str());
        let Some(found) = self.find(Place::Volumes, id.as_str())? else { return Ok(()) };
        let lock = self.hold(&found, Hold::Exclusive)?;
        let record: VolumeRecord = found.object.record().map_err(fault::record)?;
        self.refuse_attached(&found, id)?;
        refuse_in_use(&found, &record)?;
        failpoint::hit("delete.checked");
        let trashed = found.pool.discard(Place::Volumes, id.as_str())?;
        found.pool.forget(id.as_str());
        self.unnoted_losses().remove(found.object.dir());
        failpoint::hit("delete.discarded");
        trashed.remove();
        self.drop_copies_of(id.as_str());
        drop(lock);
        Ok(())
    }

    /// A copy that was never finished has the id of the volume it would have become.
    pub(super) fn drop_drafts(&self, id: &str) {
        if crate::core::is_ours(id) {
            self.open_pools().for_each(|pool| drop(Draft::leftover(pool, id)));
        }
    }

    fn refuse_attached(&self, found: &Found<'_>, id: &VolumeId) -> Result<(), Error> {
        let attachments = found.object.attachments().map_err(fault::record)?;
        match attachments.nodes.keys().next() {
            Some(node) if self.attach_required() => {
                Err(Error::precondition(format!("volume {id} is attached to node {node}; detach it first")))
            }
            _ => Ok(()),
        }
    }
}

/// A mounted or shown volume stays. A loop device that nobody uses is let go.
pub(crate) fn refuse_in_use(found: &Found<'_>, record: &VolumeRecord) -> Result<(), Error> {
    let table = MountTable::read().map_err(fault::sys)?;
    let shown = crate::node::all_mounts(found, &table)?;
    if let Some(place) = shown.first() {
        return Err(Error::precondition(format!(
            "volume {} is in use at {}; unpublish and unstage it first",
            record.id,
            place.display()
        )));
    }
    match record.kind {
        Kind::Image => release_image(found),
        Kind::Directory | Kind::Subvolume => Ok(()),
    }
}

fn release_image(found: &Found<'_>) -> Result<(), Error> {
    let image = match File::open(found.object.image()) {
        Ok(image) => image,
        // A volume without data can still be removed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(fault::io("opening the volume's image", error)),
    };
    let backing = BackingFile::of(&image).map_err(fault::sys)?;
    for status in loopdev::find(backing).map_err(fault::sys)? {
        match loopdev::detach_and_wait(&status.device, backing, LOOP_PATIENCE).map_err(fault::sys)? {
            Detach::Detached => {}
            Detach::StillBusy => {
                return Err(Error::precondition(still_held(&status.device)));
            }
        }
    }
    Ok(())
}
