//! Volumes whose creation was begun, kept in the cluster: what is written here survives a crash, the end of the claim and
//! the end of its class.
//!
//! The journal is a few ConfigMaps, its *pages*. A key is the uid of a claim, its value a text that the caller
//! understands. One write takes everything that waits for a page, so that many claims share it (group commit); the end of
//! an intent rides along with the next write, or goes out a moment later. What ended is stored as a volume, or was surely
//! refused; a process that finds the intent again finds that out again, and a process that ends in order leaves none.
//!
//! Pages are filled in order rather than chosen by the claim's uid: a quiet cluster has one page and one write for all
//! claims that come together, a busy one gets more pages when the first ones are comfortably full.
//!
//! # Invariants
//! 1. [`Journal::open`] returns `Ok` only after the server said, or showed, that the entry is stored.
//! 2. Every write is bound to the revision it was made for, so that a late write of an earlier leader cannot undo one of
//!    ours. After a conflict or a lost answer the page is read.
//! 3. An entry that nobody here understands is never changed or removed.

mod page;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::{ConfigMap, Kind, Meta, Uid};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use runtime::client::Error;
use runtime::{Client, Patch, Stop};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use page::{COMFORTABLE, LARGEST, MOST_PAGES, Owner, Texts, difference, size, size_of};

/// How long the end of an intent waits for another write to ride along with.
const LINGER: Duration = Duration::from_secs(1);
/// After a page could not be written, its ends wait this long, and twice as long after each further failure. Beginnings are
/// told of the failure.
const PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// After this many failures in a row a page is not written before its pause is over, whoever comes: beginnings are refused.
const FAILURES: u32 = 3;
/// How long a process that ends waits for its last writes.
const DRAIN: Duration = Duration::from_secs(10);
/// How often one write is sent: after a conflict or a lost answer the page is read and the write is tried again at once.
const TRIES: u32 = 1 + runtime::failed_writes::LOOKS;

/// Why an intent is not in the journal. Nothing may be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotWritten {
    #[error(
        "all {MOST_PAGES} pages of the journal are full; look for creations that never end in the ConfigMaps labelled {}",
        api::keys::label::INTENTS
    )]
    Full,
    #[error("the plan takes {bytes} bytes and the journal holds at most {LARGEST}; shorten the class' parameters")]
    TooLarge { bytes: usize },
    #[error("the journal could not be written: {message}")]
    Refused { message: String },
    #[error("the process is about to stop")]
    Ended,
}

/// An entry as it was found.
#[derive(Debug, Clone)]
pub struct Found {
    pub claim: Uid,
    pub text: Arc<str>,
    /// The ConfigMap it is in.
    pub page: Box<str>,
}

/// The journal of one provisioner.
#[derive(Debug)]
pub struct Journal {
    client: Client,
    owner: Owner,
    state: Mutex<State>,
    changed: Notify,
    /// Entries that another process wrote after we had read everything.
    found: mpsc::UnboundedSender<Found>,
}

#[derive(Debug, Default)]
struct State {
    pages: BTreeMap<Box<str>, Page>,
    /// Where the entry of a claim is, or will be.
    places: BTreeMap<Box<str>, Box<str>>,
    /// Entries that nobody here understands: whether they are there is for others to say.
    alone: BTreeSet<Box<str>>,
}

#[derive(Debug, Default)]
struct Page {
    /// None: it does not exist yet.
    meta: Option<Meta>,
    /// What the server has, and how much that is.
    held: Texts,
    bytes: usize,
    waiting: BTreeMap<Box<str>, Change>,
    /// A write is on its way, with so many bytes of new entries.
    busy: Option<usize>,
    /// Writes that failed in a row.
    failing: Option<Failing>,
}

/// A page that cannot be written.
#[derive(Debug)]
struct Failing {
    times: u32,
    /// When it is written next.
    until: Instant,
    message: String,
}

/// Something to write. Without a text it is an end.
#[derive(Debug)]
struct Change {
    text: Option<Arc<str>>,
    due: Instant,
    told: Vec<oneshot::Sender<Result<(), NotWritten>>>,
}

