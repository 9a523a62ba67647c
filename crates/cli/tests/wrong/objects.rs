//! Wrong objects: what the API server refuses, with its sentence, and what it takes and nobody can fulfil, with the answer
//! of `orlop explain` (its first line, and what it says to do).
//!
//! The server's sentences are the reference's: the differential suite compares them (CONTRIBUTING.md).

use std::time::Duration;

use serde_json::{Value, json};

use crate::api_rig::{ask, client};
use crate::room::Room;
use crate::stack_rig::Up;
use crate::table::Table;

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// One cluster and the table that its answers go to.
struct Stage<'a> {
    room: &'a Room,
    api: kube::Client,
    table: &'a mut Table,
}

pub(crate) async fn play(table: &mut Table) {
    let mut room = Room::new();
    let data = room.path().join("alive");
    let mut up = Up::start(&data, &[]);
    let address = up.address().await;
    let name = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
    room.name("kubeconfig", &data.join("kubeconfig").display().to_string());
    room.name("alive", &data.display().to_string());
    room.name("node", &format!("node {name}"));
    room.name("this-node", &format!("node {name:?}"));
    // Something that is mounted on every Linux, and that nothing here may touch.
    room.name("busy", "/proc");
    room.write("text", "");
    let api = client(&data.join("kubeconfig"), &address).await;
    let mut stage = Stage { room: &room, api, table };
    stage.refused().await;
    stage.unfulfillable().await;
    stage.mounts();
    up.stop();
}

fn claim(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec})
}

/// A claim that is right, but for what `more` says.
fn nearly(name: &str, more: &Value) -> Value {
    let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    claim(name, &spec)
}

fn sized(size: &str) -> Value {
    json!({"resources": {"requests": {"storage": size}}})
}

fn class(name: &str, more: &Value) -> Value {
    let mut class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}});
    for (key, value) in more.as_object().into_iter().flatten() {
        class[key] = value.clone();
    }
    class
}

fn pod(name: &str, claim: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "containers": [{"name": "c", "image": "none"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}})
}

fn volume(name: &str, more: &Value) -> Value {
    let mut spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": ""});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})
}

