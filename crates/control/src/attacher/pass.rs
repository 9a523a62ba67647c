//! One pass over one attachment: look, decide, do one thing, and again.

use std::sync::Arc;
use std::time::Duration;

use api::{Attachment, CsiNode, Key, Kind, Volume};
use lifecycle::attacher::attachment::{Action, Phase, Seen, decide};
use lifecycle::attacher::{Because, Unfit};
use lifecycle::provision::csi::secrets::Reference;
use lifecycle::{Decision, Lookup, Reason as _};
use runtime::client::Error;
use runtime::csi::Facts;
use runtime::{Verdict, work};
use serde::Deserialize as _;
use serde_json::Value;
use tracing::Instrument as _;

use super::Attacher;
use super::restored;
use super::round::{Read, Round, Secret};
use super::wake::What;
use super::writes::Trouble;
use crate::Live;
use crate::provision::csi::secret::{self, SecretError};
use crate::provision::csi::wire;

/// How many steps one pass takes before others get their turn.
const ROUNDS: usize = 16;
/// How long an attachment that was restored waits until the nodes are looked at again.
const REPORT_PAUSE: Duration = Duration::from_secs(1);

/// What a step leaves to do.
pub(super) enum Step {
    /// Decide again.
    On,
    Over(Verdict),
}

/// The server did not do what was asked; the queue tries again.
pub(super) fn failed(error: Error) -> Step {
    tracing::warn!(%error, "an attachment waits for the API");
    Step::Over(Verdict::Failed(error.to_string()))
}

impl Attacher {
    pub(super) async fn attachment(&self, key: Key) -> Verdict {
        let span = self.about_work(&key);
        // On the heap: a span around it would double a large state on the stack.
        Box::pin(self.attachment_pass(key)).instrument(span).await
    }

    /// What the log says this pass is about.
    fn about_work(&self, key: &Key) -> tracing::Span {
        let Some(attachment) = self.attachments.get(key) else { return tracing::Span::none() };
        let kind = if attachment.meta.is_deleting() { "detach" } else { "attach" };
        let name = attachment.volume.as_deref().unwrap_or(key.name());
        let volume = self.volumes.get(&Key::cluster(name));
        let claim = volume.as_ref().and_then(|volume| volume.claim.as_ref()).map(|reference| &reference.key);
        work::on_volume(kind, name, claim)
    }

    async fn attachment_pass(&self, key: Key) -> Verdict {
        let mut round = Round::default();
        for _ in 0..ROUNDS {
            let Some(attachment) = self.attachments.get(&key) else { return Verdict::Done };
            round.about(&attachment);
            let Some(facts) = self.connected(&key) else {
                return Verdict::Failed("the driver is not connected".to_owned());
            };
            let decision = self.decide(&attachment, &round, &facts);
            tracing::trace!(attachment = %key, because = decision.because.code(), "{}", decision.because);
            match self.act(&attachment, &mut round, (decision, &facts)).await {
                Step::On => {}
                Step::Over(verdict) => return verdict,
            }
        }
        Verdict::Again(Duration::ZERO)
    }

    /// What is known of the driver; if it is away, the attachment waits for it.
    fn connected(&self, key: &Key) -> Option<Arc<Facts>> {
        // Noted before the look, so that a return between the two is not missed.
        self.board.wait(key, What::Driver);
        let facts = self.driver.facts()?;
        self.board.served(key, &What::Driver);
        Some(facts)
    }

    fn decide(&self, attachment: &Attachment, round: &Round, facts: &Facts) -> Decision<Action, Because> {
        let has = wire::abilities(&facts.capabilities);
        let cached = self.nodes.get().and_then(|nodes| nodes.get(&Key::cluster(&attachment.node)));
        let node = match (&cached, &round.node) {
            (Some(node), _) => Lookup::Found(&**node),
            (None, Some(live)) => live.lookup(),
            (None, None) => Lookup::NotCached,
        };
        let held = attachment.volume.as_deref().and_then(|name| self.volumes.get(&Key::cluster(name)));
        decide(&Seen {
            attachment,
            cached: held.as_deref(),
            attacher: &self.about,
            has: &has,
            volume: round.volume.as_ref().map_or(Lookup::NotCached, Live::lookup),
            node,
            listed: round.listed.as_ref().map_or(Lookup::NotCached, Live::lookup),
            secret: round.secret_seen(),
            restored: round.restored.as_ref().map_or(Lookup::NotCached, Lookup::Found),
            forced: self.board.forced(attachment),
            progress: &round.progress,
        })
    }

