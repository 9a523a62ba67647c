//! The pods of this node, as far as their volumes need them.
//!
//! A projection of its own: the controllers' knows claims only, and every node would pay for what containers mount.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use api::keys::condition;
use api::node::PodPhase;
use api::{Kind, Meta, Object, Pairs, Uid};
use lifecycle::migration;
use lifecycle::node::selinux::{Asked, ChangePolicy};
use runtime::client::Selection;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::host::When;

/// A pod that was given to this node.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "Wire")]
pub struct LocalPod {
    pub meta: Meta,
    pub phase: PodPhase,
    /// Whether its time to end is over, or somebody forced it away.
    pub grace: Option<i64>,
    pub service_account: Box<str>,
    /// `fsGroup`.
    pub group: Option<u32>,
    pub group_change: When,
    /// Who sees to it that its containers may read what they mount (NODE-15.4).
    pub relabelling: ChangePolicy,
    /// The volumes that a container uses, in the order of the pod. Others are never mounted (NODE-5.4).
    pub volumes: Box<[PodVolume]>,
    /// What the agent last said about its volumes.
    pub said: Option<Said>,
}

/// A volume that a container uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodVolume {
    pub name: Box<str>,
    pub source: VolumeSource,
    /// Whether a container mounts it.
    pub mounted: bool,
    /// Whether a container has it as a device.
    pub device: bool,
    /// The SELinux options of the containers that mount it, each once (NODE-15.1).
    pub contexts: Box<[Asked]>,
}

/// What a volume of a pod is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeSource {
    Claim {
        name: Box<str>,
        read_only: bool,
    },
    /// A claim that is made for the pod.
    Ephemeral,
    Csi(Box<InlineCsi>),
    EmptyDir {
        medium: Box<str>,
        size_limit: Option<Box<str>>,
    },
    HostPath {
        path: Box<str>,
        kind: Box<str>,
    },
    Nfs {
        server: Box<str>,
        path: Box<str>,
        read_only: bool,
    },
    /// Of an in-tree plugin that a CSI driver took over: the volume as it stands in the pod.
    Migrated(Box<Value>),
    /// What no storage is needed for, such as a secret: for whoever runs the containers.
    Other,
}

/// A volume that a driver makes for one pod.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct InlineCsi {
    pub driver: Box<str>,
    pub read_only: bool,
    pub fs_type: Option<Box<str>>,
    pub volume_attributes: Pairs,
    pub node_publish_secret_ref: Option<LocalReference>,
}

/// Names a secret in the pod's namespace.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(default)]
pub struct LocalReference {
    pub name: Box<str>,
}

/// A condition as it stands in the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    pub status: Box<str>,
    pub reason: Box<str>,
    pub message: Box<str>,
    pub since: Option<Box<str>>,
}

impl LocalPod {
    /// Which pods are this node's.
    pub fn selection(node: &str) -> Selection {
        Selection { fields: Some(format!("spec.nodeName={node}")), ..Selection::default() }
    }

    pub fn uid(&self) -> &Uid {
        &self.meta.uid
    }

    pub fn name(&self) -> &str {
        self.meta.key.name()
    }

    pub fn namespace(&self) -> &str {
        self.meta.key.namespace().unwrap_or_default()
    }

