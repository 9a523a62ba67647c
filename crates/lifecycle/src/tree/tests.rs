//! One cluster with everything that a tree can show, as text, as wide text and as JSON, compared with files in `golden`.

use api::object::UnixSeconds;
use api::{Attachment, Claim, CsiNode, Node, Pod, Volume, Word};
use serde_json::{Value, json};

use super::*;
use crate::attach::{attachment_name, unique_name};
use crate::bind::tests::{COMPLETED, annotated, class, over, read};
use crate::explain::{Begun, Listing, Picture};
use crate::measured::Usages;
use crate::table::tests::golden;
use crate::table::{Look, Paint};

/// 2026-01-02T04:04:05Z, an hour after [`EARLIER`].
const NOW: UnixSeconds = UnixSeconds(1_767_326_645);
const EARLIER: &str = "2026-01-02T03:04:05Z";
const DRIVER: &str = "d.example.com";

fn seen<T>(items: Vec<T>) -> Listing<T> {
    Listing::Seen(items)
}

fn meta(namespace: &str, name: &str) -> Value {
    json!({"namespace": namespace, "name": name, "uid": format!("{name}-uid"), "creationTimestamp": EARLIER})
}

fn claim(namespace: &str, name: &str, volume: &str) -> Claim {
    let base = json!({
        "metadata": meta(namespace, name),
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                 "resources": {"requests": {"storage": "2Gi"}}},
        "status": {"phase": "Pending"},
    });
    let bound = json!({"spec": {"volumeName": volume}, "status": {
        "phase": "Bound", "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"]}});
    let bound = over(annotated(&[COMPLETED]), bound);
    read(if volume.is_empty() { base } else { over(base, bound) })
}

fn volume(name: &str, claim: Option<(&str, &str)>, phase: &str) -> Volume {
    let mut base = json!({
        "metadata": {"name": name, "uid": format!("{name}-uid"), "creationTimestamp": EARLIER},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "capacity": {"storage": "2Gi"},
                 "persistentVolumeReclaimPolicy": "Retain", "csi": {"driver": DRIVER, "volumeHandle": name}},
        "status": {"phase": phase},
    });
    if let Some((namespace, name)) = claim {
        base["spec"]["claimRef"] = json!({"namespace": namespace, "name": name, "uid": format!("{name}-uid")});
    }
    read(base)
}

