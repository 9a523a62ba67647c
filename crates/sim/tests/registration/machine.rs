//! The Node of a machine without kubelet (NODE-4.1).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::keys::{annotation, label};
use api::{Key, Kind, Node};
use futures_util::future::join;
use lifecycle::registration::lease::AgentIdentity;
use node::drivers::Drivers;
use node::registry::machine::{Machine, MachineError, Options};
use node::registry::{self, Registry};
use runtime::Stop;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::stage::{NODE, Stage, Start, at_every_request, play};

type Ended = Arc<Mutex<Option<String>>>;

/// An agent of a machine; clones of it differ in their boots alone.
pub(crate) fn identity(boot: &str) -> AgentIdentity {
    AgentIdentity { place: "host-a".to_owned(), machine: "machine-1".to_owned(), boot: boot.to_owned() }
}

fn is_ours(lease: &Value) -> bool {
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    holder.starts_with("orlop/host-a_machine-1_boot-1_")
}

/// The agent's half of the Node, with the registry that says when it is ready.
fn agent(ended: &Ended) -> Start {
    let ended = ended.clone();
    Arc::new(move |context, stage| {
        registry::narrow(&context.caches, NODE);
        let options = registry::Options::new(NODE, std::path::Path::new("/nowhere"));
        let drivers = Drivers::default();
        let registry = Arc::new(Registry::with(&context, drivers.clone(), Arc::new(stage.shelf.clone()), options));
        stage.alive(drivers, registry.clone());
        let machine = Machine::new(&context, Options::new(NODE, identity("boot-1")), registry.readiness());
        let ended = ended.clone();
        Box::pin(async move {
            let stop = Stop::never();
            // Whatever the scenario begins with is there when the agent comes.
            sleep(Duration::from_secs(1)).await;
            let keeping = async {
                if let Err(MachineError::Refused(refusal)) = machine.run(&stop).await {
                    *ended.lock().expect("nobody panicked") = Some(refusal.holder);
                }
            };
            join(keeping, machine.while_held(&stop, registry.run(&stop))).await;
        })
    })
}

pub(crate) fn ready(node: &Value) -> &Value {
    let conditions = node["status"]["conditions"].as_array();
    conditions.and_then(|all| all.iter().find(|condition| condition["type"] == "Ready")).unwrap_or(&Value::Null)
}

pub(crate) fn lease() -> Key {
    Key::namespaced("kube-node-lease", NODE)
}

/// Rule: NODE-4.1
#[test]
fn a_bare_machine_gets_a_node_that_is_ready_once_it_has_a_csinode_at_every_fault() {
    let ended = Ended::default();
    at_every_request(&agent(&ended), async |stage: &Stage| {
        let done = async || {
            let node = stage.user.our(Kind::NODE).await;
            ready(&node)["status"] == "True" && node["spec"]["taints"].is_null()
        };
        stage.user.until("it is ready and untainted", done).await;
        let node = stage.user.our(Kind::NODE).await;
        let labels = &node["metadata"]["labels"];
        assert_eq!(labels[label::HOSTNAME.text()], NODE);
        assert_eq!(labels[label::OS.text()], "linux");
        assert_eq!(node["metadata"]["annotations"][annotation::MANAGED_ATTACH.text()], "true");
        assert!(node["status"]["allocatable"]["pods"].is_string(), "a scheduler can count: {}", node["status"]);
        assert!(!stage.user.our(Kind::CSI_NODE).await.is_null());
        let held = async || {
            let lease = stage.user.get(Kind::LEASE, &lease()).await.unwrap_or_default();
            is_ours(&lease)
        };
        stage.user.until("it has a lease", held).await;
        // A renewal whose answer was lost is no other machine's.
        sleep(Duration::from_secs(60)).await;
        assert_eq!(*ended.lock().expect("nobody panicked"), None);
    });
}

