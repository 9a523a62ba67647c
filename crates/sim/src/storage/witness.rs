//! What is true, write by write: somebody who sees every version of every object in the order of the writes, and every
//! DeleteVolume, and says at once what must never be.
//!
//! The witness reads the store itself, past every fault. It looks whenever something was written, and again before it
//! judges a call to the driver, so that what it knows is what is true at that moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::keys::finalizer;
use api::{Attachment, Claim, ClaimRef, Class, Key, Meta, Pod, Revision, Source, Uid, Volume};
use apiserver::store::{Event, Scope, Start, Store, Stored, Watch, WatchEnd};
use futures_util::future::select_all;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::handles::HandleBook;
use crate::driver::{self, Onlooker};
use crate::journal::Journal;
use crate::{World, keys};

const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";
const PODS: &str = "pods";
const CLASSES: &str = "storageclasses";
const MAPS: &str = "configmaps";
const EVENTS: &str = "events";
const ATTACHMENTS: &str = "volumeattachments";
const WATCHED: [&str; 7] = [CLAIMS, VOLUMES, PODS, CLASSES, MAPS, EVENTS, ATTACHMENTS];

/// More writes to one claim or volume than this are a storm. A dozen are needed for a life with a user's edits; each fault
/// and crash may add one or two.
pub const MOST_WRITES: u64 = 60;

/// Sees everything. Clones are the same.
#[derive(Clone)]
pub struct Witness {
    inner: Arc<Mutex<Inner>>,
    store: Store,
}

impl std::fmt::Debug for Witness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Witness").field("violations", &self.lock().violations).finish_non_exhaustive()
    }
}

struct Inner {
    journal: Journal,
    watches: Vec<Watch>,
    truth: Truth,
    /// Whom a volume was given to, by the volume's uid: that claim knew of it and could use it.
    given: BTreeMap<Uid, Uid>,
    /// Volumes whose policy the user has changed: from then on it depends on the moment what becomes of them.
    flipped: BTreeSet<Uid>,
    /// Volumes that no provisioner's finalizer held when their deletion was asked for, or when their policy was to keep.
    loose: BTreeSet<Uid>,
    /// Volumes at a revision that the user is about to take back for another use.
    reclaimed: BTreeSet<(Box<str>, Revision)>,
    violations: Vec<String>,
    /// When a claim or a volume was last written.
    changed: Instant,
    written: BTreeMap<Uid, Written>,
    handles: HandleBook,
}

/// How often an object was written.
#[derive(Debug, Clone)]
pub struct Written {
    pub what: String,
    pub times: u64,
}

/// The objects that live.
#[derive(Debug, Clone, Default)]
pub struct Truth {
    pub claims: BTreeMap<Key, Arc<Claim>>,
    pub volumes: BTreeMap<Box<str>, Arc<Volume>>,
    pub pods: BTreeMap<Key, Arc<Pod>>,
    pub classes: BTreeMap<Box<str>, Arc<Class>>,
    /// The claims' uids that intents are open for.
    pub intents: BTreeMap<Key, BTreeSet<Uid>>,
    /// Reasons of the warnings about an object.
    pub warned: BTreeMap<Uid, BTreeSet<String>>,
    /// Handles of volumes whose PersistentVolume went while its policy was to keep what it stands for.
    pub kept: BTreeSet<Box<str>>,
}

impl Truth {
    /// The volume that stands for this one of the driver.
    pub fn of_handle(&self, handle: &str) -> Option<&Arc<Volume>> {
        self.volumes.values().find(|volume| handle_of(volume) == Some(handle))
    }

    /// Whether there is any volume for this one of the driver, or one that kept it is gone.
    pub fn is_known(&self, handle: &str) -> bool {
        self.of_handle(handle).is_some() || self.kept.contains(handle)
    }

    pub fn claim_of(&self, uid: &Uid) -> Option<&Arc<Claim>> {
        self.claims.values().find(|claim| claim.uid() == uid)
    }

    pub fn has_intent(&self, uid: &str) -> bool {
        self.intents.values().any(|open| open.iter().any(|held| held.as_str() == uid))
    }
}

/// What the model driver calls a volume, if it is one of its.
pub fn handle_of(volume: &Volume) -> Option<&str> {
    match &volume.source {
        Source::Csi { driver, handle } if driver == keys::DRIVER => Some(handle),
        _ => None,
    }
}

#[derive(serde::Deserialize, Default)]
#[serde(default)]
struct WireMap {
    metadata: Option<Meta>,
    data: BTreeMap<String, serde::de::IgnoredAny>,
}

