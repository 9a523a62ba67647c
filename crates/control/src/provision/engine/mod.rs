//! The engine: two queues, the journal, and the provisioner behind it.
//!
//! | File | What it does |
//! |---|---|
//! | `claim` | a claim that may want a volume: plan, and write the intent down |
//! | `attempt` | an open intent: create, store, close, whatever became of the claim |
//! | `delete` | a volume whose time is over |
//! | `memory` | what is worth knowing between two looks at one object; lost with the process, and missed by nobody |
//! | `turns` | making and deleting one volume never overlap |
//! | `twins` | other objects that stand for the same volume |

mod attempt;
mod claim;
mod delete;
mod memory;
mod options;
mod turns;
mod twins;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use api::{Claim, Class, ConfigMap, Key, Meta, Uid, Volume};
use futures_util::future::join3;
use lifecycle::Notice;
use lifecycle::provision::backing::backing_of;
use lifecycle::provision::{Names, delete::is_ours};
use runtime::client::Error;
use runtime::metrics;
use runtime::queue::{self, Queue};
use runtime::{Change, Index, Lookup, Stop, Stopper, Subscription};
use tokio::sync::{Mutex as Lock, mpsc};
use tokio::time::sleep;

pub use options::{Asking, BadNaming, Naming, Options};

use super::intent::Intent;
use super::journal::{Found, Journal};
use super::{Provisioner, Wake};
use crate::handles::VOLUMES_BY_BACKING;
use crate::{Context, Notices};
use memory::{Known, Memory};
use runtime::handoff::{Asked, Making};
use turns::Turns;

/// After this many steps about one object, others get their turn.
const ROUNDS: u32 = 16;
/// Everything is looked at again this often, in case something was missed (PROVISION-2.3).
const RESYNC: Duration = Duration::from_secs(15 * 60);
/// Between attempts to read the journal.
const PAUSE: Duration = Duration::from_secs(5);

const BY_UID: Index<Claim> = Index { name: "uid", values: |claim, value| value(claim.uid().as_str()) };
const BY_CLASS: Index<Claim> = Index { name: "class of unbound", values: unbound_class };
const BY_CLAIM: Index<Volume> = Index { name: "claim uid", values: claim_uid };

fn unbound_class(claim: &Claim, value: &mut dyn FnMut(&str)) {
    let class = claim.class().text();
    if claim.volume_name.is_empty() && !class.is_empty() {
        value(class);
    }
}

fn claim_uid(volume: &Volume, value: &mut dyn FnMut(&str)) {
    if let Some(uid) = volume.claim.as_ref().and_then(|reference| reference.uid.as_ref()) {
        value(uid.as_str());
    }
}

/// Makes volumes for claims and deletes them, with whatever a [`Provisioner`] makes them of.
pub struct Engine<P: Provisioner> {
    context: Context,
    provisioner: Arc<P>,
    options: Options,
    claims: Queue<Uid>,
    volumes: Queue<Box<str>>,
    by_uid: Lookup<Claim>,
    by_backing: Lookup<Volume>,
    journal: Journal,
    arrivals: Lock<mpsc::UnboundedReceiver<Found>>,
    memory: Arc<Memory<P::Plan>>,
    turns: Turns,
    notices: Notices,
    _subscriptions: Vec<Subscription>,
    _making: Vec<Making>,
}

impl<P: Provisioner> fmt::Debug for Engine<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("names", &self.provisioner.names())
            .field("claims", &self.claims)
            .finish_non_exhaustive()
    }
}

impl<P: Provisioner> Engine<P> {
    /// Declares what has to be watched. Nothing happens until [`Engine::run`].
    pub fn new(context: &Context, provisioner: Arc<P>, options: Options) -> Self {
        let own = Names(provisioner.names()).own().to_owned();
        let Context { metrics, entropy, .. } = context;
        let claims = Queue::new(&format!("{own} claims"), options.backoff, metrics, entropy);
        let volumes = Queue::new(&format!("{own} volumes"), options.backoff, metrics, entropy);
        let (journal, arrivals) = Journal::new(&context.client, &options.namespace, &own, options.instance.as_deref());
        let mut engine = Self {
            by_uid: context.cache::<Claim>().index(BY_UID),
            by_backing: context.cache::<Volume>().index(VOLUMES_BY_BACKING),
            notices: Notices::new(context.recorder.named(&options.component)),
            context: context.clone(),
            options,
            claims,
            volumes,
            journal,
            arrivals: Lock::new(arrivals),
            memory: Arc::default(),
            turns: Turns::default(),
            provisioner,
            _subscriptions: Vec::new(),
            _making: Vec::new(),
        };
        engine.provisioner.start(&Wake { claims: engine.claims.clone(), volumes: engine.volumes.clone() });
        engine.subscribe();
        engine
    }

