//! The Node object of a machine without kubelet: its labels, its condition Ready, and its lease.
//!
//! Where a kubelet or another machine looks after the node, this refuses to: a lease that another holder renews is the
//! proof, watched for and not computed from anybody's clock. A lease that nobody renews for its whole time is taken over, and
//! the lease of this agent's previous process at once if that process has surely ended ([`LeaseMemory`]).
//!
//! # Invariants
//! 1. Only what is ours is written: missing labels, one annotation, the condition Ready, the taint of new nodes, and parts
//!    of a status that nobody wrote. `volumesInUse` and `volumesAttached` are others'.
//! 2. A Node that somebody deletes while the agent runs is not brought back by this life of the agent, as a kubelet would
//!    not, and its lease is not renewed.
//! 3. What acts for the node runs inside [`Machine::while_held`]: it is polled only while the lease is surely ours.

mod facts;
mod lease;
mod memory;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use api::{Key, Kind, Node};
use lifecycle::registration::lease::{AgentIdentity, LeaseRefusal, may_act};
use lifecycle::registration::machine::{self, Action, Because, Before, Said, Wanted};
use lifecycle::{Lookup, Reason as _};
use runtime::client::Error;
use runtime::queue::Backoff;
use runtime::watch;
use runtime::{Context, Live, Patch, Queue, Stop, Subscription, Verdict, queue};
use serde_json::{Value, json};
use tokio::time::Instant;

pub use facts::Facts;
pub use lease::LeaseHealth;
use lease::NodeLease;
pub use memory::{ApiPlace, DirectoryMemory, LeaseMemory, NoMemory};

use super::{Readiness, taints};

/// The condition is said again at least so often.
const HEARTBEAT: Duration = Duration::from_secs(300);
const BACKOFF: Backoff = Backoff { start: Duration::from_millis(500), max: Duration::from_secs(30) };
const ROUNDS: usize = 8;

#[derive(Debug, Clone)]
pub struct Options {
    /// The name of the Node.
    pub node: String,
    /// How its lease is signed; each process adds a random part. A kubelet signs with the node's name.
    pub identity: AgentIdentity,
    /// Keeps the renewals for the next process.
    pub memory: Arc<dyn LeaseMemory>,
    pub facts: Facts,
    pub untainting: Untainting,
}

/// Who takes the taint of new nodes off this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Untainting {
    /// We do, with rights that a node's own identity does not have.
    Ours,
    /// [`super::Welcome`] at the server, or kube-controller-manager.
    Others,
}

impl Options {
    /// For this machine; `identity` tells it from others that would use the same node name.
    pub fn new(node: &str, identity: AgentIdentity) -> Self {
        Self {
            node: node.to_owned(),
            identity,
            memory: Arc::new(NoMemory),
            facts: Facts::read(),
            untainting: Untainting::Ours,
        }
    }
}

/// Why the agent does not look after the node.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    #[error("{0}")]
    Refused(LeaseRefusal),
}

/// How work ended that needs the node's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldEnd {
    /// By itself.
    Finished,
    /// The process was told to end while the lease was not held; the work was dropped where it stood.
    Dropped,
}

/// Keeps the Node.
#[derive(Debug)]
pub struct Machine {
    context: Context,
    options: Options,
    key: Key,
    lease: NodeLease,
    ready: watch::Receiver<Readiness>,
    queue: Queue<()>,
    memory: std::sync::Mutex<Memory>,
    _subscription: Subscription,
}

#[derive(Debug)]
struct Memory {
    before: Before,
    /// When the condition was last written.
    said: Option<Instant>,
}

impl Machine {
    /// `ready` is [`super::Registry::readiness`].
    pub fn new(context: &Context, options: Options, ready: watch::Receiver<Readiness>) -> Self {
        let key = Key::cluster(&options.node);
        let queue = Queue::new("node", BACKOFF, &context.metrics, &context.entropy);
        let (own, keys) = (key.clone(), queue.clone());
        let subscription = context.cache::<Node>().subscribe(move |change| {
            if *change.key() == own {
                keys.add(());
            }
        });
        let lease = NodeLease::new(context, &options.node, options.identity.clone(), options.memory.clone());
        let memory = std::sync::Mutex::new(Memory { before: Before::NeverSeen, said: None });
        Self { context: context.clone(), options, key, lease, ready, queue, memory, _subscription: subscription }
    }

