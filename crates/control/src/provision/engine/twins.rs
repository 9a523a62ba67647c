//! Other objects that stand for what a volume is made of.

use std::sync::Arc;

use api::{Claim, Uid, Volume};
use lifecycle::provision::backing::{backing_of, is_same_backing};
use lifecycle::provision::delete::{TwinsSeen, keeps};
use lifecycle::provision::intent::IntentOrigin;
use runtime::client::Error;

use super::Engine;
use super::memory::{Begun, IntentWriter};
use crate::provision::Provisioner;
use crate::{Live, handles};

/// Other objects of the same handle, as seen when an intent's volume is about to be stored or undone.
#[derive(Debug)]
pub(super) struct Surroundings {
    pub(super) origin: IntentOrigin,
    pub(super) twin: Option<Arc<Volume>>,
}

impl<P: Provisioner> Engine<P> {
    /// Looks for other objects of the volume before it is stored or undone. The server is asked for an intent of an earlier
    /// process, for a volume that would be deleted, and for one that may have been stored before. For any other the cache is
    /// enough to find a twin, and the server has to confirm it.
    pub(super) async fn surroundings(
        &self,
        uid: &Uid,
        begun: &Begun<P::Plan>,
        (made, stored): (&Volume, Option<&Volume>),
    ) -> Result<Surroundings, Error> {
        let undone = match stored {
            Some(stored) if is_same_backing(stored, made) => {
                return Ok(Surroundings { origin: IntentOrigin::Here, twin: None });
            }
            Some(_) => true,
            None => false,
        };
        let origin = match begun.writer {
            IntentWriter::This => IntentOrigin::Here,
            IntentWriter::Earlier => {
                let live = self.context.read::<Claim>(&begun.intent.claim()).await?;
                let claim = live.lookup().found().filter(|claim| claim.uid() == uid);
                IntentOrigin::earlier(claim)
            }
        };
        let twin = match undone || begun.store_tried || begun.writer == IntentWriter::Earlier {
            true => handles::live_twins(&self.context, made).await?.into_iter().next(),
            false => self.confirmed_twin(made).await?,
        };
        Ok(Surroundings { origin, twin })
    }

    /// A twin that the cache shows and the server confirms: closing an intent because of one that is gone would leak.
    async fn confirmed_twin(&self, made: &Volume) -> Result<Option<Arc<Volume>>, Error> {
        for twin in self.cached_twins(made) {
            if let Live::Found(now) = self.context.read::<Volume>(&twin.meta.key).await?
                && is_same_backing(&now, made)
            {
                return Ok(Some(now));
            }
        }
        Ok(None)
    }

    fn cached_twins(&self, volume: &Volume) -> Vec<Arc<Volume>> {
        let mut twins = backing_of(volume).map(|backing| self.by_backing.all(&backing)).unwrap_or_default();
        twins.retain(|twin| twin.name() != volume.name());
        twins
    }

    /// A volume that speaks against deleting what this one is made of.
    pub(super) fn keeper(&self, volume: &Volume) -> Option<Arc<Volume>> {
        self.cached_twins(volume).into_iter().find(|twin| keeps(twin))
    }

    /// Other volumes of the same handle, for a deletion. The driver gives a handle once, so the cache is enough for a volume
    /// that this provisioner made; a handle in a hand-written volume may belong to any other, so the server is asked.
    pub(super) fn twins_seen<'a>(&self, volume: &Volume, keeper: Option<&'a Volume>, read: bool) -> TwinsSeen<'a> {
        let uid = volume.claim.as_ref().and_then(|reference| reference.uid.as_ref());
        let made_here = volume.provisioned_by() == Some(self.names().own())
            && uid.is_some_and(|uid| self.options.naming.volume(uid) == volume.name());
        match (keeper, made_here || read) {
            (Some(keeper), _) => TwinsSeen::Kept(keeper),
            (None, true) => TwinsSeen::None,
            (None, false) => TwinsSeen::NotRead,
        }
    }
}
