//! What happened, told to users: core/v1 Events, without flooding anybody and without holding up a decision.
//!
//! A [`Recorder`] only puts a note into a bounded queue. [`Writer::run`] decides what is worth writing (`correlate.rs`),
//! counts repetitions on the event that exists, and writes several events at once but each event by one request at a
//! time. What cannot be written is dropped and counted: events are news, not state.

mod correlate;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::object::{Key, Kind, Object, Revision, Uid};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::client::{Client, Error, Patch};
use crate::entropy::Entropy;
use crate::metrics::{Metrics, Name};
use crate::stop::Stop;
use crate::time::Clock;
use correlate::{Correlator, EventId, Step};

/// How many notes may wait.
const WAITING: usize = 1000;
/// How many events are written at once.
const WRITES: usize = 16;
/// How often writing one event is tried.
const TRIES: u32 = 3;
/// How many events we remember so that repetitions are counted.
const REMEMBERED: usize = 4096;
/// Longer messages are cut: the API server refuses events beyond 1024 bytes.
const LONGEST_MESSAGE: usize = 1024;

/// Whether a user should worry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// All is as it should be.
    Normal,
    /// Something needs attention.
    Warning,
}

impl Severity {
    fn as_str(self) -> &'static str {
        match self {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        }
    }
}

/// The object an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// Its kind.
    pub kind: Kind,
    /// Its key.
    pub key: Key,
    /// Its identity.
    pub uid: Uid,
    /// The state it was in.
    pub revision: Revision,
}

impl<T: Object> From<&T> for Subject {
    fn from(object: &T) -> Subject {
        let meta = object.meta();
        Subject { kind: T::KIND, key: meta.key.clone(), uid: meta.uid.clone(), revision: meta.revision }
    }
}

/// A note of something that happened.
#[derive(Debug, Clone)]
struct Happening {
    about: Subject,
    severity: Severity,
    reason: Box<str>,
    message: Box<str>,
    component: Arc<str>,
    at: Timestamp,
}

/// Takes notes for one component. Never waits.
#[derive(Clone)]
pub struct Recorder {
    component: Arc<str>,
    sender: mpsc::Sender<Happening>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("component", &self.component).finish_non_exhaustive()
    }
}

/// Writes what the recorders note.
#[derive(Debug)]
pub struct Writer {
    receiver: mpsc::Receiver<Happening>,
    instance: String,
    entropy: Entropy,
    metrics: Metrics,
    /// Counts notes, so that the events used longest ago can be forgotten.
    uses: u64,
}

/// A recorder and the writer behind it. `component` is upstream's, such as `persistentvolume-controller`; `instance` is
/// this process.
pub fn channel(
    component: &str,
    instance: &str,
    clock: Arc<dyn Clock>,
    metrics: &Metrics,
    entropy: &Entropy,
) -> (Recorder, Writer) {
    let (sender, receiver) = mpsc::channel(WAITING);
    let recorder = Recorder { component: component.into(), sender, clock, metrics: metrics.clone() };
    let instance = instance.to_owned();
    let writer = Writer { receiver, instance, entropy: entropy.fork(), metrics: metrics.clone(), uses: 0 };
    (recorder, writer)
}

impl Recorder {
    /// The same queue under another component's name.
    pub fn named(&self, component: &str) -> Recorder {
        Recorder { component: component.into(), ..self.clone() }
    }

    /// Notes what happened to `about`, which may be `&object`. If the queue is full, the note is lost and counted.
    pub fn record(&self, about: impl Into<Subject>, severity: Severity, reason: &str, message: &str) {
        let happening = Happening {
            about: about.into(),
            severity,
            reason: reason.into(),
            message: cut(message).into(),
            component: self.component.clone(),
            at: self.clock.now(),
        };
        if self.sender.try_send(happening).is_err() {
            dropped(&self.metrics, "queue full");
        }
    }
}

fn cut(message: &str) -> &str {
    let end = (0..=LONGEST_MESSAGE.min(message.len())).rev().find(|at| message.is_char_boundary(*at));
    end.and_then(|end| message.get(..end)).unwrap_or(message)
}

fn dropped(metrics: &Metrics, why: &str) {
    metrics.events_dropped.get_or_create(&Name { name: why.to_owned() }).inc();
}

/// An event that exists or is about to.
#[derive(Debug, Clone)]
struct Slot {
    key: Key,
    first: Timestamp,
    last: Timestamp,
    count: u64,
    /// How many of `count` the cluster knows; 0 means that it must be created.
    written: u64,
    busy: bool,
    happening: Happening,
    message: Box<str>,
    used: u64,
}

/// A request for one event, and how it ended.
struct Sent {
    id: EventId,
    count: u64,
    ended: Result<(), Error>,
}

