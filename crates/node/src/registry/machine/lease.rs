//! The node's lease: a sign of life, and the permission to act for the node.
//!
//! # Invariants
//! 1. The lease is only written at a revision that was judged to be free or our own, so that of two agents one succeeds.
//! 2. A renewal is remembered before it is sent: a lease that shows its mark is ours even if the answer was lost.
//! 3. [`NodeLease::is_held`] looks at the clock that goes on while the machine is suspended, and says no before any other
//!    agent may take the lease.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::keys::annotation::LEASE_RENEWAL;
use api::object::Revision;
use api::{Key, Kind, Lease, Node};
use lifecycle::registration::lease::{
    ANOTHER_MACHINE_EVENT, AbsentLease, AgentHistory, AgentIdentity, LeaseHolder, LeaseRefusal, OtherHolder,
    OwnRenewals, Predecessor, absent_lease, lease_holder,
};
use runtime::client::Error;
use runtime::events::Severity;
use runtime::{Context, Live, Patch, Stop};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::MachineError;
use super::memory::LeaseMemory;

/// Where leases of nodes are.
const NAMESPACE: &str = "kube-node-lease";
/// As a kubelet's.
const SECONDS: u64 = 40;
const RENEW: Duration = Duration::from_secs(10);
/// For how long after a renewal was sent the agent acts. Others wait for [`SECONDS`]; calls that run may end in between.
const ACTS_FOR: Duration = Duration::from_secs(30);
/// How often the lease of another holder is looked at, and how soon a renewal that failed is tried again.
const LOOK: Duration = Duration::from_secs(2);

/// For so long after it was found to be free an absent lease may be made without another look.
const STILL_FREE: Duration = Duration::from_secs(10);

/// More renewals without an answer than this are not remembered: a day of them, at two seconds each.
const UNANSWERED: usize = 43_200;

/// A node's lease, and how we sign it.
#[derive(Debug)]
pub(super) struct NodeLease {
    context: Context,
    key: Key,
    identity: AgentIdentity,
    memory: Arc<dyn LeaseMemory>,
    predecessor: Option<Predecessor>,
    state: Arc<Mutex<State>>,
    /// The Node was seen.
    node_seen: Notify,
    renewed: Notify,
}

#[derive(Debug, Default)]
struct State {
    own: OwnRenewals,
    /// The revision at which the lease may be written, if that is known.
    writable: Option<Revision>,
    /// On the boot clock.
    held_until: Option<Duration>,
    /// When the lease was last found to be absent, and free to be made; on the boot clock.
    free_since: Option<Duration>,
    refusal: Option<LeaseRefusal>,
}

/// Whether the agent may look after its node, for health checks.
#[derive(Debug, Clone)]
pub struct LeaseHealth(Arc<Mutex<State>>);

impl LeaseHealth {
    /// An error says why the agent does nothing.
    pub fn healthy(&self) -> Result<(), String> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.refusal.as_ref().map_or(Ok(()), |refusal| Err(refusal.to_string()))
    }
}

