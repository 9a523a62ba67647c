//! The node authorizer: what the identity of a node may do (spec/apiserver.md section 8).
//!
//! A node reads only what belongs to the pods that are bound to it, and writes only about itself. Everything else it may
//! do is in one table. Who is no node is none of its business, and what it does not allow, a role still may.

use serde_json::Value;

use super::authorize::{Attributes, Authority, Decision, Object, authorize};
use super::{Rbac, User};
use crate::admission::Lookup;
use crate::kinds::read::{list, name, text};

const NODES: &str = "system:nodes";
const PREFIX: &str = "system:node:";
const READ: &[&str] = &["get", "list", "watch"];
const OWN: &[&str] = &["get", "create", "update", "patch", "delete"];

/// What a node may do to kinds that are not about single pods: group, resource with subresource, verbs.
const RULES: &[(&str, &str, &[&str])] = &[
    ("", "events", &["create", "patch", "update"]),
    ("", "namespaces", &["get"]),
    ("", "nodes", &["create", "get", "list", "watch", "patch", "update"]),
    ("", "nodes/status", &["patch", "update"]),
    ("", "pods", &["get", "list", "watch", "create", "delete"]),
    ("", "pods/eviction", &["create"]),
    ("", "pods/status", &["patch", "update"]),
    ("authentication.k8s.io", "tokenreviews", &["create"]),
    ("authorization.k8s.io", "localsubjectaccessreviews", &["create"]),
    ("authorization.k8s.io", "subjectaccessreviews", &["create"]),
    ("events.k8s.io", "events", &["create", "patch", "update"]),
    ("storage.k8s.io", "csidrivers", READ),
];

/// RBAC, and before it the rules for nodes.
#[derive(Clone, Copy)]
pub struct WithNodes<'a> {
    pub rbac: &'a Rbac,
    pub lookup: &'a dyn Lookup,
}

impl std::fmt::Debug for WithNodes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WithNodes")
    }
}

impl Authority for WithNodes<'_> {
    fn judge(&self, attributes: &Attributes<'_>) -> Decision {
        let Some(node) = node_of(attributes.user) else { return authorize(self.rbac, attributes) };
        let refusal = match (Node { name: node, lookup: self.lookup }).judge(attributes) {
            Ok(()) => return Decision::Allowed { reason: String::new() },
            Err(refusal) => refusal,
        };
        match authorize(self.rbac, attributes) {
            Decision::NoOpinion { reason } => {
                let reasons = [refusal, reason].into_iter().filter(|reason| !reason.is_empty());
                Decision::NoOpinion { reason: reasons.collect::<Vec<_>>().join(", ") }
            }
            allowed @ Decision::Allowed { .. } => allowed,
        }
    }
}

/// The node whose identity a user is.
fn node_of(user: &User) -> Option<&str> {
    let member = user.groups.iter().any(|group| group == NODES);
    user.name.strip_prefix(PREFIX).filter(|node| member && !node.is_empty())
}

struct Node<'a> {
    name: &'a str,
    lookup: &'a dyn Lookup,
}