    /// Whether another holder keeps the agent from its work.
    pub fn health(&self) -> LeaseHealth {
        self.lease.health()
    }

    /// Polls `work` only while the node's lease is ours, so that two machines of one name never act at the same time; the
    /// clock is asked before every poll, because no timer has run yet when a suspended machine wakes up. Ends with `work`, or
    /// at `stop` if the lease is not held then.
    pub async fn while_held(&self, stop: &Stop, work: impl Future<Output = ()>) -> HeldEnd {
        tokio::pin!(work);
        let mut acted = false;
        loop {
            let guarded = poll_fn(|context| match self.may_act() {
                true => {
                    acted = true;
                    work.as_mut().poll(context).map(Some)
                }
                false => Poll::Ready(None),
            });
            if let Some(()) = guarded.await {
                return HeldEnd::Finished;
            }
            if std::mem::take(&mut acted) {
                let node = &self.options.node;
                tracing::warn!(node, "the node's lease was not renewed in time; nothing is done until it is");
            }
            tokio::select! {
                biased;
                () = stop.stopped() => return HeldEnd::Dropped,
                () = self.lease.renewed() => {}
            }
        }
    }

    fn may_act(&self) -> bool {
        if self.lease.is_held() {
            return true;
        }
        let before = self.memory.lock().unwrap_or_else(std::sync::PoisonError::into_inner).before;
        may_act(false, self.context.cache::<Node>().get(&self.key).as_deref(), before == Before::Seen)
    }

    /// Waits until nobody else looks after the node, or until `stop`. Whoever does anything on the node waits for this: two
    /// agents would each mount, and end, the same pods.
    pub async fn free(&self, stop: &Stop) -> Result<(), MachineError> {
        tokio::select! {
            biased;
            () = stop.stopped() => Ok(()),
            free = self.lease.free() => free,
        }
    }

    /// Keeps the Node until `stop`; an error means that somebody else does.
    pub async fn run(&self, stop: &Stop) -> Result<(), MachineError> {
        self.free(stop).await?;
        let nodes = self.context.cache::<Node>();
        tokio::select! {
            biased;
            () = stop.stopped() => return Ok(()),
            () = nodes.synced() => {}
        }
        self.queue.add(());
        let following = async {
            let mut ready = self.ready.clone();
            while ready.changed().await.is_ok() {
                self.queue.add(());
            }
            std::future::pending::<()>().await;
        };
        let keeping = queue::run(&self.queue, 1, stop, |()| self.pass());
        tokio::select! {
            biased;
            renewed = self.lease.renew(stop) => renewed,
            () = keeping => Ok(()),
            () = following => Ok(()),
        }
    }

    async fn pass(&self) -> Verdict {
        let mut absent = false;
        for _ in 0..ROUNDS {
            let node = self.context.cache::<Node>().get(&self.key);
            let before = self.note(node.is_some());
            let lookup = match &node {
                Some(node) => Lookup::Found(&**node),
                None if absent => Lookup::Absent,
                None => Lookup::NotCached,
            };
            let decision = machine::decide(lookup, &self.wanted(), before);
            let acted = match decision.actions.into_iter().next() {
                Some(Action::Untaint) if self.options.untainting == Untainting::Others => {
                    return self.rest(&decision.because, node.as_deref()).await;
                }
                Some(action) => self.act(action, node.as_deref(), &mut absent).await,
                None => return self.rest(&decision.because, node.as_deref()).await,
            };
            if let Err(error) = acted {
                return Verdict::Failed(error.to_string());
            }
        }
        Verdict::Again(Duration::from_secs(1))
    }

    fn wanted(&self) -> Wanted {
        let readiness = match *self.ready.borrow() {
            Readiness::Initialised => Said::Ready,
            Readiness::Starting => Said::NotReady { why: "CSINode is not yet initialized".to_owned() },
        };
        Wanted { labels: self.options.facts.labels(&self.options.node), readiness }
    }

