//! Emptying a volume with a pod: made, watched to its end, and always taken away (BIND-4.10).
//!
//! A crash leaves the pod behind. Whoever finds it cannot know which attempt it belongs to: it is taken away, and the next
//! attempt begins anew.

use std::convert::Infallible;
use std::time::Duration;

use api::node::PodPhase;
use api::{Key, Kind, Meta, Object, Pod, Volume};
use runtime::client::{Error, Selection};
use runtime::events::{Recorder, Severity};
use runtime::watch;
use runtime::{Cache, Stop, Subscription};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;

use super::Recycling;
use crate::{Context, Live};

/// How long a pod may wait for a node before its own deadline begins to count.
const UNSTARTED: Duration = Duration::from_secs(120);

/// Why a volume was not emptied.
#[derive(Debug, thiserror::Error)]
pub enum ScrubError {
    #[error("old recycler pod found, will retry later")]
    Leftover,
    #[error("the recycler's pod failed: {message}")]
    Failed { message: String },
    #[error("the recycler's pod was deleted by somebody else")]
    Deleted,
    #[error("the recycler's pod has not ended in {} seconds; does any node take it?", .0.as_secs())]
    TimedOut(Duration),
    #[error("the recycler's pod could not be {what}: {source}")]
    Api { what: &'static str, source: Error },
}

/// Runs pods that empty volumes. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Scrubber {
    context: Context,
    recorder: Recorder,
    pods: Cache<Pod>,
    /// Says that some pod changed.
    changed: watch::Sender<()>,
    _subscription: Subscription,
}

/// An event about the pod, as far as it is told again.
#[derive(Debug, Clone, Deserialize)]
struct PodEvent {
    metadata: Meta,
    #[serde(default)]
    message: String,
    #[serde(default, rename = "type")]
    kind: String,
}

impl Object for PodEvent {
    const KIND: Kind = Kind::EVENT;

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Scrubber {
    pub(super) fn new(context: &Context) -> Self {
        let pods = context.cache::<Pod>();
        let changed = watch::Sender::new(());
        let tell = changed.clone();
        let subscription = pods.subscribe(move |_| tell.send_replace(()));
        let recorder = context.recorder.named("persistentvolume-controller");
        Self { context: context.clone(), recorder, pods, changed, _subscription: subscription }
    }

    /// Empties a volume. `source` is the volume as a pod's volume says it.
    pub(super) async fn scrub(&self, volume: &Volume, source: &Value, how: &Recycling) -> Result<(), ScrubError> {
        let patience = how.patience.of(volume);
        let body = how.template.pod(volume, source, patience);
        let pod = self.start(&body).await?;
        let patience = patience.saturating_add(UNSTARTED);
        let ended = tokio::select! {
            biased;
            ended = timeout(patience, self.ended(&pod)) => ended.unwrap_or(Err(ScrubError::TimedOut(patience))),
            never = self.mirror(&pod, volume) => match never {},
        };
        // What failed first is the better explanation; a pod that stays is found by the next attempt.
        let taken_away = self.take_away(&pod).await;
        ended.and(taken_away)
    }

    async fn start(&self, body: &Value) -> Result<Meta, ScrubError> {
        let metadata = &body["metadata"];
        let text = |member: &str| metadata[member].as_str().unwrap_or_default();
        let key = Key::namespaced(text("namespace"), text("name"));
        let source = match self.context.client.create::<Pod>(Kind::POD, key.namespace(), body).await {
            Ok(pod) => {
                let meta = pod.meta.clone();
                self.pods.wrote(pod);
                return Ok(meta);
            }
            Err(error) => error,
        };
        if !source.may_have_happened() && !matches!(source, Error::AlreadyExists { .. }) {
            return Err(ScrubError::Api { what: "created", source });
        }
        match self.context.read::<Pod>(&key).await {
            Ok(Live::Found(old)) => self.take_away(&old.meta).await?,
            Ok(Live::Absent) => {}
            Err(source) => return Err(ScrubError::Api { what: "read", source }),
        }
        Err(ScrubError::Leftover)
    }

    /// Waits for the pod's end.
    async fn ended(&self, pod: &Meta) -> Result<(), ScrubError> {
        let mut changed = self.changed.subscribe();
        loop {
            let Some(now) = self.pods.get(&pod.key).filter(|now| now.meta.uid == pod.uid) else {
                return Err(ScrubError::Deleted);
            };
            match now.phase {
                PodPhase::Succeeded => return Ok(()),
                PodPhase::Failed => return Err(ScrubError::Failed { message: self.message(&pod.key).await }),
                PodPhase::Pending | PodPhase::Running | PodPhase::Unknown => {}
            }
            // The sender lives in `self`.
            let _ = changed.changed().await;
        }
    }

    /// What the pod says about its failure.
    async fn message(&self, key: &Key) -> String {
        let pod = self.context.client.get::<Value>(Kind::POD, key).await.unwrap_or_default();
        let text = |member: &str| pod["status"][member].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        text("message").or_else(|| text("reason")).unwrap_or_else(|| "its status gives no reason".to_owned())
    }

    /// Tells the pod's events again, on the volume. Ends only when it is dropped.
    async fn mirror(&self, pod: &Meta, volume: &Volume) -> Infallible {
        let namespace = pod.key.namespace().map(str::to_owned);
        let fields = Some(format!("involvedObject.uid={}", pod.uid));
        let events = Cache::<PodEvent>::new(Selection { namespace, fields, ..Selection::default() });
        let (recorder, volume) = (self.recorder.clone(), volume.clone());
        let _telling = events.subscribe(move |change| {
            if let Some(event) = change.after() {
                let severity = if event.kind == "Warning" { Severity::Warning } else { Severity::Normal };
                recorder.record(&volume, severity, "RecyclerPod", &format!("Recycler pod: {}", event.message));
            }
        });
        events.run(&self.context.client, &self.context.entropy, &Stop::never()).await;
        std::future::pending().await
    }

    async fn take_away(&self, pod: &Meta) -> Result<(), ScrubError> {
        let deleted = self.context.delete::<Pod>(pod).await;
        deleted.map_err(|source| ScrubError::Api { what: "deleted", source })
    }
}