#[test]
fn the_status_of_others_is_left_alone_and_the_lease_is_renewed() {
    play(&agent(&Ended::default()), async |stage: &Stage| {
        let status = json!({"volumesInUse": ["v"], "capacity": {"pods": "5"},
            "conditions": [{"type": "MemoryPressure", "status": "False"}]});
        stage.user.create(Kind::NODE, json!({"metadata": {"name": NODE}, "status": status})).await;
        stage.user.until("ready", async || ready(&stage.user.our(Kind::NODE).await)["status"] == "True").await;
        let node = stage.user.our(Kind::NODE).await;
        assert_eq!(node["status"]["volumesInUse"], json!(["v"]));
        assert_eq!(node["status"]["capacity"], json!({"pods": "5"}));
        assert_eq!(node["status"]["conditions"].as_array().map(Vec::len), Some(2));
        let since = ready(&node)["lastTransitionTime"].clone();
        let renewed =
            async || stage.user.get(Kind::LEASE, &lease()).await.unwrap_or_default()["spec"]["renewTime"].clone();
        let first = renewed().await;
        sleep(Duration::from_secs(700)).await;
        assert_ne!(renewed().await, first);
        let node = stage.user.our(Kind::NODE).await;
        assert_eq!(ready(&node)["lastTransitionTime"], since);
        assert_ne!(ready(&node)["lastHeartbeatTime"], since, "it is said again every few minutes");
    });
}

async fn foreign_lease(stage: &Stage) {
    let spec = json!({"holderIdentity": NODE, "leaseDurationSeconds": 40, "renewTime": "2027-01-01T00:00:00.000000Z"});
    stage
        .user
        .create(Kind::LEASE, json!({"metadata": {"name": NODE, "namespace": "kube-node-lease"}, "spec": spec}))
        .await;
}

#[test]
fn a_node_that_a_kubelet_keeps_is_refused_and_nothing_of_it_is_written() {
    let ended = Ended::default();
    play(&agent(&ended), async |stage: &Stage| {
        foreign_lease(stage).await;
        stage.user.node(json!({})).await;
        for second in 0..12 {
            sleep(Duration::from_secs(10)).await;
            let renewed = json!({"spec": {"renewTime": format!("2027-01-01T00:01:{second:02}.000000Z")}});
            stage.user.patch(Kind::LEASE, &lease(), renewed).await;
        }
        assert_eq!(ended.lock().expect("nobody panicked").as_deref(), Some(NODE));
        let node = stage.user.our(Kind::NODE).await;
        assert!(ready(&node).is_null() && node["metadata"]["labels"][label::OS.text()].is_null(), "{node}");
    });
}

#[test]
fn a_kubelet_that_starts_later_ends_the_agent() {
    let ended = Ended::default();
    play(&agent(&ended), async |stage: &Stage| {
        stage.user.until("ready", async || ready(&stage.user.our(Kind::NODE).await)["status"] == "True").await;
        let kept = async || stage.user.get(Kind::LEASE, &lease()).await.is_some();
        stage.user.until("it has a lease", kept).await;
        for second in 0..12 {
            let renewed = format!("2027-01-01T00:01:{second:02}.000000Z");
            let taken = json!({"spec": {"holderIdentity": NODE, "renewTime": renewed}});
            stage.user.patch(Kind::LEASE, &lease(), taken).await;
            sleep(Duration::from_secs(10)).await;
        }
        assert_eq!(ended.lock().expect("nobody panicked").as_deref(), Some(NODE));
    });
}

#[test]
fn a_lease_that_nobody_renews_is_taken_over() {
    let ended = Ended::default();
    play(&agent(&ended), async |stage: &Stage| {
        foreign_lease(stage).await;
        stage.user.until("ready", async || ready(&stage.user.our(Kind::NODE).await)["status"] == "True").await;
        let ours = async || is_ours(&stage.user.get(Kind::LEASE, &lease()).await.unwrap_or_default());
        stage.user.until("the lease is ours", ours).await;
        assert!(ended.lock().expect("nobody panicked").is_none());
    });
}

#[test]
fn a_node_that_somebody_deletes_is_not_brought_back_by_the_same_life() {
    play(&agent(&Ended::default()), async |stage: &Stage| {
        stage.user.until("ready", async || ready(&stage.user.our(Kind::NODE).await)["status"] == "True").await;
        stage.user.delete::<Node>(&Key::cluster(NODE)).await;
        sleep(Duration::from_secs(600)).await;
        assert!(stage.user.our(Kind::NODE).await.is_null());
    });
}
