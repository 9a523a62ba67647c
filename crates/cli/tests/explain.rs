//! `orlop explain` on real processes: `orlop api` beside `orlop controllers`, and a user who asks why.
//!
//! The wording is compared in `lifecycle` (`src/explain/tests`); here it is the causes that have to be found on a live
//! cluster, the exit codes, and the forms of the answer. Help is compared with `tests/golden`; `UPDATE_GOLDEN=1` writes it
//! anew.

mod api_rig;
#[path = "explain/stage.rs"]
mod stage;

use std::path::Path;

use serde_json::json;

use stage::{Answer, Stage, claim, class, pod, volume};

/// Root cause, standing and exit code of an answer.
#[track_caller]
fn expect(answer: &Answer, root: &str, standing: &str) {
    let json = answer.json();
    let links = json["chain"].as_array().expect("a chain is a list");
    let worst = links.iter().rev().find(|link| link["standing"] == json["standing"]).expect("a chain has links");
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let found = format!("{}/{}", text(&worst["step"]), text(&worst["reason"]));
    assert_eq!((found.as_str(), text(&json["standing"]).as_str()), (root, standing), "{json:#}");
    let healthy = standing == "settled";
    assert_eq!(json["healthy"], healthy, "{json:#}");
    assert_eq!(answer.code, Some(i32::from(!healthy)), "{json:#}");
    assert_eq!(json["fix"].as_array().is_some_and(Vec::is_empty), healthy, "{json:#}");
}

fn evidence(answer: &Answer) -> String {
    answer.json()["chain"].to_string()
}

#[tokio::test]
async fn a_claim_that_waits_is_told_why() {
    let stage = Stage::set().await;
    stage
        .create("/apis/storage.k8s.io/v1/storageclasses", &class("by-hand", api::keys::provisioner::NONE, "Immediate"))
        .await;
    stage.create("/apis/storage.k8s.io/v1/storageclasses", &class("cloud", "disk.example.com", "Immediate")).await;
    stage
        .create("/apis/storage.k8s.io/v1/storageclasses", &class("later", "disk.example.com", "WaitForFirstConsumer"))
        .await;
    for (name, class, patch) in [
        ("classless", None, json!({})),
        ("unknown", Some("nowhere"), json!({})),
        ("cloudy", Some("cloud"), json!({})),
        ("delayed", Some("later"), json!({})),
        ("small", Some("by-hand"), json!({"spec": {"selector": {"matchLabels": {"for": "small"}}}})),
        ("raw", Some("by-hand"), json!({"spec": {"selector": {"matchLabels": {"for": "raw"}}, "volumeMode": "Block"}})),
        (
            "shared",
            Some("by-hand"),
            json!({"spec": {"selector": {"matchLabels": {"for": "shared"}}, "accessModes": ["ReadWriteMany"]}}),
        ),
    ] {
        stage.create(stage::CLAIMS, &claim(name, class, patch)).await;
    }
    stage
        .create(
            stage::VOLUMES,
            &volume(
                "tiny",
                "by-hand",
                json!({"metadata": {"labels": {"for": "small"}}, "spec": {"capacity": {"storage": "1Mi"}}}),
            ),
        )
        .await;
    stage.create(stage::VOLUMES, &volume("files", "by-hand", json!({"metadata": {"labels": {"for": "raw"}}}))).await;
    stage
        .create(stage::VOLUMES, &volume("single", "by-hand", json!({"metadata": {"labels": {"for": "shared"}}})))
        .await;
    for name in ["tiny", "files", "single"] {
        stage.volume_until(name, |volume| volume["status"]["phase"] == "Available").await;
    }
    stage
        .claim_until("cloudy", |claim| claim["metadata"]["annotations"].to_string().contains("disk.example.com"))
        .await;

    expect(&stage.explain(&["pvc/classless"]), "bind/no_class", "stuck");
    expect(&stage.explain(&["pvc/unknown"]), "bind/class_missing", "stuck");
    let cloudy = stage.explain(&["pvc", "cloudy"]);
    expect(&cloudy, "around/provisioner_absent", "stuck");
    assert!(evidence(&cloudy).contains("no CSIDriver"), "{}", evidence(&cloudy));
    expect(&stage.explain(&["persistentvolumeclaim/delayed"]), "bind/no_pod", "waiting");
    for (name, said) in [
        ("small", "it has 1Mi, the claim asks for 1Gi"),
        ("raw", "its volumeMode is Filesystem, the claim's is Block"),
        ("shared", "it offers ReadWriteOnce, the claim asks for ReadWriteMany"),
    ] {
        let answer = stage.explain(&["claim", name]);
        expect(&answer, "bind/no_provisioner", "stuck");
        assert!(evidence(&answer).contains(said), "{name}: {}", evidence(&answer));
    }
    a_provisioner_that_died_and_a_class_that_came(&stage).await;
    a_pod_past_the_scheduler(&stage).await;
}

