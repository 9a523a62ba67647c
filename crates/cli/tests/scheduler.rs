//! `orlop scheduler` as a process, beside `orlop api` and `orlop controllers`: its help, and a pod that gets its node.

mod api_rig;

use std::path::Path;
use std::process::{Child, Command, Output};
use std::time::Duration;

use api_rig::{Server, ask, client};
use serde_json::{Value, json};

/// A command that runs until it is dropped.
struct Running(Child);

impl Running {
    fn start(command: &str, kubeconfig: &Path) -> Self {
        let mut program = Command::new(env!("CARGO_BIN_EXE_orlop"));
        let program = program.arg(command).arg("--kubeconfig").arg(kubeconfig).args(["--log-level", "warn"]);
        Self(program.spawn().expect("the binary was just built"))
    }

    /// SIGTERM, and a clean end.
    fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is our child");
        assert!(self.0.wait().expect("it is our child").success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn orlop(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(args)
        .env("COLUMNS", "100")
        .env_remove("KUBECONFIG")
        .output()
        .expect("the binary was just built")
}

#[test]
fn the_help_reads_as_agreed() {
    let output = orlop(&["scheduler", "--help"]);
    let got = String::from_utf8_lossy(&output.stdout).into_owned();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/scheduler_help.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&file, &got).expect("the golden file can be written");
        return;
    }
    let want = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(got == want, "help differs from {}; to accept it, set UPDATE_GOLDEN=1. Now:\n{got}", file.display());
}

#[test]
fn flags_that_cannot_work_end_it_with_a_sentence() {
    let output = orlop(&["scheduler", "--bind-timeout", "0s"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("orlop scheduler: --bind-timeout must be longer than nothing"), "{said}");
}

async fn create(client: &kube::Client, path: &str, object: Value) {
    let (code, answer) = ask(client, ("POST", path), Some(&object)).await.expect("the server answers");
    assert_eq!(code, 201, "{answer}");
}

async fn prepare(client: &kube::Client) {
    let node = json!({"metadata": {"name": "a", "labels": {"zone": "a"}}});
    create(client, "/api/v1/nodes", node).await;
    let open = json!({"spec": {"taints": null}});
    ask(client, ("PATCH", "/api/v1/nodes/a"), Some(&open)).await.expect("the server answers");
    let class = json!({"metadata": {"name": "late"}, "provisioner": "d.example.com",
                       "volumeBindingMode": "WaitForFirstConsumer"});
    create(client, "/apis/storage.k8s.io/v1/storageclasses", class).await;
    let term = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]});
    let volume = json!({
        "metadata": {"name": "v"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "late", "capacity": {"storage": "1Gi"},
                 "persistentVolumeReclaimPolicy": "Retain", "local": {"path": "/mnt/v"},
                 "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}},
    });
    create(client, "/api/v1/persistentvolumes", volume).await;
    // A volume that is not available yet does not count, and one would be provisioned instead.
    available(client, "/api/v1/persistentvolumes/v").await;
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "late",
                       "resources": {"requests": {"storage": "1Gi"}}}});
    create(client, "/api/v1/namespaces/default/persistentvolumeclaims", claim).await;
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]);
    let pod = json!({"metadata": {"name": "p"}, "spec": {"automountServiceAccountToken": false, "volumes": volumes,
                     "containers": [{"name": "c", "image": "i"}]}});
    create(client, "/api/v1/namespaces/default/pods", pod).await;
}

async fn available(client: &kube::Client, path: &str) {
    for _ in 0..600 {
        let (_, volume) = ask(client, ("GET", path), None).await.expect("the server answers");
        if volume["status"]["phase"] == "Available" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the binder never looked at {path}");
}

/// The node of the pod, when it has one.
async fn node_of(client: &kube::Client, pod: &str) -> String {
    let path = format!("/api/v1/namespaces/default/pods/{pod}");
    let mut last = Value::Null;
    for _ in 0..600 {
        let (_, pod) = ask(client, ("GET", &path), None).await.expect("the server answers");
        if let Some(node) = pod["spec"]["nodeName"].as_str() {
            return node.to_owned();
        }
        last = pod["status"].clone();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the pod never got a node: {last:#}");
}

#[tokio::test]
async fn a_pod_with_a_delayed_claim_gets_its_volume_and_its_node() {
    let place = tempfile::tempdir().expect("a temporary directory can be made");
    let data = place.path().join("data");
    let mut server = Server::spawn(&data);
    let address = server.address().await;
    let kubeconfig = data.with_extension("kubeconfig");
    let client = client(&kubeconfig, &address).await;
    let controllers = Running::start("controllers", &kubeconfig);
    let scheduler = Running::start("scheduler", &kubeconfig);
    prepare(&client).await;
    assert_eq!(node_of(&client, "p").await, "a");
    let path = "/api/v1/namespaces/default/persistentvolumeclaims/c";
    let (_, claim) = ask(&client, ("GET", path), None).await.expect("the server answers");
    assert_eq!(claim["spec"]["volumeName"], "v");
    scheduler.stop();
    controllers.stop();
    server.stop();
}
