//! The objects that a pod or a volume names. The node authorizer lets a node read them, and NodeRestriction lets no node
//! invent a pod that names one.

use serde_json::Value;

use api::keys::annotation::SELECTED_NODE;

use crate::kinds::read::{annotation, list, name, present, text};

/// Places of the name of a Secret in a volume of a pod.
const POD_VOLUME_SECRETS: [&str; 10] = [
    "/azureFile/secretName",
    "/cephfs/secretRef/name",
    "/cinder/secretRef/name",
    "/csi/nodePublishSecretRef/name",
    "/flexVolume/secretRef/name",
    "/iscsi/secretRef/name",
    "/rbd/secretRef/name",
    "/scaleIO/secretRef/name",
    "/secret/secretName",
    "/storageos/secretRef/name",
];

/// Secret references of a PersistentVolume that a node needs: their place, and whether an absent namespace means that of
/// the claim.
const VOLUME_SECRETS: [(&str, bool); 10] = [
    ("cephfs/secretRef", true),
    ("cinder/secretRef", false),
    ("csi/nodeExpandSecretRef", false),
    ("csi/nodePublishSecretRef", false),
    ("csi/nodeStageSecretRef", false),
    ("flexVolume/secretRef", true),
    ("iscsi/secretRef", true),
    ("rbd/secretRef", true),
    ("scaleIO/secretRef", true),
    ("storageos/secretRef", false),
];

/// Secret references of a PersistentVolume that only controllers need.
const CONTROLLER_SECRETS: [&str; 2] = ["csi/controllerExpandSecretRef", "csi/controllerPublishSecretRef"];

/// Sources of a pod's volume that need no other object of the API, as NodeRestriction sees it.
const PLAIN_SOURCES: [&str; 22] = [
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

/// Sources of a pod's volume that need other objects, and the words for them.
const NEEDING_SOURCES: [(&str, &str); 7] = [
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("azureFile", "secrets (via azureFile volumes)"),
];

/// Sources of a projected volume that need other objects, and the words for them.
const NEEDING_PROJECTIONS: [(&str, &str); 5] = [
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

/// The Secrets that a pod names itself, in its own namespace.
pub(crate) fn pod_secrets(pod: &Value) -> Vec<&str> {
    let pulled = list(pod, "/spec/imagePullSecrets").iter().map(|secret| text(secret, "/name"));
    let volumes = list(pod, "/spec/volumes").iter().flat_map(|volume| {
        let direct = POD_VOLUME_SECRETS.iter().map(|pointer| text(volume, pointer));
        direct.chain(list(volume, "/projected/sources").iter().map(|source| text(source, "/secret/name")))
    });
    let variables = in_environment(pod, "/secretRef/name", "/valueFrom/secretKeyRef/name");
    pulled.chain(volumes).chain(variables).filter(|name| !name.is_empty()).collect()
}

/// The ConfigMaps that a pod names, in its own namespace.
pub(crate) fn pod_config_maps(pod: &Value) -> Vec<&str> {
    let volumes = list(pod, "/spec/volumes").iter().flat_map(|volume| {
        let projected = list(volume, "/projected/sources").iter().map(|source| text(source, "/configMap/name"));
        [text(volume, "/configMap/name")].into_iter().chain(projected)
    });
    let variables = in_environment(pod, "/configMapRef/name", "/valueFrom/configMapKeyRef/name");
    volumes.chain(variables).filter(|name| !name.is_empty()).collect()
}

/// The sources of the variables of a pod's containers.
fn in_environment<'a>(pod: &'a Value, all: &'a str, one: &'a str) -> impl Iterator<Item = &'a str> {
    let lists = ["/spec/containers", "/spec/initContainers", "/spec/ephemeralContainers"];
    let containers = lists.into_iter().flat_map(|lists| list(pod, lists));
    containers.flat_map(move |container| {
        let from = list(container, "/envFrom").iter().map(move |source| text(source, all));
        from.chain(list(container, "/env").iter().map(move |variable| text(variable, one)))
    })
}

/// The claim of a pod's volume. An ephemeral one has the name of its pod and its volume.
pub(crate) fn volume_claim(pod: &Value, volume: &Value) -> Option<String> {
    match text(volume, "/persistentVolumeClaim/claimName") {
        "" if present(volume, "/ephemeral").is_some() => Some(format!("{}-{}", name(pod), text(volume, "/name"))),
        "" => None,
        claim => Some(claim.to_owned()),
    }
}

/// The claims that a pod uses.
pub(crate) fn pod_claims(pod: &Value) -> Vec<String> {
    list(pod, "/spec/volumes").iter().filter_map(|volume| volume_claim(pod, volume)).collect()
}

/// The resource claims that a pod uses: those it names, and those that were made for it.
pub(crate) fn pod_resource_claims(pod: &Value) -> Vec<&str> {
    let named = list(pod, "/spec/resourceClaims").iter().map(|claim| text(claim, "/resourceClaimName"));
    let made = list(pod, "/status/resourceClaimStatuses").iter().map(|status| text(status, "/resourceClaimName"));
    let extended = text(pod, "/status/extendedResourceClaimStatus/resourceClaimName");
    named.chain(made).chain([extended]).filter(|name| !name.is_empty()).collect()
}

