//! Attach: carries out what VolumeAttachments of one driver ask for, and takes it back (spec sidecars 3; external-attacher's
//! role). What is decided is in [`lifecycle::attacher`]; here objects are read and written, and the driver is called.
//!
//! # Invariants
//! 1. One pass at a time works on an attachment, so that publishing and taking back never overlap.
//! 2. A call whose end is not known is repeated: by the next pass, or, once the attachment is being deleted, by taking the
//!    volume back, which needs nothing but the attachment.
//! 3. Values of secrets are read for one pass and dropped with it; no error and no log line holds one.
//! 4. What we write about an attachment does not wake us (conformance 11): a failing one comes back after its backoff, or
//!    when what it waits for comes.

mod calls;
mod pass;
mod reconcile;
mod round;
mod volumes;
mod wake;
mod writes;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::{Attachment, CsiNode, Volume};
use lifecycle::attacher::{self as decisions, Handler};
use lifecycle::provision::csi::Abilities;
use runtime::csi::{Driver, Facts, Link};
use runtime::queue::{self, Backoff};
use runtime::{Cache, Lookup, Stop};

use crate::provision::csi::wire;
use crate::{Context, index};
use wake::Board;

/// How to attach.
#[derive(Debug, Clone)]
pub struct Options {
    /// So many attachments and so many volumes at once: `--worker-threads`.
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
        }
    }
}

/// The name of the lease that attachers of a driver compete for, as upstream's (spec sidecars 1.4).
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
    nodes: OnceLock<Cache<CsiNode>>,
    board: Arc<Board>,
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
        let board = Arc::new(Board::new(context, options.backoff));
        board.follow(&about, &attachments, &volumes);
        let attacher = Self {
            context: context.clone(),
            driver: driver.clone(),
            options,
            about,
            users: attachments.index(index::ATTACHMENTS_BY_VOLUME),
            attachments,
            volumes,
            nodes: OnceLock::new(),
            board,
        };
        attacher.declare(&wire::abilities(&facts.capabilities));
        attacher
    }

    /// Attaches and detaches until `stop`. It may be called again afterwards, never twice at once.
    pub async fn run(&self, stop: &Stop) {
        let synced = async {
            self.attachments.synced().await;
            self.volumes.synced().await;
            // Upstream does not wait for these, and records errors about nodes it has not heard of (weakness 14).
            if let Some(nodes) = self.nodes.get() {
                nodes.synced().await;
            }
        };
        tokio::select! {
            biased;
            () = stop.stopped() => return,
            () = synced => {}
        }
        let workers = self.options.workers;
        // Each on the heap: together they would be one large state on the stack of whoever polls.
        tokio::join!(
            Box::pin(queue::run(&self.board.attachments, workers, stop, |key| self.attachment(key))),
            Box::pin(queue::run(&self.board.volumes, workers, stop, |name| self.volume(name))),
            Box::pin(self.reconcile(stop)),
            Box::pin(self.follow_driver(stop)),
        );
    }

    /// The caches that this driver's abilities call for. A driver that comes back with more gets more.
    fn declare(&self, has: &Abilities) {
        if Handler::of(has) == Handler::Csi {
            self.nodes.get_or_init(|| {
                let nodes = self.context.cache::<CsiNode>();
                self.board.follow_nodes(&nodes);
                nodes
            });
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
