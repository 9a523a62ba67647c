//! A volume whose time is over: PROVISION-2.11.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use api::keys::finalizer;
use api::{Claim, Key, Object as _, Revision, Volume};
use lifecycle::provision::delete::{Action, Backing, Because, Seen, VolumeSeen, decide};
use lifecycle::provision::delete_failed;
use lifecycle::{Lookup, Notice};
use runtime::client::Error;
use runtime::failed_writes::may_look_again;
use runtime::metrics;
use runtime::{Patch, Stop, Verdict, work};
use serde_json::json;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::claim::Step;
use super::{Engine, ROUNDS, is_stale};
use crate::provision::{Failed, Provisioner};
use crate::{Live, handles};

/// How long a volume that should go may be in use before it is said to have failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the server itself said in this pass.
#[derive(Debug, Default)]
struct Said {
    claim: Option<Live<Claim>>,
    /// The revision at which it showed the volume.
    volume: Option<Revision>,
    /// Whether it was asked for other volumes that are made of the same.
    twins: bool,
}

impl<P: Provisioner> Engine<P> {
    /// Works on one volume, by its name.
    pub(super) async fn volume(&self, name: Box<str>, stop: &Stop) -> Verdict {
        let volume = self.context.cache::<Volume>().get(&Key::cluster(&name));
        let claim = volume.and_then(|volume| volume.claim.as_ref().map(|reference| reference.key.clone()));
        let span = work::on_volume("delete", &name, claim.as_ref());
        // On the heap: a span around it would double a large state on the stack.
        Box::pin(self.volume_pass(name, stop)).instrument(span).await
    }

    async fn volume_pass(&self, name: Box<str>, stop: &Stop) -> Verdict {
        let _turn = self.turns.take(&name).await;
        let mut said = Said::default();
        for _ in 0..ROUNDS {
            if stop.is_stopped() {
                return Verdict::Again(Duration::ZERO);
            }
            let Some(volume) = self.context.cache::<Volume>().get(&Key::cluster(&name)) else { return Verdict::Done };
            if let ControlFlow::Break(verdict) = self.look_at(&volume, &mut said, stop).await {
                return verdict;
            }
        }
        Verdict::Again(Duration::ZERO)
    }

    /// One step.
    async fn look_at(&self, volume: &Arc<Volume>, said: &mut Said, stop: &Stop) -> Step {
        let cached = self.claim_of(volume);
        let keeper = self.keeper(volume);
        let decision = decide(&Seen {
            volume: match said.volume == Some(volume.meta.revision) {
                true => VolumeSeen::Live(volume),
                false => VolumeSeen::Cached(volume),
            },
            claim: match (&cached, &said.claim) {
                (Some(claim), _) => Lookup::Found(claim),
                (None, Some(live)) => live.lookup(),
                (None, None) => Lookup::NotCached,
            },
            names: self.names(),
            backing: match self.memory.emptied_since(&volume.meta.uid) {
                Some(_) => Backing::Gone,
                None => Backing::Unknown,
            },
            twins: self.twins_seen(volume, keeper.as_deref(), said.twins),
        });
        tracing::trace!(volume = volume.name(), because = %decision.because, "a volume is looked at");
        match decision.actions.into_iter().next() {
            None => match &decision.because {
                because @ Because::Shared { .. } => Step::Break(self.not_deleted(volume, because.to_string())),
                _ => Step::Break(Verdict::Done),
            },
            Some(Action::ReadTwins) => match handles::live_twins(&self.context, volume).await {
                Ok(_) => {
                    said.twins = true;
                    Step::Continue(())
                }
                Err(error) => Step::Break(Verdict::Failed(error.to_string())),
            },
            Some(Action::ReadClaim { key }) => match self.context.read::<Claim>(&key).await {
                Ok(answer) => {
                    said.claim = Some(answer);
                    Step::Continue(())
                }
                Err(error) => Step::Break(Verdict::Failed(error.to_string())),
            },
            Some(Action::ReadVolume) => match self.context.read::<Volume>(&volume.meta.key).await {
                Ok(Live::Found(now)) => {
                    said.volume = Some(now.meta.revision);
                    Step::Continue(())
                }
                Ok(Live::Absent) => Step::Break(Verdict::Done),
                Err(error) => Step::Break(Verdict::Failed(error.to_string())),
            },
            Some(Action::DeleteBacking) => self.empty(volume, stop).await,
            Some(Action::DeleteObject) => self.delete_object(volume).await,
            Some(Action::AddFinalizer) => {
                let held = volume.meta.finalizers.iter().map(|held| held.as_str());
                let finalizers: Vec<&str> = held.chain([finalizer::EXTERNAL_PROVISIONER.text()]).collect();
                let revision = volume.meta.revision.to_string();
                let patch = json!({"metadata": {
                    "resourceVersion": revision, "uid": volume.meta.uid, "finalizers": finalizers}});
                self.change(volume, &Patch::Merge(patch)).await
            }
            Some(Action::RemoveFinalizer) => match without_finalizer(volume) {
                Some(patch) => self.change(volume, &patch).await,
                None => Step::Break(Verdict::Done),
            },
        }
    }

    /// The claim that the volume names, if the cache has that very one.
    fn claim_of(&self, volume: &Volume) -> Option<Arc<Claim>> {
        self.by_uid.first(volume.claim.as_ref()?.uid.as_ref()?.as_str())
    }

