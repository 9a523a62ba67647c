//! `orlop up` with its page, and the objects that are drawn on it.

use std::path::PathBuf;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::api_rig::{ask, client};
use crate::program::Program;
use crate::rig::Scratch;

pub(super) const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

/// A stack that runs. The program goes before the directory.
pub(super) struct Stage {
    pub(super) up: Program,
    pub(super) api: kube::Client,
    pub(super) scratch: Scratch,
}

impl Stage {
    pub(super) async fn set() -> Self {
        let scratch = Scratch::new();
        let data = scratch.path("data");
        let up = ["up", "--listen", "127.0.0.1:0", "--data", data.to_str().expect("a path of ours")];
        let mut up = Program::orlop(&up);
        up.says("ready address=127.0.0.1:", 1).await;
        let log = up.log();
        let address = log.split("ready address=").nth(1).and_then(|rest| rest.split(' ').next()).expect("it was said");
        let api = client(&data.join("kubeconfig"), address).await;
        Self { up, api, scratch }
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.scratch.path("data").join(name)
    }

    /// The address with the token.
    pub(super) fn url(&self) -> String {
        std::fs::read_to_string(self.file("page-url")).expect("it was written").trim().to_owned()
    }

    pub(super) async fn create(&self, path: &str, object: &Value) {
        let (code, answer) = ask(&self.api, ("POST", path), Some(object)).await.expect("the server answers");
        assert_eq!(code, 201, "{answer}");
    }

    pub(super) async fn delete(&self, path: &str) {
        let (code, answer) = ask(&self.api, ("DELETE", path), None).await.expect("the server answers");
        assert!((200..300).contains(&code), "{answer}");
    }
}

pub(super) fn claims(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims")
}

pub(super) fn pods(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

pub(super) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

pub(super) fn class(name: &str, provisioner: &str, mode: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": provisioner, "volumeBindingMode": mode})
}

pub(super) fn claim(name: &str, class: &str, size: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
                 "resources": {"requests": {"storage": size}}}})
}

pub(super) fn pod(name: &str, claim: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "automountServiceAccountToken": false,
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
        "containers": [{"name": "main", "image": "example/main",
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}})
}

/// An answer over HTTP: its head and its body.
pub(super) struct Reply {
    pub(super) code: u16,
    pub(super) head: String,
    pub(super) body: String,
}

/// Asks as a program would that is no browser.
pub(super) async fn get(address: &str, path: &str, headers: &[(&str, &str)]) -> Reply {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let host =
        if headers.iter().any(|(name, _)| *name == "Host") { String::new() } else { format!("Host: {address}\r\n") };
    let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!("GET {path} HTTP/1.1\r\n{host}{more}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("it is HTTP");
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("it is HTTP");
    Reply { code, head: head.to_owned(), body: body.to_owned() }
}