impl Stage<'_> {
    /// What the server does not take.
    async fn refused(&mut self) {
        let once = json!({"accessModes": ["ReadWriteOnce"]});
        self.refuses("POST", CLAIMS, &claim("nosize", &once)).await;
        self.refuses("POST", CLAIMS, &nearly("negative", &sized("-1Gi"))).await;
        self.refuses("POST", CLAIMS, &nearly("unit", &sized("1Gb"))).await;
        self.refuses("POST", CLAIMS, &nearly("zero", &sized("0"))).await;
        self.refuses(
            "POST",
            &format!("{CLAIMS}?fieldValidation=Strict"),
            &nearly("typo", &json!({"storageClass": "x"})),
        )
        .await;
        self.refuses("POST", CLAIMS, &pod("kind", "data")).await;
        self.refuses("POST", "/api/v1/namespaces/nothere/persistentvolumeclaims", &nearly("lost", &json!({}))).await;
        let binding = json!({"provisioner": "local.csi.orlop.dev", "volumeBindingMode": "Immediately"});
        self.refuses("POST", CLASSES, &class("binding", &binding)).await;
        self.refuses("POST", CLASSES, &class("beta", &json!({"apiVersion": "storage.k8s.io/v1beta1"}))).await;
        let handle = json!({"csi": {"driver": "ebs.csi.aws.com"}});
        self.refuses("POST", VOLUMES, &volume("handleless", &handle)).await;
        self.refuses("POST", CLAIMS, &nearly("mode", &json!({"accessModes": ["ReadWriteTwice"]}))).await;
        self.refuses("POST", CLAIMS, &nearly("modes", &json!({"accessModes": ["ReadWriteOncePod", "ReadWriteOnce"]})))
            .await;
        self.refuses("POST", CLAIMS, &nearly("Upper", &json!({}))).await;
        self.refuses("POST", CLASSES, &class("nobody", &json!({}))).await;
        self.refuses("POST", VOLUMES, &volume("sourceless", &json!({}))).await;
        self.makes(CLAIMS, &nearly("data", &json!({"storageClassName": "local"}))).await;
        self.until(CLAIMS, "data", |claim| claim["status"]["phase"] == "Bound").await;
        self.refuses("PATCH", &format!("{CLAIMS}/data"), &json!({"spec": sized("32Mi")})).await;
        self.refuses("PATCH", &format!("{CLAIMS}/data"), &json!({"spec": {"storageClassName": "fast"}})).await;
        self.refuses("PATCH", &format!("{CLASSES}/local"), &json!({"provisioner": "ebs.csi.aws.com"})).await;
    }

    /// What the server takes and nobody can fulfil.
    async fn unfulfillable(&mut self) {
        let local = json!({"provisioner": "local.csi.orlop.dev", "parameters": {"filesystem": "ext4"}});
        self.makes(CLASSES, &class("odd", &local)).await;
        self.makes(CLASSES, &class("absent", &json!({"provisioner": "ebs.csi.aws.com"}))).await;
        let foreign = json!({"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"}});
        self.makes(VOLUMES, &volume("foreign", &foreign)).await;
        self.refuses("PATCH", &format!("{VOLUMES}/foreign"), &json!({"spec": {"csi": {"volumeHandle": "vol-2"}}}))
            .await;
        let ext3 = json!({"provisioner": "local.csi.orlop.dev", "parameters": {"fsType": "ext3"}});
        self.makes(CLASSES, &class("ext3", &ext3)).await;
        let rows = [
            (nearly("noclass", &json!({"storageClassName": "fast"})), "not found"),
            (nearly("huge", &sized("900Ti")), "OutOfRange"),
            (nearly("large", &sized("15Ti")), "ResourceExhausted"),
            (nearly("parameters", &json!({"storageClassName": "odd"})), "filesystem"),
            (nearly("filesystem", &json!({"storageClassName": "ext3"})), "ext3"),
            (
                nearly("classless", &json!({"storageClassName": "", "accessModes": ["ReadWriteMany"]})),
                "no storage class",
            ),
            (nearly("nodriver", &json!({"storageClassName": "absent"})), "ebs.csi.aws.com"),
            (
                nearly(
                    "restored",
                    &json!({"dataSource": {"apiGroup": "snapshot.storage.k8s.io",
                "kind": "VolumeSnapshot", "name": "monday"}}),
                ),
                "monday",
            ),
            (nearly("cloned", &json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": "gone"}})), "gone"),
            (nearly("bound", &json!({"storageClassName": "", "volumeName": "nothere"})), "nothere"),
        ];
        for (claim, phrase) in rows {
            self.makes(CLAIMS, &claim).await;
            let name = claim["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            self.explains(&format!("pvc/{name}"), phrase).await;
        }
        self.makes(CLAIMS, &nearly("alone", &json!({"accessModes": ["ReadWriteOncePod"]}))).await;
        self.makes(
            CLAIMS,
            &nearly(
                "elsewhere",
                &json!({"storageClassName": "", "volumeName": "foreign",
            "resources": {"requests": {"storage": "1Gi"}}}),
            ),
        )
        .await;
        self.until(CLAIMS, "elsewhere", |claim| claim["status"]["phase"] == "Bound").await;
        self.waiting_pods().await;
    }

    /// Pods that wait; without root there is no agent, and no node that they could be put on.
    async fn waiting_pods(&mut self) {
        if !has_node() {
            for name in ["lonely", "second", "far", "picky", "nowhere"] {
                self.table.skip(&format!("orlop explain pod/{name}"), "a node agent needs root");
            }
            return;
        }
        self.makes(PODS, &pod("lonely", "missing")).await;
        self.explains("pod/lonely", "missing").await;
        self.makes(PODS, &pod("first", "alone")).await;
        self.until(PODS, "first", |pod| pod["spec"]["nodeName"].is_string()).await;
        self.makes(PODS, &pod("second", "alone")).await;
        self.explains("pod/second", "ReadWriteOncePod").await;
        self.makes(PODS, &pod("far", "elsewhere")).await;
        // Until there is an attachment, what the agent misses is told.
        self.explains("pod/far", "the attacher of driver ebs.csi.aws.com").await;
        let mut picky = pod("picky", "data");
        picky["spec"]["nodeSelector"] = json!({"disk": "ssd"});
        self.makes(PODS, &picky).await;
        self.explains("pod/picky", "selector").await;
        let mut nowhere = pod("nowhere", "data");
        nowhere["spec"]["nodeName"] = json!("nothere");
        self.makes(PODS, &nowhere).await;
        self.explains("pod/nowhere", "does not exist").await;
    }

    /// `orlop mount` at places that are not made for it, and of a claim that has no volume.
    fn mounts(&mut self) {
        const ROWS: [&str; 7] = [
            "orlop mount pvc/data tmp --kubeconfig <kubeconfig>",
            "orlop mount data <alive>/pool --kubeconfig <kubeconfig>",
            "orlop mount data text --kubeconfig <kubeconfig>",
            "orlop mount data <busy> --kubeconfig <kubeconfig>",
            "orlop umount <busy> --kubeconfig <kubeconfig>",
            "orlop mount data tmp --node-name elsewhere --kubeconfig <kubeconfig>",
            "orlop mount noclass tmp --timeout 4s --kubeconfig <kubeconfig>",
        ];
        if !has_node() {
            ROWS.iter().for_each(|line| self.table.skip(line, "mounting needs root"));
            return;
        }
        for line in ROWS {
            self.table.row(line, &self.room.run_freely(line));
        }
        // A directory with files is taken, and said.
        self.room.write("tmp/file", "");
        let given_up = self.room.run_freely("orlop umount tmp --kubeconfig <kubeconfig>");
        assert_eq!(given_up.code, Some(0), "{given_up:?}");
        let hidden = self.room.run_freely("orlop mount data tmp --kubeconfig <kubeconfig>");
        self.table.note(
            "orlop mount data tmp",
            &format!("[exit {}]\n{}{}", hidden.code.unwrap_or(-1), hidden.out, hidden.err.trim_end()),
        );
        let unmounted = self.room.run_freely("orlop umount tmp --kubeconfig <kubeconfig>");
        assert_eq!(unmounted.code, Some(0), "{unmounted:?}");
    }

    /// The server's sentence.
    async fn refuses(&mut self, method: &str, path: &str, body: &Value) {
        let (code, answer) = ask(&self.api, (method, path), Some(body)).await.expect("the server answers");
        assert!(code >= 400, "{body} was taken: {answer}");
        let what = match method {
            "PATCH" => format!("kubectl patch {} -p '{body}'", path.rsplit('/').next().unwrap_or_default()),
            _ => {
                let rest = if body["spec"].is_null() { String::new() } else { format!(" with {}", body["spec"]) };
                format!(
                    "kubectl create {}/{}{rest}",
                    body["kind"].as_str().unwrap(),
                    body["metadata"]["name"].as_str().unwrap()
                )
            }
        };
        let message = answer["message"].as_str().unwrap_or_default();
        self.table.note(&what, &format!("[status {code}]\n{}", self.room.plain(message).trim_end()));
    }

    async fn makes(&self, path: &str, body: &Value) {
        let (code, answer) = ask(&self.api, ("POST", path), Some(body)).await.expect("the server answers");
        assert_eq!(code, 201, "{body}: {answer}");
    }

    async fn until(&self, path: &str, name: &str, done: impl Fn(&Value) -> bool) {
        let path = format!("{path}/{name}");
        let look = async {
            loop {
                let (_, object) = ask(&self.api, ("GET", &path), None).await.expect("the server answers");
                if done(&object) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), look)
            .await
            .unwrap_or_else(|_| panic!("{path} never came so far"));
    }

    /// The first line of `orlop explain` and what it says to do, once its first line has the phrase.
    async fn explains(&mut self, what: &str, phrase: &str) {
        let line = format!("orlop explain {what} --kubeconfig <kubeconfig>");
        let look = async {
            loop {
                let answer = self.room.run_freely(&line);
                let first = answer.out.lines().next().unwrap_or_default();
                if answer.code == Some(1) && first.contains(phrase) {
                    return answer;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let answer = tokio::time::timeout(Duration::from_secs(120), look).await;
        let answer =
            answer.unwrap_or_else(|_| panic!("{what}: {phrase:?} is never said: {:?}", self.room.run_freely(&line)));
        let first = answer.out.lines().next().unwrap_or_default();
        let fix = answer.out.split_once("\nFix:\n").map_or("", |(_, fix)| fix);
        self.table.note(&format!("orlop explain {what}"), &format!("[exit 1]\n{first}\nFix:\n{}", fix.trim_end()));
    }
}

/// Whether there is an agent, and with it a node.
fn has_node() -> bool {
    rustix::process::geteuid().is_root()
}
