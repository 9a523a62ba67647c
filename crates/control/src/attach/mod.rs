//! Attach: volumes go to the nodes of their pods, and leave them (ATTACH-6). What is right is decided in
//! [`lifecycle::attach`].
//!
//! Two queues: volumes, for which attachments are made, and nodes, which are told what they have and from which
//! attachments are taken. A VolumeAttachment is the only memory of what may be attached where: it is made before a driver
//! is asked and gone after the driver has taken the volume back, so a restart finds everything, orphans included.
//!
//! # Invariants
//! 1. A volume is worked on by one pass at a time, and one for a single node gets an attachment only if no other is known,
//!    in any state (CTRL-I15, CTRL-14.31). What was stored before this process began to lead is known to it.
//! 2. A node's status is written, and attachments to it are deleted, by one pass at a time. A deletion follows a state of the
//!    node that the server gave in the same pass, after the last report (CTRL-I14).
//! 3. Every write names the revision it was decided about, or creates what must not exist.
//! 4. Nothing waits for a driver: attachers answer through the watch.
//! 5. News for a node may wait for a moment for more of it, so that one write tells all; what has to be written before a
//!    detach never does.

mod gate;
mod metrics;
mod node;
mod pace;
mod progress;
mod unready;
mod view;
mod volume;
mod wake;

use std::sync::Arc;
use std::time::Duration;

use api::{Attachment, Kind};
use futures_util::future::join3;
use runtime::client::{Error, Selection};
use runtime::queue::Backoff;
use runtime::{Queue, Stop, Subscription, queue};
use tokio::time::sleep;

use crate::{Context, Notices};
use gate::Gate;
use metrics::AttachMetrics;
use pace::Paces;
use progress::{Ends, Told};
use unready::UnreadyTimes;
use view::View;
use wake::{Queues, Wake};

/// How often one key is decided about in a row before others get their turn.
const ROUNDS: usize = 16;
/// Upstream's backoff for operations (15).
const BACKOFF: Backoff = Backoff { start: Duration::from_millis(500), max: Duration::from_secs(122) };
/// Objects per page when attachments are read at the start.
const PAGE: u32 = 500;
/// Between attempts to read them.
const PAUSE: Duration = Duration::from_secs(1);

/// How volumes are attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How many volumes, and how many nodes, are worked on at once.
    pub workers: usize,
    /// How many volumes of one driver may be on their way at once.
    pub per_driver: usize,
    /// After how long a node that is not ready loses volumes that it may still use: `--force-detach-after`, measured by
    /// this controller from when it first saw the node so. Never by default: such a node may be writing.
    pub force_after: Option<Duration>,
    /// How long a node that more volumes are on their way to is not told of those that came: `--node-status-window`.
    pub node_status_window: Duration,
    /// How often everything is looked at again, in case something was missed, if at all.
    pub resync: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            workers: 64,
            per_driver: 256,
            force_after: None,
            node_status_window: Duration::from_millis(50),
            resync: Some(Duration::from_secs(15 * 60)),
        }
    }
}

/// The attach/detach controller.
#[derive(Debug)]
pub struct Attachments {
    context: Context,
    wake: Wake,
    paces: Paces,
    unready: UnreadyTimes,
    options: Options,
    _subscriptions: [Subscription; 6],
}

impl Attachments {
    pub fn new(context: &Context, options: Options) -> Self {
        let view = View::new(context);
        let queues = Queues {
            volumes: Queue::new("attachdetach_volumes", BACKOFF, &context.metrics, &context.entropy),
            nodes: Queue::new("attachdetach_nodes", BACKOFF, &context.metrics, &context.entropy),
        };
        let told = Told::new(Notices::new(context.recorder.named("attachdetach-controller")));
        let wake = Wake {
            ends: Ends::new(AttachMetrics::new(context, &view)),
            view,
            queues,
            gate: Arc::new(Gate::new(options.per_driver)),
            blocked: Arc::default(),
            told: Arc::new(told),
        };
        let (paces, subscriptions) = (Paces::new(options.node_status_window), wake.subscribe());
        let unready = UnreadyTimes::default();
        Self { context: context.clone(), wake, paces, unready, options, _subscriptions: subscriptions }
    }

    /// Attaches and detaches until `stop`.
    pub async fn run(&self, stop: &Stop) {
        // What happened before this time of leading was not watched.
        self.unready.clear();
        let ready = async {
            self.wake.view.synced().await;
            self.catch_up().await;
        };
        tokio::select! {
            biased;
            () = stop.stopped() => return,
            () = ready => {}
        }
        let Queues { volumes, nodes } = &self.wake.queues;
        let volumes = queue::run(volumes, self.options.workers, stop, |unique| self.volume(unique));
        let nodes = queue::run(nodes, self.options.workers, stop, |name| self.node(name));
        join3(volumes, nodes, self.resync(stop)).await;
    }

    /// Learns every attachment that exists now. A cache may lag behind what another process stored before this one began to
    /// lead, and an attachment that is not known would let its volume go to a second node.
    async fn catch_up(&self) {
        while let Err(error) = self.read_all().await {
            tracing::warn!(%error, "cannot list VolumeAttachments; nothing is attached until they are known");
            sleep(PAUSE).await;
        }
    }

    async fn read_all(&self) -> Result<(), Error> {
        let mut next: Option<String> = None;
        loop {
            let selection = Selection::default();
            let listed = self.context.client.list::<Attachment>(Kind::ATTACHMENT, &selection, PAGE, next.as_deref());
            let page = listed.await?;
            page.items.into_iter().for_each(|attachment| drop(self.wake.view.attachments.wrote(attachment)));
            next = page.next;
            if next.is_none() {
                return Ok(());
            }
        }
    }

    async fn resync(&self, stop: &Stop) {
        let Some(period) = self.options.resync else { return };
        loop {
            tokio::select! {
                biased;
                () = stop.stopped() => return,
                () = sleep(period) => self.wake.all(),
            }
        }
    }
}
