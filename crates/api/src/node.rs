//! Where volumes go: Node, CSINode, and what a scheduler needs of pods.

use serde::Deserialize;

use crate::keys::{Taint, annotation, condition};
use crate::object::{Kind, Meta, Object, UnixSeconds, Word};
use crate::selector::NodeSelector;

/// A machine.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "WireNode")]
pub struct Node {
    pub meta: Meta,
    pub unschedulable: bool,
    pub taints: Box<[NodeTaint]>,
    pub ready: Readiness,
    /// When `ready` became what it is, if the node's condition says so.
    pub ready_since: Option<UnixSeconds>,
    /// When the node last said that it lives, if its condition Ready tells.
    pub heartbeat: Option<UnixSeconds>,
    /// What the attach/detach controller reports to be attached here, in the order of the object.
    pub attached: Box<[AttachedVolume]>,
    /// Unique names of the volumes that the node's agent uses, or is about to use.
    pub in_use: Box<[Box<str>]>,
}

/// An entry of `status.volumesAttached`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttachedVolume {
    /// The volume's unique name.
    pub name: Box<str>,
    #[serde(default)]
    pub device_path: Box<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct NodeTaint {
    pub key: Word,
    #[serde(default)]
    pub value: Box<str>,
    pub effect: Word,
}

/// What the node last said of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    NotReady,
    /// No condition, or one that says so.
    Unknown,
}

impl Node {
    pub fn name(&self) -> &str {
        self.meta.key.name()
    }

    /// Whether the node leaves attaching and detaching to the controller. Presence of the annotation only.
    pub fn attach_is_managed(&self) -> bool {
        self.meta.annotation(annotation::MANAGED_ATTACH).is_some()
    }

    pub fn has_taint(&self, key: Taint) -> bool {
        self.taints.iter().any(|taint| taint.key == *key.text())
    }

    /// Whether the controller reports the volume of this unique name to be attached.
    pub fn reports_attached(&self, unique: &str) -> bool {
        self.attached.iter().any(|volume| &*volume.name == unique)
    }

    /// Whether it was heard of before and is not any more: whoever follows nodes' leases has set its condition to Unknown.
    pub fn is_lost(&self) -> bool {
        self.ready == Readiness::Unknown && (self.heartbeat.is_some() || self.ready_since.is_some())
    }

    /// Whether the node's agent uses the volume of this unique name.
    pub fn uses(&self, unique: &str) -> bool {
        self.in_use.iter().any(|name| &**name == unique)
    }
}

