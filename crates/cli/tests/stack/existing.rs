//! `orlop up` on a cluster that exists.

use serde_json::{Value, json};

use crate::api_rig::Server;
use crate::needs;
use crate::program::{CLAIMS, CLASSES, PODS, Program, User, VOLUMES, mounts_of, refusal, with};
use crate::rig::Scratch;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/orlop-controllers";

fn holder(lease: &Value) -> String {
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn two_machines_serve_an_existing_cluster_and_what_runs_once_moves_between_them() {
    needs!(Ext4);
    let scratch = Scratch::new();
    let mut server = Server::spawn(&scratch.path("cluster"));
    let address = server.address().await;
    let kubeconfig = scratch.path("cluster.kubeconfig");
    let user = User::of(&kubeconfig, &address).await;
    let (first, second) = (scratch.path("first"), scratch.path("second"));
    let cluster = with("--kubeconfig", &kubeconfig);
    let start = |parts: &str, more: &[&str], data: &std::path::Path| {
        let program = Program::start(&[&["up", &cluster, parts, &with("--data", data)], more].concat());
        program.says("ready cluster=");
        program
    };
    let all = "--parts=controllers,scheduler,sidecars,node";
    let one = start(all, &[], &first);
    let class = user.get(&format!("{CLASSES}/local")).await.1;
    assert_eq!(class["volumeBindingMode"], "WaitForFirstConsumer", "a volume is made where its pod is");
    assert_eq!(class["metadata"]["annotations"], Value::Null, "which class is the default is the cluster's to say");
    let led = user.until(LEASE, |_, lease| !holder(lease).is_empty()).await;
    user.claim("data", "local").await;
    let uid = user.pod("web", &["data"]).await;
    user.mounted("web").await;
    let [mount] = mounts_of(&first, &uid).try_into().expect("one volume is mounted");
    assert!(!first.join("kubeconfig").exists() && !first.join("store").exists(), "there is no API of its own");

    let two = start("--parts=controllers", &["--local-driver=false"], &second);
    one.stop();
    assert_eq!(mounts_of(&first, &uid).len(), 1, "a pod's mount outlives the agent");
    // Whoever binds this now can only be the second.
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "made"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "64Mi"}, "storageClassName": "",
        "persistentVolumeReclaimPolicy": "Retain", "csi": {"driver": "none.example", "volumeHandle": "1"}}});
    user.create(VOLUMES, &volume).await;
    user.claim("other", "").await;
    assert_eq!(user.bound("other").await, "made");
    assert_ne!(holder(&user.get(LEASE).await.1), holder(&led), "the lease was given over");

    let one = start(all, &[], &first);
    let [same] = mounts_of(&first, &uid).try_into().expect("one volume is mounted");
    assert_eq!(same.id, mount.id);
    user.delete(&format!("{PODS}/web")).await;
    user.gone(&format!("{PODS}/web")).await;
    user.delete(&format!("{CLAIMS}/data")).await;
    user.gone(&format!("{CLAIMS}/data")).await;
    one.stop();
    two.stop();
    server.stop();
}

#[test]
fn what_an_existing_cluster_cannot_have_is_refused_before_anything_is_made() {
    let scratch = Scratch::new();
    let data = scratch.path("data");
    let (place, nowhere) = (with("--data", &data), with("--kubeconfig", &scratch.path("nowhere")));
    let said = refusal(&["up", &place, &nowhere, "--listen=127.0.0.1:0"]);
    assert!(said.contains("--listen: no API is served on an existing cluster"), "{said}");
    let said = refusal(&["up", &place, "--context=production"]);
    assert!(said.contains("--context: this is a context of a kubeconfig"), "{said}");
    assert!(!data.exists());
    let said = refusal(&["up", &place, &nowhere]);
    assert!(said.contains("nowhere: there is no such file"), "{said}");
}

#[test]
fn one_directory_has_one_stack() {
    let scratch = Scratch::new();
    let words = ["up", "--listen=127.0.0.1:0", "--page=off", &with("--data", &scratch.path("data"))];
    let up = Program::start(&words);
    up.address();
    let said = refusal(&words);
    assert!(said.contains("is in use by another `orlop up`"), "{said}");
    up.stop();
}
