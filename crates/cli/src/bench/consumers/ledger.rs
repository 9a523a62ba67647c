//! When each pod and the attachment of its volume came how far, as the watch shows it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::keys::condition;
use api::{Attachment, Kind, Meta, Object};
use runtime::client::Selection;
use runtime::{Cache, Caches, Change, Subscription};
use serde::Deserialize;
use tokio::time::Instant;

use super::super::ledger::Ledger;
use super::super::progress::Progress;
use super::super::span::Span;

/// How long removals are collected before they are looked at.
const CROWD: Duration = Duration::from_millis(50);

/// How far a pod can come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::bench) enum Stage {
    /// Its volume is there for its containers.
    Ready,
    /// Somebody wants its volume to be attached.
    Attaching,
    /// Its volume is attached, and its node was told so.
    Attached,
    Gone,
    /// Its volume's attachment is gone.
    Detached,
}

/// A pod as far as it matters here: where it is, and whether its volumes are there.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "WirePod")]
pub(in crate::bench) struct Pod {
    meta: Meta,
    placed: bool,
    ready: bool,
    /// What its agent says is missing.
    message: Option<Box<str>>,
}

#[derive(Deserialize)]
struct WirePod {
    metadata: Meta,
    #[serde(default)]
    spec: WireSpec,
    #[serde(default)]
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    node_name: Box<str>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    phase: Box<str>,
    conditions: Vec<WireCondition>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireCondition {
    r#type: Box<str>,
    status: Box<str>,
    message: Option<Box<str>>,
}

impl From<WirePod> for Pod {
    fn from(wire: WirePod) -> Self {
        // A kubelet prepares the sandbox once all volumes are mounted; no image has to be there for that.
        let says = |condition: &WireCondition| {
            let ready = [condition::VOLUMES_READY, "PodReadyToStartContainers"].contains(&&*condition.r#type);
            ready && &*condition.status == "True"
        };
        let ran = matches!(&*wire.status.phase, "Running" | "Succeeded");
        let told = |condition: &&WireCondition| &*condition.r#type == condition::VOLUMES_READY;
        let message = wire.status.conditions.iter().find(told).and_then(|condition| condition.message.clone());
        Self {
            meta: wire.metadata,
            placed: !wire.spec.node_name.is_empty(),
            ready: ran || wire.status.conditions.iter().any(says),
            message: message.filter(|message| !message.is_empty()),
        }
    }
}

impl Object for Pod {
    const KIND: Kind = Kind::POD;

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// What is known about the pods. Clones are the same.
#[derive(Debug, Clone)]
pub(in crate::bench) struct PodLedger {
    pods: Cache<Pod>,
    attachments: Cache<Attachment>,
    claims: Ledger,
    book: Arc<Mutex<Vec<Times>>>,
    progress: Progress<Stage>,
    _subscriptions: Vec<Subscription>,
}

#[derive(Debug, Clone, Default)]
struct Times {
    sent: Option<Instant>,
    placed: Option<Instant>,
    ready: Option<Instant>,
    attaching: Option<Instant>,
    attached: Option<Instant>,
    deleted: Option<Instant>,
    gone: Option<Instant>,
    detached: Option<Instant>,
}

/// The number of a pod by its name.
pub(in crate::bench) fn number_of(pod: &Pod) -> Option<usize> {
    pod.key().name().strip_prefix("pod-")?.parse().ok()
}

impl PodLedger {
    /// Notes what happens to the pods of `namespace`, and to the attachments of the volumes that `claims` knows.
    pub(in crate::bench) fn follow(caches: &Caches, namespace: &str, count: usize, claims: &Ledger) -> Self {
        let selection = Selection { namespace: Some(namespace.to_owned()), ..Selection::default() };
        let mut ledger = Self {
            pods: caches.selected(selection),
            attachments: caches.of(),
            claims: claims.clone(),
            book: Arc::new(Mutex::new(vec![Times::default(); count])),
            progress: Progress::new(),
            _subscriptions: Vec::new(),
        };
        let (book, progress) = (ledger.book.clone(), ledger.progress.clone());
        let pods = ledger.pods.subscribe(move |change| {
            let noted = number_of(change.object()).and_then(|number| lock(&book).get_mut(number)?.pod(change));
            if let Some((stage, at)) = noted {
                progress.note(stage, at);
            }
        });
        let (book, progress, claims) = (ledger.book.clone(), ledger.progress.clone(), claims.clone());
        let attachments = ledger.attachments.subscribe(move |change| {
            let claim = change.object().volume.as_deref().and_then(|volume| claims.claim_of(volume));
            let Some(claim) = claim else { return };
            let noted = lock(&book).get_mut(claim).and_then(|times| times.attachment(change));
            match noted {
                Some((stage, at)) => progress.note(stage, at),
                None => progress.stir(),
            }
        });
        ledger._subscriptions = vec![pods, attachments];
        ledger
    }

    pub(in crate::bench) fn pods(&self) -> &Cache<Pod> {
        &self.pods
    }

    /// The creation of a pod is sent now.
    pub(super) fn creating(&self, number: usize) {
        self.note(number, |times| times.sent = Some(Instant::now()));
    }

    /// The deletion of a pod is sent now.
    pub(super) fn deleting(&self, number: usize) {
        self.note(number, |times| times.deleted = Some(Instant::now()));
    }

    /// A pod's node was told that its volume is attached. Counts once.
    pub(in crate::bench) fn attached(&self, number: usize) {
        let now = Instant::now();
        let mut first = false;
        self.note(number, |times| first = times.attached.replace(times.attached.unwrap_or(now)).is_none());
        if first {
            self.progress.note(Stage::Attached, now);
        }
    }

