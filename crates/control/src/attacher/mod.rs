//! Attach: carries out what VolumeAttachments of one driver ask for, and takes it back (ATTACHER-3; external-attacher's
//! role). What is decided is in [`lifecycle::attacher`]; here objects are read and written, and the driver is called.
//!
//! # Invariants
//! 1. One pass at a time works on an attachment, so that publishing and taking back never overlap.
//! 2. A call whose end is not known is repeated: by the next pass, or, once the attachment is being deleted, by taking the
//!    volume back, which needs nothing but the attachment.
//! 3. Values of secrets are read for one pass and dropped with it; no error and no log line holds one.
//! 4. What we write about an attachment does not wake us (conformance 11): a failing one comes back after its backoff, or
//!    when what it waits for comes.
//! 5. The driver has no more calls at once than the operator allows; attachments that wait for the API do not count.

mod calls;
mod pass;
mod reconcile;
mod restored;
mod round;
mod volumes;
mod wake;
mod writes;

pub(crate) use restored::{all_attachments, restored_nodes};

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::{Attachment, CsiNode, Key, Volume};
use lifecycle::attacher::{self as decisions, Handler, Target};
use lifecycle::provision::csi::Abilities;
use runtime::csi::{Driver, Facts, Link};
use runtime::handoff::{Attaching, Coming, Notes};
use runtime::queue::{self, Backoff};
use runtime::{Cache, Lookup, Stop, Subscription};
use tokio::sync::Semaphore;

use crate::provision::csi::wire;
use crate::{Context, index};
use wake::Board;

/// How to attach.
#[derive(Debug, Clone)]
pub struct Options {
    /// So many calls of the driver at once: `--worker-threads`.
    pub workers: usize,
    /// `--retry-interval-start` and `--retry-interval-max`.
    pub backoff: Backoff,
    /// How long one call, and one whole listing, may take: `--timeout`.
    pub timeout: Duration,
    /// How often the driver is asked what is published where: `--reconcile-sync`.
    pub reconcile: Duration,
    /// Entries of one page of that: `--max-entries`; 0 leaves it to the driver.
    pub max_entries: i32,
    /// The filesystem of volumes that name none: `--default-fstype`.
    pub default_fstype: String,
    /// The only node whose attachments are carried out, for a driver that runs on every node and knows only its own.
    pub node: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            workers: 10,
            backoff: Backoff::default(),
            timeout: Duration::from_secs(15),
            reconcile: Duration::from_secs(60),
            max_entries: 0,
            default_fstype: String::new(),
            node: None,
        }
    }
}

/// How many attachments are worked on for each call that the driver may have at once: most of the time of one goes into
/// requests to the API, during which the driver would have nothing to do.
const PER_CALL: usize = 4;

/// The name of the lease that attachers of a driver compete for, as upstream's (SIDECAR-1.4).
pub fn lock(driver: &str) -> String {
    format!("external-attacher-leader-{driver}")
}

/// Carries out the attachments of one driver.
pub struct Attacher {
    context: Context,
    driver: Driver,
    options: Options,
    about: Arc<decisions::Attacher>,
    attachments: Cache<Attachment>,
    volumes: Cache<Volume>,
    users: Lookup<Attachment>,
    /// Watched only for drivers that publish.
    nodes: Arc<OnceLock<Cache<CsiNode>>>,
    node_news: OnceLock<Subscription>,
    board: Arc<Board>,
    /// A permit for each call that the driver may have at once.
    calls: Semaphore,
    _subscriptions: [Subscription; 2],
}

impl fmt::Debug for Attacher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attacher").field("driver", &self.about.name).finish_non_exhaustive()
    }
}

impl Attacher {
    /// An attacher for a driver that said `facts` when it was met. Nothing happens until [`Attacher::run`]; somebody has to
    /// run the driver's connection and the context's caches.
    pub fn new(context: &Context, driver: &Driver, facts: &Facts, options: Options) -> Self {
        let about = Arc::new(decisions::Attacher::new(&facts.name, &options.default_fstype));
        let (attachments, volumes) = (context.cache::<Attachment>(), context.cache::<Volume>());
        let board = Arc::new(Board::new(context, options.backoff, options.node.as_deref()));
        let calls = Semaphore::new(options.workers.clamp(1, Semaphore::MAX_PERMITS));
        let subscriptions = board.follow(&about, &attachments, &volumes);
        let attacher = Self {
            context: context.clone(),
            driver: driver.clone(),
            options,
            about,
            users: attachments.index(index::ATTACHMENTS_BY_VOLUME),
            attachments,
            volumes,
            nodes: Arc::default(),
            node_news: OnceLock::new(),
            board,
            calls,
            _subscriptions: subscriptions,
        };
        attacher.declare(&wire::abilities(&facts.capabilities));
        attacher
    }

    /// Attaches and detaches until `stop`. It may be called again afterwards, never twice at once.
    pub async fn run(&self, stop: &Stop) {
        let synced = async {
            self.attachments.synced().await;
            self.volumes.synced().await;
            // Upstream does not wait for these, and records errors about nodes it has not heard of (SIDECAR-13.14).
            if let Some(nodes) = self.nodes.get() {
                nodes.synced().await;
            }
        };
        tokio::select! {
            biased;
            () = stop.stopped() => return,
            () = synced => {}
        }
        let _known = self.foresee();
        let workers = self.options.workers;
        let attachments = workers.max(1).saturating_mul(PER_CALL);
        // Each on the heap: together they would be one large state on the stack of whoever polls.
        tokio::join!(
            Box::pin(queue::run(&self.board.attachments, attachments, stop, |key| self.attachment(key))),
            Box::pin(queue::run(&self.board.volumes, workers, stop, |name| self.volume(name))),
            Box::pin(self.reconcile(stop)),
            Box::pin(self.follow_driver(stop)),
        );
    }

    /// Lets whoever makes attachments in this process write at once what we would write on them (ATTACHER-3.6.9).
    fn foresee(&self) -> Attaching {
        let (about, driver) = (self.about.clone(), self.driver.clone());
        let (volumes, nodes, board) = (self.volumes.clone(), self.nodes.clone(), self.board.clone());
        self.context.handoff.attaches(&self.about.name, move |coming: Coming<'_>| {
            if !board.serves(coming.node) {
                return None;
            }
            let has = wire::abilities(&driver.facts()?.capabilities);
            let volume = volumes.get(&Key::cluster(coming.volume))?;
            let node = nodes.get()?.get(&Key::cluster(coming.node))?;
            let target = Target::foreseen(&volume, &node, &about, &has).filter(|t| t.handle == coming.handle)?;
            let noted = target.annotations().into_iter().filter_map(|(key, value)| Some((key.text(), value?)));
            Some(Notes { finalizer: about.finalizer.clone(), annotations: noted.collect() })
        })
    }

    /// The caches that this driver's abilities call for. A driver that comes back with more gets more.
    fn declare(&self, has: &Abilities) {
        if Handler::of(has) == Handler::Csi {
            let nodes = self.nodes.get_or_init(|| self.context.cache::<CsiNode>());
            self.node_news.get_or_init(|| self.board.follow_nodes(nodes));
        }
    }

    /// Wakes what waited for the driver each time it comes back.
    async fn follow_driver(&self, stop: &Stop) {
        let mut link = self.driver.link();
        loop {
            let facts = match &*link.borrow_and_update() {
                Link::Up(facts) => Some(facts.clone()),
                Link::Down { .. } => None,
            };
            if let Some(facts) = facts {
                self.declare(&wire::abilities(&facts.capabilities));
                self.board.wake(&wake::What::Driver);
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
}