    /// Whether it wants its volumes: it has neither ended nor been deleted. No container of it runs on this machine, so
    /// that nothing has to be waited for.
    pub fn lives(&self) -> bool {
        !self.meta.is_deleting() && !matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// The name of the claim that is made for one of its volumes.
    pub fn claim_of(&self, volume: &str) -> String {
        format!("{}-{volume}", self.name())
    }
}

impl Object for LocalPod {
    const KIND: Kind = Kind::POD;

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
    #[serde(default)]
    spec: WireSpec,
    #[serde(default)]
    status: WireStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMeta {
    #[serde(flatten)]
    meta: Meta,
    deletion_grace_period_seconds: Option<i64>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    service_account_name: Box<str>,
    security_context: Option<WireSecurity>,
    volumes: Option<Vec<WireVolume>>,
    containers: Option<Vec<WireContainer>>,
    init_containers: Option<Vec<WireContainer>>,
    ephemeral_containers: Option<Vec<WireContainer>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireSecurity {
    fs_group: Option<u32>,
    fs_group_change_policy: Option<Box<str>>,
    se_linux_options: Option<WireSelinux>,
    se_linux_change_policy: Option<Box<str>>,
}

#[derive(Deserialize, Default, Clone)]
#[serde(default)]
struct WireSelinux {
    user: Option<Box<str>>,
    role: Option<Box<str>>,
    #[serde(rename = "type")]
    kind: Option<Box<str>>,
    level: Option<Box<str>>,
}

impl WireSelinux {
    /// `None` if nothing is asked for.
    fn asked(self) -> Option<Asked> {
        let said = |text: Option<Box<str>>| text.filter(|text| !text.is_empty());
        let (user, level) = (said(self.user), said(self.level));
        let other = said(self.role).or(said(self.kind));
        (user.is_some() || level.is_some() || other.is_some()).then_some(Asked { user, level })
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireContainerSecurity {
    se_linux_options: Option<WireSelinux>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireContainer {
    volume_mounts: Option<Vec<WireUse>>,
    volume_devices: Option<Vec<WireUse>>,
    security_context: Option<WireContainerSecurity>,
}

#[derive(Deserialize)]
struct WireUse {
    name: Box<str>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireVolume {
    name: Box<str>,
    persistent_volume_claim: Option<WireClaim>,
    ephemeral: Option<serde::de::IgnoredAny>,
    csi: Option<Box<InlineCsi>>,
    empty_dir: Option<WireEmptyDir>,
    host_path: Option<WireHostPath>,
    nfs: Option<WireNfs>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireClaim {
    claim_name: Box<str>,
    read_only: bool,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireEmptyDir {
    medium: Box<str>,
    size_limit: Option<Box<str>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireHostPath {
    path: Box<str>,
    #[serde(rename = "type")]
    kind: Option<Box<str>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireNfs {
    server: Box<str>,
    path: Box<str>,
    read_only: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireStatus {
    phase: Option<PodPhase>,
    conditions: Option<Vec<WireCondition>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireCondition {
    #[serde(rename = "type")]
    kind: Box<str>,
    status: Box<str>,
    reason: Option<Box<str>>,
    message: Option<Box<str>>,
    last_transition_time: Option<Box<str>>,
}

impl WireVolume {
    fn read(self, uses: &Uses) -> Option<PodVolume> {
        let (mounted, device) = (uses.mounts.contains(&self.name), uses.devices.contains(&self.name));
        if !mounted && !device {
            return None;
        }
        let contexts = uses.contexts.get(&self.name).into_iter().flatten().cloned().collect();
        let Self { name, persistent_volume_claim, ephemeral, csi, empty_dir, host_path, nfs, others } = self;
        let source = if let Some(claim) = persistent_volume_claim {
            VolumeSource::Claim { name: claim.claim_name, read_only: claim.read_only }
        } else if ephemeral.is_some() {
            VolumeSource::Ephemeral
        } else if let Some(csi) = csi {
            VolumeSource::Csi(csi)
        } else if let Some(empty) = empty_dir {
            VolumeSource::EmptyDir { medium: empty.medium, size_limit: empty.size_limit }
        } else if let Some(host) = host_path {
            VolumeSource::HostPath { path: host.path, kind: host.kind.unwrap_or_default() }
        } else if let Some(nfs) = nfs {
            VolumeSource::Nfs { server: nfs.server, path: nfs.path, read_only: nfs.read_only }
        } else {
            migrated(&name, others)
        };
        Some(PodVolume { name, source, mounted, device, contexts })
    }
}

/// A volume of none of the kinds above: one that a driver took over, or none of ours.
fn migrated(name: &str, others: Map<String, Value>) -> VolumeSource {
    let mut volume = Value::Object(others);
    match migration::plugin_of_source(&volume) {
        Some(_) => {
            volume["name"] = name.into();
            VolumeSource::Migrated(Box::new(volume))
        }
        None => VolumeSource::Other,
    }
}

/// Which volumes the containers use, and how.
#[derive(Default)]
struct Uses {
    mounts: BTreeSet<Box<str>>,
    devices: BTreeSet<Box<str>>,
    contexts: BTreeMap<Box<str>, BTreeSet<Asked>>,
}

impl Uses {
    fn of(spec: &mut WireSpec) -> Self {
        let mut uses = Self::default();
        let of_pod = spec.security_context.as_ref().and_then(|security| security.se_linux_options.clone());
        let lists = [spec.containers.take(), spec.init_containers.take(), spec.ephemeral_containers.take()];
        for container in lists.into_iter().flatten().flatten() {
            // What a container says replaces all that its pod says.
            let own = container.security_context.and_then(|security| security.se_linux_options);
            let asked = own.or_else(|| of_pod.clone()).and_then(WireSelinux::asked);
            for used in container.volume_mounts.unwrap_or_default() {
                if let Some(asked) = &asked {
                    uses.contexts.entry(used.name.clone()).or_default().insert(asked.clone());
                }
                uses.mounts.insert(used.name);
            }
            uses.devices.extend(container.volume_devices.unwrap_or_default().into_iter().map(|used| used.name));
        }
        uses
    }
}

impl From<Wire> for LocalPod {
    fn from(wire: Wire) -> Self {
        let Wire { metadata, mut spec, status } = wire;
        let uses = Uses::of(&mut spec);
        let security = spec.security_context.unwrap_or_default();
        let ours = |condition: &WireCondition| &*condition.kind == condition::VOLUMES_READY;
        let said = status.conditions.unwrap_or_default().into_iter().find(ours).map(|condition| Said {
            status: condition.status,
            reason: condition.reason.unwrap_or_default(),
            message: condition.message.unwrap_or_default(),
            since: condition.last_transition_time,
        });
        Self {
            meta: metadata.meta,
            phase: status.phase.unwrap_or_default(),
            grace: metadata.deletion_grace_period_seconds,
            service_account: spec.service_account_name,
            group: security.fs_group,
            group_change: match security.fs_group_change_policy.as_deref() {
                Some("OnRootMismatch") => When::OnRootMismatch,
                _ => When::Always,
            },
            relabelling: match security.se_linux_change_policy.as_deref() {
                Some("Recursive") => ChangePolicy::Recursive,
                _ => ChangePolicy::MountOption,
            },
            volumes: spec.volumes.unwrap_or_default().into_iter().filter_map(|volume| volume.read(&uses)).collect(),
            said,
        }
    }
}

/// Attributes as a driver is given them.
pub(crate) fn attributes(pairs: &Pairs) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}
