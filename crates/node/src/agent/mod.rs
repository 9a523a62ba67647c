//! The agent: what runs, and what it remembers while it runs.
//!
//! Two queues. A pod's key is worked on when the pod, a claim or a volume of it changes: what it wants is resolved, and what
//! became of it is written into its conditions. A volume's id is worked on when anything about it changes: one decision and
//! one step after the other, so that a volume is never handled by two at once.
//!
//! # Invariants
//! 1. Nothing is taken away before the disk was read, every pod of the node was resolved once, and, if anything was found,
//!    the node was read (NODE-5.1, NODE-7, NODE-30.1, NODE-30.2).
//! 2. Everything that must survive is on disk or in the API; [`World`] is a memory that may be lost at any time.

mod known;
mod memory;
mod pod;
mod reject;
mod wake;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use api::{Attachment, Claim, Key, Node, Uid, Volume};
use futures_util::future::join_all;
use lifecycle::node::selinux::{Gate, Label};
use lifecycle::node::{Because, slots};
use runtime::client::{Extent, Selection};
use runtime::queue::{self, Backoff};
use runtime::{Cache, Caches, Context, Index, Lookup, Notices, Queue, Stop, Subscription};
use tokio::sync::Notify;
use tokio::time::sleep;

pub(crate) use memory::{Failed, Unread, World};

use crate::actual::VolumeId;
use crate::drivers::Drivers;
use crate::host::Host;
use crate::layout::{self, Layout};
use crate::metrics::NodeMetrics;
use crate::pods::LocalPod;
use crate::tokens::Tokens;

/// Between attempts at what has to succeed before anything else can.
const PAUSE: Duration = Duration::from_secs(1);

/// How often a failed operation is tried again: 500 ms, doubled, at most 2 min 2 s (NODE-8.2).
pub(crate) const BACKOFF: Backoff = Backoff { start: Duration::from_millis(500), max: Duration::from_secs(122) };

/// How the agent behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of this machine's Node.
    pub node: String,
    /// Where everything lies.
    pub layout: Layout,
    /// How many volumes are worked on at once.
    pub workers: usize,
    /// Whether a deleted pod is ended when nothing of it is left, as a kubelet does.
    pub finish_pods: bool,
    /// How long one call to a driver may take.
    pub timeout: Duration,
    /// How often a volume is published again whose driver wants that; up to half of it is added by chance (NODE-16).
    pub republish: Duration,
    /// How often drivers are asked how full volumes are. `None` turns it off (NODE-19).
    pub stats: Option<Duration>,
    /// How long a driver may be away before its volumes that nobody wants are unmounted without it. `None`: for ever.
    pub alone_after: Option<Duration>,
    /// How long a pod waits for a slot before it is given back.
    pub slot_wait: Duration,
    /// The safety net under the events: everything is looked at this often.
    pub resync: Duration,
    /// Which volumes are mounted with SELinux contexts, where SELinux is on.
    pub selinux: Gate,
}

impl Options {
    pub fn new(node: &str, layout: Layout) -> Self {
        Self {
            node: node.to_owned(),
            layout,
            workers: 32,
            finish_pods: true,
            timeout: Duration::from_secs(120),
            republish: Duration::from_secs(60),
            stats: Some(Duration::from_secs(60)),
            alone_after: None,
            slot_wait: slots::PATIENCE,
            resync: Duration::from_secs(15 * 60),
            selinux: Gate::OnePod,
        }
    }
}

/// The node agent.
#[derive(Debug)]
pub struct Agent {
    pub(crate) context: Context,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) drivers: Drivers,
    pub(crate) options: Options,
    pub(crate) world: Arc<Mutex<World>>,
    pub(crate) pods: Cache<LocalPod>,
    pub(crate) by_uid: Lookup<LocalPod>,
    pub(crate) nodes: Cache<Node>,
    pub(crate) volume_queue: Queue<VolumeId>,
    pub(crate) pod_queue: Queue<Key>,
    /// What the node's status should say may have changed.
    pub(crate) report: Arc<Notify>,
    pub(crate) notices: Notices,
    pub(crate) metrics: NodeMetrics,
    pub(crate) tokens: Tokens,
    /// Some pod does not want something any more: who works for it looks whether it is his.
    pub(crate) unwants: Notify,
    /// A mount did not answer at the start.
    pub(crate) look_again: Notify,
    /// A PersistentVolume changed, which may be the one that damaged metadata is about.
    pub(crate) volume_news: Arc<Notify>,
    /// What files in containers have, if SELinux is on here; unset until the machine was asked.
    pub(crate) selinux: OnceLock<Option<Label>>,
    /// What names this boot, if the machine says; unset until it was asked.
    boot: OnceLock<Option<String>>,
    _subscriptions: Vec<Subscription>,
}