    fn names(&self) -> Names<'_> {
        Names(self.provisioner.names())
    }

    /// What happens puts keys on the queues, for as long as the engine lives.
    fn subscribe(&mut self) {
        if self.options.asking == Asking::Directly {
            self._making = self.provisioner.names().iter().map(|name| self.make_for(name)).collect();
        }
        self._subscriptions = vec![self.follow_claims(), self.follow_volumes(), self.follow_classes()];
    }

    fn make_for(&self, name: &str) -> Making {
        let claims = self.claims.clone();
        self.context.handoff.serve(name, move |asked: &Asked| claims.add(asked.uid.clone()))
    }

    fn follow_classes(&self) -> Subscription {
        let (by_class, claims) = (self.context.cache::<Claim>().index(BY_CLASS), self.claims.clone());
        self.context.cache::<Class>().subscribe(move |change: &Change<Class>| {
            for claim in by_class.all(change.object().name()) {
                claims.add(claim.uid().clone());
            }
        })
    }

    fn follow_claims(&self) -> Subscription {
        let (claims, volumes, memory) = (self.claims.clone(), self.volumes.clone(), self.memory.clone());
        let (provisioner, handoff) = (self.provisioner.clone(), self.context.handoff.clone());
        let by_claim = self.context.cache::<Volume>().index(BY_CLAIM);
        self.context.cache::<Claim>().subscribe(move |change: &Change<Claim>| {
            let claim = change.object();
            let uid = claim.uid();
            if change.after().is_none() {
                memory.forget_claim(uid);
            }
            if change.after().is_none() || !claim.volume_name.is_empty() {
                // A volume that was released may have waited for its claim to go, or to have another one.
                let left = |volume: &&Arc<Volume>| change.after().is_none() || volume.name() != &*claim.volume_name;
                by_claim.all(uid.as_str()).iter().filter(left).for_each(|volume| volumes.add(volume.name().into()));
            }
            if change.after().is_none() || !claim.volume_name.is_empty() {
                handoff.forget(uid);
            }
            let names = Names(provisioner.names());
            let asked = claim.provisioner().is_some_and(|name| names.has(name))
                || names.0.iter().any(|name| handoff.is_asked(name, uid));
            if (asked && claim.volume_name.is_empty()) || memory.is_begun(uid) {
                claims.add(uid.clone());
            }
        })
    }

    fn follow_volumes(&self) -> Subscription {
        let (claims, volumes, memory) = (self.claims.clone(), self.volumes.clone(), self.memory.clone());
        let (provisioner, by_backing) = (self.provisioner.clone(), self.by_backing.clone());
        self.context.cache::<Volume>().subscribe(move |change: &Change<Volume>| {
            let volume = change.object();
            // A volume that stands for the same may have waited for this one.
            let backing = backing_of(volume);
            let twins = backing.map(|backing| by_backing.all(&backing)).unwrap_or_default();
            twins.iter().filter(|twin| twin.name() != volume.name()).for_each(|twin| volumes.add(twin.name().into()));
            if !is_ours(volume, Names(provisioner.names())) {
                return;
            }
            match change.after() {
                Some(volume) => volumes.add(volume.name().into()),
                None => {
                    memory.forget_volume(&volume.meta.uid);
                    // Its claim may need another one.
                    claim_uid(volume, &mut |uid| claims.add(Uid::from(uid)));
                }
            }
        })
    }

    /// Works until `stop`. It may be called again afterwards, never twice at once.
    pub async fn run(&self, stop: &Stop) {
        if unless(stop, self.context.caches.synced()).await.is_none() || unless(stop, self.recover()).await.is_none() {
            return;
        }
        let (done, ended) = Stopper::new();
        let working = async {
            join3(
                queue::run(&self.claims, self.options.workers, stop, |uid| self.claim(uid, stop)),
                queue::run(&self.volumes, self.options.workers, stop, |name| self.volume(name, stop)),
                self.resync(stop),
            )
            .await;
            done.stop();
        };
        // The journal runs for as long as anybody may wait for it.
        join3(working, self.journal.run(&ended), self.adopt(&ended)).await;
    }

    /// Takes up what a process before us left open.
    async fn recover(&self) {
        let found = loop {
            match self.journal.load().await {
                Ok(found) => break found,
                Err(error) => tracing::warn!(%error, "the journal of intents cannot be read; trying again"),
            }
            sleep(PAUSE).await;
        };
        self.memory.reset();
        for found in found {
            self.take_up(&found);
        }
    }

    /// Takes up what another process wrote after we had read everything.
    async fn adopt(&self, stop: &Stop) {
        let mut arrivals = self.arrivals.lock().await;
        while let Some(Some(found)) = unless(stop, arrivals.recv()).await {
            self.take_up(&found);
        }
    }

    fn take_up(&self, found: &Found) {
        match Intent::read(&found.text) {
            Ok(intent) => self.memory.begin(&found.claim, Arc::new(intent), Known::Found),
            Err(error) => {
                let why = format!(
                    "{error}{}",
                    std::error::Error::source(&error).map_or_else(String::new, |source| format!(": {source}"))
                );
                self.report(found, &why);
            }
        }
        self.claims.add(found.claim.clone());
    }

    /// An entry that cannot be understood stays, and whoever can do something about it is told.
    fn report(&self, found: &Found, why: &str) {
        let Found { claim, page, .. } = found;
        let message = format!(
            "entry {claim} of ConfigMap {page} in namespace {} cannot be read: {why}. A volume of claim {claim} may exist; \
             look for {} in the storage, then remove the entry",
            self.options.namespace,
            self.options.naming.volume(claim)
        );
        tracing::error!("{message}");
        let meta = Meta::new(Key::namespaced(&self.options.namespace, page));
        let page = ConfigMap { meta, data: None };
        self.notices.always(&page, &Notice::warning("IntentUnreadable", message.clone()));
        self.journal.leave_alone(claim);
        self.memory.unreadable(claim, message);
    }

    async fn resync(&self, stop: &Stop) {
        while unless(stop, sleep(RESYNC)).await.is_some() {
            for claim in self.context.cache::<Claim>().walk().filter(|claim| claim.volume_name.is_empty()) {
                self.claims.add(claim.uid().clone());
            }
            for volume in self.context.cache::<Volume>().walk().filter(|volume| is_ours(volume, self.names())) {
                self.volumes.add(volume.name().into());
            }
        }
    }

    /// Counts a failed attempt and tells the claim's user, if there still is one.
    fn failed(&self, claim: Option<&Claim>, labels: metrics::Provision, notice: Notice) {
        tracing::info!(class = labels.class, message = notice.message, "provisioning failed");
        self.context.metrics.provision.provision_failed.get_or_create(&labels).inc();
        if let Some(claim) = claim {
            self.notices.say(claim, notice);
        }
    }
}

/// What `future` gives, unless `stop` comes first.
async fn unless<F: Future>(stop: &Stop, future: F) -> Option<F::Output> {
    tokio::select! {
        biased;
        () = stop.stopped() => None,
        output = future => Some(output),
    }
}

/// Whether a failed `test` of a JSON patch, or anything else that says "it has changed", is what this is.
fn is_stale(error: &Error) -> bool {
    let exists = matches!(error, Error::AlreadyExists { .. } | Error::Invalid { .. });
    exists || error.is_conflict() || error.is_not_found() || error.may_have_happened()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_send<T: Send>(_: &T) {}

    /// The program may run it on any thread; a guard held over an await would forbid it.
    #[expect(dead_code, reason = "compiling it is the test")]
    fn an_engine_may_move_between_threads<P: Provisioner>(engine: &Engine<P>, stop: &Stop) {
        is_send(&engine.run(stop));
    }
}
