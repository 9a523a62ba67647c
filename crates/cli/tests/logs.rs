//! What `orlop up --log-format json` writes while a claim and a pod live: lines that a program can read, each with the ids
//! of the work it belongs to, and no secret.

mod api_rig;
mod stack_rig;

use std::time::Duration;

use api::keys::parameter;
use api_rig::{ask, client};
use serde_json::{Value, json};
use stack_rig::{Up, is_root};

/// What must be in no line.
const PASSWORD: &str = "hunter2-never-in-a-log";
const CLAIM: &str = "default/data";

/// A stack and what it has said.
struct Heard {
    up: Up,
    lines: Vec<Value>,
}

impl Heard {
    /// Reads on until a line says this; gives that line.
    async fn said(&mut self, message: &str) -> Value {
        let found = async {
            loop {
                let line = self.up.line().await.unwrap_or_else(|| panic!("it ended before it said {message:?}"));
                assert!(!line.contains(PASSWORD), "a secret: {line}");
                let line: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
                for own in ["timestamp", "level", "target", "message"] {
                    assert!(line[own].is_string(), "no {own} in {line}");
                }
                let is_it = line["message"] == message;
                self.lines.push(line.clone());
                if is_it {
                    return line;
                }
            }
        };
        match tokio::time::timeout(Duration::from_secs(120), found).await {
            Ok(line) => line,
            Err(_) => panic!("it never said {message:?}: {:#?}", self.lines.iter().rev().take(30).collect::<Vec<_>>()),
        }
    }
}

/// A class that sends a secret with every call, the secret, and a claim.
fn objects() -> [(&'static str, Value); 3] {
    let secrets = [
        parameter::PROVISIONER_SECRET,
        parameter::CONTROLLER_PUBLISH_SECRET,
        parameter::NODE_STAGE_SECRET,
        parameter::NODE_PUBLISH_SECRET,
    ];
    let names = secrets.iter().flat_map(|key| [("name", "login"), ("namespace", "default")].map(|one| (key, one)));
    let parameters: serde_json::Map<String, Value> =
        names.map(|(key, (part, value))| (format!("{}-{part}", key.0), value.into())).collect();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"},
        "stringData": {"password": PASSWORD}});
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "guarded"},
        "provisioner": "local.csi.orlop.dev", "parameters": parameters});
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "guarded",
            "resources": {"requests": {"storage": "64Mi"}}}});
    [
        ("/api/v1/namespaces/default/secrets", secret),
        ("/apis/storage.k8s.io/v1/storageclasses", class),
        ("/api/v1/namespaces/default/persistentvolumeclaims", claim),
    ]
}

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        "containers": [{"name": "c", "image": "none", "volumeMounts": [{"name": "v", "mountPath": "/data"}]}]}})
}

/// The line tells claim, volume, and an operation of this kind.
fn check(line: &Value, volume: &str, kind: &str) {
    assert_eq!(line["claim"], CLAIM, "{line}");
    assert_eq!(line["volume"], volume, "{line}");
    let operation = line["operation"].as_str().unwrap_or_default();
    assert!(operation.strip_prefix(kind).is_some_and(|rest| rest.starts_with('-')), "{kind}: {line}");
}

#[tokio::test]
async fn every_line_is_json_and_tells_claim_volume_and_operation_and_no_secret() {
    let place = tempfile::tempdir().expect("a directory can be made");
    let data = place.path().join("data");
    let flags = ["--log-format", "json", "--log-level", "trace"];
    let mut up = Heard { up: Up::start(&data, &flags), lines: Vec::new() };
    let ready = up.said("ready").await;
    let client = client(&data.join("kubeconfig"), ready["address"].as_str().expect("it has an address")).await;
    for (path, object) in objects() {
        let (code, made) = ask(&client, ("POST", path), Some(&object)).await.expect("it answers");
        assert_eq!(code, 201, "{made}");
    }
    let stored = up.said("the volume is provisioned and stored").await;
    let volume = stored["volume"].as_str().expect("it names the volume").to_owned();
    check(&stored, &volume, "provision");
    check(&up.said("the claim is bound").await, &volume, "bind");
    // The driver's own lines have the number of the call, and the volume as it knows it.
    let made = up.lines.iter().find(|line| line["method"] == "CreateVolume" && line["message"] == "done");
    let made = made.expect("the driver tells of what it did");
    assert_eq!(made["volume"], volume, "{made}");
    assert!(made["operation"].is_string(), "{made}");

    if is_root() {
        let pods = "/api/v1/namespaces/default/pods";
        let (code, made) = ask(&client, ("POST", pods), Some(&pod())).await.expect("it answers");
        assert_eq!(code, 201, "{made}");
        check(&up.said("the volume is attached").await, &volume, "attach");
        check(&up.said("the volume is staged").await, &volume, "stage");
        check(&up.said("the volume is mounted for the pod").await, &volume, "publish");
        ask(&client, ("DELETE", &format!("{pods}/web")), None).await.expect("it answers");
        // Who takes a volume away may not know the claim any more.
        for (message, kind) in [
            ("the volume is unmounted for the pod", "unpublish-"),
            ("the volume is unstaged", "unstage-"),
            ("the volume is detached", "detach-"),
        ] {
            let line = up.said(message).await;
            assert_eq!(line["volume"], volume, "{line}");
            assert!(line["operation"].as_str().is_some_and(|operation| operation.starts_with(kind)), "{line}");
        }
    } else {
        println!("skipped: mounting needs root");
    }
    let claim = "/api/v1/namespaces/default/persistentvolumeclaims/data";
    ask(&client, ("DELETE", claim), None).await.expect("it answers");
    check(&up.said("what the volume was made of is deleted").await, &volume, "delete");
}