fn uid_of(pod: &LocalPod, found: &mut dyn FnMut(&str)) {
    found(pod.meta.uid.as_str());
}

/// Lets a process that serves one node keep only what concerns it: its own Node and CSINode, and of claims, volumes and
/// attachments those of its pods. Call it before anything else asks for these kinds, and not in a process that has
/// controllers in it.
pub fn narrow(caches: &Caches, node: &str) {
    crate::registry::narrow(caches, node);
    let wanted = Selection { extent: Extent::Wanted, ..Selection::default() };
    caches.narrow::<Claim>(wanted.clone());
    caches.narrow::<Volume>(wanted.clone());
    caches.narrow::<Attachment>(wanted);
}

impl Agent {
    /// The agent of one machine. Nothing happens until [`Agent::run`].
    pub fn new(context: &Context, host: Arc<dyn Host>, drivers: Drivers, options: Options) -> Self {
        let pods: Cache<LocalPod> = context.caches.selected(LocalPod::selection(&options.node));
        let fields = Some(format!("metadata.name={}", options.node));
        let nodes: Cache<Node> = context.caches.selected(Selection { fields, ..Selection::default() });
        let queue = Backoff { start: BACKOFF.start, max: BACKOFF.max };
        let mut agent = Self {
            context: context.clone(),
            host,
            drivers,
            world: Arc::default(),
            by_uid: pods.index(Index { name: "uid", values: uid_of }),
            pods,
            nodes,
            volume_queue: Queue::new("node_volumes", queue, &context.metrics, &context.entropy),
            pod_queue: Queue::new("node_pods", queue, &context.metrics, &context.entropy),
            report: Arc::default(),
            notices: Notices::new(context.recorder.named("kubelet")),
            metrics: NodeMetrics::new(context),
            tokens: Tokens::default(),
            unwants: Notify::new(),
            look_again: Notify::new(),
            volume_news: Arc::default(),
            selinux: OnceLock::new(),
            boot: OnceLock::new(),
            options,
            _subscriptions: Vec::new(),
        };
        agent.metrics.show_volumes(&agent.world);
        agent._subscriptions = agent.subscribe();
        agent
    }

    /// Works until `stop`. What is mounted stays mounted.
    pub async fn run(&self, stop: &Stop) {
        tokio::select! {
            biased;
            () = stop.stopped() => return,
            () = self.start() => {}
        }
        let until = async |work: futures_util::future::BoxFuture<'_, ()>| {
            tokio::select! {
                biased;
                () = stop.stopped() => {}
                () = work => {}
            }
        };
        let volumes = queue::run(&self.volume_queue, self.options.workers, stop, |id| self.volume_pass(id));
        let pods = queue::run(&self.pod_queue, self.options.workers, stop, |key| self.pod_pass(key));
        let others: [futures_util::future::BoxFuture<'_, ()>; 6] = [
            Box::pin(self.learn()),
            Box::pin(self.report_in_use()),
            Box::pin(self.follow_drivers()),
            Box::pin(self.watch_stats()),
            Box::pin(self.look_again()),
            Box::pin(self.resync()),
        ];
        let others = join_all(others.into_iter().map(until));
        tokio::join!(volumes, pods, others);
    }

    /// Makes the directories and finds what earlier runs left. The API server is not needed for it.
    async fn start(&self) {
        while let Err(error) = self.prepare().await {
            tracing::error!(%error, root = %self.options.layout.root().display(), "the agent cannot start here");
            sleep(PAUSE).await;
        }
    }

    async fn prepare(&self) -> Result<(), layout::PrepareError> {
        layout::prepare(&*self.host, &self.options.layout).await?;
        self.learn_selinux().await;
        let boot = self.host.boot().await?;
        self.boot.get_or_init(|| boot);
        Ok(self.reconstruct().await?)
    }

    /// Looks at everything from time to time, should an event have been lost.
    async fn resync(&self) {
        loop {
            sleep(self.options.resync).await;
            self.inspect_mounts().await;
            self.sweep_orphans().await;
            self.sweep_staged().await;
            for pod in self.pods.walk() {
                self.pod_queue.add(pod.meta.key.clone());
            }
            self.wake_all();
        }
    }

    /// Waits for mounts as long as it takes, now that everything else goes on.
    async fn look_again(&self) {
        self.look_again.notified().await;
        self.inspect_mounts().await;
    }

    /// What names this boot, for what is written down in it.
    pub(crate) fn boot(&self) -> Option<String> {
        self.boot.get().cloned().flatten()
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a pod stands with a volume, for its condition.
    pub(crate) fn stands(&self, id: &VolumeId, pod: &Uid) -> Because {
        self.world().stands.get(&(id.clone(), pod.clone())).cloned().unwrap_or(Because::Publishing)
    }
}
