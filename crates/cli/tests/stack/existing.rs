//! `orlop up` on a cluster that exists.

use std::path::Path;

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

#[tokio::test]
async fn a_second_directory_of_one_machine_makes_and_mounts_nothing() {
    needs!(Ext4);
    let scratch = Scratch::new();
    let mut server = Server::spawn(&scratch.path("cluster"));
    let address = server.address().await;
    let kubeconfig = scratch.path("cluster.kubeconfig");
    let user = User::of(&kubeconfig, &address).await;
    let cluster = with("--kubeconfig", &kubeconfig);
    let start = |data: &Path, parts: &str| {
        let program = Program::start(&["up", &cluster, parts, "--page=off", &with("--data", data)]);
        program.says("ready cluster=");
        program
    };
    let (first, second) = (scratch.path("first"), scratch.path("second"));
    let one = start(&first, "--parts=controllers,scheduler,sidecars,node");
    one.says("leading lease=\"local-csi-orlop-dev-");
    user.until("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", |_, leases| {
        leases["items"].as_array().is_some_and(|all| !all.is_empty())
    })
    .await;
    let two = start(&second, "--parts=sidecars,node");
    two.says("somebody looked after this node");
    user.claim("data", "local").await;
    let uid = user.pod("web", &["data"]).await;
    user.mounted("web").await;
    assert_eq!(mounts_of(&first, &uid).len(), 1);
    assert_eq!(mounts_of(&second, &uid).len(), 0, "one agent mounts");
    let made = |data: &Path| std::fs::read_dir(data.join("pool/volumes")).expect("there is a pool").count();
    assert_eq!((made(&first), made(&second)), (1, 0), "one provisioner makes volumes");
    user.delete(&format!("{PODS}/web")).await;
    user.gone(&format!("{PODS}/web")).await;
    user.delete(&format!("{CLAIMS}/data")).await;
    user.gone(&format!("{CLAIMS}/data")).await;
    two.stop();
    one.stop();
    server.stop();
}

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const ACCOUNTS: &str = "/api/v1/namespaces/kube-system/serviceaccounts";

/// A kubeconfig of a new account, which may do nothing yet.
async fn account(user: &User, admin: &Path, file: &Path) {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "limited"}});
    user.create(ACCOUNTS, &account).await;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = user.create(&format!("{ACCOUNTS}/limited/token"), &request).await;
    let mut config = kube::config::Kubeconfig::read_from(admin).expect("it was just written");
    let token: Value = token["status"]["token"].clone();
    let credential = serde_json::from_value(json!({"token": token})).expect("a token is a credential");
    config.auth_infos[0].auth_info = Some(credential);
    std::fs::write(file, serde_json::to_vec(&config).expect("it is JSON, too")).expect("it can be written");
}

/// What a page without a credential says.
async fn read(address: &str, path: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("somebody listens");
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it can be asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("it answers");
    answer
}

#[tokio::test]
async fn an_account_that_lacks_rights_is_told_which_and_metrics_are_served_without_one() {
    let scratch = Scratch::new();
    let mut server = Server::spawn(&scratch.path("cluster"));
    let address = server.address().await;
    let (admin, limited) = (scratch.path("cluster.kubeconfig"), scratch.path("limited.kubeconfig"));
    let user = User::of(&admin, &address).await;
    account(&user, &admin, &limited).await;
    let place = with("--data", &scratch.path("data"));
    let words = ["up", &with("--kubeconfig", &limited), &place, "--page=off", "--http-endpoint=127.0.0.1:0"];
    let said = refusal(&words);
    assert!(said.contains("the class \"local\" cannot be made") && said.contains("--class ''"), "{said}");

    // Somebody else makes the class, and lets it be seen.
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"},
        "provisioner": "local.csi.orlop.dev"});
    user.create(CLASSES, &class).await;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "see-classes"},
        "rules": [{"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": ["get", "list", "watch"]}]});
    user.create(ROLES, &role).await;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "see-classes"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "see-classes"},
        "subjects": [{"kind": "ServiceAccount", "name": "limited", "namespace": "kube-system"}]});
    user.create(BINDINGS, &binding).await;
    let up = Program::start(&words);
    let lacks = up.says("this account lacks rights");
    for right in [
        "get, list, patch, watch persistentvolumeclaims",
        "create, get, update leases.coordination.k8s.io in kube-system",
    ] {
        assert!(lacks.contains(right), "{right}: {lacks}");
    }
    assert!(!lacks.contains("storageclasses"), "{lacks}");
    up.says("ready cluster=");
    let line = up.says("answering metrics and health");
    let http = line.split("http=").nth(1).and_then(|rest| rest.split(' ').next()).expect("it says where").to_owned();
    assert!(read(&http, "/metrics").await.contains("\nprocess_"), "metrics of this process");
    assert!(read(&http, "/healthz").await.ends_with("ok"));
    up.stop();

    server.stop();
    let said = refusal(&words);
    assert!(said.contains("nobody answers at https://"), "{said}");
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