    /// Deletes what the volume is made of.
    async fn empty(&self, volume: &Volume, stop: &Stop) -> Step {
        if let Some(uid) = volume.claim.as_ref().and_then(|reference| reference.uid.as_ref()) {
            // An intent that is still in the journal would have the next process make the volume anew.
            if let Some(begun) = self.memory.begun(uid).filter(|begun| begun.intent.volume == volume.name()) {
                match self.go_on(uid, begun, stop).await {
                    ControlFlow::Break(verdict @ Verdict::Failed(_)) => return Step::Break(verdict),
                    ControlFlow::Break(_) | ControlFlow::Continue(()) => return Step::Continue(()),
                }
            }
            if !self.memory.is_begun(uid)
                && let Err(error) = self.journal.closed(uid).await
            {
                return Step::Break(Verdict::Failed(error.to_string()));
            }
        }
        if stop.is_stopped() {
            return Step::Break(Verdict::Again(Duration::ZERO));
        }
        let since = Instant::now();
        match self.provisioner.delete(volume).await {
            Ok(()) => {
                self.memory.emptied(&volume.meta.uid, since);
                tracing::info!(took = ?since.elapsed(), "what the volume was made of is deleted");
                Step::Continue(())
            }
            Err(Failed::NotOurs { message }) => {
                tracing::debug!(volume = volume.name(), message, "not ours to delete");
                Step::Break(Verdict::Done)
            }
            // Whoever deletes a claim and its pod together gets here: the pod's node takes a moment.
            Err(Failed::InUse { message }) if self.memory.in_use(&volume.meta.uid) < PATIENCE => {
                tracing::debug!(volume = volume.name(), message, "in use");
                Step::Break(Verdict::Failed(message))
            }
            Err(Failed::Refused { message, .. } | Failed::Unknown { message } | Failed::InUse { message }) => {
                Step::Break(self.not_deleted(volume, message))
            }
        }
    }

    fn not_deleted(&self, volume: &Volume, message: String) -> Verdict {
        tracing::info!(volume = volume.name(), message, "deletion failed");
        self.context.metrics.provision.delete_failed.get_or_create(&class_of(volume)).inc();
        let notice: Notice = delete_failed(&message);
        self.notices.say(volume, notice);
        Verdict::Failed(message)
    }

    async fn delete_object(&self, volume: &Volume) -> Step {
        match self.context.delete::<Volume>(&volume.meta).await {
            Ok(()) => {
                let (metrics, class) = (&self.context.metrics.provision, class_of(volume));
                metrics.deleted.get_or_create(&class).inc();
                if let Some(since) = self.memory.emptied_since(&volume.meta.uid) {
                    metrics.delete_duration.get_or_create(&class).observe(since.elapsed().as_secs_f64());
                }
                self.notices.forget(&volume.meta.uid);
                Step::Continue(())
            }
            Err(error) => self.again(volume, error).await,
        }
    }

    async fn change(&self, volume: &Volume, patch: &Patch) -> Step {
        match self.context.client.patch::<Volume>(Volume::KIND, &volume.meta.key, patch).await {
            // The last finalizer was ours: that write was its end. The answer has no revision of its own, so that a cache
            // would take it for old news.
            Ok(now) if now.meta.is_deleting() && now.meta.finalizers.is_empty() => {
                self.context.gone::<Volume>(&now.meta);
                Step::Continue(())
            }
            Ok(now) => {
                self.context.cache::<Volume>().wrote(now);
                Step::Continue(())
            }
            Err(error) => self.again(volume, error).await,
        }
    }

    /// After a write that failed: what is not clear is read, and decided again.
    async fn again(&self, volume: &Volume, error: Error) -> Step {
        if !is_stale(&error) || !may_look_again(Volume::KIND, &volume.meta.key) {
            return Step::Break(self.not_deleted(volume, error.to_string()));
        }
        match self.context.read::<Volume>(&volume.meta.key).await {
            // Nothing has changed, so that the server meant the patch itself.
            Ok(Live::Found(now))
                if now.meta.revision == volume.meta.revision && matches!(error, Error::Invalid { .. }) =>
            {
                Step::Break(self.not_deleted(volume, error.to_string()))
            }
            Ok(Live::Found(_) | Live::Absent) => Step::Continue(()),
            Err(error) => Step::Break(self.not_deleted(volume, error.to_string())),
        }
    }
}

/// Takes our finalizer off, and nothing else: if the list has changed, nothing at all. Nor if the policy has: a cache that
/// lags may show a policy to keep the volume, while it has become one to delete it, and then the finalizer is all that
/// remembers it.
fn without_finalizer(volume: &Volume) -> Option<Patch> {
    let ours = finalizer::EXTERNAL_PROVISIONER.text();
    let at = volume.meta.finalizers.iter().position(|held| *held == *ours)?;
    let path = format!("/metadata/finalizers/{at}");
    Some(Patch::Json(json!([
        {"op": "test", "path": "/metadata/uid", "value": volume.meta.uid},
        {"op": "test", "path": path, "value": ours},
        {"op": "test", "path": "/spec/persistentVolumeReclaimPolicy", "value": volume.reclaim.name()},
        {"op": "remove", "path": path},
    ])))
}

fn class_of(volume: &Volume) -> metrics::Class {
    metrics::Class { class: volume.class().text().to_owned() }
}