async fn a_provisioner_that_died_and_a_class_that_came(stage: &Stage) {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "disk-example-com", "namespace": "default"},
        "spec": {"holderIdentity": "host", "leaseDurationSeconds": 15, "renewTime": "2020-01-01T00:00:00.000000Z"},
    });
    stage.create("/apis/coordination.k8s.io/v1/namespaces/default/leases", &lease).await;
    expect(&stage.explain(&["pvc/cloudy"]), "around/provisioner_silent", "stuck");
    stage
        .create("/apis/storage.k8s.io/v1/storageclasses", &class("nowhere", "disk.example.com", "WaitForFirstConsumer"))
        .await;
    expect(&stage.explain(&["pvc/unknown"]), "bind/no_pod", "waiting");
}

async fn a_pod_past_the_scheduler(stage: &Stage) {
    stage.create(stage::PODS, &pod("unplaced", "delayed", json!({}))).await;
    expect(&stage.explain(&["pvc/delayed"]), "schedule/refused", "stuck");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}});
    stage.create("/api/v1/nodes", &node).await;
    let tainted = stage.explain(&["pvc/delayed"]);
    expect(&tainted, "schedule/refused", "stuck");
    assert!(tainted.json()["fix"].to_string().contains("Bring the nodes back"), "{}", tainted.json());
    assert!(evidence(&tainted).contains(api::keys::taint::NOT_READY.text()), "{}", evidence(&tainted));
    stage.patch("/api/v1/nodes/node-1", &json!({"spec": {"taints": null}})).await;
    expect(&stage.explain(&["pvc/delayed"]), "around/pod_unnoticed", "waiting");
    stage.create(stage::PODS, &pod("pinned", "delayed", json!({"spec": {"nodeName": "node-1"}}))).await;
    expect(&stage.explain(&["pvc/delayed"]), "around/pod_pinned", "stuck");
}

#[tokio::test]
async fn a_claim_that_was_bound_is_healthy_held_or_lost() {
    let stage = Stage::set().await;
    for name in ["kept", "gone", "held"] {
        stage
            .create(
                stage::VOLUMES,
                &volume(name, "by-hand", json!({"spec": {"claimRef": {"namespace": "default", "name": name}}})),
            )
            .await;
        stage.create(stage::CLAIMS, &claim(name, Some("by-hand"), json!({}))).await;
        stage.claim_until(name, |claim| claim["status"]["phase"] == "Bound").await;
    }
    let healthy = stage.explain(&["pvc/kept"]);
    expect(&healthy, "bind/bound", "settled");
    expect(&stage.explain(&["pv/kept"]), "release/bound", "settled");

    stage.delete(&format!("{}/gone", stage::VOLUMES)).await;
    expect(&stage.explain(&["pv/gone"]), "protect/bound", "waiting");
    stage.patch(&format!("{}/gone", stage::VOLUMES), &json!({"metadata": {"finalizers": null}})).await;
    stage.claim_until("gone", |claim| claim["status"]["phase"] == "Lost").await;
    let lost = stage.explain(&["pvc/gone"]);
    expect(&lost, "bind/lost_volume", "stuck");
    assert!(evidence(&lost).contains("ClaimLost") || lost.json()["state"] == "Lost", "{}", evidence(&lost));

    stage.create(stage::PODS, &pod("web-0", "held", json!({"spec": {"nodeName": "node-1"}}))).await;
    stage.delete(&format!("{}/held", stage::CLAIMS)).await;
    let held = stage.explain(&["pvc/held"]);
    expect(&held, "around/pod_holds", "waiting");
    assert!(held.json()["fix"].to_string().contains("web-0"), "{}", held.json());
    stage.delete_now(&format!("{}/web-0", stage::PODS)).await;
    stage.volume_until("held", |volume| volume["status"]["phase"] == "Released").await;
    let released = stage.explain(&["pv/held"]);
    assert_eq!((released.code, &released.json()["chain"][0]["reason"]), (Some(0), &json!("retained")));
    assert!(released.json()["fix"].to_string().contains("/spec/claimRef"), "{}", released.json());
}

