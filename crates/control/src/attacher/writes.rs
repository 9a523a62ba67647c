//! What is written about attachments and volumes (SIDECAR-1.11, ATTACHER-3.6, ATTACHER-3.7).
//!
//! Finalizers and the record are written at the revision that was decided about, so that nobody else's finalizer is
//! lost (SIDECAR-A6, SIDECAR-13.23). The status is ours alone, and says what the driver did, whatever else changed
//! meanwhile: it is written to this very object.

use std::collections::BTreeMap;

use api::object::UnixSeconds;
use api::{Attachment, AttachmentError, Key, Kind, Meta, Volume};
use lifecycle::attacher::Target;
use lifecycle::attacher::attachment::Phase;
use runtime::client::Error;
use runtime::failed_writes::may_look_again;
use runtime::{Patch, Verdict};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::Attacher;
use super::pass::{Step, failed};
use super::round::Round;
use crate::Live;

/// The longest message that the API takes.
const LONGEST: usize = 1024;

/// What went wrong.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) phase: Phase,
    pub(super) message: String,
    /// The driver's, if it answered.
    pub(super) code: Option<i32>,
}

impl Attacher {
    /// ATTACHER-3.6.3: the volume stays while it may be attached.
    pub(super) async fn guard_volume(&self, attachment: &Attachment, round: &mut Round) -> Step {
        let Some(key) = attachment.volume.as_deref().map(Key::cluster) else { return Step::On };
        // Whatever comes of it, what was read is old.
        let meta = match round.volume.take() {
            Some(Live::Found(pv)) => Meta::deserialize(&pv["metadata"]).ok(),
            Some(Live::Absent) => None,
            None => self.volumes.get(&key).map(|volume| volume.meta.clone()),
        };
        let Some(meta) = meta else { return self.look_at_volume(&key, round).await };
        let held = meta.finalizers.iter().map(|held| held.as_str());
        let patch = Patch::Merge(json!({"metadata": {
            "uid": meta.uid,
            "resourceVersion": meta.revision.to_string(),
            "finalizers": held.chain([self.about.finalizer.as_str()]).collect::<Vec<&str>>(),
        }}));
        match self.context.client.patch::<Value>(Kind::VOLUME, &key, &patch).await {
            Ok(pv) => {
                self.learn(&pv);
                round.volume = Some(Live::Found(pv.into()));
                Step::On
            }
            Err(error) if error.is_unsettled() && may_look_again(Kind::VOLUME, &key) => {
                self.look_at_volume(&key, round).await
            }
            Err(error) => {
                if let Some(volume) = self.volumes.get(&key) {
                    self.context.tell_failed_write::<Volume>(&volume, &error);
                }
                failed(error)
            }
        }
    }

    async fn look_at_volume(&self, key: &Key, round: &mut Round) -> Step {
        match self.read_volume(key.name()).await {
            Ok(live) => {
                round.volume = Some(live);
                Step::On
            }
            Err(error) => failed(error),
        }
    }

    /// ATTACHER-3.6.9: our finalizer, and what is going to be published where.
    pub(super) async fn record(&self, attachment: &Attachment, target: &Target) -> Step {
        let mut metadata = self.finalizers(attachment, Some(&self.about.finalizer));
        let said = target.annotations().map(|(key, value)| (key.text().to_owned(), json!(value)));
        metadata["annotations"] = said.into_iter().collect::<Map<String, Value>>().into();
        self.patch(attachment, json!({"metadata": metadata})).await
    }

    /// ATTACHER-3.7.5, first half.
    pub(super) async fn let_go(&self, attachment: &Attachment) -> Step {
        self.patch(attachment, json!({"metadata": self.finalizers(attachment, None)})).await
    }

    /// The metadata of a write that changes nothing of the finalizers but ours.
    fn finalizers(&self, attachment: &Attachment, ours: Option<&str>) -> Value {
        let held = attachment.meta.finalizers.iter().map(|held| held.as_str());
        let kept = held.filter(|held| *held != self.about.finalizer);
        json!({
            "uid": attachment.meta.uid,
            "resourceVersion": attachment.meta.revision.to_string(),
            "finalizers": kept.chain(ours).collect::<Vec<&str>>(),
        })
    }