impl Writer {
    /// Writes events until every recorder is gone, or until `stop` and all that was noted before it is written or given up.
    pub async fn run(mut self, client: &Client, stop: &Stop) {
        let mut correlator = Correlator::new();
        let mut slots: BTreeMap<EventId, Slot> = BTreeMap::new();
        let mut sending = FuturesUnordered::new();
        let stopped = stop.stopped();
        tokio::pin!(stopped);
        let (mut open, mut stopping) = (true, false);
        while open || !sending.is_empty() {
            let note = tokio::select! {
                biased;
                () = &mut stopped, if !stopping => {
                    // What was noted before can still be received.
                    stopping = true;
                    self.receiver.close();
                    continue;
                }
                Some(sent) = sending.next(), if !sending.is_empty() => {
                    if let Some(slot) = self.sent(sent, &mut slots) {
                        sending.push(self.send(client, slot));
                    }
                    continue;
                }
                note = self.receiver.recv(), if open && sending.len() < WRITES => note,
            };
            let Some(note) = note else {
                open = false;
                continue;
            };
            if let Some(slot) = self.noted(note, &mut correlator, &mut slots) {
                sending.push(self.send(client, slot));
            }
        }
    }

    /// Takes a note; gives what to send, unless a request for the same event is under way.
    fn noted(
        &mut self,
        note: Happening,
        correlator: &mut Correlator,
        slots: &mut BTreeMap<EventId, Slot>,
    ) -> Option<(EventId, Slot)> {
        let Step::Record { id, message } = correlator.decide(&note, Instant::now()) else {
            dropped(&self.metrics, "too many about one object");
            return None;
        };
        self.uses += 1;
        if slots.len() >= REMEMBERED {
            let recently = self.uses.saturating_sub(REMEMBERED as u64 / 2);
            slots.retain(|_, slot| slot.busy || slot.used > recently);
        }
        let slot = slots.entry(id.clone()).or_insert_with(|| self.slot(&note, &message));
        slot.count += 1;
        slot.last = note.at;
        slot.message = message;
        slot.used = self.uses;
        if slot.busy {
            return None;
        }
        slot.busy = true;
        Some((id, slot.clone()))
    }

    fn slot(&self, note: &Happening, message: &str) -> Slot {
        let name = format!("{}.{:016x}", note.about.key.name(), self.entropy.number());
        // Events about objects without a namespace live in the default one.
        let key = Key::namespaced(note.about.key.namespace().unwrap_or("default"), &name);
        let (first, last) = (note.at, note.at);
        let happening = note.clone();
        Slot { key, first, last, count: 0, written: 0, busy: false, happening, message: message.into(), used: 0 }
    }

    /// Takes the end of a request; gives what to send if the event repeated meanwhile.
    fn sent(&self, sent: Sent, slots: &mut BTreeMap<EventId, Slot>) -> Option<(EventId, Slot)> {
        let slot = slots.get_mut(&sent.id)?;
        slot.busy = false;
        match sent.ended {
            Ok(()) => slot.written = sent.count,
            Err(error) => {
                tracing::debug!(event = %slot.key, %error, "an event was not written");
                dropped(&self.metrics, "not written");
                slots.remove(&sent.id);
                return None;
            }
        }
        if slot.count == slot.written {
            return None;
        }
        slot.busy = true;
        Some((sent.id, slot.clone()))
    }

    fn send<'a>(&self, client: &'a Client, (id, slot): (EventId, Slot)) -> impl Future<Output = Sent> + use<'a> {
        let created = self.created(&slot);
        let entropy = self.entropy.clone();
        async move {
            let count = slot.count;
            let ended = deliver(client, &slot, &created, &entropy).await;
            Sent { id, count, ended }
        }
    }

    fn created(&self, slot: &Slot) -> Value {
        let Happening { about, severity, reason, component, .. } = &slot.happening;
        json!({
            "apiVersion": Kind::EVENT.api_version(),
            "kind": Kind::EVENT.kind,
            "metadata": {"namespace": slot.key.namespace(), "name": slot.key.name()},
            "involvedObject": {
                "apiVersion": about.kind.api_version(),
                "kind": about.kind.kind,
                "namespace": about.key.namespace(),
                "name": about.key.name(),
                "uid": about.uid.as_str(),
                "resourceVersion": about.revision.to_string(),
            },
            "type": severity.as_str(),
            "reason": reason,
            "message": slot.message,
            "source": {"component": &**component},
            "reportingComponent": &**component,
            "reportingInstance": self.instance,
            "firstTimestamp": seconds(slot.first),
            "lastTimestamp": seconds(slot.last),
            "count": slot.count,
        })
    }
}

/// Kubernetes' time without a fraction.
fn seconds(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

/// Creates the event or counts on it. What may work later is tried a few times.
async fn deliver(client: &Client, slot: &Slot, created: &Value, entropy: &Entropy) -> Result<(), Error> {
    let mut create = slot.written == 0;
    let mut tries = 1;
    loop {
        let ended = if create {
            client.create::<Ignored>(Kind::EVENT, slot.key.namespace(), created).await.map(drop)
        } else {
            let patch = json!({"count": slot.count, "lastTimestamp": seconds(slot.last), "message": slot.message});
            client.patch::<Ignored>(Kind::EVENT, &slot.key, &Patch::Merge(patch)).await.map(drop)
        };
        match ended {
            // It exists: an answer was lost on the way.
            Ok(()) | Err(Error::AlreadyExists { .. }) => return Ok(()),
            // Events expire.
            Err(Error::NotFound { .. }) if !create => create = true,
            Err(Error::Unavailable { .. } | Error::Unknown { .. } | Error::TooMany { .. }) if tries < TRIES => {
                let pause = Duration::from_secs(1 << tries);
                sleep(entropy.longer(pause, 0.5)).await;
                tries += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

#[derive(serde::Deserialize)]
struct Ignored {}
