//! Volumes that are bound and not well, and machines that are lost or have one name.

use api::{Claim, Event, Node, Pod, Volume};
use serde_json::{Value, json};

use super::{EARLIER, LATELY, Picture, check, empty, event, pod, row, seen};
use crate::bind::tests::{COMPLETED, annotated, bond, claim, over, read, volume};
use crate::decision::Standing::{Settled, Stuck, Waiting};
use crate::explain;
use crate::health::{ABNORMAL_EVENT, ABNORMAL_REASON, NORMAL_EVENT};
use crate::registration::lease::{LeaseRefusal, OtherHolder};

const LOST: &str = "writes were lost: writing the filesystem to its device failed at 2026-01-02T03:00:00Z (no space left on \
     device). What was written before may be missing or damaged. Check the data, or restore it; then clear this with `orlop \
     driver accept-loss vol-a7 --pool /srv/pool`";
const MISSING: &str = "pool missing: \"default\" is not at /srv/pool: the directory holds no pool.json; mount its disk, or \
     forget it if it is gone for good: orlop driver --state-dir /var/lib/orlop/state --forget-pool /srv/pool";
const FULL: &str = "pool full: \"default\" at /srv/pool has 20 MiB left; thin volumes that are mounted stay frozen until space \
     is freed";
const NEARLY: &str = "pool nearly full: \"default\" at /srv/pool has 48 MiB left, and its volumes may still need 2 GiB";

fn bound(said: Option<&str>) -> Claim {
    let kind = api::keys::condition::VOLUME_ABNORMAL;
    let conditions = said.map(|message| {
        json!([{"type": kind, "status": "True", "reason": "R", "message": message, "lastTransitionTime": EARLIER}])
    });
    let status = json!({"status": {"phase": "Bound", "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"],
        "conditions": conditions}});
    claim(over(over(annotated(&[COMPLETED]), json!({"spec": {"volumeName": "v"}})), status))
}

/// A volume of one machine.
fn held() -> Volume {
    let terms = json!([{"matchExpressions": [{"key": "machine", "operator": "In", "values": ["node-1"]}]}]);
    let affinity = json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}});
    volume("v", over(over(bond(), affinity), json!({"status": {"phase": "Bound"}})))
}

fn machine(name: &str, ready: Value) -> Node {
    let managed = api::keys::annotation::MANAGED_ATTACH.text();
    let condition = over(json!({"type": "Ready", "lastHeartbeatTime": EARLIER, "lastTransitionTime": LATELY}), ready);
    read(json!({"metadata": {"name": name, "labels": {"machine": name}, "annotations": {managed: "true"}},
        "status": {"conditions": [condition]}}))
}

fn around<const N: usize>(claim: &Claim, pods: [Pod; N]) -> Picture {
    let unattached: api::CsiDriver = read(json!({"metadata": {"name": "d"}, "spec": {"attachRequired": false}}));
    let csi_node =
        |name: &str| read(json!({"metadata": {"name": name}, "spec": {"drivers": [{"name": "d", "nodeID": "1"}]}}));
    Picture {
        pods: seen(pods),
        volumes: seen([held()]),
        claims: seen([claim.clone()]),
        drivers: seen([unattached]),
        nodes: seen([machine("node-1", json!({"status": "True"})), machine("node-2", json!({"status": "True"}))]),
        csi_nodes: seen([csi_node("node-1"), csi_node("node-2")]),
        ..empty()
    }
}

/// A pod on node-1 of which an agent of ours says this.
fn web(status: &str, reason: &str, message: &str) -> Pod {
    let kind = api::keys::condition::VOLUMES_READY;
    let conditions = json!([{"type": kind, "status": status, "reason": reason, "message": message}]);
    pod("web", json!({"spec": {"nodeName": "node-1"}, "status": {"conditions": conditions}}))
}

#[test]
fn a_volume_that_is_not_well_is_told_of_claim_volume_and_pod_with_what_to_do() {
    let claimed = |said: &str| explain::claim(&around(&bound(Some(said)), []), &bound(Some(said)));
    let lost = bound(Some(LOST));
    let mounted = web("True", "Mounted", "");
    let stays = web("True", ABNORMAL_REASON, &format!("data: {LOST}"));
    let waits = web("False", "Failed", &format!("data: /csi.v1.Node/NodeStageVolume: Unavailable: {MISSING}"));
    check(
        "conditions.txt",
        &[
            row("a volume lost writes", claimed(LOST), Stuck, "around/writes_lost"),
            row("the same of the volume", explain::volume(&around(&lost, []), &held()), Stuck, "around/writes_lost"),
            row(
                "the same of a pod",
                explain::pod(&around(&lost, [mounted.clone()]), &mounted),
                Stuck,
                "around/writes_lost",
            ),
            row(
                "the same, said by the agent alone",
                explain::claim(&around(&bound(None), [stays.clone()]), &bound(None)),
                Stuck,
                "around/writes_lost",
            ),
            row("its pool is missing", claimed(MISSING), Waiting, "around/pool_missing"),
            row(
                "its pool is missing, and a pod waits",
                explain::pod(&around(&bound(None), [waits.clone()]), &waits),
                Waiting,
                "around/pool_missing",
            ),
            row("its pool is full", claimed(FULL), Waiting, "around/pool_full"),
            row("its pool is nearly full", claimed(NEARLY), Waiting, "around/pool_nearly_full"),
            row("another driver's words", claimed("the array is degraded"), Waiting, "around/volume_abnormal"),
        ],
    );
}

