//! When each claim and its volume came how far, as the watch shows it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::{Claim, ClaimPhase, Object as _, Volume, VolumePhase};
use runtime::client::Selection;
use runtime::{Cache, Caches, Change, Subscription};
use tokio::time::Instant;

use super::progress::Progress;
use super::span::Span;

/// How long removals are collected before they are looked at.
const CROWD: Duration = Duration::from_millis(50);

/// How far a claim can come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Moment {
    /// A volume that was made by hand is ready to be taken.
    Available,
    Bound,
    ClaimGone,
    VolumeGone,
}

/// What is known about everything that was made. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Ledger {
    claims: Cache<Claim>,
    volumes: Cache<Volume>,
    namespace: Arc<str>,
    book: Arc<Mutex<Book>>,
    progress: Progress<Moment>,
    _subscriptions: Vec<Subscription>,
}

#[derive(Debug, Default)]
struct Book {
    claims: Vec<Times>,
    /// Volumes that are waited for, with the moment their end was asked for.
    volumes: BTreeMap<Box<str>, VolumeTimes>,
}

#[derive(Debug, Clone, Default)]
struct Times {
    volume: Box<str>,
    sent: Option<Instant>,
    bound: Option<Instant>,
    deleted: Option<Instant>,
    gone: Option<Instant>,
}

#[derive(Debug, Clone, Copy, Default)]
struct VolumeTimes {
    /// The claim it is bound to; none for one that is only deleted.
    claim: Option<usize>,
    deleted: Option<Instant>,
    gone: Option<Instant>,
}

/// The name of a claim by its number.
pub(super) fn claim_name(number: usize) -> String {
    format!("claim-{number:06}")
}

fn number_of(name: &str) -> Option<usize> {
    name.strip_prefix("claim-")?.parse().ok()
}

impl Ledger {
    /// Notes what happens to the claims of `namespace` and to their volumes.
    pub(super) fn follow(caches: &Caches, namespace: &str, count: usize) -> Self {
        let selection = Selection { namespace: Some(namespace.to_owned()), ..Selection::default() };
        let mut ledger = Self {
            claims: caches.selected(selection),
            volumes: caches.of(),
            namespace: namespace.into(),
            book: Arc::new(Mutex::new(Book { claims: vec![Times::default(); count], ..Book::default() })),
            progress: Progress::new(),
            _subscriptions: Vec::new(),
        };
        let (book, progress) = (ledger.book.clone(), ledger.progress.clone());
        let claims = ledger.claims.subscribe(move |change| {
            if let Some((moment, at)) = lock(&book).claim(change) {
                progress.note(moment, at);
            }
        });
        let (book, progress, prefix) = (ledger.book.clone(), ledger.progress.clone(), ledger.namespace.clone());
        let volumes = ledger.volumes.subscribe(move |change| {
            if became_available(change) && change.key().name().starts_with(&*prefix) {
                progress.note(Moment::Available, Instant::now());
            }
            if let Change::Removed(volume) = change {
                match lock(&book).volume_gone(volume.key().name()) {
                    Some(at) => progress.note(Moment::VolumeGone, at),
                    // Not one that is counted, yet maybe one that is waited for.
                    None => progress.stir(),
                }
            }
        });
        ledger._subscriptions = vec![claims, volumes];
        ledger
    }

    /// The creation of a claim is sent now.
    pub(super) fn creating(&self, number: usize) -> Instant {
        let now = Instant::now();
        if let Some(times) = lock(&self.book).claims.get_mut(number) {
            times.sent = Some(now);
        }
        now
    }

    /// The deletion of a claim is sent now, and with it that of the volume it is bound to.
    pub(super) fn deleting(&self, number: usize) -> Instant {
        let now = Instant::now();
        let mut book = lock(&self.book);
        let Book { claims, volumes } = &mut *book;
        if let Some(times) = claims.get_mut(number) {
            times.deleted = Some(now);
            if let Some(volume) = volumes.get_mut(&times.volume) {
                volume.deleted = Some(now);
            }
        }
        now
    }

    /// The deletion of a volume is sent now.
    pub(super) fn deleting_volume(&self, name: &str) -> Instant {
        let now = Instant::now();
        lock(&self.book).volumes.insert(name.into(), VolumeTimes { claim: None, deleted: Some(now), gone: None });
        now
    }

    /// Waits until so many came so far. Gives the time of the last one.
    pub(super) async fn until(&self, moment: Moment, count: usize, patience: Duration) -> anyhow::Result<Instant> {
        self.progress.until((moment, count), patience, || self.complaint(moment, count)).await
    }

