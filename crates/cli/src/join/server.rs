//! The server's side: where machines find it, what they may do, and how its own parts behave in company.

use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;

use anyhow::Context as _;
use api::{Key, Kind, Scope};
use apiserver::auth::write_private;
use control::attacher;
use control::provision::Asking;
use control::provision::csi::SidecarOptions;
use driver_local::keys::DRIVER_NAME;
use runtime::client::{Error, Selection};
use runtime::{Client, Patch};
use serde_json::{Value, json};

use super::NAMESPACE;
use crate::stack;

/// The file in the data directory that tells where machines find the server.
pub(super) const ADDRESS: &str = "machines-address";

const RBAC: &str = "rbac.authorization.k8s.io";
const CLUSTER_ROLE: Kind = Kind::of(RBAC, "v1", "clusterroles", "ClusterRole", Scope::Cluster);
const CLUSTER_ROLE_BINDING: Kind = Kind::of(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", Scope::Cluster);
const ROLE: Kind = Kind::of(RBAC, "v1", "roles", "Role", Scope::Namespaced);
const ROLE_BINDING: Kind = Kind::of(RBAC, "v1", "rolebindings", "RoleBinding", Scope::Namespaced);

/// An address that other machines can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listen(SocketAddr);

/// Why other machines cannot be told an address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadListen {
    #[error("it is not an address with a port, such as 10.0.0.1:6444")]
    NoAddress,
    #[error(
        "it is every address of this machine, and the server's certificate has to name the one that other machines use: \
         give that one, such as 10.0.0.1:6444"
    )]
    Wildcard,
}

impl FromStr for Listen {
    type Err = BadListen;

    fn from_str(text: &str) -> Result<Self, BadListen> {
        let address: SocketAddr = text.parse().map_err(|_| BadListen::NoAddress)?;
        match address.ip().is_unspecified() {
            true => Err(BadListen::Wildcard),
            false => Ok(Self(address)),
        }
    }
}

impl Listen {
    pub(crate) fn address(self) -> SocketAddr {
        self.0
    }
}

/// Whether the local driver of this machine is the only one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Company {
    Alone,
    /// Each machine has one, for its own volumes.
    Several,
}

impl Company {
    /// There are others if they may come, or are nodes already: their volumes are theirs whatever today's flags say.
    pub(crate) async fn find(client: &Client, machines: Option<Listen>) -> anyhow::Result<Self> {
        if machines.is_some() {
            return Ok(Self::Several);
        }
        let nodes = client.list::<Value>(Kind::NODE, &Selection::default(), 0, None).await;
        let nodes = nodes.context("looking for machines that have joined")?.items;
        let own = stack::node_name();
        let others = nodes.iter().any(|node| node["metadata"]["name"] != *own);
        Ok(if others { Self::Several } else { Self::Alone })
    }

    /// The node whose claims, volumes and attachments are the local driver's here, if not all are.
    pub(crate) fn node(self) -> Option<String> {
        match self {
            Self::Alone => None,
            Self::Several => Some(stack::node_name()),
        }
    }

    /// The flags of what stands beside the local driver. A claim that waits for no pod gets its volume on this machine.
    pub(crate) fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Alone => &[],
            Self::Several => &[
                "--node-deployment",
                "--node-deployment-base-delay=0s",
                "--enable-capacity",
                "--capacity-ownerref-level=-1",
            ],
        }
    }

    pub(crate) fn settle(self, options: &mut SidecarOptions, attaching: &mut attacher::Options) {
        attaching.node = self.node();
        if self == Self::Several {
            // The journal stays the one that this machine kept when it was alone, with whatever is open in it.
            options.engine.instance = None;
            options.engine.asking = Asking::ByAnnotation;
        }
    }
}

/// How the default class binds. Where there are several machines, a volume is made where its pod goes.
pub(crate) fn binding_mode(company: Company) -> &'static str {
    match company {
        Company::Alone => "Immediate",
        Company::Several => "WaitForFirstConsumer",
    }
}

/// Says so if a class of the local driver was made when this machine was alone.
pub(crate) async fn warn_of_class(client: &Client, class: &str) -> anyhow::Result<()> {
    let read = client.get::<Value>(Kind::STORAGE_CLASS, &Key::cluster(class)).await;
    let object = read.with_context(|| format!("reading the class {class:?}"))?;
    if object["volumeBindingMode"] != binding_mode(Company::Several) {
        tracing::warn!(
            class,
            "the class binds at once, so its volumes are made on this machine and pods with them stay here; for volumes \
             of other machines make one with volumeBindingMode: WaitForFirstConsumer"
        );
    }
    Ok(())
}

/// Tells `orlop token create` where machines find the server, or that they do not.
pub(crate) fn note_address(data: &Path, address: Option<SocketAddr>) -> anyhow::Result<()> {
    let file = data.join(ADDRESS);
    match address {
        Some(address) => {
            write_private(&file, format!("{address}\n").as_bytes()).context("noting the machines' address")
        }
        None => match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("removing {}", file.display()))
            }
            _ => Ok(()),
        },
    }
}

/// Puts there what machines need before one can join: a namespace for their intents, and their rights.
pub(crate) async fn prepare(client: &Client) -> anyhow::Result<()> {
    for (kind, key, body) in objects() {
        let mut body = body;
        body["apiVersion"] = kind.api_version().into();
        body["kind"] = kind.kind.into();
        body["metadata"]["name"] = key.name().into();
        let what = format!("{} {}", kind.kind, key.name());
        let applied = client.patch::<Value>(kind, &key, &Patch::Apply { body, force: true }).await;
        applied.with_context(|| format!("making the {what} for other machines"))?;
    }
    tell_room(client).await.context("telling the scheduler that machines say how much room they have")
}