/// The Secrets that a node needs for a PersistentVolume, as namespace and name.
pub(crate) fn volume_secrets(volume: &Value) -> Vec<(&str, &str)> {
    let of_claim = text(volume, "/spec/claimRef/namespace");
    let of_azure = (text(volume, "/spec/azureFile/secretNamespace"), text(volume, "/spec/azureFile/secretName"), true);
    let others = VOLUME_SECRETS.iter().map(|(place, falls_back)| {
        let part = |field: &str| text(volume, &format!("/spec/{place}/{field}"));
        (part("namespace"), part("name"), *falls_back)
    });
    let all = others.chain([of_azure]).filter(|(_, name, _)| !name.is_empty());
    all.map(|(namespace, name, falls_back)| match falls_back && namespace.is_empty() {
        true => (of_claim, name),
        false => (namespace, name),
    })
    .collect()
}

/// Whether a PersistentVolume names any Secret, whoever needs it.
pub(crate) fn names_secret(volume: &Value) -> bool {
    let controllers = CONTROLLER_SECRETS.iter().any(|place| present(volume, &format!("/spec/{place}")).is_some());
    controllers || !volume_secrets(volume).is_empty()
}

/// A claim that waits for its volume, and whose content is to come from another object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaitingCopy {
    pub(crate) source: CopySource,
    /// Where its volume is to be made; empty if that is not chosen.
    pub(crate) node: String,
}

/// The source of a copy: its kind, namespace and name.
pub(crate) type CopySource = (&'static str, String, String);

/// The kinds that a copy can be made from.
pub(crate) const COPIED: [&str; 2] = ["PersistentVolumeClaim", "VolumeSnapshot"];

/// The source that a claim is to be a copy of, while it waits for its volume.
pub(crate) fn waiting_copy(namespace: &str, claim: &Value) -> Option<WaitingCopy> {
    let is_waiting = matches!(text(claim, "/status/phase"), "" | "Pending");
    let by_hand = present(claim, "/spec/storageClassName").is_some_and(|class| class == "");
    let source = present(claim, "/spec/dataSourceRef").or_else(|| present(claim, "/spec/dataSource"))?;
    let kind = match (text(source, "/apiGroup"), text(source, "/kind")) {
        ("", "PersistentVolumeClaim") => "PersistentVolumeClaim",
        ("snapshot.storage.k8s.io", "VolumeSnapshot") => "VolumeSnapshot",
        _ => return None,
    };
    let elsewhere = Some(text(source, "/namespace")).filter(|elsewhere| !elsewhere.is_empty());
    let source = (kind, elsewhere.unwrap_or(namespace).to_owned(), text(source, "/name").to_owned());
    let node = annotation(claim, SELECTED_NODE.text()).unwrap_or_default().to_owned();
    (is_waiting && !by_hand).then_some(WaitingCopy { source, node })
}

/// The kind of API object that a pod refers to, or that it cannot be determined.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PodReference {
    Named(&'static str),
    /// A volume or a source of one that is not known.
    Unknown(String),
}

/// Any object of the API that a pod needs, if it needs one.
pub(crate) fn pod_reference(pod: &Value) -> Option<PodReference> {
    let named = match () {
        () if !text(pod, "/spec/serviceAccountName").is_empty() => Some("serviceaccounts"),
        () if !pod_secrets(pod).is_empty() => Some("secrets"),
        () if !pod_config_maps(pod).is_empty() => Some("configmaps"),
        () if !list(pod, "/spec/resourceClaims").is_empty() => Some("resourceclaims"),
        () => None,
    };
    named.map(PodReference::Named).or_else(|| list(pod, "/spec/volumes").iter().find_map(volume_reference))
}

fn volume_reference(volume: &Value) -> Option<PodReference> {
    let has = |source: &str| present(volume, &format!("/{source}")).is_some();
    if PLAIN_SOURCES.iter().any(|source| has(source)) {
        return None;
    }
    if let Some((_, words)) = NEEDING_SOURCES.iter().find(|(source, _)| has(source)) {
        return Some(PodReference::Named(words));
    }
    if !has("projected") {
        let why = format!("unknown volume type for volume  {}", crate::status::quote(text(volume, "/name")));
        return Some(PodReference::Unknown(why));
    }
    list(volume, "/projected/sources").iter().find_map(|source| {
        let has = |kind: &str| present(source, &format!("/{kind}")).is_some();
        match NEEDING_PROJECTIONS.iter().find(|(kind, _)| has(kind)) {
            Some((_, words)) => Some(PodReference::Named(words)),
            None if has("downwardAPI") => None,
            None => {
                let name = crate::status::quote(text(volume, "/name"));
                Some(PodReference::Unknown(format!("unknown source for projected volume {name}")))
            }
        }
    })
}