#[derive(serde::Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct WireEvent {
    #[serde(rename = "type")]
    kind: String,
    reason: String,
    message: String,
    involved_object: WireObject,
}

#[derive(serde::Deserialize, Default)]
#[serde(default)]
struct WireObject {
    uid: Uid,
    name: String,
}

impl Witness {
    /// Watches a world from now on.
    pub fn new(world: &World) -> Self {
        let store = world.api().store().clone();
        let mut inner = Inner {
            journal: world.journal().clone(),
            watches: Vec::new(),
            truth: Truth::default(),
            given: BTreeMap::new(),
            flipped: BTreeSet::new(),
            loose: BTreeSet::new(),
            reclaimed: BTreeSet::new(),
            violations: Vec::new(),
            changed: Instant::now(),
            written: BTreeMap::new(),
            handles: HandleBook::default(),
        };
        for resource in WATCHED {
            match store.watch(Scope::all(resource), Start::Now) {
                Ok(watch) => inner.watches.push(watch),
                Err(error) => inner.accuse(format!("the witness cannot watch {resource}: {error}")),
            }
        }
        Self { inner: Arc::new(Mutex::new(inner)), store }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks whenever there is something to see, for ever.
    pub async fn run(&self) {
        let waking = WATCHED.map(|resource| self.store.watch(Scope::all(resource), Start::Now));
        let mut waking: Vec<Watch> = waking.into_iter().filter_map(Result::ok).collect();
        loop {
            let (seen, _, _) = select_all(waking.iter_mut().map(|watch| Box::pin(watch.next()))).await;
            if let Err(WatchEnd::Closed) = seen {
                return;
            }
            for watch in &mut waking {
                while let Ok(Some(_)) = watch.try_next() {}
            }
            self.look();
        }
    }

    /// Takes in everything that was written.
    pub fn look(&self) {
        self.lock().look();
    }

    /// What lives, as of now.
    pub fn truth(&self) -> Truth {
        let mut inner = self.lock();
        inner.look();
        inner.truth.clone()
    }

    /// Something about what lives, as of now.
    pub fn look_at<T>(&self, what: impl FnOnce(&Truth) -> T) -> T {
        let mut inner = self.lock();
        inner.look();
        what(&inner.truth)
    }

    /// What was wrong so far.
    pub fn violations(&self) -> Vec<String> {
        let mut inner = self.lock();
        inner.look();
        inner.violations.clone()
    }

    /// Something else is wrong.
    pub fn accuse(&self, what: impl Into<String>) {
        self.lock().accuse(what.into());
    }

    /// For how long no claim or volume was written.
    pub fn quiet(&self) -> Duration {
        let mut inner = self.lock();
        inner.look();
        inner.changed.elapsed()
    }

    /// How often each claim and volume was written.
    pub fn written(&self) -> BTreeMap<Uid, Written> {
        self.lock().written.clone()
    }

    /// The user is about to change a volume's policy.
    pub fn flips(&self, meta: &Meta) {
        self.lock().flipped.insert(meta.uid.clone());
    }

    /// Whether the user ever did so.
    pub fn was_flipped(&self, meta: &Meta) -> bool {
        self.lock().flipped.contains(&meta.uid)
    }

    /// The user is about to take back a volume as it is at this revision, for another use.
    pub fn reclaims(&self, meta: &Meta) {
        self.lock().reclaimed.insert((meta.key.name().into(), meta.revision));
    }
}

impl Witness {
    /// A person takes the finalizers off a volume or takes its last object away: what the object stands for is this
    /// person's responsibility from now on.
    pub(crate) fn abandons(&self, handle: &str) {
        self.lock().truth.kept.insert(handle.into());
    }

    /// Whether DeleteVolume was ever called for a handle.
    pub(crate) fn is_doomed(&self, handle: &str) -> bool {
        self.lock().handles.is_doomed(handle)
    }

    /// The handles that any VolumeAttachment attaches.
    pub(crate) fn attached(&self) -> BTreeSet<String> {
        let mut inner = self.lock();
        inner.look();
        inner.handles.attached()
    }
}

impl Onlooker for Witness {
    fn deletion_called(&self, gone: &driver::Volume) {
        let mut inner = self.lock();
        inner.look();
        let Inner { handles, truth, .. } = &mut *inner;
        let found = handles.deletion_called(&gone.id, truth);
        found.into_iter().for_each(|found| inner.accuse(found));
    }