    fn note(&self, number: usize, change: impl FnOnce(&mut Times)) {
        if let Some(times) = lock(&self.book).get_mut(number) {
            change(times);
        }
    }

    pub(in crate::bench) fn count(&self, stage: Stage) -> usize {
        self.progress.count(stage)
    }

    /// Waits until so many came so far. Gives the time of the last one.
    pub(in crate::bench) async fn until(
        &self,
        stage: Stage,
        count: usize,
        patience: Duration,
    ) -> anyhow::Result<Instant> {
        self.progress.until((stage, count), patience, || self.complaint(stage, count)).await
    }

    /// Waits until neither a pod nor an attachment of the run is left.
    pub(super) async fn emptied(&self) {
        let done = || self.pods_left().is_empty() && self.attachments_left().is_empty();
        self.progress.settled(CROWD, done).await;
    }

    pub(super) fn pods_left(&self) -> Vec<Arc<Pod>> {
        self.pods.walk().collect()
    }

    pub(super) fn attachments_left(&self) -> Vec<Arc<Attachment>> {
        let ours = |attachment: &Arc<Attachment>| {
            attachment.volume.as_deref().is_some_and(|volume| self.claims.claim_of(volume).is_some())
        };
        self.attachments.walk().filter(ours).collect()
    }

    /// How long a step took from what asked for it, for each and for all.
    pub(in crate::bench) fn span(&self, stage: Stage, first: Instant, last: Instant) -> Span {
        let book = lock(&self.book);
        let took = |times: &Times| {
            let (from, to) = match stage {
                Stage::Ready => (times.sent, times.ready),
                Stage::Attaching => (times.sent, times.attaching),
                Stage::Attached => (times.sent, times.attached),
                Stage::Gone => (times.deleted, times.gone),
                Stage::Detached => (times.deleted, times.detached),
            };
            Some(to?.saturating_duration_since(from?))
        };
        Span::between(book.iter().filter_map(took).collect(), first, last)
    }

    /// The same for readiness, from when both the pod had its node and its claim had its volume.
    pub(in crate::bench) fn span_after_bound(&self, first: Instant, last: Instant) -> Span {
        let book = lock(&self.book);
        let took = |(number, times): (usize, &Times)| {
            let bound = times.placed?.max(self.claims.bound_at(number)?);
            Some(times.ready?.saturating_duration_since(bound))
        };
        Span::between(book.iter().enumerate().filter_map(took).collect(), first, last)
    }

    fn complaint(&self, stage: Stage, count: usize) -> String {
        let reached = self.progress.count(stage);
        match stage {
            Stage::Ready => format!("the volumes of {reached} of {count} pods are ready{}", self.example()),
            Stage::Attaching => format!("{reached} of {count} volumes are to be attached"),
            Stage::Attached => {
                let refused = self.attachments_left().into_iter().find_map(|attachment| refusal(&attachment));
                let example = refused.map(|message| format!("; {message}")).unwrap_or_default();
                format!("{reached} of {count} volumes are attached and their nodes told{example}")
            }
            Stage::Gone => format!("{reached} of {count} pods are gone"),
            Stage::Detached => {
                let example = self.attachments_left().into_iter().next();
                let example = example.map(|left| format!("; {} is left", left.key().name())).unwrap_or_default();
                format!("{reached} of {count} volumes are detached{example}")
            }
        }
    }

    /// A pod that is not ready, and what is said about it.
    fn example(&self) -> String {
        let Some(pod) = self.pods.walk().find(|pod| !pod.ready) else { return String::new() };
        let why = match &pod.message {
            Some(message) => message,
            None if pod.placed => "its node's agent says nothing",
            None => "it has no node",
        };
        format!("; {}: {why}", pod.key())
    }
}

fn lock(book: &Mutex<Vec<Times>>) -> MutexGuard<'_, Vec<Times>> {
    // Every change of the book is one assignment.
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the driver last answered, if it refused.
fn refusal(attachment: &Attachment) -> Option<String> {
    let error = attachment.detach_error.as_ref().or(attachment.attach_error.as_ref())?;
    Some(format!("{}: {}", attachment.key().name(), error.message))
}

impl Times {
    fn pod(&mut self, change: &Change<Pod>) -> Option<(Stage, Instant)> {
        let now = Instant::now();
        let Some(pod) = change.after() else {
            self.gone = Some(now);
            return Some((Stage::Gone, now));
        };
        if pod.placed && self.placed.is_none() {
            self.placed = Some(now);
        }
        if pod.ready && self.ready.is_none() {
            self.ready = Some(now);
            return Some((Stage::Ready, now));
        }
        None
    }

    fn attachment(&mut self, change: &Change<Attachment>) -> Option<(Stage, Instant)> {
        let now = Instant::now();
        match change.after() {
            None if self.detached.is_none() => {
                self.detached = Some(now);
                Some((Stage::Detached, now))
            }
            Some(_) if self.attaching.is_none() => {
                self.attaching = Some(now);
                Some((Stage::Attaching, now))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(status: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "pod-000001"}, "status": status})).unwrap()
    }

    #[test]
    fn a_pod_is_ready_when_our_agent_or_a_kubelet_says_so() {
        let condition = |kind: &str, status: &str| json!({"conditions": [{"type": kind, "status": status}]});
        assert!(pod(condition(condition::VOLUMES_READY, "True")).ready);
        assert!(pod(condition("PodReadyToStartContainers", "True")).ready);
        assert!(pod(json!({"phase": "Running"})).ready);
        assert!(!pod(condition(condition::VOLUMES_READY, "False")).ready);
        assert!(!pod(condition("PodScheduled", "True")).ready);
        assert!(!pod(json!({"phase": "Pending"})).ready);
    }
}