fn attachment(volume: &str, node: &str, patch: Value) -> Attachment {
    let base = json!({
        "metadata": {"name": attachment_name(DRIVER, volume, node), "creationTimestamp": EARLIER},
        "spec": {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": volume}},
        "status": {"attached": true},
    });
    read(over(base, patch))
}

fn node(name: &str, volumes: &[&str]) -> Node {
    let managed = api::keys::annotation::MANAGED_ATTACH.text();
    let names: Vec<String> = volumes.iter().map(|volume| unique_name(DRIVER, volume)).collect();
    let attached: Vec<Value> = names.iter().map(|name| json!({"name": name, "devicePath": ""})).collect();
    read(json!({
        "metadata": {"name": name, "annotations": {managed: "true"}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "volumesAttached": attached,
                   "volumesInUse": names},
    }))
}

fn pod(name: &str, claim: &str, node: &str, ready: Option<(&str, &str)>) -> Pod {
    let mut base = json!({
        "metadata": meta("shop", name),
        "spec": {"nodeName": node, "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]},
        "status": {"phase": "Pending"},
    });
    if let Some((status, message)) = ready {
        let kind = api::keys::condition::VOLUMES_READY;
        base["status"]["conditions"] = json!([{"type": kind, "status": status, "reason": "R", "message": message}]);
    }
    read(base)
}

/// A namespace with a claim in each state, and what no claim has.
fn cluster() -> Picture {
    let driver = json!({"name": DRIVER, "nodeID": "1", "allocatable": {"count": 4}});
    let csi_node = |name: &str| read::<CsiNode>(json!({"metadata": {"name": name}, "spec": {"drivers": [driver]}}));
    let error = json!({"status": {"attached": false, "attachError": {"message": "disk is on\u{1b}[31m fire"}}});
    Picture {
        now: NOW,
        claims: seen(vec![
            claim("shop", "ready", "v-ready"),
            claim("shop", "moving", "v-moving"),
            claim("shop", "burning", "v-burning"),
            claim("shop", "waiting", ""),
            claim("shop", "lost", "v-lost"),
            claim("other", "elsewhere", "v-elsewhere"),
        ]),
        volumes: seen(vec![
            volume("v-ready", Some(("shop", "ready")), "Bound"),
            volume("v-moving", Some(("shop", "moving")), "Bound"),
            volume("v-burning", Some(("shop", "burning")), "Bound"),
            volume("v-elsewhere", Some(("other", "elsewhere")), "Bound"),
            volume("v-free", None, "Available"),
            volume("v-kept", Some(("shop", "deleted")), "Released"),
        ]),
        classes: seen(vec![class("slow", json!({}))]),
        pods: seen(vec![
            pod("web-0", "ready", "node-1", Some(("True", ""))),
            pod("web-1", "ready", "node-1", Some(("False", "staging v-ready"))),
            pod("mover", "moving", "node-2", None),
            pod("smoke", "burning", "node-2", None),
            pod("dreamer", "waiting", "", None),
        ]),
        nodes: seen(vec![node("node-1", &["v-ready", "v-moving"]), node("node-2", &[])]),
        csi_nodes: seen(vec![csi_node("node-1"), csi_node("node-2")]),
        drivers: seen(Vec::new()),
        attachments: seen(vec![
            attachment("v-ready", "node-1", json!({})),
            attachment("v-moving", "node-1", json!({})),
            attachment("v-burning", "node-2", error),
            attachment("v-gone", "node-3", json!({})),
        ]),
        capacities: seen(Vec::new()),
        quotas: Listing::NotAsked,
        leases: seen(Vec::new()),
        events: seen(Vec::new()),
        node_events: seen(Vec::new()),
        snapshots: Listing::NotServed,
        grants: Listing::NotAsked,
        intents: seen(vec![
            begun("waiting-uid", Some(("shop", "waiting")), "pvc-waiting"),
            begun("vanished-uid", Some(("shop", "vanished")), "pvc-vanished"),
            begun("nameless-uid", None, "pvc-nameless"),
        ]),
        namespaces: seen(Vec::new()),
    }
}

fn begun(uid: &str, claim: Option<(&str, &str)>, volume: &str) -> Begun {
    let key = claim.map(|(namespace, name)| Key::namespaced(namespace, name));
    Begun { claim: uid.into(), key, by: Word::new(DRIVER), volume: volume.into(), node: None }
}

fn usages() -> Usages {
    let mut usages = Usages::default();
    let labels = r#"{namespace="shop",persistentvolumeclaim="ready"}"#;
    usages.add(&format!("kubelet_volume_stats_used_bytes{labels} 90\nkubelet_volume_stats_capacity_bytes{labels} 100"));
    usages
}

fn scope(namespace: Option<&str>, claims: &[&str]) -> Scope {
    Scope { namespace: namespace.map(Into::into), claims: claims.iter().map(|name| (*name).into()).collect() }
}

#[test]
fn everything_is_shown_once_and_under_whom_it_belongs() {
    let tree = grow(&cluster(), &usages(), scope(None, &[]));
    golden("tree/golden/all.txt", &tree.text(Look::PLAIN));
    golden("tree/golden/all_wide.txt", &tree.text(Look::WIDE));
    golden("tree/golden/all.json", &format!("{:#}\n", tree.value()));
    assert!(!tree.settled());
}

#[test]
fn a_volume_that_lost_writes_and_a_lost_machine_are_marked_once() {
    let kind = api::keys::condition::VOLUME_ABNORMAL;
    let said = "writes were lost: syncing failed at 2026-01-02T03:00:00Z (EIO). What was written before may be missing";
    let mut picture = cluster();
    let mut marked = claim("shop", "ready", "v-ready");
    let condition = json!({"type": kind, "status": "True", "message": said});
    marked.status.abnormal = claim_status(json!({"conditions": [condition]})).abnormal;
    picture.claims = seen(vec![marked, claim("shop", "burning", "v-burning")]);
    picture.pods = seen(vec![
        pod("web-0", "ready", "node-1", Some(("True", ""))),
        pod("smoke", "burning", "node-2", Some(("True", ""))),
    ]);
    picture.attachments =
        seen(vec![attachment("v-ready", "node-1", json!({})), attachment("v-burning", "node-2", json!({}))]);
    let mut lost = node("node-2", &["v-burning"]);
    (lost.ready, lost.heartbeat) = (api::node::Readiness::Unknown, Some(UnixSeconds(NOW.0 - 600)));
    picture.nodes = seen(vec![node("node-1", &["v-ready"]), lost]);
    picture.intents = seen(Vec::new());
    let tree = grow(&picture, &Usages::default(), scope(Some("shop"), &[]));
    golden("tree/golden/not_well.txt", &tree.text(Look::PLAIN));
    assert!(!tree.settled());
    let alone = |claim: &Claim| {
        grow::View { picture: near::Surroundings::new(&picture).of(claim), usages: &Usages::default() }.claim(claim)
    };
    for claim in picture.claims.items() {
        let whole = grow::View { picture: &picture, usages: &Usages::default() }.claim(claim);
        assert_eq!(alone(claim), whole, "what a claim leads to tells as much as the whole cluster");
    }
}

fn claim_status(status: Value) -> Box<api::claim::ClaimStatus> {
    let read: Claim = read(json!({"metadata": {"name": "c", "namespace": "n"}, "status": status}));
    read.status
}

#[test]
fn a_namespace_has_its_own_and_what_belongs_to_none() {
    let tree = grow(&cluster(), &Usages::default(), scope(Some("shop"), &[]));
    let text = tree.text(Look::PLAIN);
    golden("tree/golden/namespace.txt", &text);
    assert!(!text.contains("elsewhere") && text.contains("v-free") && !text.contains("USED"), "{text}");
}

#[test]
fn a_claim_by_name_stands_alone() {
    let tree = grow(&cluster(), &Usages::default(), scope(Some("shop"), &["ready"]));
    assert_eq!((tree.claims.len(), tree.loose.len()), (1, 0));
    let attachment = &tree.claims[0].below[0].below[0];
    let pods: Vec<&str> = attachment.below.iter().map(|pod| pod.state).collect();
    assert_eq!((attachment.state, pods), ("attached", vec!["mounted", "mounting"]));
}

#[test]
fn a_settled_cluster_says_so_and_an_empty_one_where_to_look() {
    let mut picture = cluster();
    picture.claims = seen(vec![claim("shop", "ready", "v-ready")]);
    picture.volumes = seen(vec![volume("v-ready", Some(("shop", "ready")), "Bound")]);
    picture.pods = seen(vec![pod("web-0", "ready", "node-1", Some(("True", "")))]);
    picture.attachments = seen(vec![attachment("v-ready", "node-1", json!({}))]);
    picture.intents = seen(Vec::new());
    let tree = grow(&picture, &Usages::default(), scope(None, &[]));
    assert!(tree.settled(), "{}", tree.text(Look::PLAIN));
    let text = grow(&picture, &Usages::default(), scope(Some("empty"), &[])).text(Look::PLAIN);
    assert_eq!(text, "There is nothing to show in namespace empty; -A shows all namespaces.\n");
}

#[test]
fn what_could_not_be_looked_at_is_not_called_missing() {
    let picture = Picture { volumes: Listing::NotAllowed, nodes: Listing::Failed("boom".to_owned()), ..cluster() };
    let tree = grow(&picture, &Usages::default(), scope(Some("shop"), &[]));
    let text = tree.text(Look::PLAIN);
    assert!(text.contains("unseen") && !text.contains("missing"), "{text}");
    assert!(text.ends_with("Could not look at:\n  - persistentvolumes: not allowed\n  - nodes: boom\n"), "{text}");
    assert!(!text.contains("attachment to node-3"), "whether its volume exists is not known: {text}");
}

#[test]
fn nothing_that_others_wrote_reaches_the_terminal_as_an_escape() {
    let tree = grow(&cluster(), &Usages::default(), scope(None, &[]));
    assert!(!tree.text(Look::WIDE).contains('\u{1b}'));
    let painted = tree.text(Look { paint: Paint::Colours, ..Look::WIDE });
    assert!(painted.contains("\u{1b}[31m") && !painted.contains("\u{1b}[31m fire"), "{painted:?}");
}

/// What a claim leads to explains it as the whole cluster does; if not, the narrow look leaves something out.
#[test]
fn a_claim_by_itself_is_told_as_in_its_cluster() {
    let picture = cluster();
    let usages = usages();
    let mut surroundings = near::Surroundings::new(&picture);
    let mut narrow = 0;
    for claim in picture.claims.items() {
        let near = surroundings.of(claim);
        narrow += usize::from(near.claims.items().len() < picture.claims.items().len());
        let alone = grow::View { picture: near, usages: &usages }.claim(claim);
        assert_eq!(alone, grow::View { picture: &picture, usages: &usages }.claim(claim));
    }
    assert!(narrow >= 4, "most of them need no more than what they lead to: {narrow}");
}

/// Twenty volumes on each of a hundred nodes. What would look through all pods for each of them takes minutes here.
#[test]
fn a_large_cluster_is_no_trouble() {
    let node_of = |number: usize| format!("node-{}", number / 20);
    let volume_of = |number: usize| format!("v-{number}");
    let each = 0..2_000;
    let claim_of = |number: usize| claim("shop", &format!("c-{number}"), &volume_of(number));
    let bound = |number: usize| volume(&volume_of(number), Some(("shop", &format!("c-{number}"))), "Bound");
    let ready =
        |number: usize| pod(&format!("p-{number}"), &format!("c-{number}"), &node_of(number), Some(("True", "")));
    let volumes = |number: usize| (number * 20..number * 20 + 20).map(volume_of).collect::<Vec<_>>();
    let machine = |number: usize| {
        let volumes = volumes(number);
        node(&format!("node-{number}"), &volumes.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let driver = json!({"name": DRIVER, "nodeID": "1"});
    let csi_node = |number: usize| {
        read::<CsiNode>(json!({"metadata": {"name": format!("node-{number}")}, "spec": {"drivers": [driver]}}))
    };
    let picture = Picture {
        claims: seen(each.clone().map(claim_of).collect()),
        volumes: seen(each.clone().map(bound).collect()),
        pods: seen(each.clone().map(ready).collect()),
        attachments: seen(each.map(|number| attachment(&volume_of(number), &node_of(number), json!({}))).collect()),
        nodes: seen((0..100).map(machine).collect()),
        csi_nodes: seen((0..100).map(csi_node).collect()),
        intents: seen(Vec::new()),
        ..cluster()
    };
    let tree = grow(&picture, &Usages::default(), scope(None, &[]));
    assert_eq!((tree.claims.len(), tree.loose.len()), (2_000, 0));
    assert!(tree.settled(), "{}", tree.text(Look::PLAIN));
}
