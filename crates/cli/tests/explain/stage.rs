//! A cluster of two processes, and a user's hands on it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::config::Kubeconfig;
use kube::runtime::wait::await_condition;
use serde::Serialize;
use serde_json::{Value, json};

use crate::api_rig::{Server, ask, client};

pub(crate) const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
pub(crate) const VOLUMES: &str = "/api/v1/persistentvolumes";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";

/// No step takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Stage {
    dir: tempfile::TempDir,
    kubeconfig: PathBuf,
    client: kube::Client,
    _controllers: Controllers,
    _server: Server,
}

/// `orlop controllers` as a process, killed when it goes.
struct Controllers(Child);

impl Drop for Controllers {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// What a command printed and how it ended.
pub(crate) struct Answer {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: Option<i32>,
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr))
    }
}

/// Runs the program. Help wraps to the width of the terminal, so that is fixed.
pub(crate) fn orlop(args: &[&str], more: &[&str]) -> Answer {
    let output = Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(args)
        .args(more)
        .env("COLUMNS", "100")
        .env_remove("KUBECONFIG")
        .stdin(Stdio::null())
        .output()
        .expect("the binary was just built");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Answer { stdout: text(&output.stdout), stderr: text(&output.stderr), code: output.status.code() }
}

impl Stage {
    pub(crate) async fn set() -> Self {
        let dir = tempfile::tempdir().expect("a folder can be made");
        let data = dir.path().join("data");
        let mut server = Server::spawn(&data);
        let address = server.address().await;
        let kubeconfig = data.with_extension("kubeconfig");
        let client = client(&kubeconfig, &address).await;
        let controllers = Command::new(env!("CARGO_BIN_EXE_orlop"))
            .args(["controllers", "--log-level", "warn", "--kubeconfig"])
            .arg(&kubeconfig)
            .stdin(Stdio::null())
            .spawn()
            .expect("the binary was just built");
        Self { dir, kubeconfig, client, _controllers: Controllers(controllers), _server: server }
    }

    pub(crate) fn run(&self, args: &[&str]) -> Answer {
        orlop(args, &["--kubeconfig", self.kubeconfig.to_str().expect("the path is text")])
    }

    /// Explains, as JSON.
    pub(crate) fn explain(&self, args: &[&str]) -> Answer {
        self.explain_as(&self.kubeconfig, args)
    }

    pub(crate) fn explain_as(&self, kubeconfig: &Path, args: &[&str]) -> Answer {
        let more = ["-o", "json", "--kubeconfig", kubeconfig.to_str().expect("the path is text")];
        orlop(&[&["explain"], args].concat(), &more)
    }

    async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let (code, answer) = ask(&self.client, (method, path), body).await.expect("the server answers");
        assert!((200..300).contains(&code), "{method} {path}: {code} {answer}");
        answer
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) -> Value {
        self.ask("POST", path, Some(object)).await
    }

    pub(crate) async fn patch(&self, path: &str, patch: &Value) {
        self.ask("PATCH", path, Some(patch)).await;
    }

    pub(crate) async fn delete(&self, path: &str) {
        self.ask("DELETE", path, None).await;
    }

    /// As `kubectl delete --force`, since no node is here to end a pod.
    pub(crate) async fn delete_now(&self, path: &str) {
        self.ask("DELETE", path, Some(&json!({"gracePeriodSeconds": 0}))).await;
    }

    pub(crate) async fn claim_until(&self, name: &str, holds: fn(&Value) -> bool) {
        until(Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), "default"), name, holds).await;
    }

    pub(crate) async fn volume_until(&self, name: &str, holds: fn(&Value) -> bool) {
        until(Api::<PersistentVolume>::all(self.client.clone()), name, holds).await;
    }

    /// The kubeconfig of a user who may read what is in the namespace, and nothing else.
    pub(crate) async fn viewer(&self) -> PathBuf {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "viewer"}});
        self.create("/api/v1/namespaces/default/serviceaccounts", &account).await;
        let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
        let resources = ["persistentvolumeclaims", "pods", "events", "configmaps"];
        let rules = json!([{"apiGroups": [""], "resources": resources, "verbs": ["get", "list"]}]);
        let meta = json!({"name": "viewer"});
        let version = "rbac.authorization.k8s.io/v1";
        let role = json!({"apiVersion": version, "kind": "Role", "metadata": meta, "rules": rules});
        self.create(&format!("{rbac}/roles"), &role).await;
        let binding = json!({
            "apiVersion": version, "kind": "RoleBinding", "metadata": meta,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "viewer"},
            "subjects": [{"kind": "ServiceAccount", "name": "viewer", "namespace": "default"}],
        });
        self.create(&format!("{rbac}/rolebindings"), &binding).await;
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let token = self.create("/api/v1/namespaces/default/serviceaccounts/viewer/token", &request).await;
        let token = token["status"]["token"].as_str().expect("a token comes back").to_owned();
        let config = Kubeconfig::read_from(&self.kubeconfig).expect("the server wrote it");
        let mut config = serde_json::to_value(config).expect("a kubeconfig can be written");
        config["users"][0]["user"] = json!({"token": token});
        let file = self.dir.path().join("viewer.kubeconfig");
        std::fs::write(&file, config.to_string()).expect("a file can be written");
        file
    }
}

async fn until<K>(api: Api<K>, name: &str, holds: fn(&Value) -> bool)
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Serialize + Send + 'static,
{
    let seen =
        |object: Option<&K>| object.is_some_and(|object| serde_json::to_value(object).is_ok_and(|value| holds(&value)));
    let waited = tokio::time::timeout(PATIENCE, await_condition(api, name, seen)).await;
    waited.unwrap_or_else(|_| panic!("{name} never came so far")).expect("the server answers");
}

/// Puts `patch` over `base`, member by member.
fn over(mut base: Value, patch: Value) -> Value {
    match (&mut base, patch) {
        (Value::Object(base), Value::Object(patch)) => {
            for (key, value) in patch {
                let under = base.remove(&key).unwrap_or(Value::Null);
                base.insert(key, over(under, value));
            }
        }
        (base, patch) => *base = patch,
    }
    base
}

pub(crate) fn class(name: &str, provisioner: &str, mode: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": provisioner, "volumeBindingMode": mode,
    })
}

/// A claim for 1Gi.
pub(crate) fn claim(name: &str, class: Option<&str>, patch: Value) -> Value {
    let mut base = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    if let Some(class) = class {
        base["spec"]["storageClassName"] = json!(class);
    }
    over(base, patch)
}

/// A volume of 1Gi.
pub(crate) fn volume(name: &str, class: &str, patch: Value) -> Value {
    let base = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": class,
                 "persistentVolumeReclaimPolicy": "Retain", "csi": {"driver": "disk.example.com", "volumeHandle": name}},
    });
    over(base, patch)
}

/// A pod that uses a claim.
pub(crate) fn pod(name: &str, claim: &str, patch: Value) -> Value {
    let base = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "image"}],
                 "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]},
    });
    over(base, patch)
}