    /// ATTACHER-3.6.11.
    pub(super) async fn record_attached(&self, attachment: &Attachment, now: BTreeMap<String, String>) -> Step {
        let stale = attachment.metadata.iter().filter(|(key, _)| !now.contains_key(*key));
        let stale = stale.map(|(key, _)| (key.to_owned(), Value::Null)).collect::<Map<_, _>>();
        let now = now.into_iter().map(|(key, value)| (key, Value::String(value)));
        let metadata: Map<String, Value> = now.chain(stale).collect();
        let metadata = if metadata.is_empty() { Value::Null } else { Value::Object(metadata) };
        let status = json!({"attached": true, "attachmentMetadata": metadata, "attachError": null});
        let step = self.patch_status(attachment, status).await;
        if let Step::On = step {
            self.board.settled(&attachment.meta.key);
            tracing::info!(node = attachment.node.as_str(), "the volume is attached");
        }
        step
    }

    /// ATTACHER-3.7.5, second half; the attachment may be gone by now, which is as good.
    pub(super) async fn record_detached(&self, attachment: &Attachment) -> Step {
        self.patch_status(attachment, json!({"attached": false, "attachmentMetadata": null, "detachError": null})).await
    }

    /// Says what went wrong in the attachment's status, unless that is what it says, and gives up for now. A write that
    /// fails is logged only: the attempt that it tells of is repeated anyway.
    pub(super) async fn complain(&self, attachment: &Attachment, trouble: Trouble) -> Step {
        let Trouble { phase, message, code } = trouble;
        let (field, held) = match phase {
            Phase::Attach => ("attachError", &attachment.attach_error),
            Phase::Detach => ("detachError", &attachment.detach_error),
        };
        let text = shortened(&message);
        let same = |held: &AttachmentError| *held.message == *text && held.code == code;
        if !held.as_deref().is_some_and(same) {
            let time = UnixSeconds(self.context.clock.now().as_second()).to_string();
            let status = json!({field: {"time": time, "message": text, "errorCode": code}});
            let key = &attachment.meta.key;
            if let Err(error) = self.write_status(attachment, status).await
                && !error.is_not_found()
            {
                tracing::warn!(attachment = %key, %error, "cannot say what went wrong with an attachment");
            }
        }
        Step::Over(Verdict::Failed(message))
    }

    async fn patch(&self, attachment: &Attachment, body: Value) -> Step {
        let key = &attachment.meta.key;
        match self.context.patch::<Attachment>(key, &Patch::Merge(body)).await {
            Ok(_) => Step::On,
            Err(error) => self.reconsider(key, error).await,
        }
    }

    async fn patch_status(&self, attachment: &Attachment, status: Value) -> Step {
        match self.write_status(attachment, status).await {
            Ok(()) => Step::On,
            Err(error) => self.reconsider(&attachment.meta.key, error).await,
        }
    }

    async fn write_status(&self, attachment: &Attachment, status: Value) -> Result<(), Error> {
        let patch = Patch::Merge(json!({"metadata": {"uid": attachment.meta.uid}, "status": status}));
        self.context.patch_status::<Attachment>(&attachment.meta.key, &patch).await.map(drop)
    }

    /// After a write that failed: `On` once the cache knows how things stand.
    async fn reconsider(&self, key: &Key, error: Error) -> Step {
        match self.context.reconsider::<Attachment>(key, error).await {
            Ok(()) => Step::On,
            Err(error) => failed(error),
        }
    }
}

/// As much of a message as the API takes; upstream's write is refused, and nothing is said at all.
fn shortened(message: &str) -> &str {
    let end = (0..=LONGEST.min(message.len())).rev().find(|at| message.is_char_boundary(*at)).unwrap_or_default();
    &message[..end]
}