    async fn act(
        &self,
        attachment: &Arc<Attachment>,
        round: &mut Round,
        (decision, facts): (Decision<Action, Because>, &Facts),
    ) -> Step {
        let Decision { because, actions } = decision;
        let Some(action) = actions.into_iter().next() else {
            return Step::Over(match because {
                // Nodes are not followed for the rare case of a restore.
                Because::AwaitsReport { .. } => Verdict::Again(REPORT_PAUSE),
                _ => Verdict::Done,
            });
        };
        match action {
            Action::ReadVolume { name } => match self.read_volume(&name).await {
                Ok(live) => {
                    round.volume = Some(live);
                    Step::On
                }
                Err(error) => failed(error),
            },
            Action::ReadNode { name } => match self.context.read::<CsiNode>(&Key::cluster(&name)).await {
                Ok(live) => {
                    round.node = Some(live);
                    Step::On
                }
                Err(error) => failed(error),
            },
            Action::ReadRestored => match restored::read(&self.context, self.options.node.as_deref()).await {
                Ok(cluster) => {
                    round.restored = Some(cluster);
                    Step::On
                }
                Err(error) => failed(error),
            },
            Action::FindHandle => self.find_handle(attachment, round).await,
            Action::ReadSecret(reference) => {
                round.secret = Some(self.read_secret(reference).await);
                Step::On
            }
            Action::GuardVolume => self.guard_volume(attachment, round).await,
            Action::Record(target) => self.record(attachment, &target).await,
            Action::Publish(publication, target) => self.publish(attachment, round, (*publication, target)).await,
            Action::Unpublish(target, origin) => self.unpublish(attachment, round, (target, origin, facts)).await,
            Action::RecordAttached { metadata } => self.record_attached(attachment, metadata).await,
            Action::LetGo => self.let_go(attachment).await,
            Action::RecordDetached => self.record_detached(attachment).await,
            Action::Complain(phase) => self.refuse(attachment, phase, &because).await,
        }
    }

    /// The attachment cannot be carried out as things are: says so, and waits for what would help.
    async fn refuse(&self, attachment: &Attachment, phase: Phase, because: &Because) -> Step {
        let what = match because {
            Because::Unfit(Unfit::NodeMissing { node } | Unfit::DriverNotOnNode { node, .. }) => {
                Some(What::Node(node.as_str().into()))
            }
            Because::Unfit(
                Unfit::VolumeMissing { name } | Unfit::VolumeGoing { name } | Unfit::HandleUnknown { name, .. },
            ) => Some(What::Volume(name.as_str().into())),
            _ => None,
        };
        if let Some(what) = what {
            self.board.wait(&attachment.meta.key, what);
        }
        let trouble = Trouble { phase, message: because.to_string(), code: None };
        self.complain(attachment, trouble).await
    }

    /// The whole volume as the server has it now, past the cache, which learns of it.
    pub(super) async fn read_volume(&self, name: &str) -> Result<Live<Value>, Error> {
        let key = Key::cluster(name);
        // What is known before the question: the answer may be older than what the cache learns while it is on its way.
        let before = self.volumes.get(&key);
        match self.context.client.get::<Value>(Kind::VOLUME, &key).await {
            Ok(pv) => {
                self.learn(&pv);
                Ok(Live::Found(Arc::new(pv)))
            }
            Err(error) if error.is_not_found() => {
                if let Some(before) = before {
                    self.context.gone::<Volume>(&before.meta);
                }
                Ok(Live::Absent)
            }
            Err(error) => Err(error),
        }
    }

    /// Lets the cache know what the server answered.
    pub(super) fn learn(&self, pv: &Value) {
        if let Ok(volume) = Volume::deserialize(pv) {
            self.volumes.wrote(volume);
        }
    }

    async fn read_secret(&self, reference: Reference) -> Secret {
        let read = match secret::read(&self.context.client, &reference).await {
            Ok(values) => Read::Values(values),
            Err(error @ (SecretError::Missing { .. } | SecretError::NotText { .. })) => {
                Read::Unusable(error.to_string())
            }
            Err(error @ SecretError::Unread { .. }) => Read::Failed(error.to_string()),
        };
        Secret { reference, read }
    }
}
