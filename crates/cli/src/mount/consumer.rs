//! The pod that stands for a machine's use of a claim.

use std::path::Path;

use anyhow::{Context as _, bail};
use api::keys::{annotation, finalizer, label};
use api::{Claim, Class, ClassName, Key, Kind, Meta, Object, VolumeMode};
use runtime::Client;
use runtime::client::{Error, Selection};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// What the agent says about a pod's volumes.
const READY: &str = api::keys::condition::VOLUMES_READY;
const VOLUME: &str = "claim";

/// What is read of the pod.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Consumer {
    #[serde(rename = "metadata")]
    meta: Meta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    node_name: String,
    #[serde(default)]
    volumes: Vec<Value>,
    #[serde(default)]
    security_context: Security,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Security {
    fs_group: Option<u32>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Deserialize)]
struct Condition {
    r#type: String,
    status: String,
    #[serde(default)]
    message: String,
}

impl Object for Consumer {
    const KIND: Kind = Kind::POD;

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl Consumer {
    fn condition(&self) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.r#type == READY)
    }

    /// Whether the agent says that all volumes are there.
    pub(super) fn ready(&self) -> bool {
        self.condition().is_some_and(|condition| condition.status == "True")
    }

    /// Whether an agent has ever looked at it.
    pub(super) fn was_seen(&self) -> bool {
        self.condition().is_some()
    }

    /// What is still missing, in words.
    pub(super) fn waits_for(&self, node: &str) -> String {
        match self.condition() {
            Some(condition) if !condition.message.is_empty() => condition.message.clone(),
            _ if self.spec.node_name.is_empty() => {
                "no scheduler has put the pod on this node; the claim's class binds when a pod is scheduled".to_owned()
            }
            _ => format!("no agent of node {node:?} has looked at the pod; is `orlop node` running here?"),
        }
    }

    fn annotation(&self, key: api::keys::Annotation) -> Option<&str> {
        self.meta.annotation(key)
    }

    /// What was mounted for it, if that was written down.
    pub(super) fn shows(&self) -> Option<super::Shown> {
        self.annotation(annotation::HOST_MOUNT_SHOWS).and_then(super::Shown::parse)
    }

    /// The claim it uses, and whether only to read.
    fn claim(&self) -> Option<(&str, bool)> {
        let claim = self.spec.volumes.iter().map(|volume| &volume["persistentVolumeClaim"]);
        claim.filter_map(|claim| Some((claim["claimName"].as_str()?, claim["readOnly"] == true))).next()
    }
}

/// A machine's use of a claim.
#[derive(Debug)]
pub(super) struct Use<'a> {
    pub(super) claim: &'a Claim,
    pub(super) node: &'a str,
    pub(super) path: &'a Path,
    pub(super) read_only: bool,
    pub(super) fs_group: Option<u32>,
}

/// Who decides where the pod is: nobody, or a scheduler that has to choose a volume for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placing {
    Here,
    Scheduled,
}

impl Use<'_> {
    /// One pod per node and path, so that a repeated command finds it.
    pub(super) fn pod(&self) -> Key {
        let digest = Sha256::new()
            .chain_update(self.node)
            .chain_update("\0")
            .chain_update(self.path.as_os_str().as_encoded_bytes());
        let digest: String = digest.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        Key::namespaced(self.claim.key().namespace().unwrap_or_default(), &format!("orlop-mount-{digest}"))
    }

    pub(super) fn object(&self, placing: Placing) -> Value {
        let container = match self.claim.mode {
            VolumeMode::Filesystem => json!({"name": "host", "image": "orlop.dev/host",
                "volumeMounts": [{"name": VOLUME, "mountPath": "/claim", "readOnly": self.read_only}]}),
            VolumeMode::Block => json!({"name": "host", "image": "orlop.dev/host",
                "volumeDevices": [{"name": VOLUME, "devicePath": "/claim"}]}),
        };
        let mut spec = json!({"containers": [container], "restartPolicy": "Never", "automountServiceAccountToken": false,
            "enableServiceLinks": false, "tolerations": [{"operator": "Exists"}],
            "volumes": [{"name": VOLUME, "persistentVolumeClaim":
                {"claimName": self.claim.key().name(), "readOnly": self.read_only}}]});
        match placing {
            Placing::Here => spec["nodeName"] = self.node.into(),
            Placing::Scheduled => spec["nodeSelector"] = json!({label::HOSTNAME.0: self.node}),
        }
        if let Some(group) = self.fs_group {
            spec["securityContext"] = json!({"fsGroup": group});
        }
        let pod = self.pod();
        json!({"apiVersion": Kind::POD.api_version(), "kind": Kind::POD.kind, "spec": spec,
            "metadata": {"namespace": pod.namespace(), "name": pod.name(),
                "labels": {label::HOST_MOUNT.0: "true"},
                "annotations": {annotation::HOST_MOUNT_PATH.0: self.path, annotation::HOST_MOUNT_NODE.0: self.node},
                "finalizers": [finalizer::HOST_MOUNT.0]}})
    }

    /// A pod that is there already must be for the same.
    pub(super) fn agrees_with(&self, pod: &Consumer) -> anyhow::Result<()> {
        let (claim, read_only) = pod.claim().unwrap_or_default();
        if claim != self.claim.key().name() {
            bail!("claim {claim:?} is mounted at {} already; `orlop umount` it first", self.path.display());
        }
        if (read_only, pod.spec.security_context.fs_group) != (self.read_only, self.fs_group) {
            bail!(
                "the claim is mounted at {} already, with other options; `orlop umount` it first",
                self.path.display()
            );
        }
        Ok(())
    }
}

/// Whether the claim is bound only when a scheduler puts a pod somewhere.
pub(super) async fn waits_for_consumer(client: &Client, claim: &Claim) -> anyhow::Result<Placing> {
    let ClassName::Named(class) = claim.class() else { return Ok(Placing::Here) };
    if !claim.volume_name.is_empty() {
        return Ok(Placing::Here);
    }
    match client.get::<Class>(Kind::STORAGE_CLASS, &Key::cluster(class)).await {
        Ok(class) if class.delayed() => Ok(Placing::Scheduled),
        Ok(_) | Err(Error::NotFound { .. }) => Ok(Placing::Here),
        Err(error) => Err(error).with_context(|| format!("reading StorageClass {class}")),
    }
}

/// The pods that stand for a path of this machine; after a change of the claim's namespace there may be several.
pub(super) async fn of_path(client: &Client, node: &str, path: &Path) -> anyhow::Result<Vec<Consumer>> {
    let path = super::spelled(path)?;
    let selection = Selection { labels: Some(format!("{}=true", label::HOST_MOUNT)), ..Selection::default() };
    let (mut found, mut next) = (Vec::new(), None);
    loop {
        let page = client.list::<Consumer>(Kind::POD, &selection, 500, next.as_deref()).await;
        let page = page.context("listing the pods of `orlop mount`")?;
        found.extend(page.items.into_iter().filter(|pod| {
            pod.annotation(annotation::HOST_MOUNT_PATH) == Some(path)
                && pod.annotation(annotation::HOST_MOUNT_NODE) == Some(node)
        }));
        match page.next {
            Some(more) => next = Some(more),
            None => return Ok(found),
        }
    }
}
