//! Bind and release, acted out: claims and volumes find each other, part, and volumes are reclaimed.
//!
//! One [`Binder`] works on two queues, claims and volumes, with many passes at once. Whatever changes wakes exactly whom
//! it concerns (`wake.rs`); there is no scan. What a pass does is decided in `lifecycle::bind` and `lifecycle::release`.
//!
//! # Invariants
//! 1. At rest no claim waits beside a free volume that suits it: see [`wake`].
//! 2. Two passes never choose the same free volume: it is off the shelf while one of them writes to it.
//! 3. A claim or a volume that the cache lacks is asked for live before anything follows from its absence.

mod claim;
mod metrics;
pub(crate) mod patches;
pub mod plugins;
mod reclaim;
mod volume;
mod wake;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::{Claim, Class, Key, Pod, Volume};
use futures_util::future::join3;
use lifecycle::bind::claim::Supply;
use lifecycle::bind::shelf::Shelf;
use lifecycle::{migration, release};
use runtime::cache::Lookup;
use runtime::queue::{self, Backoff};
use runtime::{Cache, Index, Queue, Stop, Subscription};

use crate::Context;
use crate::Notices;
use metrics::BinderMetrics;
use plugins::Plugins;
use wake::Wakes;

/// Upstream's name for the events of this controller.
const COMPONENT: &str = "persistentvolume-controller";

/// How many decisions one pass may take before others get their turn. A binding needs five.
const MOST_ROUNDS: usize = 16;

/// How the binder works.
#[derive(Debug, Clone)]
pub struct Options {
    /// Passes at once, for claims and for volumes each.
    pub workers: usize,
    /// Whether provisioners are asked at all (`--enable-dynamic-provisioning`).
    pub dynamic: bool,
    /// How often everything is looked at again, in case a wake-up was missed.
    pub resync: Duration,
    pub backoff: Backoff,
    /// What the plugins of this process are told.
    pub plugins: plugins::Options,
}

impl Default for Options {
    fn default() -> Self {
        let backoff = Backoff { start: Duration::from_millis(500), max: Duration::from_secs(122) };
        Self {
            workers: 64,
            dynamic: true,
            resync: Duration::from_secs(15 * 60),
            backoff,
            plugins: plugins::Options::default(),
        }
    }
}

/// The binder. Clones are the same.
#[derive(Debug, Clone)]
pub struct Binder {
    inner: Arc<Inner>,
    _subscriptions: [Subscription; 4],
}

#[derive(Debug)]
struct Inner {
    context: Context,
    options: Options,
    claims: Cache<Claim>,
    volumes: Cache<Volume>,
    classes: Cache<Class>,
    /// Pods by the claims they use: `namespace/name`.
    pods: Lookup<Pod>,
    claim_queue: Queue<Key>,
    volume_queue: Queue<Key>,
    shelf: Mutex<Shelf>,
    wakes: Wakes,
    plugins: Plugins,
    /// What decisions about reclaiming know of the plugins.
    known: Vec<release::volume::Plugin<'static>>,
    notices: Notices,
    metrics: BinderMetrics,
}

/// Pods by the keys of the claims they use.
pub(crate) const PODS_BY_CLAIM: Index<Pod> = Index {
    name: "claim",
    values: |pod, put| {
        for name in pod.claims() {
            put(&format!("{}/{name}", pod.namespace()));
        }
    },
};

impl Binder {
    /// Asks for the caches it needs. Nothing happens until [`Binder::run`].
    pub fn new(context: &Context, options: Options) -> Self {
        let claims = context.cache::<Claim>();
        let volumes = context.cache::<Volume>();
        let plugins = Plugins::new(context, options.plugins.clone());
        let inner = Inner {
            known: plugins.known(),
            plugins,
            classes: context.cache::<Class>(),
            pods: context.cache::<Pod>().index(PODS_BY_CLAIM),
            claim_queue: Queue::new("claims", options.backoff, &context.metrics, &context.entropy),
            volume_queue: Queue::new("volumes", options.backoff, &context.metrics, &context.entropy),
            shelf: Mutex::default(),
            wakes: Wakes::new(&claims, &volumes),
            notices: Notices::new(context.recorder.named(COMPONENT)),
            metrics: BinderMetrics::new(context),
            claims,
            volumes,
            context: context.clone(),
            options,
        };
        let inner = Arc::new(inner);
        Self { _subscriptions: wake::subscribe(&inner), inner }
    }

    /// Binds and releases until `stop`.
    pub async fn run(&self, stop: &Stop) {
        let inner = &*self.inner;
        tokio::select! {
            biased;
            () = stop.stopped() => return,
            () = inner.synced() => {}
        }
        let workers = inner.options.workers;
        let claims = queue::run(&inner.claim_queue, workers, stop, |key| claim::pass(inner, key));
        let volumes = queue::run(&inner.volume_queue, workers, stop, |key| volume::pass(inner, key));
        join3(claims, volumes, inner.resync(stop)).await;
    }

    /// Whether nothing is ready to be done and nothing is being done.
    pub fn is_quiet(&self) -> bool {
        self.inner.claim_queue.is_quiet() && self.inner.volume_queue.is_quiet()
    }
}

impl Inner {
    async fn synced(&self) {
        self.claims.synced().await;
        self.volumes.synced().await;
        self.classes.synced().await;
        self.context.cache::<Pod>().synced().await;
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A net under the wake-ups: everything is looked at again, rarely.
    async fn resync(&self, stop: &Stop) {
        loop {
            let wait = self.context.entropy.longer(self.options.resync, 0.1);
            tokio::select! {
                biased;
                () = stop.stopped() => return,
                () = tokio::time::sleep(wait) => {}
            }
            self.claims.walk().for_each(|claim| self.claim_queue.add(claim.key().clone()));
            self.volumes.walk().for_each(|volume| self.volume_queue.add(volume.meta.key.clone()));
        }
    }

    /// Who makes volumes of a class (BIND-4.9, BIND-P2 to BIND-P5).
    fn supply(&self, class: &Class) -> Supply {
        let name = migration::driver_of(&class.provisioner).unwrap_or(&class.provisioner);
        if !self.options.dynamic {
            Supply::SwitchedOff
        } else if self.plugins.named(name).is_some_and(|plugin| plugin.capabilities().provisions) {
            Supply::Plugin
        } else if self.context.handoff.serves(name) {
            Supply::Beside
        } else if name.starts_with(api::keys::provisioner::IN_TREE_PREFIX) {
            Supply::Nobody
        } else {
            Supply::External
        }
    }
}