    /// Waits until no claim and no volume of the run is left.
    pub(super) async fn emptied(&self) {
        self.progress.settled(CROWD, || self.claims_left().is_empty() && self.volumes_left().is_empty()).await;
    }

    /// The claim that a volume belongs to, once it is bound.
    pub(super) fn claim_of(&self, volume: &str) -> Option<usize> {
        lock(&self.book).volumes.get(volume).and_then(|times| times.claim)
    }

    /// The volume of a claim that is bound.
    pub(super) fn volume_of(&self, number: usize) -> Option<Box<str>> {
        lock(&self.book).claims.get(number).filter(|times| times.bound.is_some()).map(|times| times.volume.clone())
    }

    /// When a claim became bound.
    pub(super) fn bound_at(&self, number: usize) -> Option<Instant> {
        lock(&self.book).claims.get(number).and_then(|times| times.bound)
    }

    /// How long a step took, whose first request was sent then and whose last object came so far then.
    pub(super) fn span(&self, moment: Moment, first: Instant, last: Instant) -> Span {
        Span::between(self.latencies(moment), first, last)
    }

    /// How long each took to come so far.
    fn latencies(&self, moment: Moment) -> Vec<Duration> {
        let book = lock(&self.book);
        let took = |from: Option<Instant>, to: Option<Instant>| Some(to?.saturating_duration_since(from?));
        match moment {
            Moment::Available => Vec::new(),
            Moment::Bound => book.claims.iter().filter_map(|times| took(times.sent, times.bound)).collect(),
            Moment::ClaimGone => book.claims.iter().filter_map(|times| took(times.deleted, times.gone)).collect(),
            Moment::VolumeGone => book.volumes.values().filter_map(|times| took(times.deleted, times.gone)).collect(),
        }
    }

    /// Claims of the run that still exist.
    pub(super) fn claims_left(&self) -> Vec<Arc<Claim>> {
        self.claims.walk().collect()
    }

    /// Volumes of the run that still exist: made for it, or bound by one of its claims.
    pub(super) fn volumes_left(&self) -> Vec<Arc<Volume>> {
        let ours = |volume: &Arc<Volume>| {
            let claimed = volume.claim.as_ref().is_some_and(|claim| claim.key.namespace() == Some(&*self.namespace));
            claimed || volume.key().name().starts_with(&*self.namespace)
        };
        self.volumes.walk().filter(ours).collect()
    }

    /// What is missing, for a message.
    fn complaint(&self, moment: Moment, count: usize) -> String {
        let reached = self.progress.count(moment);
        match moment {
            Moment::Available => format!("{reached} of {count} volumes are available"),
            Moment::Bound => {
                let pending = self.claims.walk().find(|claim| claim.phase != ClaimPhase::Bound);
                let example = pending.map(|claim| format!("; {} is {}", claim.key(), claim.phase.name()));
                format!("{reached} of {count} claims are bound{}", example.unwrap_or_default())
            }
            Moment::ClaimGone => format!("{reached} of {count} claims are gone"),
            Moment::VolumeGone => {
                let left = self.volumes_left().into_iter().next();
                let example = left.map(|volume| format!("; {} is {}", volume.key().name(), volume.phase.name()));
                format!("{reached} of {count} volumes are gone{}", example.unwrap_or_default())
            }
        }
    }
}

fn became_available(change: &Change<Volume>) -> bool {
    let available = |volume: &Arc<Volume>| volume.phase == VolumePhase::Available;
    change.after().is_some_and(available) && !change.before().is_some_and(available)
}

fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    // Every change of the book is one assignment.
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Book {
    fn claim(&mut self, change: &Change<Claim>) -> Option<(Moment, Instant)> {
        let claim = change.object();
        let number = number_of(claim.name())?;
        let times = self.claims.get_mut(number)?;
        let now = Instant::now();
        match change.after() {
            None => {
                times.gone = Some(now);
                Some((Moment::ClaimGone, now))
            }
            Some(claim) if claim.phase == ClaimPhase::Bound && times.bound.is_none() => {
                times.bound = Some(now);
                times.volume = claim.volume_name.clone();
                let bound = VolumeTimes { claim: Some(number), ..VolumeTimes::default() };
                self.volumes.insert(claim.volume_name.clone(), bound);
                Some((Moment::Bound, now))
            }
            Some(_) => None,
        }
    }

    fn volume_gone(&mut self, name: &str) -> Option<Instant> {
        let now = Instant::now();
        self.volumes.get_mut(name)?.gone = Some(now);
        Some(now)
    }
}
