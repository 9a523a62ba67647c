//! A CSI driver on a socket as a [`Provisioner`] (PROVISION-2.6 to PROVISION-2.11, PROVISION-2.13).
//!
//! What is decided is in `lifecycle::provision::csi`; here objects are read, sources guarded, the driver called.
//!
//! # Invariants
//! 1. Values of secrets are read for one call and dropped with it.
//! 2. A source is guarded before the plan that uses it is given out, and let go of when nobody needs it any more.
//! 3. A call whose end is not known is never taken for one that did nothing ([`lifecycle::outcome`] is the only judge).
//! 4. The driver may be away at any moment; what waited for it is woken when it is back.

mod contest;
mod create;
mod delete;
mod detached;
mod guards;
mod places;
mod plan;
pub(crate) mod secret;
mod sidecar;
mod waiting;
pub(crate) mod wire;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::{Attachment, Claim, Class, Volume};
use lifecycle::migration;
use lifecycle::provision::csi::{Abilities, Ability, Plan};
use runtime::csi::{Driver, Facts, Link};
use runtime::{Change, Lookup, Stop, Subscription};

pub use contest::NodeMode;
pub use guards::{GuardOptions, Guards, Sweep};
pub use sidecar::{Sidecar, SidecarOptions};

use super::{Attempt, Failed, Made, Provisioner, Settled, Unplanned, Wake, Wish};
use crate::capacity::Refresh;
use crate::{Context, index};
use contest::Contest;
use detached::SharedAttachments;
use guards::Holds;
use places::Places;
pub(crate) use places::{Cached, relabelled};
use waiting::{Waiting, What};

/// How to provision.
#[derive(Debug, Clone)]
pub struct Options {
    /// What the flags say about plans.
    pub plans: lifecycle::provision::csi::Options,
    /// How long one call may take: `--timeout`.
    pub timeout: Duration,
    /// This instance serves one node only: `--node-deployment`.
    pub node: Option<NodeMode>,
    /// How soon failed work of this provisioner's own queues comes back.
    pub backoff: runtime::queue::Backoff,
    /// How often the driver is asked how its volumes are; `None`: never.
    pub monitor: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            plans: Default::default(),
            timeout: Duration::from_secs(10),
            node: None,
            backoff: Default::default(),
            monitor: None,
        }
    }
}

/// Makes volumes with a CSI driver. Clones are the same.
#[derive(Clone)]
pub struct CsiProvisioner {
    inner: Arc<Inner>,
}

struct Inner {
    context: Context,
    driver: Driver,
    names: Vec<String>,
    options: Options,
    /// Which run of this program made a volume.
    identity: String,
    places: Places,
    attachments: OnceLock<Lookup<Attachment>>,
    listed: SharedAttachments,
    attachment_news: OnceLock<Subscription>,
    claim_news: OnceLock<Subscription>,
    holds: Holds,
    waiting: Waiting,
    wake: OnceLock<Wake>,
    contest: Option<Contest>,
    refresh: OnceLock<Refresh>,
}

impl fmt::Debug for CsiProvisioner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CsiProvisioner").field("names", &self.inner.names).finish_non_exhaustive()
    }
}

impl CsiProvisioner {
    /// A provisioner for the driver of this name. `facts` is what the driver said when it was first met.
    pub fn new(context: &Context, driver: &Driver, facts: &Facts, options: Options) -> Self {
        let abilities = wire::abilities(&facts.capabilities);
        let node = options.node.as_ref();
        let suffix = node.map(|node| format!("-{}", node.name)).unwrap_or_default();
        let started = context.clock.now().as_millisecond();
        let identity = format!("{started}-{}-{}{suffix}", context.entropy.number() % 10_000, facts.name);
        let contest = node.map(|node| Contest::new(context, node.clone(), options.backoff));
        let inner = Inner {
            context: context.clone(),
            driver: driver.clone(),
            names: [facts.name.clone()].into_iter().chain(migration::plugin_of(&facts.name)).collect(),
            identity,
            places: Places::new(context, options.node.clone()),
            attachments: OnceLock::new(),
            listed: SharedAttachments::default(),
            attachment_news: OnceLock::new(),
            claim_news: OnceLock::new(),
            holds: Holds::default(),
            waiting: Waiting::default(),
            wake: OnceLock::new(),
            contest,
            refresh: OnceLock::new(),
            options,
        };
        let provisioner = Self { inner: Arc::new(inner) };
        Inner::declare(&provisioner.inner, &abilities);
        provisioner
    }

