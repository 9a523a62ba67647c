//! One pass over a volume: look, decide, do the one thing, look again.

use std::sync::Arc;
use std::time::Duration;

use api::{Claim, Key, Volume};
use lifecycle::Notice;
use lifecycle::Reason as _;
use lifecycle::release::volume::{self, Action, Because, ClaimSeen, Seen};
use runtime::client::Error;
use runtime::{Verdict, work};
use tracing::Instrument as _;

use super::reclaim::{self, Trouble};
use super::{Inner, MOST_ROUNDS, patches};
use crate::Live;

/// Works on one volume until there is nothing to do for it.
pub(super) async fn pass(inner: &Inner, key: Key) -> Verdict {
    let claim = inner.volumes.get(&key).and_then(|volume| volume.claim.as_ref().map(|reference| reference.key.clone()));
    let span = work::on_volume("release", key.name(), claim.as_ref());
    match Box::pin(rounds(inner, &key)).instrument(span).await {
        Ok(verdict) => verdict,
        Err(error) => Verdict::Failed(error.to_string()),
    }
}

async fn rounds(inner: &Inner, key: &Key) -> Result<Verdict, Error> {
    let mut live: Option<Live<Claim>> = None;
    for _ in 0..MOST_ROUNDS {
        let Some(volume) = inner.volumes.get(key) else { return Ok(Verdict::Done) };
        let cached = volume.claim.as_ref().and_then(|reference| inner.claims.get(&reference.key));
        let verdict = decide(inner, &volume, cached.as_ref(), live.as_ref());
        tell(inner, &volume, cached.as_deref(), &verdict);
        let Some(action) = verdict.actions.first() else { return Ok(Verdict::Done) };
        match action {
            Action::ReadClaim { key } => live = Some(inner.context.read::<Claim>(key).await?),
            Action::WakeClaim { key } => {
                inner.claim_queue.add(key.clone());
                return Ok(Verdict::Done);
            }
            Action::Delete { .. } | Action::Recycle { .. } => {
                live = None;
                let ended = match action {
                    Action::Delete { .. } => reclaim::delete(inner, &volume).await,
                    _ => reclaim::recycle(inner, &volume).await,
                };
                match (ended, action) {
                    // There is nothing left to decide about: the object goes when nobody holds it any more.
                    (Ok(()), Action::Delete { .. }) => return Ok(Verdict::Done),
                    (Ok(()) | Err(Trouble::Changed), _) => {}
                    (Err(Trouble::Api(error)), _) => inner.context.reconsider::<Volume>(key, error).await?,
                    (Err(Trouble::Plugin(why)), _) => return Ok(Verdict::Failed(why)),
                    (Err(Trouble::NotNow), _) => return Ok(Verdict::Done),
                }
            }
            write => {
                // What the server said about the claim was said before this write: the next decision asks again.
                live = None;
                if let Err(error) = act(inner, &volume, write).await {
                    inner.context.reconsider::<Volume>(key, error).await?;
                }
            }
        }
    }
    Ok(Verdict::Again(Duration::ZERO))
}

fn decide(inner: &Inner, volume: &Volume, cached: Option<&Arc<Claim>>, live: Option<&Live<Claim>>) -> volume::Verdict {
    let bonded = volume.claim.as_ref().is_some_and(|reference| reference.uid.is_some());
    let claim = match (live, cached) {
        _ if !bonded => ClaimSeen::Unnamed,
        (Some(live), _) => ClaimSeen::Live(live.lookup()),
        (None, Some(claim)) => ClaimSeen::Cached(claim),
        (None, None) => ClaimSeen::NotCached,
    };
    volume::decide(&Seen { volume, claim, plugins: &inner.known })
}

fn tell(inner: &Inner, volume: &Volume, claim: Option<&Claim>, verdict: &volume::Verdict) {
    inner.notices.tell(volume, &verdict.because);
    if let Because::DeletedElsewhere { .. } = verdict.because {
        inner.metrics.deleting(volume);
    }
    if let (Because::ModeMismatch { .. }, Some(claim)) = (&verdict.because, claim) {
        let text = format!(
            "Cannot bind PersistentVolume \"{}\" to requested PersistentVolumeClaim \"{}\" due to incompatible volumeMode.",
            volume.name(),
            claim.name()
        );
        inner.notices.say(claim, Notice::warning("VolumeMismatch", text));
    }
    tracing::debug!(volume = volume.name(), because = verdict.because.code(), actions = ?verdict.actions, "decided");
}

/// Does the one thing.
async fn act(inner: &Inner, volume: &Volume, action: &Action) -> Result<(), Error> {
    let (context, key) = (&inner.context, &volume.meta.key);
    match action {
        Action::ReadClaim { .. } | Action::WakeClaim { .. } => {}
        Action::Maintain { mark, add, remove } => {
            context.patch::<Volume>(key, &patches::maintain(volume, *mark, *add, remove)).await?;
        }
        Action::SetPhase { volume, phase, message } => {
            context.patch_status::<Volume>(key, &patches::phase(volume, phase.name(), message)).await?;
        }
        Action::Erase { volume } => drop(context.patch::<Volume>(key, &patches::erase(volume)).await?),
        Action::ClearUid { volume } => drop(context.patch::<Volume>(key, &patches::clear_uid(volume)).await?),
        Action::Delete { .. } | Action::Recycle { .. } => {}
    }
    Ok(())
}