    fn deleting(&self, gone: &driver::Volume) {
        let mut inner = self.lock();
        inner.look();
        let Some(volume) = inner.truth.of_handle(&gone.id).cloned() else { return };
        let Some(uid) = volume.claim.as_ref().and_then(|reference| reference.uid.clone()) else { return };
        let owner = inner.truth.claim_of(&uid).filter(|claim| &*claim.volume_name == volume.name()).cloned();
        if let Some(claim) = owner {
            let (id, name, key) = (&gone.id, volume.name(), claim.key());
            inner.accuse(format!("deleted while in use: DeleteVolume {id}, which is {name}, and claim {key} has it"));
        }
    }
}

impl Inner {
    fn accuse(&mut self, what: String) {
        if self.violations.contains(&what) {
            return;
        }
        self.journal.note("witness", format_args!("VIOLATION {what}"));
        self.violations.push(what);
    }

    fn look(&mut self) {
        let mut events: Vec<Arc<Event>> = Vec::new();
        let mut lagged = false;
        for watch in &mut self.watches {
            loop {
                match watch.try_next() {
                    Ok(Some(event)) => events.push(event),
                    Ok(None) | Err(WatchEnd::Closed) => break,
                    Err(WatchEnd::Lagged { .. }) => {
                        lagged = true;
                        break;
                    }
                }
            }
        }
        if lagged && self.violations.is_empty() {
            self.accuse("the witness was too slow for the history".to_owned());
        }
        // Each kind has its own watch; together they are one history.
        events.sort_by_key(|event| event.revision);
        for event in events {
            self.take(&event);
        }
    }

    fn take(&mut self, event: &Event) {
        let name = event.key.name();
        match event.key.resource() {
            CLAIMS => {
                let key = Key::namespaced(event.key.namespace().unwrap_or_default(), name);
                self.claim(&key, read(event.new_version()));
            }
            VOLUMES => self.volume(name, read(event.new_version())),
            PODS => {
                let key = Key::namespaced(event.key.namespace().unwrap_or_default(), name);
                match read::<Pod>(event.new_version()) {
                    Some(pod) => drop(self.truth.pods.insert(key, Arc::new(pod))),
                    None => drop(self.truth.pods.remove(&key)),
                }
            }
            CLASSES => match read::<Class>(event.new_version()) {
                Some(class) => drop(self.truth.classes.insert(name.into(), Arc::new(class))),
                None => drop(self.truth.classes.remove(name)),
            },
            MAPS => self.map(event),
            EVENTS => self.event(event),
            ATTACHMENTS => {
                let attachment = read::<Attachment>(event.new_version());
                self.handles.attachment_written(name, attachment.as_ref(), &self.truth);
            }
            _ => {}
        }
    }

    fn map(&mut self, event: &Event) {
        let key = Key::namespaced(event.key.namespace().unwrap_or_default(), event.key.name());
        let map = read::<WireMap>(event.new_version()).unwrap_or_default();
        let intents = map.metadata.as_ref().is_some_and(|meta| meta.label(keys::INTENTS).is_some());
        let open: BTreeSet<Uid> = map.data.keys().map(|uid| Uid::from(uid.as_str())).collect();
        match intents {
            true => drop(self.truth.intents.insert(key, open)),
            false => drop(self.truth.intents.remove(&key)),
        }
    }

    fn event(&mut self, event: &Event) {
        // Only what is told counts, not that it is forgotten an hour later.
        let Some(told) = read::<WireEvent>(event.new_version()) else { return };
        if told.kind == "Warning" {
            let WireEvent { reason, message, involved_object, .. } = &told;
            self.journal.note("witness", format_args!("{reason} about {}: {message}", involved_object.name));
            self.truth.warned.entry(told.involved_object.uid).or_default().insert(told.reason);
        }
    }

    fn count(&mut self, meta: &Meta, kind: &str) {
        self.changed = Instant::now();
        let what = format!("{kind} {}", meta.key);
        self.written.entry(meta.uid.clone()).or_insert(Written { what, times: 0 }).times += 1;
    }

    fn claim(&mut self, key: &Key, new: Option<Claim>) {
        let old = self.truth.claims.get(key).cloned();
        let Some(claim) = new else {
            self.changed = Instant::now();
            self.truth.claims.remove(key);
            return;
        };
        self.count(&claim.meta, "claim");
        let knew = old.is_some_and(|old| old.uid() == claim.uid() && old.fully_bound());
        if claim.fully_bound() && !knew {
            self.given_to(&claim);
        }
        self.truth.claims.insert(key.clone(), Arc::new(claim));
    }

