//! The objects that the rights of nodes follow from, by what is asked about them: which pods of which node use an object,
//! and which volumes use a Secret, serve a claim or have a handle. One question costs a look-up, however many objects
//! there are.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::admission::references::{
    COPIED, CopySource, WaitingCopy, pod_claims, pod_config_maps, pod_resource_claims, pod_secrets, volume_secrets,
    waiting_copy,
};
use crate::keys::MIRROR_POD;
use crate::kinds::read::{annotation, name, text};

/// The kind of an object that a pod uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UsedKind {
    Claim,
    ConfigMap,
    ResourceClaim,
    Secret,
    ServiceAccount,
}

/// A namespace and a name in it.
type Place = (String, String);

/// An object that pods of a node use.
type Use = (String, UsedKind, Place);

fn place(namespace: &str, name: &str) -> Place {
    (namespace.to_owned(), name.to_owned())
}

/// Pods and volumes as of the last look.
#[derive(Debug, Default)]
pub(crate) struct NodeIndex {
    /// What each bound pod uses, to take it out again. Mirror pods are not here: their node chose what they name.
    pods: BTreeMap<Place, Vec<Use>>,
    /// How many pods use an object.
    uses: BTreeMap<Use, usize>,
    volumes: BTreeMap<String, VolumeRelations>,
    by_secret: BTreeMap<Place, BTreeSet<String>>,
    by_claim: BTreeMap<Place, BTreeSet<String>>,
    /// By driver and handle.
    by_handle: BTreeMap<Place, BTreeSet<String>>,
    /// Claims that wait to be copies of something.
    copies: BTreeMap<Place, WaitingCopy>,
    by_source: BTreeMap<CopySource, BTreeSet<Place>>,
}

/// The objects that a volume is found by.
#[derive(Debug, Default)]
struct VolumeRelations {
    secrets: BTreeSet<Place>,
    claim: Option<Place>,
    handle: Option<Place>,
}

impl NodeIndex {
    pub(crate) fn apply_pod(&mut self, namespace: &str, pod: &Value) {
        self.remove_pod(namespace, name(pod));
        let node = text(pod, "/spec/nodeName");
        if node.is_empty() || annotation(pod, MIRROR_POD).is_some() {
            return;
        }
        let account = Some(text(pod, "/spec/serviceAccountName")).filter(|name| !name.is_empty());
        let owned = |kind: UsedKind, names: Vec<&str>| {
            names.into_iter().map(|name| (node.to_owned(), kind, place(namespace, name))).collect::<Vec<_>>()
        };
        let claims = pod_claims(pod);
        let uses: BTreeSet<Use> = [
            owned(UsedKind::Claim, claims.iter().map(String::as_str).collect()),
            owned(UsedKind::ConfigMap, pod_config_maps(pod)),
            owned(UsedKind::ResourceClaim, pod_resource_claims(pod)),
            owned(UsedKind::Secret, pod_secrets(pod)),
            owned(UsedKind::ServiceAccount, account.into_iter().collect()),
        ]
        .into_iter()
        .flatten()
        .collect();
        for used in &uses {
            *self.uses.entry(used.clone()).or_default() += 1;
        }
        self.pods.insert(place(namespace, name(pod)), uses.into_iter().collect());
    }

    pub(crate) fn remove_pod(&mut self, namespace: &str, name: &str) {
        for used in self.pods.remove(&place(namespace, name)).into_iter().flatten() {
            if let Some(count) = self.uses.get_mut(&used) {
                *count -= 1;
                if *count == 0 {
                    self.uses.remove(&used);
                }
            }
        }
    }

    pub(crate) fn apply_volume(&mut self, volume: &Value) {
        self.remove_volume(name(volume));
        let pair = |first: &str, second: &str| {
            let (first, second) = (text(volume, first), text(volume, second));
            Some(place(first, second)).filter(|_| !second.is_empty())
        };
        let relations = VolumeRelations {
            secrets: volume_secrets(volume).into_iter().map(|(namespace, name)| place(namespace, name)).collect(),
            claim: pair("/spec/claimRef/namespace", "/spec/claimRef/name"),
            handle: pair("/spec/csi/driver", "/spec/csi/volumeHandle"),
        };
        let own = name(volume).to_owned();
        for secret in &relations.secrets {
            self.by_secret.entry(secret.clone()).or_default().insert(own.clone());
        }
        if let Some(claim) = &relations.claim {
            self.by_claim.entry(claim.clone()).or_default().insert(own.clone());
        }
        if let Some(handle) = &relations.handle {
            self.by_handle.entry(handle.clone()).or_default().insert(own.clone());
        }
        self.volumes.insert(own, relations);
    }