impl Object for Node {
    const KIND: Kind = Kind::NODE;

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Deserialize)]
struct WireNode {
    metadata: Meta,
    #[serde(default)]
    spec: WireNodeSpec,
    #[serde(default)]
    status: WireNodeStatus,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireNodeSpec {
    unschedulable: bool,
    taints: Box<[NodeTaint]>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireNodeStatus {
    conditions: Vec<WireCondition>,
    #[serde(rename = "volumesAttached")]
    attached: Option<Box<[AttachedVolume]>>,
    #[serde(rename = "volumesInUse")]
    in_use: Option<Box<[Box<str>]>>,
}

#[derive(Deserialize)]
struct WireCondition {
    #[serde(rename = "type")]
    kind: Box<str>,
    status: Box<str>,
    #[serde(rename = "lastTransitionTime", default)]
    changed: Option<UnixSeconds>,
    #[serde(rename = "lastHeartbeatTime", default)]
    heartbeat: Option<UnixSeconds>,
}

impl From<WireNode> for Node {
    fn from(wire: WireNode) -> Self {
        let condition = wire.status.conditions.iter().find(|condition| &*condition.kind == "Ready");
        let ready = match condition.map(|condition| &*condition.status) {
            Some("True") => Readiness::Ready,
            Some("False") => Readiness::NotReady,
            _ => Readiness::Unknown,
        };
        Self {
            ready,
            ready_since: condition.and_then(|condition| condition.changed),
            heartbeat: condition.and_then(|condition| condition.heartbeat),
            meta: wire.metadata,
            unschedulable: wire.spec.unschedulable,
            taints: wire.spec.taints,
            attached: wire.status.attached.unwrap_or_default(),
            in_use: wire.status.in_use.unwrap_or_default(),
        }
    }
}

/// Which drivers run on a node, and how they name it.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "WireCsiNode")]
pub struct CsiNode {
    pub meta: Meta,
    pub drivers: Box<[NodeDriver]>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeDriver {
    pub name: Word,
    #[serde(rename = "nodeID", default)]
    pub node_id: Box<str>,
    #[serde(default)]
    pub topology_keys: Option<Box<[Word]>>,
    pub allocatable: Option<Allocatable>,
}

/// How many volumes fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Allocatable {
    /// Absent means without limit.
    pub count: Option<i32>,
}

impl CsiNode {
    pub fn driver(&self, name: &str) -> Option<&NodeDriver> {
        self.drivers.iter().find(|driver| &*driver.name == name)
    }

    /// Whether the node leaves an in-tree plugin's volumes to its CSI driver.
    pub fn migrated(&self, plugin: &str) -> bool {
        let listed = self.meta.annotation(annotation::MIGRATED_PLUGINS).unwrap_or_default();
        listed.split(',').any(|name| name.trim() == plugin)
    }
}

impl NodeDriver {
    pub fn topology_keys(&self) -> &[Word] {
        self.topology_keys.as_deref().unwrap_or_default()
    }
}

impl Object for CsiNode {
    const KIND: Kind = Kind::CSI_NODE;

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Deserialize)]
struct WireCsiNode {
    metadata: Meta,
    #[serde(default)]
    spec: WireCsiNodeSpec,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireCsiNodeSpec {
    /// An empty list comes as null.
    drivers: Option<Box<[NodeDriver]>>,
}

impl From<WireCsiNode> for CsiNode {
    fn from(wire: WireCsiNode) -> Self {
        Self { meta: wire.metadata, drivers: wire.spec.drivers.unwrap_or_default() }
    }
}

/// A pod: its claims, and what a scheduler asks of a node.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "WirePod")]
pub struct Pod {
    pub meta: Meta,
    /// Empty until it was scheduled.
    pub node: Box<str>,
    pub phase: PodPhase,
    /// Whether a container of it runs, as its status says.
    pub running: bool,
    /// Whether its condition Ready is True.
    pub ready: bool,
    pub volumes: Box<[PodVolume]>,
    pub scheduler: Word,
    /// Absent when the pod asks for nothing.
    pub placement: Option<Box<Placement>>,
    /// Whether the node finished with it, or it was deleted by force (PROTECT-8.1).
    pub grace: Option<i64>,
    /// Whether somebody wants to be asked before it is scheduled.
    pub gated: bool,
    /// Why a scheduler found no node for it, as the pod says.
    pub unschedulable: Option<Box<str>>,
    /// What an agent of ours says about its volumes.
    pub volumes_ready: Option<Box<VolumesReady>>,
}

/// The condition by which an agent that runs no containers says how far a pod's volumes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumesReady {
    pub ready: bool,
    pub reason: Box<str>,
    pub message: Box<str>,
    /// When `ready` became what it is, if the condition says so.
    pub since: Option<UnixSeconds>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum PodPhase {
    #[default]
    Pending,
    Running,
    Succeeded,
    Failed,
    #[serde(other)]
    Unknown,
}

impl PodPhase {
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
        }
    }
}

/// A volume of a pod that stands for storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodVolume {
    pub name: Box<str>,
    pub source: PodSource,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodSource {
    Claim {
        name: Box<str>,
        read_only: bool,
    },
    /// A claim made for the pod: its template as it came.
    Ephemeral {
        template: Box<serde_json::Value>,
    },
    /// A volume that a driver makes inside the pod's life.
    InlineCsi {
        driver: Word,
    },
    /// A volume of an in-tree plugin that a CSI driver took over: as it came, name and source.
    InTree {
        volume: Box<serde_json::Value>,
    },
}

/// What a pod wants of its node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placement {
    pub node_selector: crate::object::Pairs,
    pub affinity: Option<NodeSelector>,
    pub tolerations: Box<[Toleration]>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Toleration {
    pub key: Option<Box<str>>,
    pub operator: Option<Box<str>>,
    pub value: Option<Box<str>>,
    pub effect: Option<Box<str>>,
    /// How long a taint that evicts is tolerated; for ever if absent.
    #[serde(rename = "tolerationSeconds")]
    pub seconds: Option<i64>,
}

impl Pod {
    pub fn namespace(&self) -> &str {
        self.meta.key.namespace().unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.meta.key.name()
    }

    pub fn scheduled(&self) -> bool {
        !self.node.is_empty()
    }