#[tokio::test]
async fn what_may_not_be_read_is_said_and_the_rest_is_explained() {
    let stage = Stage::set().await;
    stage.create(stage::CLAIMS, &claim("data", Some("fast"), json!({}))).await;
    stage
        .create(
            stage::VOLUMES,
            &volume("v", "by-hand", json!({"spec": {"claimRef": {"namespace": "default", "name": "bound"}}})),
        )
        .await;
    stage.create(stage::CLAIMS, &claim("bound", Some("by-hand"), json!({}))).await;
    stage.claim_until("bound", |claim| claim["status"]["phase"] == "Bound").await;
    let viewer = stage.viewer().await;
    let waiting = stage.explain_as(&viewer, &["pvc/data"]);
    // Whether the binder's event is there yet is chance; that what decides may not be looked at is not.
    let first = &waiting.json()["chain"][0];
    assert_eq!(
        (waiting.code, &first["reason"], &first["standing"]),
        (Some(1), &json!("not_allowed"), &json!("waiting"))
    );
    let unseen = waiting.json()["unseen"].to_string();
    assert!(unseen.contains("storageclasses") && unseen.contains("not allowed"), "{unseen}");
    let bound = stage.explain_as(&viewer, &["pvc/bound"]);
    assert_eq!((bound.code, &bound.json()["healthy"]), (Some(0), &json!(true)), "{}", bound.json());
    let refused = stage.explain_as(&viewer, &["pv/v"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("forbidden"), "{}", refused.stderr);
}

#[tokio::test]
async fn the_answer_has_three_forms_and_a_missing_claim_says_who_wants_it() {
    let stage = Stage::set().await;
    stage.create(stage::CLAIMS, &claim("data", None, json!({}))).await;
    let text = stage.run(&["explain", "pvc/data"]);
    assert_eq!(text.code, Some(1));
    let said = "PersistentVolumeClaim default/data is Pending: no persistent volumes available for this claim and no storage class is set.\n";
    assert!(text.stdout.starts_with(said) && text.stdout.contains("\nFix:\n"), "{}", text.stdout);
    assert!(!text.stdout.contains('\u{1b}'), "no colours");
    let yaml = stage.run(&["explain", "pvc/data", "-o", "yaml"]);
    let chain = "chain:\n  - depth: 0\n    evidence:\n";
    assert!(yaml.stdout.starts_with(chain) && yaml.stdout.contains("\nform: 1\n"), "{}", yaml.stdout);
    let members: Vec<String> = stage.explain(&["pvc/data"]).json().as_object().unwrap().keys().cloned().collect();
    assert_eq!(members, ["chain", "fix", "form", "healthy", "sentence", "standing", "state", "subject", "unseen"]);

    stage.create(stage::PODS, &pod("web-0", "nothing", json!({}))).await;
    let missing = stage.run(&["explain", "pvc/nothing"]);
    assert_eq!(missing.code, Some(2));
    let said = "there is no PersistentVolumeClaim default/nothing\n  - pod \"web-0\" names it and waits for it";
    assert!(missing.stderr.contains(said), "{}", missing.stderr);
    let elsewhere = stage.run(&["explain", "pvc/data", "-n", "other"]);
    assert!(elsewhere.stderr.contains("a claim of that name in namespace \"default\""), "{}", elsewhere.stderr);
    let found = stage.run(&["explain", "pvc/data", "-A"]);
    assert!(
        found.code == Some(1) && found.stdout.starts_with("PersistentVolumeClaim default/data"),
        "{}",
        found.stdout
    );
    let nobody = stage.run(&["explain", "pod/nobody", "-A"]);
    assert!(nobody.code == Some(2) && nobody.stderr.contains("no Pod nobody in any namespace"), "{}", nobody.stderr);
    let nowhere = stage.run(&["explain", "pvc/data", "--context", "moon"]);
    assert_eq!(nowhere.code, Some(2));
    assert!(nowhere.stderr.contains("moon"), "{}", nowhere.stderr);
}

#[test]
fn a_wrong_command_line_exits_with_2_and_says_what_is_understood() {
    for (args, said) in [
        (&["explain"][..], "KIND/NAME"),
        (&["explain", "data"], "pvc/NAME"),
        (&["explain", "node/data"], "persistentvolumeclaim"),
        (&["explain", "pvc/data", "-o", "xml"], "possible values: text, wide, json, yaml"),
        (&["explain", "pvc/data", "--kubeconfig", "/nowhere/config"], "/nowhere/config"),
    ] {
        let answer = stage::orlop(args, &[]);
        assert_eq!(answer.code, Some(2), "{args:?}: {}", answer.stderr);
        assert!(answer.stderr.contains(said), "{args:?}: {}", answer.stderr);
    }
}

#[test]
fn the_help_of_explain_reads_as_agreed() {
    let answer = stage::orlop(&["explain", "--help"], &[]);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/explain_help.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&file, &answer.stdout).expect("the golden file can be written");
        return;
    }
    let golden = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(answer.stdout, golden, "to accept it: UPDATE_GOLDEN=1 cargo test -p orlop --test explain help");
}