/// One write on its way.
#[derive(Debug)]
struct Batch {
    name: Box<str>,
    meta: Option<Meta>,
    held: Texts,
    changes: BTreeMap<Box<str>, Change>,
    alone: BTreeSet<Box<str>>,
}

/// What the server has after a write.
#[derive(Debug)]
struct Written {
    meta: Meta,
    held: Texts,
    strangers: Vec<Found>,
}

/// Why a write failed, and whether it may have happened.
struct Failure {
    message: String,
    doubt: bool,
    /// What is known of the page by now.
    page: (Option<Meta>, Texts),
}

impl Journal {
    /// A journal in this namespace, and where entries arrive that other processes wrote meanwhile. `instance` tells apart
    /// provisioners of the same name, such as one per node.
    pub fn new(
        client: &Client,
        namespace: &str,
        provisioner: &str,
        instance: Option<&str>,
    ) -> (Self, mpsc::UnboundedReceiver<Found>) {
        let (found, arrivals) = mpsc::unbounded_channel();
        let owner = Owner::new(namespace, provisioner, instance);
        let (client, state, changed) = (client.clone(), Mutex::default(), Notify::new());
        (Self { client, owner, state, changed, found }, arrivals)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads everything from the server, and forgets what was known. Nothing else may be going on.
    pub async fn load(&self) -> Result<Vec<Found>, Error> {
        let selection = self.owner.selection();
        let mut pages = BTreeMap::new();
        let mut next: Option<String> = None;
        loop {
            let listed = self.client.list::<ConfigMap>(Kind::CONFIG_MAP, &selection, 16, next.as_deref()).await?;
            for map in listed.items {
                let name: Box<str> = map.meta.key.name().into();
                let mut page = Page::default();
                page.know(Some(map.meta.clone()), texts(&map));
                pages.insert(name, page);
            }
            next = listed.next;
            if next.is_none() {
                break;
            }
        }
        let mut found = Vec::new();
        let mut places = BTreeMap::new();
        for (name, page) in &pages {
            for (key, text) in &page.held {
                places.insert(key.clone(), name.clone());
                found.push(Found { claim: Uid::from(&**key), text: text.clone(), page: name.clone() });
            }
        }
        *self.state() = State { pages, places, ..State::default() };
        Ok(found)
    }

    /// Stores an intent, and waits until that is sure.
    pub async fn open(&self, claim: &Uid, text: &str) -> Result<(), NotWritten> {
        let (tell, told) = oneshot::channel();
        {
            let mut state = self.state();
            let page = state.place(&self.owner, claim.as_str(), text)?;
            state.check(&page)?;
            let change = Change { text: Some(text.into()), due: Instant::now(), told: vec![tell] };
            state.wait(&page, claim.as_str(), change);
        }
        self.changed.notify_one();
        told.await.unwrap_or(Err(NotWritten::Ended))
    }

    /// The intent has ended: it is removed with the next write, or in a moment.
    pub fn close(&self, claim: &Uid) {
        let mut state = self.state();
        if let Some(page) = state.ours(claim.as_str()) {
            let change = Change { text: None, due: Instant::now() + LINGER, told: Vec::new() };
            state.wait(&page, claim.as_str(), change);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Waits until the journal surely holds nothing for a claim whose intent has ended.
    pub async fn closed(&self, claim: &Uid) -> Result<(), NotWritten> {
        let told = {
            let mut state = self.state();
            let Some(page) = state.ours(claim.as_str()) else { return Ok(()) };
            state.check(&page)?;
            let (tell, told) = oneshot::channel();
            let change = Change { text: None, due: Instant::now(), told: vec![tell] };
            state.wait(&page, claim.as_str(), change);
            told
        };
        self.changed.notify_one();
        told.await.unwrap_or(Err(NotWritten::Ended))
    }

    /// An entry that nobody here understands is from now on neither changed nor restored.
    pub fn leave_alone(&self, claim: &Uid) {
        self.state().alone.insert(claim.as_str().into());
    }

    /// Whether an entry that was left alone is still there. Somebody who understood it may have removed it.
    pub async fn is_left(&self, claim: &Uid) -> Result<bool, Error> {
        let Some(page) = self.state().places.get(claim.as_str()).cloned() else { return Ok(false) };
        match self.client.get::<ConfigMap>(Kind::CONFIG_MAP, &self.owner.key(&page)).await {
            Ok(map) if texts(&map).contains_key(claim.as_str()) => return Ok(true),
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        let mut state = self.state();
        state.alone.remove(claim.as_str());
        state.places.remove(claim.as_str());
        if let Some(page) = state.pages.get_mut(&page) {
            page.held.remove(claim.as_str());
        }
        Ok(false)
    }

    /// Writes what waits, until `stop`, and then the ends that are still lingering: an intent that outlives this process
    /// may be older than what an operator did before the next one comes.
    pub async fn run(&self, stop: &Stop) {
        let mut writing = FuturesUnordered::new();
        let stopped = stop.stopped();
        tokio::pin!(stopped);
        loop {
            let changed = self.changed.notified();
            let (due, later) = self.state().take(Instant::now());
            writing.extend(due.into_iter().map(|batch| self.write(batch)));
            let wait = async {
                match later {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = &mut stopped => break,
                Some(()) = writing.next(), if !writing.is_empty() => {}
                () = changed => {}
                () = wait => {}
            }
        }
        let drained = async {
            loop {
                // A write that failed waits for longer than this, and is left to the next process.
                let (due, _) = self.state().take(Instant::now() + LINGER);
                writing.extend(due.into_iter().map(|batch| self.write(batch)));
                if writing.next().await.is_none() {
                    return;
                }
            }
        };
        if tokio::time::timeout(DRAIN, drained).await.is_err() {
            tracing::warn!("the ends of some intents could not be written in time; the next process looks after them");
        }
    }

    async fn write(&self, batch: Batch) {
        let result = self.store(&batch).await;
        let strangers = self.state().settle(batch, result);
        for stranger in strangers {
            tracing::warn!(page = %stranger.page, claim = %stranger.claim, "another process wrote into the journal");
            // The receiver lives as long as the engine, and this with it.
            let _ = self.found.send(stranger);
        }
        self.changed.notify_one();
    }

    /// Makes the page what it should be; reads it when its state is in doubt.
    async fn store(&self, batch: &Batch) -> Result<Written, Failure> {
        let mut wanted = batch.held.clone();
        for (key, change) in &batch.changes {
            match &change.text {
                Some(text) => drop(wanted.insert(key.clone(), text.clone())),
                None => drop(wanted.remove(key)),
            }
        }
        let (mut meta, mut known) = (batch.meta.clone(), batch.held.clone());
        let mine: BTreeSet<Box<str>> = known.keys().chain(batch.changes.keys()).cloned().collect();
        let mut strangers = Vec::new();
        let mut last = String::new();
        for _ in 0..TRIES {
            let error = match self.send(&batch.name, meta.as_ref(), &known, &wanted).await {
                Ok(meta) => return Ok(Written { meta, held: wanted, strangers }),
                Err(error) => error,
            };
            last = error.to_string();
            if !error.is_unsettled() {
                return Err(Failure { message: last, doubt: false, page: (meta, known) });
            }
            match self.client.get::<ConfigMap>(Kind::CONFIG_MAP, &self.owner.key(&batch.name)).await {
                Ok(map) => {
                    known = texts(&map);
                    for (key, text) in known.iter().filter(|(key, _)| !mine.contains(*key)) {
                        if wanted.insert(key.clone(), text.clone()).is_none() {
                            let claim = Uid::from(&**key);
                            strangers.push(Found { claim, text: text.clone(), page: batch.name.clone() });
                        }
                    }
                    wanted.retain(|key, _| !batch.alone.contains(key) || known.contains_key(key));
                    meta = Some(map.meta);
                }
                Err(error) if error.is_not_found() => {
                    wanted.retain(|key, _| !batch.alone.contains(key));
                    (meta, known) = (None, Texts::new());
                }
                Err(error) => {
                    let message = format!("{last}; and then: {error}");
                    return Err(Failure { message, doubt: true, page: (meta, known) });
                }
            }
        }
        Err(Failure { message: last, doubt: true, page: (meta, known) })
    }

    async fn send(&self, name: &str, meta: Option<&Meta>, known: &Texts, wanted: &Texts) -> Result<Meta, Error> {
        let Some(meta) = meta else {
            let body = self.owner.body(name, wanted);
            return Ok(self
                .client
                .create::<Head>(Kind::CONFIG_MAP, Some(self.owner.namespace()), &body)
                .await?
                .metadata);
        };
        match difference(meta, known, wanted) {
            None => Ok(meta.clone()),
            Some(patch) => {
                let key = self.owner.key(name);
                Ok(self.client.patch::<Head>(Kind::CONFIG_MAP, &key, &Patch::Merge(patch)).await?.metadata)
            }
        }
    }
}

/// Of the answer to a write only this is read: we know what it holds.
#[derive(serde::Deserialize)]
struct Head {
    metadata: Meta,
}

fn texts(map: &ConfigMap) -> Texts {
    map.data.iter().flatten().map(|(key, text)| (key.clone(), Arc::from(&**text))).collect()
}

impl State {
    /// Where an entry is, unless it is one that we leave alone.
    fn ours(&self, key: &str) -> Option<Box<str>> {
        self.places.get(key).filter(|_| !self.alone.contains(key)).cloned()
    }

    /// The page for an entry: where it is already, or the first that is comfortable, a new one, or the emptiest.
    fn place(&mut self, owner: &Owner, key: &str, text: &str) -> Result<Box<str>, NotWritten> {
        let bytes = size(key, text);
        if bytes > LARGEST {
            return Err(NotWritten::TooLarge { bytes });
        }
        if let Some(page) = self.places.get(key) {
            return Ok(page.clone());
        }
        let sizes: Vec<(usize, Box<str>)> = self.pages.iter().map(|(name, page)| (page.size(), name.clone())).collect();
        let name = match sizes.iter().find(|(size, _)| size + bytes <= COMFORTABLE) {
            Some((_, name)) => name.clone(),
            None if sizes.len() < MOST_PAGES => {
                let unused = |name: &String| !self.pages.contains_key(name.as_str());
                // There are more numbers than pages, so one is unused.
                let name = (0..=MOST_PAGES).map(|number| owner.name(number)).find(unused).ok_or(NotWritten::Full)?;
                self.pages.insert(name.as_str().into(), Page::default());
                name.into()
            }
            None => {
                let emptiest = sizes.iter().min().filter(|(size, _)| size + bytes <= LARGEST);
                emptiest.map(|(_, name)| name.clone()).ok_or(NotWritten::Full)?
            }
        };
        self.places.insert(key.into(), name.clone());
        Ok(name)
    }

    /// Whether a page takes writes now. One that keeps failing is left alone until its pause is over.
    fn check(&self, page: &str) -> Result<(), NotWritten> {
        let failing = self.pages.get(page).and_then(|page| page.failing.as_ref());
        match failing.filter(|failing| failing.times >= FAILURES && Instant::now() < failing.until) {
            Some(failing) => Err(NotWritten::Refused { message: failing.message.clone() }),
            None => Ok(()),
        }
    }

    /// Puts a change behind the page's next write. A newer change of one entry replaces an older one.
    fn wait(&mut self, page: &str, key: &str, new: Change) {
        let Some(page) = self.pages.get_mut(page) else { return };
        match page.waiting.get_mut(key) {
            Some(old) => {
                old.due = old.due.min(new.due);
                old.text = new.text;
                old.told.extend(new.told);
            }
            None => drop(page.waiting.insert(key.into(), new)),
        }
    }

    /// The writes that are due, each with everything that waits for its page; and when the next one is.
    fn take(&mut self, now: Instant) -> (Vec<Batch>, Option<Instant>) {
        let (mut due, mut later) = (Vec::new(), None);
        let alone = &self.alone;
        for (name, page) in self.pages.iter_mut().filter(|(_, page)| page.busy.is_none()) {
            let Some(first) = page.waiting.values().map(|change| change.due).min() else { continue };
            if first <= now {
                page.busy = Some(page.size_waiting());
                let changes = std::mem::take(&mut page.waiting);
                let (name, meta, held, alone) = (name.clone(), page.meta.clone(), page.held.clone(), alone.clone());
                due.push(Batch { name, meta, held, changes, alone });
            } else {
                later = Some(later.map_or(first, |at: Instant| at.min(first)));
            }
        }
        (due, later)
    }

    /// Takes the end of a write into account, and tells who waited. Gives the entries that nobody here wrote.
    fn settle(&mut self, batch: Batch, result: Result<Written, Failure>) -> Vec<Found> {
        let Some(page) = self.pages.get_mut(&batch.name) else { return Vec::new() };
        page.busy = None;
        match result {
            Ok(Written { meta, held, strangers }) => {
                page.know(Some(meta), held);
                page.failing = None;
                for (key, change) in batch.changes {
                    if change.text.is_none() && !page.waiting.contains_key(&key) {
                        self.places.remove(&key);
                    }
                    for tell in change.told {
                        // Who waited may have given up.
                        let _ = tell.send(Ok(()));
                    }
                }
                for stranger in &strangers {
                    self.places.insert(stranger.claim.as_str().into(), batch.name.clone());
                }
                strangers
            }
            Err(Failure { message, doubt, page: (meta, held) }) => {
                page.know(meta, held);
                let due = page.failed(&batch.name, &message);
                // What somebody else took out of the page, or the page with it, is still open.
                for (key, text) in batch.held {
                    if !page.held.contains_key(&key) && !batch.changes.contains_key(&key) && !self.alone.contains(&key)
                    {
                        let lost = Change { text: Some(text), due, told: Vec::new() };
                        page.waiting.entry(key).or_insert(lost);
                    }
                }
                for (key, change) in batch.changes {
                    for tell in change.told {
                        let _ = tell.send(Err(NotWritten::Refused { message: message.clone() }));
                    }
                    // An entry that may have been written although nobody relies on it is removed again.
                    let remove = change.text.is_none() || doubt || page.held.contains_key(&key);
                    match (page.waiting.contains_key(&key), remove) {
                        (true, _) => {}
                        (false, true) => {
                            page.waiting.insert(key, Change { text: None, due, told: Vec::new() });
                        }
                        (false, false) => drop(self.places.remove(&key)),
                    }
                }
                Vec::new()
            }
        }
    }
}

impl Page {
    /// A write failed. Gives when the next one is.
    fn failed(&mut self, name: &str, message: &str) -> Instant {
        let before = self.failing.as_ref();
        let times = before.map_or(0, |failing| failing.times).saturating_add(1);
        let pause = PAUSE.saturating_mul(1 << (times - 1).min(8)).min(LONGEST_PAUSE);
        match before.is_some_and(|failing| failing.message == message) {
            true => tracing::debug!(page = name, message, ?pause, "the journal of intents could not be written again"),
            false => tracing::warn!(page = name, message, ?pause, "the journal of intents could not be written"),
        }
        let until = Instant::now() + pause;
        self.failing = Some(Failing { times, until, message: message.to_owned() });
        until
    }

    fn know(&mut self, meta: Option<Meta>, held: Texts) {
        self.bytes = size_of(&held);
        (self.meta, self.held) = (meta, held);
    }

    /// With everything that waits or is on its way, as if all of it had been written and nothing removed.
    fn size(&self) -> usize {
        self.bytes + self.size_waiting() + self.busy.unwrap_or(0)
    }

    fn size_waiting(&self) -> usize {
        let texts = self.waiting.iter().filter_map(|(key, change)| Some((key, change.text.as_ref()?)));
        texts.map(|(key, text)| size(key, text)).sum()
    }
}