    pub(crate) fn remove_volume(&mut self, name: &str) {
        let Some(VolumeRelations { secrets, claim, handle }) = self.volumes.remove(name) else { return };
        for secret in &secrets {
            take_out(&mut self.by_secret, secret, name);
        }
        if let Some(claim) = claim {
            take_out(&mut self.by_claim, &claim, name);
        }
        if let Some(handle) = handle {
            take_out(&mut self.by_handle, &handle, name);
        }
    }

    pub(crate) fn apply_claim(&mut self, namespace: &str, claim: &Value) {
        self.remove_claim(namespace, name(claim));
        if let Some(copy) = waiting_copy(namespace, claim) {
            let own = place(namespace, name(claim));
            self.by_source.entry(copy.source.clone()).or_default().insert(own.clone());
            self.copies.insert(own, copy);
        }
    }

    pub(crate) fn remove_claim(&mut self, namespace: &str, name: &str) {
        let own = place(namespace, name);
        let Some(WaitingCopy { source, .. }) = self.copies.remove(&own) else { return };
        if let Some(claims) = self.by_source.get_mut(&source) {
            claims.remove(&own);
            if claims.is_empty() {
                self.by_source.remove(&source);
            }
        }
    }

    /// Whether a claim whose volume is not to be made on the node waits to be a copy of the object.
    pub(crate) fn is_copied_elsewhere(&self, (kind, namespace, name): (&str, &str, &str), node: &str) -> bool {
        let Some(kind) = COPIED.into_iter().find(|copied| *copied == kind) else { return false };
        let claims = self.by_source.get(&(kind, namespace.to_owned(), name.to_owned()));
        let elsewhere = |claim: &Place| self.copies.get(claim).is_some_and(|copy| copy.node != node);
        claims.is_some_and(|claims| claims.iter().any(elsewhere))
    }

    /// Whether a pod that is bound to the node uses the object.
    pub(crate) fn is_used(&self, node: &str, kind: UsedKind, namespace: &str, name: &str) -> bool {
        // No namespace is not every namespace.
        !namespace.is_empty() && self.uses.contains_key(&(node.to_owned(), kind, place(namespace, name)))
    }

    /// The volumes that name the Secret and that serve a claim of the node's pods. Looks at the volumes of the Secret or
    /// at the claims of the node, whichever are fewer.
    pub(crate) fn volumes_between(&self, node: &str, namespace: &str, secret: &str) -> Vec<&str> {
        let secret = place(namespace, secret);
        let Some(naming) = self.by_secret.get(&secret) else { return Vec::new() };
        let claims = self.claims_of(node);
        if naming.len() <= claims.len() {
            let serves = |volume: &&String| {
                let claim = self.volumes.get(*volume).and_then(|volume| volume.claim.as_ref());
                claim.is_some_and(|claim| claims.contains(claim))
            };
            return naming.iter().filter(serves).map(String::as_str).collect();
        }
        let serving = claims.into_iter().filter_map(|claim| self.by_claim.get(claim)).flatten();
        serving.filter(|volume| naming.contains(*volume)).map(String::as_str).collect()
    }

    fn claims_of(&self, node: &str) -> BTreeSet<&Place> {
        let first = (node.to_owned(), UsedKind::Claim, Place::default());
        let of_node = self.uses.range(first..).map(|(used, _)| used);
        of_node.take_while(|(of, kind, _)| of == node && *kind == UsedKind::Claim).map(|(.., claim)| claim).collect()
    }

    /// Whether a volume other than the named one has the handle.
    pub(crate) fn is_handle_of_another(&self, driver: &str, handle: &str, name: &str) -> bool {
        let having = self.by_handle.get(&place(driver, handle));
        having.is_some_and(|having| having.iter().any(|other| other != name))
    }
}