    /// The driver's name.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Room changes with every volume: who tells it wants to know.
    pub fn refresh_with(&self, refresh: Refresh) {
        // A second producer for one driver would publish the same objects; the first one stays.
        let _ = self.inner.refresh.set(refresh);
    }

    /// Guards sources, wakes what waited, and takes part in the contest for claims, until `stop`.
    pub async fn run(&self, stop: &Stop) {
        let contest = async {
            if let Some(contest) = &self.inner.contest {
                contest.run(&self.inner, stop).await;
            }
        };
        tokio::join!(self.inner.follow_driver(stop), contest);
    }
}

impl Inner {
    fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// The caches that this driver's abilities call for. A driver that comes back with more gets more.
    fn declare(self: &Arc<Self>, abilities: &Abilities) {
        self.context.cache::<Class>();
        if abilities.contains(&Ability::Topology) {
            self.places.declare(self);
        }
        if abilities.contains(&Ability::Publish) {
            self.attachments();
        }
    }

    /// Who is told about attachments holds us weakly, since we hold the subscription.
    fn attachments(self: &Arc<Self>) -> &Lookup<Attachment> {
        let cache = self.context.cache::<Attachment>();
        self.attachment_news.get_or_init(|| {
            let told = Arc::downgrade(self);
            cache.subscribe(move |change| {
                if let (Change::Removed(gone), Some(inner)) = (change, told.upgrade()) {
                    inner.wake(&What::Attachment(gone.volume.clone().unwrap_or_default()));
                    if let Some(unique) = lifecycle::attach::published(gone) {
                        inner.wake(&What::Attachment(unique.into()));
                    }
                }
            })
        });
        self.attachments.get_or_init(|| cache.index(index::ATTACHMENTS_BY_VOLUME))
    }

    /// Wakes what waited for the driver each time it comes back.
    async fn follow_driver(self: &Arc<Self>, stop: &Stop) {
        let mut link = self.driver.link();
        loop {
            let facts = match &*link.borrow_and_update() {
                Link::Up(facts) => Some(facts.clone()),
                Link::Down { .. } => None,
            };
            if let Some(facts) = facts {
                self.declare(&wire::abilities(&facts.capabilities));
                self.wake(&What::Driver);
            }
            tokio::select! {
                biased;
                () = stop.stopped() => return,
                changed = link.changed() => if changed.is_err() {
                    // The sender lives as long as the driver that we hold.
                    return;
                },
            }
        }
    }

    /// Puts everything that waited for this back to work.
    fn wake(&self, what: &What) {
        let Some(wake) = self.wake.get() else { return };
        let woken = self.waiting.take(what);
        woken.claims.iter().for_each(|uid| wake.claim(uid));
        woken.volumes.iter().for_each(|name| wake.volume(name));
    }

    /// The driver, for calls about volumes of its own or of the plugin that it took over from; metrics tell them apart.
    fn driver_for(&self, provisioner: &str) -> Driver {
        if provisioner == self.name() { self.driver.clone() } else { self.driver.for_migrated() }
    }

    /// Room may have changed for volumes like this one.
    fn refresh(&self, change: &crate::capacity::Changed<'_>) {
        if let Some(refresh) = self.refresh.get() {
            refresh.tell(change);
        }
    }
}

impl Provisioner for CsiProvisioner {
    type Plan = Plan;

    fn names(&self) -> &[String] {
        &self.inner.names
    }

    fn start(&self, wake: &Wake) {
        if self.inner.wake.set(wake.clone()).is_err() {
            return;
        }
        let told = Arc::downgrade(&self.inner);
        self.inner.claim_news.get_or_init(|| {
            self.inner.context.cache::<Claim>().subscribe(move |change| {
                if let Some(inner) = told.upgrade() {
                    inner.wake(&What::Claim(change.key().clone()));
                }
            })
        });
    }

    async fn plan(&self, wish: &Wish) -> Result<Plan, Unplanned> {
        self.inner.plan(wish).await
    }

    async fn create(&self, plan: &Plan, attempt: Attempt) -> Result<Made, Failed> {
        self.inner.create(plan, attempt).await
    }

    async fn delete(&self, volume: &Volume) -> Result<(), Failed> {
        self.inner.delete(volume).await
    }

    async fn settled(&self, plan: &Plan, end: Settled<'_>) {
        self.inner.settled(plan, end);
    }
}