/// Each machine says how much room its pool has, and the scheduler goes by that. Whoever has described the driver before
/// is not contradicted: some of it cannot be changed.
async fn tell_room(client: &Client) -> Result<(), Error> {
    let kind = Kind::CSI_DRIVER;
    let mut body = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": DRIVER_NAME},
        "spec": {"storageCapacity": true, "volumeLifecycleModes": ["Persistent", "Ephemeral"]}});
    match client.create::<Value>(kind, None, &body).await {
        Err(Error::AlreadyExists { .. }) => {
            body["spec"] = json!({"storageCapacity": true});
            let apply = Patch::Apply { body, force: true };
            client.patch::<Value>(kind, &Key::cluster(DRIVER_NAME), &apply).await.map(drop)
        }
        made => made.map(drop),
    }
}

fn objects() -> Vec<(Kind, Key, Value)> {
    let binding = |role: &str, name: &str, group: &str| {
        json!({"roleRef": {"apiGroup": RBAC, "kind": role, "name": name},
            "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": group}]})
    };
    let (machine, agent) = ("orlop:machine", "orlop:node-agent");
    let own = |name: &str| Key::namespaced(NAMESPACE, name);
    vec![
        (Kind::NAMESPACE, Key::cluster(NAMESPACE), json!({})),
        (CLUSTER_ROLE, Key::cluster(machine), json!({"rules": machine_rules()})),
        (CLUSTER_ROLE_BINDING, Key::cluster(machine), binding("ClusterRole", machine, "orlop:machines")),
        (ROLE, own(machine), json!({"rules": namespace_rules()})),
        (ROLE_BINDING, own(machine), binding("Role", machine, "orlop:machines")),
        (CLUSTER_ROLE, Key::cluster(agent), json!({"rules": agent_rules()})),
        (CLUSTER_ROLE_BINDING, Key::cluster(agent), binding("ClusterRole", agent, "system:nodes")),
    ]
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

const FOLLOW: [&str; 3] = ["get", "list", "watch"];

/// Intents, and how much room there is.
fn namespace_rules() -> Vec<Value> {
    vec![
        rule("", &["configmaps"], &["get", "list", "create", "patch"]),
        rule("storage.k8s.io", &["csistoragecapacities"], &["get", "list", "watch", "create", "patch", "delete"]),
    ]
}

/// What a provisioner and an attacher of a machine need, which a node may not. The server lets each write only about its
/// own volumes (`apiserver::admission`). No secrets: classes that name some are for
/// drivers beside the server.
fn machine_rules() -> Vec<Value> {
    let storage = "storage.k8s.io";
    let snapshots = "snapshot.storage.k8s.io";
    vec![
        rule("", &["persistentvolumes"], &["get", "list", "watch", "create", "patch", "delete"]),
        rule("", &["persistentvolumeclaims"], &["get", "list", "watch", "patch"]),
        rule("", &["nodes"], &["get"]),
        rule("", &["events"], &["create", "patch"]),
        rule("events.k8s.io", &["events"], &["create", "patch"]),
        rule(storage, &["storageclasses", "csinodes", "volumeattributesclasses"], &FOLLOW),
        rule(storage, &["volumeattachments"], &["get", "list", "watch", "patch"]),
        rule(storage, &["volumeattachments/status"], &["patch"]),
        rule(snapshots, &["volumesnapshots"], &["get", "list", "watch", "patch"]),
        rule(snapshots, &["volumesnapshotcontents"], &["get"]),
    ]
}

/// What our agent follows beyond what the node authorizer lets a node read: it waits for changes and does not ask again
/// and again.
fn agent_rules() -> Vec<Value> {
    vec![
        rule("", &["persistentvolumes", "persistentvolumeclaims"], &["list", "watch"]),
        rule("storage.k8s.io", &["csinodes", "volumeattachments"], &["list", "watch"]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_names_no_machine_is_refused_with_what_to_give() {
        for (text, says) in
            [("0.0.0.0:6444", "every address"), ("[::]:6444", "every address"), ("10.0.0.1", "with a port")]
        {
            let error = text.parse::<Listen>().expect_err(text).to_string();
            assert!(error.contains(says) && error.contains("10.0.0.1:6444"), "{error}");
        }
        assert!("10.0.0.1:0".parse::<Listen>().is_ok());
    }

    #[test]
    fn the_server_knows_the_driver_of_machines() {
        use apiserver::auth::{MACHINE_DRIVER, MACHINE_TOPOLOGY};
        assert_eq!(DRIVER_NAME, MACHINE_DRIVER);
        assert_eq!(driver_local::keys::topology_key(DRIVER_NAME), MACHINE_TOPOLOGY);
    }

    #[test]
    fn no_machine_may_read_a_secret_or_write_a_node() {
        let rules = machine_rules().into_iter().chain(agent_rules()).chain(namespace_rules());
        for rule in rules {
            let resources = rule["resources"].as_array().expect("a list");
            assert!(!resources.iter().any(|one| one == "secrets" || one == "*"), "{rule}");
            let reads =
                rule["verbs"].as_array().expect("a list").iter().all(|verb| FOLLOW.iter().any(|one| verb == one));
            assert!(reads || !resources.iter().any(|one| one == "nodes"), "{rule}");
        }
    }
}