impl NodeLease {
    pub(super) fn new(context: &Context, node: &str, identity: AgentIdentity, memory: Arc<dyn LeaseMemory>) -> Self {
        let own = OwnRenewals { holder: identity.holder(&context.entropy.token()), ..OwnRenewals::default() };
        Self {
            context: context.clone(),
            key: Key::namespaced(NAMESPACE, node),
            identity,
            predecessor: memory.predecessor(),
            memory,
            state: Arc::new(Mutex::new(State { own, ..State::default() })),
            node_seen: Notify::new(),
            renewed: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn health(&self) -> LeaseHealth {
        LeaseHealth(self.state.clone())
    }

    /// Whether the agent may act for its node at this moment.
    pub(super) fn is_held(&self) -> bool {
        let state = self.state();
        state.refusal.is_none() && state.held_until.is_some_and(|until| self.context.clock.boot() < until)
    }

    /// Waits for the next renewal, for a while.
    pub(super) async fn renewed(&self) {
        tokio::select! {
            () = self.renewed.notified() => {}
            () = sleep(LOOK) => {}
        }
    }

    /// The Node exists: the lease, which belongs to it, can be made.
    pub(super) fn node_seen(&self) {
        self.node_seen.notify_one();
    }

    /// The lease past every cache: a watch of all leases would be a high price for one.
    async fn read(&self) -> Result<Live<Lease>, Error> {
        match self.context.client.get::<Lease>(Kind::LEASE, &self.key).await {
            Ok(lease) => Ok(Live::Found(lease.into())),
            Err(error) if error.is_not_found() => Ok(Live::Absent),
            Err(error) => Err(error),
        }
    }

    fn judge(&self, lease: &Live<Lease>) -> LeaseHolder {
        lease_holder(lease.lookup(), &self.identity, &self.state().own, self.predecessor.as_ref())
    }

    fn absent(&self) -> AbsentLease {
        let now = self.context.clock.boot();
        if self.state().free_since.is_some_and(|since| now.saturating_sub(since) < STILL_FREE) {
            return AbsentLease::TakeNow;
        }
        // A process that held the lease once leaves volumes mounted when it loses it, as one of an earlier process does.
        let history = match self.state().own.answered {
            Some(_) => AgentHistory::WorkedBefore,
            None => self.memory.history(),
        };
        absent_lease(self.is_held(), history, self.predecessor.as_ref())
    }

    /// Waits until no other holder looks after the node. One that renews the lease while we watch does, and so does one that
    /// makes it again after it went with the Node.
    pub(super) async fn free(&self) -> Result<(), MachineError> {
        let mut watched: Option<(Revision, Duration)> = None;
        let mut absent_since: Option<Duration> = None;
        loop {
            // Read before the question: what the answer shows held at least until then.
            let now = self.context.clock.boot();
            match self.read().await {
                Ok(found) => match (self.judge(&found), &found) {
                    (LeaseHolder::Another(other), Live::Found(lease)) => {
                        absent_since = None;
                        let revision = lease.meta.revision;
                        if self.state().writable == Some(revision) {
                            return Ok(());
                        }
                        match watched {
                            Some((first, since)) if first == revision => {
                                let patience = u64::try_from(lease.seconds).unwrap_or(0).max(SECONDS);
                                if now.saturating_sub(since) >= Duration::from_secs(patience) {
                                    let holder = &*lease.holder;
                                    tracing::info!(holder, "the node's lease has expired and is taken over");
                                    self.state().writable = Some(revision);
                                    return Ok(());
                                }
                            }
                            Some(_) => return Err(self.refused(lease, other).await),
                            None => {
                                tracing::info!(
                                    holder = &*lease.holder,
                                    "somebody looked after this node; watching whether he still does"
                                );
                                watched = Some((revision, self.context.clock.boot()));
                            }
                        }
                    }
                    (_, Live::Found(lease)) => {
                        self.state().writable = Some(lease.meta.revision);
                        return Ok(());
                    }
                    (_, Live::Absent) => {
                        let since = *absent_since.get_or_insert_with(|| self.context.clock.boot());
                        let is_over = now.saturating_sub(since) >= Duration::from_secs(SECONDS);
                        if is_over || self.absent() == AbsentLease::TakeNow {
                            let mut state = self.state();
                            (state.writable, state.free_since) = (None, Some(now));
                            return Ok(());
                        }
                        watched = None;
                    }
                },
                Err(error) => tracing::warn!(%error, "reading the node's lease"),
            }
            sleep(LOOK).await;
        }
    }

    /// Stops the agent: its reason is logged, shown by health checks, and told on the Node.
    async fn refused(&self, lease: &Lease, other: OtherHolder) -> MachineError {
        let node = self.key.name();
        let refusal = LeaseRefusal { node: node.to_owned(), holder: lease.holder.to_string(), other };
        self.state().refusal = Some(refusal.clone());
        let message = refusal.to_string();
        tracing::error!(node, "{message}");
        if refusal.is_another_machine()
            && let Ok(Live::Found(node)) = self.context.read::<Node>(&Key::cluster(node)).await
        {
            self.context.recorder.record(&*node, Severity::Warning, ANOTHER_MACHINE_EVENT, &message);
        }
        MachineError::Refused(refusal)
    }

    /// Renews the lease until `stop`, while the node exists.
    pub(super) async fn renew(&self, stop: &Stop) -> Result<(), MachineError> {
        let nodes = self.context.cache::<Node>();
        let node = Key::cluster(self.key.name());
        let (mut pause, mut logged) = (LOOK, String::new());
        loop {
            let found = nodes.get(&node);
            let exists = found.is_some();
            let mut wait = if exists { RENEW } else { LOOK };
            if let Some(node) = found {
                match self.renew_once(&node).await {
                    Ok(()) => (pause, logged) = (LOOK, String::new()),
                    Err(Renewal::Refused(error)) => return Err(error),
                    Err(Renewal::Api(error)) => {
                        let why = runtime::causes(&error);
                        if logged != why {
                            tracing::warn!(why, ?pause, "the node's lease cannot be renewed");
                        }
                        (logged, wait) = (why, pause);
                        // Never slower than the renewals themselves: others take the node for dead soon.
                        pause = (pause * 2).min(RENEW);
                    }
                }
            }
            tokio::select! {
                biased;
                () = stop.stopped() => return Ok(()),
                // A node that is about to be made gets its lease as soon as it is there.
                () = self.node_seen.notified(), if !exists => {}
                () = sleep(self.context.entropy.shorter(wait, 0.1)) => {}
            }
        }
    }

    async fn renew_once(&self, node: &Node) -> Result<(), Renewal> {
        // The usual case needs one request: the lease is as we left it.
        let writable = self.state().writable;
        if let Some(revision) = writable {
            match self.write(node, Some(revision)).await {
                Err(Error::Conflict { .. } | Error::NotFound { .. }) => self.state().writable = None,
                done => return done.map_err(Renewal::Api),
            }
        }
        let found = self.read().await.map_err(Renewal::Api)?;
        match (self.judge(&found), &found) {
            (LeaseHolder::Another(other), Live::Found(lease)) => {
                Err(Renewal::Refused(self.refused(lease, other).await))
            }
            (_, Live::Found(lease)) => self.write(node, Some(lease.meta.revision)).await.map_err(Renewal::Api),
            (_, Live::Absent) => {
                if self.absent() == AbsentLease::WatchFirst {
                    let name = node.name();
                    tracing::info!(
                        node = name,
                        "the node's lease is gone; watching for another agent that makes it again"
                    );
                    self.free().await.map_err(Renewal::Refused)?;
                }
                let writable = self.state().writable;
                // Another agent may be faster, which the next look finds.
                self.write(node, writable).await.map_err(Renewal::Api)
            }
        }
    }

    /// Writes the lease over the one of this revision, or makes it.
    async fn write(&self, node: &Node, over: Option<Revision>) -> Result<(), Error> {
        let mark = self.context.entropy.token();
        let own = {
            let mut state = self.state();
            if state.own.unanswered.len() == UNANSWERED {
                state.own.unanswered.remove(0);
            }
            state.own.unanswered.push(mark.clone());
            state.own.clone()
        };
        self.memory.store(&own);
        let sent = self.context.clock.boot();
        let now = format!("{:.6}", self.context.clock.now());
        let mut spec = json!({"holderIdentity": own.holder, "leaseDurationSeconds": SECONDS, "renewTime": now});
        let mut metadata = json!({
            "annotations": {LEASE_RENEWAL.text(): mark},
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Node", "name": node.name(), "uid": node.meta.uid.as_str(),
            }],
        });
        let client = &self.context.client;
        let written = match over {
            Some(revision) => {
                metadata["resourceVersion"] = revision.to_string().into();
                let patch = Patch::Merge(json!({"metadata": metadata, "spec": spec}));
                client.patch::<Lease>(Kind::LEASE, &self.key, &patch).await?
            }
            None => {
                spec["acquireTime"] = spec["renewTime"].clone();
                (metadata["name"], metadata["namespace"]) = (self.key.name().into(), NAMESPACE.into());
                let (version, kind) = (Kind::LEASE.api_version(), Kind::LEASE.kind);
                let body: Value = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
                client.create::<Lease>(Kind::LEASE, Some(NAMESPACE), &body).await?
            }
        };
        let own = {
            let mut state = self.state();
            let revision = written.meta.revision;
            state.own.answered = Some((mark, revision));
            state.own.unanswered.clear();
            state.writable = Some(revision);
            state.held_until = Some(sent + ACTS_FOR);
            state.own.clone()
        };
        self.memory.store(&own);
        self.renewed.notify_waiters();
        Ok(())
    }
}

enum Renewal {
    Refused(MachineError),
    Api(Error),
}