impl Node<'_> {
    /// The refusal is empty or a sentence for a person.
    fn judge(&self, attributes: &Attributes<'_>) -> Result<(), String> {
        let Object::Resource { group, resource, subresource, namespace, name } = attributes.object else {
            return Err(String::new());
        };
        let verb = attributes.verb.as_ref();
        match (group, resource, subresource) {
            ("", "secrets", "") => self.reads(verb, name, || self.uses(namespace, name, secrets, "Secret")),
            ("", "configmaps", "") => self.reads(verb, name, || self.uses(namespace, name, config_maps, "ConfigMap")),
            ("", "persistentvolumeclaims", "" | "status") => {
                let allowed: &[&str] = if subresource.is_empty() { &["get"] } else { &["get", "update", "patch"] };
                self.gets(verb, allowed, name, || self.uses_claim(namespace, name))
            }
            ("", "persistentvolumes", "") => self.gets(verb, &["get"], name, || self.uses_volume(name)),
            ("storage.k8s.io", "volumeattachments", "") => self.gets(verb, &["get"], name, || {
                let attachment = self.lookup.get("VolumeAttachment", "", name);
                attachment.is_some_and(|attachment| text(&attachment, "/spec/nodeName") == self.name)
            }),
            ("", "serviceaccounts", "token") => self.gets(verb, &["create"], name, || {
                let runs_as = |pod: &Value| text(pod, "/spec/serviceAccountName") == name;
                self.pods(namespace).iter().any(runs_as)
            }),
            ("storage.k8s.io", "csinodes", "") => {
                // The name of a new one is not known here; admission compares it.
                let own = name == self.name || (verb == "create" && name.is_empty());
                match own && OWN.contains(&verb) {
                    true => Ok(()),
                    false => Err("can only access CSINode with the same name as the requesting node".to_owned()),
                }
            }
            ("coordination.k8s.io", "leases", "") => {
                let own =
                    namespace == "kube-node-lease" && (name == self.name || (verb == "create" && name.is_empty()));
                match own && OWN.contains(&verb) {
                    true => Ok(()),
                    false => Err("can only access node lease with the same name as the requesting node".to_owned()),
                }
            }
            _ => by_rule(group, resource, subresource, verb),
        }
    }

    fn reads(&self, verb: &str, name: &str, related: impl FnOnce() -> bool) -> Result<(), String> {
        if !READ.contains(&verb) {
            return Err("can only read resources of this type".to_owned());
        }
        self.related(name, related)
    }

    fn gets(&self, verb: &str, allowed: &[&str], name: &str, related: impl FnOnce() -> bool) -> Result<(), String> {
        if !allowed.contains(&verb) {
            return Err("can only get individual resources of this type".to_owned());
        }
        self.related(name, related)
    }

    fn related(&self, name: &str, related: impl FnOnce() -> bool) -> Result<(), String> {
        match (name.is_empty(), name) {
            (true, _) => Err("No Object name found".to_owned()),
            (false, _) if related() => Ok(()),
            (false, _) => Err(format!("no relationship found between node '{}' and this object", self.name)),
        }
    }

    /// The pods of a namespace that are bound to the node.
    fn pods(&self, namespace: &str) -> Vec<Value> {
        let mut pods = self.lookup.list("Pod", namespace);
        pods.retain(|pod| text(pod, "/spec/nodeName") == self.name);
        pods
    }

    /// Whether a pod of the node names the object, or, of secrets, a volume that such a pod uses.
    fn uses(&self, namespace: &str, wanted: &str, named: fn(&Value) -> Vec<&str>, kind: &str) -> bool {
        if self.pods(namespace).iter().any(|pod| named(pod).contains(&wanted)) {
            return true;
        }
        kind == "Secret"
            && self.lookup.list("PersistentVolume", "").iter().any(|volume| {
                let names = |pointer: &str| {
                    text(volume, &format!("{pointer}/name")) == wanted
                        && text(volume, &format!("{pointer}/namespace")) == namespace
                };
                let secrets = ["nodeStageSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"];
                secrets.iter().any(|secret| names(&format!("/spec/csi/{secret}"))) && self.uses_volume(name(volume))
            })
    }

    fn uses_claim(&self, namespace: &str, claim: &str) -> bool {
        self.pods(namespace).iter().any(|pod| claims(pod).iter().any(|used| used == claim))
    }

    fn uses_volume(&self, volume: &str) -> bool {
        let Some(volume) = self.lookup.get("PersistentVolume", "", volume) else { return false };
        let (namespace, claim) = (text(&volume, "/spec/claimRef/namespace"), text(&volume, "/spec/claimRef/name"));
        !claim.is_empty() && self.uses_claim(namespace, claim)
    }
}

fn by_rule(group: &str, resource: &str, subresource: &str, verb: &str) -> Result<(), String> {
    let slash = if subresource.is_empty() { "" } else { "/" };
    let full = format!("{resource}{slash}{subresource}");
    let allowed = RULES.iter().any(|(of, name, verbs)| *of == group && *name == full && verbs.contains(&verb));
    if allowed { Ok(()) } else { Err(String::new()) }
}

/// The claims that a pod uses. An ephemeral one has the name of its pod and its volume.
fn claims(pod: &Value) -> Vec<String> {
    let volumes = list(pod, "/spec/volumes").iter();
    volumes
        .filter_map(|volume| match text(volume, "/persistentVolumeClaim/claimName") {
            "" if volume.get("ephemeral").is_some() => Some(format!("{}-{}", name(pod), text(volume, "/name"))),
            "" => None,
            claim => Some(claim.to_owned()),
        })
        .collect()
}

fn secrets(pod: &Value) -> Vec<&str> {
    let pulled = list(pod, "/spec/imagePullSecrets").iter().map(|secret| text(secret, "/name"));
    let volumes = list(pod, "/spec/volumes").iter().flat_map(|volume| {
        let direct = ["/secret/secretName", "/csi/nodePublishSecretRef/name", "/rbd/secretRef/name"];
        let direct = direct.map(|pointer| text(volume, pointer)).into_iter();
        direct.chain(list(volume, "/projected/sources").iter().map(|source| text(source, "/secret/name")))
    });
    let variables = in_environment(pod, "/secretRef/name", "/valueFrom/secretKeyRef/name");
    pulled.chain(volumes).chain(variables).filter(|name| !name.is_empty()).collect()
}

fn config_maps(pod: &Value) -> Vec<&str> {
    let volumes = list(pod, "/spec/volumes").iter().flat_map(|volume| {
        let projected = list(volume, "/projected/sources").iter().map(|source| text(source, "/configMap/name"));
        [text(volume, "/configMap/name")].into_iter().chain(projected)
    });
    let variables = in_environment(pod, "/configMapRef/name", "/valueFrom/configMapKeyRef/name");
    volumes.chain(variables).filter(|name| !name.is_empty()).collect()
}

/// What the variables of a pod's containers come from.
fn in_environment<'a>(pod: &'a Value, all: &'a str, one: &'a str) -> impl Iterator<Item = &'a str> {
    let containers = ["/spec/containers", "/spec/initContainers"].into_iter().flat_map(|lists| list(pod, lists));
    containers.flat_map(move |container| {
        let from = list(container, "/envFrom").iter().map(move |source| text(source, all));
        from.chain(list(container, "/env").iter().map(move |variable| text(variable, one)))
    })
}