fn take_out(map: &mut BTreeMap<Place, BTreeSet<String>>, key: &Place, name: &str) {
    if let Some(names) = map.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            map.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use api::keys::annotation::SELECTED_NODE;
    use serde_json::json;

    use super::*;

    fn pod(name: &str, node: &str, secret: &str, claim: &str) -> Value {
        json!({"metadata": {"name": name}, "spec": {"nodeName": node, "serviceAccountName": "runner", "volumes": [
            {"name": "s", "secret": {"secretName": secret}},
            {"name": "c", "persistentVolumeClaim": {"claimName": claim}}]}})
    }

    fn volume(name: &str, claim: &str, secret: &str) -> Value {
        json!({"metadata": {"name": name}, "spec": {"claimRef": {"namespace": "ns", "name": claim},
            "csi": {"driver": "d", "volumeHandle": name, "nodeStageSecretRef": {"namespace": "ns", "name": secret}}}})
    }

    #[test]
    fn a_use_ends_with_the_last_pod_that_has_it() {
        let mut index = NodeIndex::default();
        let uses = |index: &NodeIndex| index.is_used("n1", UsedKind::Secret, "ns", "s");
        index.apply_pod("ns", &pod("a", "n1", "s", "c"));
        index.apply_pod("ns", &pod("b", "n1", "s", "c"));
        // The same version again, as after a list that starts over.
        index.apply_pod("ns", &pod("b", "n1", "s", "c"));
        assert!(uses(&index) && index.is_used("n1", UsedKind::ServiceAccount, "ns", "runner"));
        assert!(!index.is_used("n2", UsedKind::Secret, "ns", "s"));
        assert!(!index.is_used("n1", UsedKind::ConfigMap, "ns", "s"));
        assert!(!index.is_used("n1", UsedKind::Secret, "", "s"));
        index.remove_pod("ns", "a");
        assert!(uses(&index));
        index.apply_pod("ns", &pod("b", "n1", "other", "c"));
        assert!(!uses(&index), "an update takes its old uses out");
        index.remove_pod("ns", "b");
        assert!(index.uses.is_empty() && index.pods.is_empty());
    }

    #[test]
    fn a_source_is_found_as_long_as_a_claim_waits_for_its_copy() {
        let mut index = NodeIndex::default();
        let source = ("PersistentVolumeClaim", "ns", "source");
        let claim = |node: &str, phase: &str| {
            json!({"metadata": {"name": "copy", "annotations": {SELECTED_NODE.text(): node}},
                "spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "source"}}, "status": {"phase": phase}})
        };
        index.apply_claim("ns", &claim("n1", "Pending"));
        assert!(index.is_copied_elsewhere(source, "n2") && !index.is_copied_elsewhere(source, "n1"));
        assert!(!index.is_copied_elsewhere(("PersistentVolumeClaim", "other", "source"), "n2"));
        assert!(!index.is_copied_elsewhere(("VolumeSnapshot", "ns", "source"), "n2"));
        index.apply_claim("ns", &claim("n1", "Bound"));
        assert!(!index.is_copied_elsewhere(source, "n2"), "it has its volume");
        index.apply_claim("ns", &claim("", "Pending"));
        assert!(index.is_copied_elsewhere(source, "n1"), "its volume may be made anywhere");
        index.remove_claim("ns", "copy");
        assert!(index.copies.is_empty() && index.by_source.is_empty());
    }

    /// Ephemeral containers come by a subresource, which is not served here; another server may have stored them.
    #[test]
    fn ephemeral_containers_use_what_their_environment_names() {
        let mut index = NodeIndex::default();
        let mut debugged = pod("a", "n1", "s", "c");
        let key = json!({"env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "key", "key": "k"}}}],
            "envFrom": [{"configMapRef": {"name": "map"}}]});
        debugged["spec"]["ephemeralContainers"] = json!([key]);
        index.apply_pod("ns", &debugged);
        assert!(index.is_used("n1", UsedKind::Secret, "ns", "key"));
        assert!(index.is_used("n1", UsedKind::ConfigMap, "ns", "map"));
    }

    #[test]
    fn a_pod_without_a_node_and_a_mirror_pod_give_no_rights() {
        let mut index = NodeIndex::default();
        index.apply_pod("ns", &pod("a", "", "s", "c"));
        let mut mirror = pod("b", "n1", "s", "c");
        mirror["metadata"]["annotations"] = json!({MIRROR_POD: "x"});
        index.apply_pod("ns", &mirror);
        assert!(index.uses.is_empty());
    }

    #[test]
    fn volumes_between_a_node_and_a_secret_are_found_from_either_side() {
        let mut index = NodeIndex::default();
        index.apply_pod("ns", &pod("a", "n1", "x", "c1"));
        for number in 0..5 {
            index.apply_volume(&volume(&format!("v{number}"), &format!("c{number}"), "shared"));
        }
        index.apply_volume(&volume("alone", "c1", "rare"));
        assert_eq!(index.volumes_between("n1", "ns", "shared"), ["v1"], "from the claims of the node");
        assert_eq!(index.volumes_between("n1", "ns", "rare"), ["alone"], "from the volumes of the Secret");
        assert!(index.volumes_between("n2", "ns", "shared").is_empty());
        assert!(index.is_handle_of_another("d", "v1", "new") && !index.is_handle_of_another("d", "v1", "v1"));
        for name in ["v0", "v1", "v2", "v3", "v4", "alone"] {
            index.remove_volume(name);
        }
        assert!(index.by_secret.is_empty() && index.by_claim.is_empty() && index.by_handle.is_empty());
    }
}
