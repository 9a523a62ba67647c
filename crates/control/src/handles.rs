//! Volumes by what they are made of: several PersistentVolumes may stand for one volume of a driver.

use std::sync::Arc;

use api::{Kind, Volume};
use lifecycle::provision::backing::{backing_of, is_same_backing};
use runtime::client::{Error, Selection};
use runtime::{Context, Index};

/// Objects per page when all volumes are read.
const PAGE: u32 = 500;

/// Volumes by what they are made of.
pub(crate) const VOLUMES_BY_BACKING: Index<Volume> = Index {
    name: "pv-backing-index",
    values: |volume, value| {
        if let Some(backing) = backing_of(volume) {
            value(&backing);
        }
    },
};

/// The volumes of the server, past the cache, that `wanted` picks. The cache learns of them.
async fn live_volumes(
    context: &Context,
    wanted: impl Fn(&Volume) -> bool + Send + Sync,
) -> Result<Vec<Arc<Volume>>, Error> {
    let (mut found, mut next) = (Vec::new(), None::<String>);
    loop {
        let listed = context.client.list::<Volume>(Kind::VOLUME, &Selection::default(), PAGE, next.as_deref()).await?;
        for volume in listed.items.into_iter().filter(|volume| wanted(volume)) {
            let answered = Arc::new(volume.clone());
            let held = context.cache::<Volume>().wrote(volume);
            // The cache may know something newer of the same object.
            found.push(held.filter(|held| held.meta.uid == answered.meta.uid).unwrap_or(answered));
        }
        next = listed.next;
        if next.is_none() {
            return Ok(found);
        }
    }
}

/// The objects of another name that the server has for what this volume is made of.
pub(crate) async fn live_twins(context: &Context, volume: &Volume) -> Result<Vec<Arc<Volume>>, Error> {
    live_volumes(context, |other| other.name() != volume.name() && is_same_backing(other, volume)).await
}

/// An object that the server has for the volume of this unique name.
pub(crate) async fn live_owner(context: &Context, unique: &str) -> Result<Option<Arc<Volume>>, Error> {
    let found = live_volumes(context, |other| backing_of(other).as_deref() == Some(unique)).await?;
    Ok(found.into_iter().next())
}