    fn note(&self, seen: bool) -> Before {
        let mut memory = self.memory.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if seen {
            memory.before = Before::Seen;
            self.lease.node_seen();
        }
        memory.before
    }

    /// Nothing differs; the condition is said again from time to time.
    async fn rest(&self, because: &Because, node: Option<&Node>) -> Verdict {
        if *because == Because::Removed {
            tracing::warn!(node = self.options.node, %because, "the node is out of the cluster");
            return Verdict::Done;
        }
        tracing::debug!(because = because.code(), "the node");
        let said = self.memory.lock().unwrap_or_else(std::sync::PoisonError::into_inner).said;
        let due = said.map_or(Duration::ZERO, |said| HEARTBEAT.saturating_sub(said.elapsed()));
        if !due.is_zero() {
            return Verdict::Again(due);
        }
        match node {
            Some(node) => match self.say(node, &self.wanted().readiness).await {
                Ok(()) => Verdict::Again(HEARTBEAT),
                Err(error) => Verdict::Failed(error.to_string()),
            },
            None => Verdict::Done,
        }
    }

    async fn act(&self, action: Action, node: Option<&Node>, absent: &mut bool) -> Result<(), Error> {
        let done = match (action, node) {
            (Action::ReadNode, _) => {
                *absent = matches!(self.context.read::<Node>(&self.key).await?, Live::Absent);
                return Ok(());
            }
            (Action::CreateNode, _) => {
                *absent = false;
                self.context.create::<Node>(None, &self.new_node()).await.map(drop)
            }
            (Action::AddMetadata { labels, annotations }, Some(node)) => {
                let metadata = json!({"uid": node.meta.uid.as_str(), "resourceVersion": node.meta.revision.to_string(),
                    "labels": labels, "annotations": annotations});
                self.patch(json!({ "metadata": metadata })).await
            }
            (Action::SayReadiness(said), Some(node)) => self.say(node, &said).await,
            (Action::Untaint, Some(node)) => taints::remove(&self.context, node, machine::is_of_new_nodes).await,
            (_, None) => return Ok(()),
        };
        match done {
            Ok(()) => Ok(()),
            Err(error) => self.context.reconsider::<Node>(&self.key, error).await,
        }
    }

    async fn patch(&self, body: Value) -> Result<(), Error> {
        self.context.patch::<Node>(&self.key, &Patch::Merge(body)).await.map(drop)
    }

    fn new_node(&self) -> Value {
        let wanted = self.wanted();
        json!({
            "apiVersion": Kind::NODE.api_version(), "kind": Kind::NODE.kind,
            "metadata": {
                "name": self.options.node,
                "labels": wanted.labels,
                "annotations": {api::keys::annotation::MANAGED_ATTACH.text(): "true"},
            },
            "status": self.options.facts.missing_in(&self.options.node, &Value::Null),
        })
    }

    /// Writes the condition Ready, and what the status lacks altogether.
    async fn say(&self, node: &Node, said: &Said) -> Result<(), Error> {
        let whole: Value = self.context.client.get(Kind::NODE, &self.key).await?;
        let mut status = self.options.facts.missing_in(&self.options.node, &whole["status"]);
        let now = self.context.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let (value, reason, message) = match said {
            Said::Ready => {
                ("True", "OrlopReady", "volumes are made ready here; this agent runs no containers".to_owned())
            }
            Said::NotReady { why } => ("False", "OrlopNotReady", why.clone()),
        };
        let mut condition = json!({"type": "Ready", "status": value, "reason": reason, "message": message,
            "lastHeartbeatTime": now});
        let conditions = whole["status"]["conditions"].as_array();
        let same = |held: &Value| held["type"] == "Ready" && held["status"] == value;
        if !conditions.is_some_and(|conditions| conditions.iter().any(same)) {
            condition["lastTransitionTime"] = now.into();
        }
        status.insert("conditions".to_owned(), json!([condition]));
        let body = json!({"metadata": {"uid": node.meta.uid.as_str()}, "status": status});
        self.context.patch_status::<Node>(&self.key, &Patch::Strategic(body)).await?;
        self.memory.lock().unwrap_or_else(std::sync::PoisonError::into_inner).said = Some(Instant::now());
        Ok(())
    }
}