    /// The claim learns that the volume is its own.
    fn given_to(&mut self, claim: &Claim) {
        let (name, key) = (&claim.volume_name, claim.key());
        let others = self.truth.claims.values().filter(|other| other.uid() != claim.uid());
        if let Some(other) = others.filter(|other| other.fully_bound()).find(|other| other.volume_name == *name) {
            let other = other.key().clone();
            self.accuse(format!("two owners: claims {key} and {other} both have volume {name}"));
        }
        let Some(volume) = self.truth.volumes.get(name).cloned() else {
            return self.accuse(format!("two owners: claim {key} was given volume {name}, which does not exist"));
        };
        if bond(&volume) != Some(claim.uid()) {
            self.accuse(format!("two owners: claim {key} was given volume {name}, which is not bound to it"));
        }
        self.hand_out(&volume, claim.uid());
        self.given.insert(volume.meta.uid.clone(), claim.uid().clone());
    }

    fn hand_out(&mut self, volume: &Volume, to: &Uid) {
        if let Some(before) = self.given.get(&volume.meta.uid).filter(|before| *before != to) {
            let (name, before) = (volume.name(), before.clone());
            self.accuse(format!("handed on without reclaim: volume {name} was claim {before}'s and is now {to}'s"));
        }
    }

    fn volume(&mut self, name: &str, new: Option<Volume>) {
        let old = self.truth.volumes.get(name).cloned();
        let Some(volume) = new else {
            if let Some(old) = old {
                self.gone(&old);
            }
            return;
        };
        self.count(&volume.meta, "volume");
        self.handles.volume_written(&volume);
        let before = old.as_deref().and_then(|old| bond(old).cloned());
        let now = bond(&volume).cloned();
        if let (Some(before), Some(now)) = (&before, &now)
            && before != now
        {
            let name = volume.name();
            self.accuse(format!("two owners: volume {name} went from claim {before} to {now} in one write"));
        }
        if let (Some(old), None) = (&old, &now)
            && self.reclaimed.contains(&(old.name().into(), old.meta.revision))
        {
            self.given.remove(&volume.meta.uid);
        }
        if let Some(now) = now.filter(|now| before.as_ref() != Some(now)) {
            self.hand_out(&volume, &now);
        }
        if let Some(handle) = handle_of(&volume)
            && let Some(twin) = self.truth.of_handle(handle).filter(|twin| twin.name() != volume.name())
        {
            let (name, twin) = (volume.name(), twin.name());
            let text = format!("two owners: volumes {name} and {twin} both stand for {handle}");
            self.accuse(text);
        }
        let held = volume.meta.has_finalizer(finalizer::EXTERNAL_PROVISIONER);
        let going = volume.meta.is_deleting() && !old.is_some_and(|old| old.meta.is_deleting());
        match held {
            true => {
                self.loose.remove(&volume.meta.uid);
            }
            false if going || volume.reclaim == api::ReclaimPolicy::Retain => {
                self.loose.insert(volume.meta.uid.clone());
            }
            false => {}
        }
        self.truth.volumes.insert(volume.name().into(), Arc::new(volume));
    }

    fn gone(&mut self, old: &Volume) {
        self.changed = Instant::now();
        let uid = &old.meta.uid;
        let held = old.meta.has_finalizer(finalizer::EXTERNAL_PROVISIONER);
        let loose = self.loose.contains(uid) || !(old.meta.is_deleting() || held);
        let kept = old.reclaim == api::ReclaimPolicy::Retain || (self.flipped.contains(uid) && loose);
        if let (Some(handle), true) = (handle_of(old), kept) {
            self.truth.kept.insert(handle.into());
        }
        self.truth.volumes.remove(old.name());
    }
}

/// The claim that a volume is bound to, which is more than being reserved for one.
fn bond(volume: &Volume) -> Option<&Uid> {
    volume.claim.as_deref().and_then(|ClaimRef { uid, .. }| uid.as_ref())
}

/// An object as it was stored. The store keeps the revision beside it.
fn read<T: DeserializeOwned>(stored: Option<&Arc<Stored>>) -> Option<T> {
    let stored = stored?;
    let mut value: serde_json::Value = serde_json::from_slice(&stored.value).ok()?;
    value["metadata"]["resourceVersion"] = stored.revision.0.to_string().into();
    serde_json::from_value(value).ok()
}