#[test]
fn events_of_kubelet_and_of_health_monitors_count_while_they_are_new() {
    let about = |kind: &str, (name, uid): (&str, &str), reason: &str, message: &str, at: &str| -> Event {
        let mut said = event(kind, (name, uid), reason, message);
        said.last = serde_json::from_value(json!(at)).expect("a time");
        said
    };
    let claim = bound(None);
    let on_claim =
        |reason: &str, at: &str| about("PersistentVolumeClaim", ("c", "claim-uid"), reason, "disk is failing", at);
    let running = pod("web", json!({"spec": {"nodeName": "node-1"}, "status": {"phase": "Running"}}));
    let on_pod = |message: &str, at: &str| about("Pod", ("web", "web-uid"), ABNORMAL_EVENT, message, at);
    let code = |events: Vec<Event>| {
        let picture = Picture { events: explain::Listing::Seen(events), ..around(&claim, [running.clone()]) };
        let told = explain::claim(&picture, &claim);
        told.root().map(|link| link.code).unwrap_or_default()
    };
    assert_eq!(code(vec![on_claim(ABNORMAL_EVENT, LATELY)]), "volume_abnormal");
    assert_eq!(code(vec![on_claim(ABNORMAL_EVENT, EARLIER)]), "bound", "an hour ago");
    assert_eq!(code(vec![on_claim(ABNORMAL_EVENT, EARLIER), on_claim(NORMAL_EVENT, LATELY)]), "bound");
    assert_eq!(code(vec![on_pod("Volume data: disk is failing", LATELY)]), "volume_abnormal");
    assert_eq!(code(vec![on_pod("Volume logs: disk is failing", LATELY)]), "bound", "another volume of the pod");
    assert_eq!(code(vec![on_pod("Volume data: pool full: \"p\" has 1 left", LATELY)]), "pool_full");
}

#[test]
fn of_several_volumes_of_a_pod_each_has_its_own_words() {
    let two = json!({"spec": {"volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "data-2", "csi": {"driver": "d"}},
    ]}});
    let said = |message: &str| {
        let mut pod = web("True", ABNORMAL_REASON, message);
        let more: Pod = super::pod("web", two.clone());
        pod.volumes = more.volumes;
        let told = explain::pod(&around(&bound(None), [pod.clone()]), &pod);
        let found = told.chain.iter().filter(|link| link.step.name() == "around");
        found.map(|link| link.sentence.clone()).collect::<Vec<_>>()
    };
    let both = said("data: one; and more; data-2: two");
    assert_eq!(both, ["the driver says of volume \"v\": one; and more", "the driver says of volume \"data-2\": two"]);
    assert_eq!(said("data-2: two"), ["the driver says of volume \"data-2\": two"]);
}

#[test]
fn a_lost_machine_and_two_machines_of_one_name_are_named_with_what_to_do() {
    let claim = bound(None);
    let ready = web("True", "Mounted", "");
    let lost = |pods: Vec<Pod>| Picture {
        nodes: seen([machine("node-1", json!({"status": "Unknown"})), machine("node-2", json!({"status": "True"}))]),
        leases: seen([read(json!({"metadata": {"name": "node-1", "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": "node-1", "leaseDurationSeconds": 40, "renewTime": EARLIER}}))]),
        pods: explain::Listing::Seen(pods),
        ..around(&claim, [])
    };
    let holder = "orlop/alpha_1_2_3_4".to_owned();
    let refusal = LeaseRefusal { node: "node-1".to_owned(), holder, other: OtherHolder::OnAnotherMachine };
    let told: Event = read(json!({
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": "node-1"}, "type": "Warning", "reason": "NodeNameInUse",
        "message": refusal.to_string(), "count": 3, "lastTimestamp": LATELY, "source": {"component": "orlop-node"},
    }));
    let twice = Picture { node_events: seen([told]), ..around(&claim, [ready.clone()]) };
    check(
        "machines.txt",
        &[
            row(
                "a pod on a lost machine",
                explain::pod(&lost(vec![ready.clone()]), &ready),
                Waiting,
                "around/node_lost",
            ),
            row(
                "a claim on a lost machine",
                explain::claim(&lost(vec![ready.clone()]), &claim),
                Waiting,
                "around/node_lost",
            ),
            row("a volume of a lost machine", explain::volume(&lost(vec![]), &held()), Waiting, "around/node_lost"),
            row("two machines, one name: a pod", explain::pod(&twice, &ready), Stuck, "around/node_name_in_use"),
            row("two machines, one name: a claim", explain::claim(&twice, &claim), Stuck, "around/node_name_in_use"),
            row("all is well", explain::claim(&around(&claim, [ready.clone()]), &claim), Settled, "bind/bound"),
        ],
    );
}