    pub fn terminated(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// Whether it asks for its volumes to be attached: it has a node, has not ended, and is not on its way out with all
    /// containers stopped. That a container waits does not prove that it will not start, so that this alone frees no
    /// volume (ATTACH-6.2, CTRL-14.59).
    pub fn wants_volumes(&self) -> bool {
        self.scheduled() && !self.terminated() && (self.running || !self.meta.is_deleting())
    }

    /// The node finished with it, or it was deleted by force.
    pub fn shut_down(&self) -> bool {
        self.meta.is_deleting() && self.grace == Some(0)
    }

    /// Names of the claims it uses, those made for it included.
    pub fn claims(&self) -> impl Iterator<Item = Box<str>> {
        self.volumes.iter().filter_map(|volume| self.claim_of(volume))
    }

    /// The name of the claim that one of its volumes comes from, if it does.
    pub fn claim_of(&self, volume: &PodVolume) -> Option<Box<str>> {
        match &volume.source {
            PodSource::Claim { name, .. } => Some(name.clone()),
            PodSource::Ephemeral { .. } => Some(self.ephemeral_claim(volume)),
            PodSource::InlineCsi { .. } | PodSource::InTree { .. } => None,
        }
    }

    /// The name of the claim that is made for one of its volumes.
    pub fn ephemeral_claim(&self, volume: &PodVolume) -> Box<str> {
        format!("{}-{}", self.name(), volume.name).into()
    }
}

impl Object for Pod {
    const KIND: Kind = Kind::POD;

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Deserialize)]
struct WirePod {
    metadata: WirePodMeta,
    #[serde(default)]
    spec: WirePodSpec,
    #[serde(default)]
    status: WirePodStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WirePodMeta {
    #[serde(flatten)]
    meta: Meta,
    deletion_grace_period_seconds: Option<i64>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WirePodSpec {
    node_name: Box<str>,
    scheduler_name: Option<Word>,
    volumes: Vec<WireVolume>,
    node_selector: crate::object::Pairs,
    affinity: Option<WireAffinity>,
    tolerations: Box<[Toleration]>,
    scheduling_gates: Vec<serde::de::IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireVolume {
    name: Box<str>,
    persistent_volume_claim: Option<WireClaim>,
    ephemeral: Option<WireEphemeral>,
    csi: Option<WireInline>,
    gce_persistent_disk: Option<serde_json::Value>,
    aws_elastic_block_store: Option<serde_json::Value>,
    cinder: Option<serde_json::Value>,
    azure_disk: Option<serde_json::Value>,
    azure_file: Option<serde_json::Value>,
    vsphere_volume: Option<serde_json::Value>,
    portworx_volume: Option<serde_json::Value>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireClaim {
    claim_name: Box<str>,
    read_only: bool,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireEphemeral {
    volume_claim_template: Box<serde_json::Value>,
}

#[derive(Deserialize)]
struct WireInline {
    driver: Word,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireAffinity {
    node_affinity: Option<WireNodeAffinity>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireNodeAffinity {
    required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WirePodStatus {
    phase: Option<PodPhase>,
    conditions: Vec<WirePodCondition>,
    #[serde(rename = "initContainerStatuses")]
    init: Vec<WireContainer>,
    #[serde(rename = "containerStatuses")]
    regular: Vec<WireContainer>,
    #[serde(rename = "ephemeralContainerStatuses")]
    ephemeral: Vec<WireContainer>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireContainer {
    state: WireState,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireState {
    running: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WirePodCondition {
    #[serde(rename = "type")]
    kind: Box<str>,
    status: Box<str>,
    reason: Option<Box<str>>,
    message: Option<Box<str>>,
    #[serde(rename = "lastTransitionTime")]
    changed: Option<UnixSeconds>,
}

impl WirePodStatus {
    fn volumes_ready(&mut self) -> Option<Box<VolumesReady>> {
        let said = self.conditions.iter_mut().find(|condition| &*condition.kind == condition::VOLUMES_READY)?;
        let (reason, message) = (said.reason.take().unwrap_or_default(), said.message.take().unwrap_or_default());
        let (ready, since) = (&*said.status == "True", said.changed);
        Some(Box::new(VolumesReady { ready, reason, message, since }))
    }

    fn running(&self) -> bool {
        let mut all = self.init.iter().chain(&self.regular).chain(&self.ephemeral);
        all.any(|container| container.state.running.is_some())
    }

    fn ready(&self) -> bool {
        self.conditions.iter().any(|condition| &*condition.kind == "Ready" && &*condition.status == "True")
    }

    fn unschedulable(self) -> Option<Box<str>> {
        let said = |condition: &WirePodCondition| &*condition.kind == "PodScheduled" && &*condition.status == "False";
        self.conditions.into_iter().find(said).map(|condition| condition.message.unwrap_or_default())
    }
}

impl WireVolume {
    /// The source of an in-tree plugin that a driver took over, with its field.
    fn in_tree(&mut self) -> Option<(&'static str, serde_json::Value)> {
        let sources = [
            ("gcePersistentDisk", self.gce_persistent_disk.take()),
            ("awsElasticBlockStore", self.aws_elastic_block_store.take()),
            ("cinder", self.cinder.take()),
            ("azureDisk", self.azure_disk.take()),
            ("azureFile", self.azure_file.take()),
            ("vsphereVolume", self.vsphere_volume.take()),
            ("portworxVolume", self.portworx_volume.take()),
        ];
        sources.into_iter().find_map(|(field, source)| Some((field, source?)))
    }

    fn read(mut self) -> Option<PodVolume> {
        if let Some((field, source)) = self.in_tree() {
            let volume = Box::new(serde_json::json!({"name": self.name, field: source}));
            return Some(PodVolume { name: self.name, source: PodSource::InTree { volume } });
        }
        let Self { name, persistent_volume_claim, ephemeral, csi, .. } = self;
        let source = match (persistent_volume_claim, ephemeral, csi) {
            (Some(claim), _, _) => PodSource::Claim { name: claim.claim_name, read_only: claim.read_only },
            (_, Some(ephemeral), _) => PodSource::Ephemeral { template: ephemeral.volume_claim_template },
            (_, _, Some(inline)) => PodSource::InlineCsi { driver: inline.driver },
            (None, None, None) => return None,
        };
        Some(PodVolume { name, source })
    }
}

impl From<WirePod> for Pod {
    fn from(wire: WirePod) -> Self {
        let WirePod { metadata, spec, mut status } = wire;
        let affinity = spec
            .affinity
            .and_then(|affinity| affinity.node_affinity)
            .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution);
        let placement = Placement { node_selector: spec.node_selector, affinity, tolerations: spec.tolerations };
        Self {
            meta: metadata.meta,
            node: spec.node_name,
            phase: status.phase.unwrap_or_default(),
            running: status.running(),
            ready: status.ready(),
            volumes: spec.volumes.into_iter().filter_map(WireVolume::read).collect(),
            scheduler: spec.scheduler_name.unwrap_or_else(Word::empty),
            placement: (placement != Placement::default()).then(|| Box::new(placement)),
            grace: metadata.deletion_grace_period_seconds,
            gated: !spec.scheduling_gates.is_empty(),
            volumes_ready: status.volumes_ready(),
            unschedulable: status.unschedulable(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_csinode_without_drivers_says_null() {
        let text = r#"{"metadata": {"name": "n"}, "spec": {"drivers": null}}"#;
        let node: CsiNode = serde_json::from_str(text).unwrap();
        assert!(node.drivers.is_empty());
    }
    use crate::keys::taint;

    fn node(object: serde_json::Value) -> Node {
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn what_is_attached_and_what_is_used_is_read_from_the_wire() {
        let node = node(serde_json::json!({
            "metadata": {"name": "n", "annotations": {annotation::MANAGED_ATTACH.text(): "true"}},
            "spec": {"taints": [{"key": taint::OUT_OF_SERVICE.text(), "effect": "NoExecute"}]},
            "status": {
                "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "volumesAttached": [{"name": "a", "devicePath": "/dev/x"}, {"name": "b", "devicePath": ""}],
                "volumesInUse": ["b"],
            },
        }));
        assert!(node.attach_is_managed() && node.has_taint(taint::OUT_OF_SERVICE));
        assert_eq!((node.ready, node.ready_since), (Readiness::NotReady, Some(UnixSeconds(1_767_225_600))));
        assert_eq!(&*node.attached[0].device_path, "/dev/x");
        assert!(node.reports_attached("b") && node.uses("b") && !node.uses("a"));
    }

    /// Rule: ATTACH-6.2
    #[test]
    fn a_pod_that_goes_wants_its_volumes_while_a_container_runs() {
        let pod = |deleting: bool, status: serde_json::Value| -> Pod {
            let deleted = deleting.then_some("2026-01-01T00:00:00Z");
            let metadata = serde_json::json!({"namespace": "n", "name": "p", "deletionTimestamp": deleted});
            serde_json::from_value(serde_json::json!({
                "metadata": metadata, "spec": {"nodeName": "node"}, "status": status}))
            .unwrap()
        };
        let runs = serde_json::json!([{"name": "c", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]);
        let ended = serde_json::json!([{"name": "c", "state": {"terminated": {"exitCode": 0}}}, {"name": "d"}]);
        assert!(pod(false, serde_json::json!({"phase": "Pending"})).wants_volumes());
        assert!(pod(true, serde_json::json!({"phase": "Running", "containerStatuses": runs})).wants_volumes());
        assert!(pod(true, serde_json::json!({"phase": "Pending", "initContainerStatuses": runs})).wants_volumes());
        assert!(!pod(true, serde_json::json!({"phase": "Running", "containerStatuses": ended})).wants_volumes());
        assert!(!pod(true, serde_json::json!({})).wants_volumes(), "an empty list counts");
        assert!(!pod(false, serde_json::json!({"phase": "Failed", "containerStatuses": runs})).wants_volumes());
    }

    #[test]
    fn a_bare_node_is_unknown_and_has_nothing() {
        let node = node(serde_json::json!({"metadata": {"name": "n"}, "status": {"volumesAttached": null}}));
        assert_eq!((node.ready, node.ready_since, node.attach_is_managed()), (Readiness::Unknown, None, false));
        assert!(node.attached.is_empty() && node.in_use.is_empty());
    }
}
