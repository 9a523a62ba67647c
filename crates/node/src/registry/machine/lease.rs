//! The node's lease: a sign of life, and who gives it.

use std::time::Duration;

use api::{Key, Kind, Lease, Node};
use lifecycle::registration::machine::{Keeper, keeper};
use runtime::client::Error;
use runtime::{Context, Live, Patch, Stop};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::MachineError;

/// Where leases of nodes are.
const NAMESPACE: &str = "kube-node-lease";
/// As a kubelet's.
const SECONDS: u64 = 40;
const RENEW: Duration = Duration::from_secs(10);
/// How often the lease of somebody else is looked at.
const LOOK: Duration = Duration::from_secs(2);

/// A node's lease, and how we sign it.
#[derive(Debug)]
pub(super) struct NodeLease {
    context: Context,
    key: Key,
    holder: String,
}

impl NodeLease {
    pub(super) fn new(context: &Context, node: &str, holder: &str) -> Self {
        Self { context: context.clone(), key: Key::namespaced(NAMESPACE, node), holder: holder.to_owned() }
    }

    /// The lease past every cache: a watch of all leases would be a high price for one.
    async fn read(&self) -> Result<Live<Lease>, Error> {
        match self.context.client.get::<Lease>(Kind::LEASE, &self.key).await {
            Ok(lease) => Ok(Live::Found(lease.into())),
            Err(error) if error.is_not_found() => Ok(Live::Absent),
            Err(error) => Err(error),
        }
    }

    /// Waits until nobody else looks after the node. Somebody who renews the lease while we watch does.
    pub(super) async fn free(&self) -> Result<(), MachineError> {
        let mut watched: Option<(Lease, Instant)> = None;
        loop {
            match self.read().await {
                Ok(Live::Found(lease))
                    if keeper(Live::Found(lease.clone()).lookup(), &self.holder) == Keeper::Another =>
                {
                    match &watched {
                        Some((first, since)) if first.meta.revision == lease.meta.revision => {
                            let patience = u64::try_from(lease.seconds).unwrap_or(0).max(SECONDS);
                            if since.elapsed() >= Duration::from_secs(patience) {
                                tracing::info!(
                                    holder = &*lease.holder,
                                    "the node's lease has expired and is taken over"
                                );
                                return Ok(());
                            }
                        }
                        Some(_) => return Err(self.kept_by(&lease)),
                        None => {
                            tracing::info!(
                                holder = &*lease.holder,
                                "somebody looked after this node; watching whether he still does"
                            );
                            watched = Some((Lease::clone(&lease), Instant::now()));
                        }
                    }
                }
                Ok(Live::Found(_) | Live::Absent) => return Ok(()),
                Err(error) => tracing::warn!(%error, "reading the node's lease"),
            }
            sleep(LOOK).await;
        }
    }

    fn kept_by(&self, lease: &Lease) -> MachineError {
        MachineError::Kept { node: self.key.name().to_owned(), holder: lease.holder.to_string() }
    }

    /// Renews the lease until `stop`, while the node exists.
    pub(super) async fn renew(&self, stop: &Stop) -> Result<(), MachineError> {
        let nodes = self.context.cache::<Node>();
        let node = Key::cluster(self.key.name());
        loop {
            let found = nodes.get(&node);
            // A node that is about to be made gets its lease soon after.
            let wait = if found.is_some() { RENEW } else { LOOK };
            if let Some(node) = found {
                match self.renew_once(&node).await {
                    Ok(()) => {}
                    Err(Renewal::Kept(error)) => return Err(error),
                    Err(Renewal::Api(error)) => tracing::warn!(%error, "renewing the node's lease"),
                }
            }
            tokio::select! {
                biased;
                () = stop.stopped() => return Ok(()),
                () = sleep(self.context.entropy.shorter(wait, 0.1)) => {}
            }
        }
    }

    async fn renew_once(&self, node: &Node) -> Result<(), Renewal> {
        let now = self.context.clock.now();
        let mut spec = json!({
            "holderIdentity": self.holder,
            "leaseDurationSeconds": SECONDS,
            "renewTime": format!("{now:.6}"),
        });
        match self.read().await.map_err(Renewal::Api)? {
            Live::Absent => {
                spec["acquireTime"] = spec["renewTime"].clone();
                let body = self.body(node, &spec);
                self.context.client.create::<Value>(Kind::LEASE, Some(NAMESPACE), &body).await.map_err(Renewal::Api)?;
            }
            Live::Found(lease) => {
                let fresh = keeper(Live::Found(lease.clone()).lookup(), &self.holder) == Keeper::Another;
                if fresh && self.is_renewed(&lease).await {
                    return Err(Renewal::Kept(self.kept_by(&lease)));
                }
                let revision = lease.meta.revision.to_string();
                let metadata = json!({"resourceVersion": revision, "ownerReferences": [owner(node)]});
                let patch = Patch::Merge(json!({"metadata": metadata, "spec": spec}));
                // A conflict is somebody else's renewal, which the next look finds.
                self.context.client.patch::<Value>(Kind::LEASE, &self.key, &patch).await.map_err(Renewal::Api)?;
            }
        }
        Ok(())
    }

    /// Whether somebody else's lease is alive: it changes while we look.
    async fn is_renewed(&self, seen: &Lease) -> bool {
        let until = Instant::now() + Duration::from_secs(SECONDS);
        while Instant::now() < until {
            sleep(LOOK).await;
            if let Ok(Live::Found(lease)) = self.read().await
                && lease.meta.revision != seen.meta.revision
            {
                return true;
            }
        }
        false
    }

    fn body(&self, node: &Node, spec: &Value) -> Value {
        json!({
            "apiVersion": Kind::LEASE.api_version(), "kind": Kind::LEASE.kind,
            "metadata": {"name": self.key.name(), "namespace": NAMESPACE, "ownerReferences": [owner(node)]},
            "spec": spec,
        })
    }
}

enum Renewal {
    Kept(MachineError),
    Api(Error),
}

fn owner(node: &Node) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "name": node.name(), "uid": node.meta.uid.as_str()})
}
