//! The node authorizer: what the identity of a node may do (API-8).
//!
//! A node reads only what belongs to the pods that are bound to it, and writes only about itself. Everything else it may
//! do is in one table. A user that is no node is not judged here, and what the node authorizer does not allow, a role still
//! may.
//!
//! A mirror pod gives its node no right to anything but the pod itself: a node makes such pods, and would otherwise choose
//! what it may read.

use super::authorize::{Attributes, Authority, Decision, Object, authorize};
use super::node_index::{NodeIndex, UsedKind};
use super::{Rbac, User};
use crate::admission::Lookup;
use crate::kinds::read::text;
use crate::relations::Relations;
use crate::request::go_quote;
use crate::store::Store;

const NODES: &str = "system:nodes";
const PREFIX: &str = "system:node:";
const NODE_LEASES: &str = "kube-node-lease";
const READ: &[&str] = &["get", "list", "watch"];
const OWN: &[&str] = &["get", "create", "update", "patch", "delete"];
const CHANGE: &[&str] = &["update", "patch"];
const NODE_FIELD: &str = "spec.nodeName";

/// Rights that every node has: group, resource with subresource, verbs.
const RULES: &[(&str, &str, &[&str])] = &[
    ("", "endpoints", &["get"]),
    ("", "events", &["create", "patch", "update"]),
    ("", "services", READ),
    ("authentication.k8s.io", "tokenreviews", &["create"]),
    ("authorization.k8s.io", "localsubjectaccessreviews", &["create"]),
    ("authorization.k8s.io", "subjectaccessreviews", &["create"]),
    ("certificates.k8s.io", "certificatesigningrequests", &["create", "get", "list", "watch"]),
    ("events.k8s.io", "events", &["create", "patch", "update"]),
    ("node.k8s.io", "runtimeclasses", READ),
    ("storage.k8s.io", "csidrivers", READ),
];

/// RBAC, and before it the rules for nodes.
#[derive(Clone, Copy)]
pub(crate) struct WithNodes<'a> {
    pub(crate) rbac: &'a Rbac,
    pub(crate) lookup: &'a dyn Lookup,
    pub(crate) relations: &'a Relations,
    pub(crate) store: &'a Store,
}

impl std::fmt::Debug for WithNodes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WithNodes")
    }
}

impl Authority for WithNodes<'_> {
    fn judge(&self, attributes: &Attributes<'_>) -> Decision {
        let Some(node) = node_of(attributes.user) else { return authorize(self.rbac, attributes) };
        let judge = |index: &NodeIndex| NodeRights { node, lookup: self.lookup, index }.judge(attributes);
        let refusal = match self.relations.with(self.store, judge) {
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

/// The node whose identity a user is. Its name is empty if the user's name does not tell it.
fn node_of(user: &User) -> Option<&str> {
    let member = user.groups.iter().any(|group| group == NODES);
    user.name.strip_prefix(PREFIX).filter(|_| member)
}

/// A refusal is empty or a sentence for a person.
type Judgement = Result<(), String>;

fn no(why: &str) -> Judgement {
    Err(why.to_owned())
}

/// One node, and the objects that its rights follow from.
struct NodeRights<'a> {
    node: &'a str,
    lookup: &'a dyn Lookup,
    index: &'a NodeIndex,
}

/// The object that a request names. Empty strings are absent parts.
#[derive(Clone, Copy)]
struct Asked<'a> {
    verb: &'a str,
    subresource: &'a str,
    namespace: &'a str,
    name: &'a str,
}

impl NodeRights<'_> {
    fn judge(&self, attributes: &Attributes<'_>) -> Judgement {
        if self.node.is_empty() {
            return Err(format!("unknown node for user {}", go_quote(&attributes.user.name)));
        }
        let Object::Resource { group, resource, subresource, namespace, name } = attributes.object else {
            return no("");
        };
        let asked = Asked { verb: attributes.verb.as_ref(), subresource, namespace, name };
        match (group, resource) {
            ("", "secrets") => self.reads(asked, || self.uses_secret(namespace, name)),
            ("", "configmaps") => self.reads(asked, || self.uses(UsedKind::ConfigMap, namespace, name)),
            ("", "persistentvolumeclaims") if subresource == "status" => match CHANGE.contains(&asked.verb) {
                true => self.related(name, || self.uses(UsedKind::Claim, namespace, name)),
                false => no("can only get/update/patch this type"),
            },
            ("", "persistentvolumeclaims") => self.gets(asked, || self.uses(UsedKind::Claim, namespace, name)),
            ("", "persistentvolumes") => self.gets(asked, || self.uses_volume(name)),
            ("resource.k8s.io", "resourceclaims") => {
                self.gets(asked, || self.uses(UsedKind::ResourceClaim, namespace, name))
            }
            ("storage.k8s.io", "volumeattachments") => self.gets(asked, || {
                let attachment = self.lookup.get("VolumeAttachment", "", name);
                attachment.is_some_and(|attachment| text(&attachment, "/spec/nodeName") == self.node)
            }),
            ("", "serviceaccounts") => self.service_account(asked),
            ("coordination.k8s.io", "leases") => self.lease(asked),
            ("storage.k8s.io", "csinodes") => self.csi_node(asked),
            ("resource.k8s.io", "resourceslices") => self.resource_slice(asked, attributes),
            ("", "nodes") => self.node(asked),
            ("", "pods") => self.pod(asked, attributes),
            _ => by_rule(group, resource, subresource, asked.verb),
        }
    }

    /// `get`, `list` and `watch` of single objects in a namespace.
    fn reads(&self, asked: Asked<'_>, related: impl FnOnce() -> bool) -> Judgement {
        match asked {
            Asked { verb, .. } if !READ.contains(&verb) => no("can only read resources of this type"),
            Asked { subresource, .. } if !subresource.is_empty() => no("cannot read subresource"),
            Asked { namespace: "", .. } => no("can only read namespaced object of this type"),
            Asked { name, .. } => self.related(name, related),
        }
    }

    fn gets(&self, asked: Asked<'_>, related: impl FnOnce() -> bool) -> Judgement {
        match asked {
            Asked { verb, .. } if verb != "get" => no("can only get individual resources of this type"),
            Asked { subresource, .. } if !subresource.is_empty() => no("cannot get subresource"),
            Asked { name, .. } => self.related(name, related),
        }
    }

    fn related(&self, name: &str, related: impl FnOnce() -> bool) -> Judgement {
        match name {
            "" => no("No Object name found"),
            _ if related() => Ok(()),
            _ => Err(format!("no relationship found between node '{}' and this object", self.node)),
        }
    }

    fn service_account(&self, asked: Asked<'_>) -> Judgement {
        let runs_as = || self.uses(UsedKind::ServiceAccount, asked.namespace, asked.name);
        match (asked.verb, asked.subresource, asked.name) {
            ("get", "", _) => self.reads(asked, runs_as),
            (verb, _, name) if verb != "create" || name.is_empty() => {
                no("can only create tokens for individual service accounts")
            }
            (_, "token", name) => self.related(name, runs_as),
            _ => no("can only create token subresource of serviceaccount"),
        }
    }

    fn lease(&self, asked: Asked<'_>) -> Judgement {
        match asked {
            Asked { verb, .. } if !OWN.contains(&verb) => {
                no("can only get, create, update, patch, or delete a node lease")
            }
            Asked { namespace, .. } if namespace != NODE_LEASES => {
                Err(format!("can only access leases in the {} system namespace", go_quote(NODE_LEASES)))
            }
            // The name of a new one is not known here; admission compares it.
            Asked { verb, name, .. } if verb != "create" && name != self.node => {
                no("can only access node lease with the same name as the requesting node")
            }
            _ => Ok(()),
        }
    }

    fn csi_node(&self, asked: Asked<'_>) -> Judgement {
        match asked {
            Asked { verb, .. } if !OWN.contains(&verb) => {
                no("can only get, create, update, patch, or delete a CSINode")
            }
            Asked { subresource, .. } if !subresource.is_empty() => no("cannot authorize CSINode subresources"),
            Asked { verb, name, .. } if verb != "create" && name != self.node => {
                no("can only access CSINode with the same name as the requesting node")
            }
            _ => Ok(()),
        }
    }

    /// Slices are not stored here, so that none belongs to a node.
    fn resource_slice(&self, asked: Asked<'_>, attributes: &Attributes<'_>) -> Judgement {
        match asked.verb {
            _ if !asked.subresource.is_empty() => no("cannot authorize ResourceSlice subresources"),
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.related(asked.name, || false),
            "list" | "watch" | "deletecollection" if self.selects_own(attributes) => Ok(()),
            "list" | "watch" | "deletecollection" => {
                no("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => no("only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, \
                 patch, delete, deletecollection"),
        }
    }

    fn node(&self, asked: Asked<'_>) -> Judgement {
        match (asked.subresource, asked.verb) {
            // Admission lets it touch only its own.
            ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
            ("", "get" | "list" | "watch") => match asked.name {
                name if name == self.node => Ok(()),
                "" => Err(format!("node '{}' cannot read all nodes, only its own Node object", self.node)),
                name => Err(format!("node '{}' cannot read '{name}', only its own Node object", self.node)),
            },
            _ => no(""),
        }
    }

    fn pod(&self, asked: Asked<'_>, attributes: &Attributes<'_>) -> Judgement {
        let bound = || {
            let pod = self.lookup.get("Pod", asked.namespace, asked.name);
            pod.is_some_and(|pod| text(&pod, "/spec/nodeName") == self.node)
        };
        match (asked.subresource, asked.verb) {
            ("", "get") => self.related(asked.name, bound),
            ("", "list" | "watch") if self.selects_own(attributes) => Ok(()),
            ("", "list" | "watch") if !asked.name.is_empty() => self.related(asked.name, bound),
            ("", "list" | "watch") => no("can only list/watch pods with spec.nodeName field selector"),
            // Admission lets it touch only those that are bound to it.
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => no(""),
        }
    }

    /// Whether a list or watch is narrowed to what is on the node.
    fn selects_own(&self, attributes: &Attributes<'_>) -> bool {
        let selector = attributes.fields.as_ref();
        selector.is_some_and(|selector| {
            selector.terms().iter().any(|term| term.equal && term.field == NODE_FIELD && term.value == self.node)
        })
    }

    /// Whether a pod that is bound to the node uses the object.
    fn uses(&self, kind: UsedKind, namespace: &str, name: &str) -> bool {
        self.index.is_used(self.node, kind, namespace, name)
    }

    /// Whether a pod of the node names the Secret, or a volume that is bound to a claim of such a pod.
    fn uses_secret(&self, namespace: &str, wanted: &str) -> bool {
        self.uses(UsedKind::Secret, namespace, wanted)
            || self.index.volumes_between(self.node, namespace, wanted).into_iter().any(|volume| self.is_bound(volume))
    }

    /// Whether the claim that a volume names is one of the node's pods'.
    fn uses_volume(&self, volume: &str) -> bool {
        self.lookup.get("PersistentVolume", "", volume).is_some_and(|volume| {
            let (namespace, claim) = (text(&volume, "/spec/claimRef/namespace"), text(&volume, "/spec/claimRef/name"));
            !claim.is_empty() && self.uses(UsedKind::Claim, namespace, claim)
        })
    }

    /// Whether the claim that a volume names has that volume. A volume alone proves nothing: its writer chose the claim.
    fn is_bound(&self, name: &str) -> bool {
        let Some(volume) = self.lookup.get("PersistentVolume", "", name) else { return false };
        let [namespace, claim, uid] =
            ["namespace", "name", "uid"].map(|field| text(&volume, &format!("/spec/claimRef/{field}")));
        let claim = self.lookup.get("PersistentVolumeClaim", namespace, claim);
        claim.is_some_and(|claim| {
            text(&claim, "/spec/volumeName") == name && (uid.is_empty() || text(&claim, "/metadata/uid") == uid)
        })
    }
}

fn by_rule(group: &str, resource: &str, subresource: &str, verb: &str) -> Judgement {
    let slash = if subresource.is_empty() { "" } else { "/" };
    let full = format!("{resource}{slash}{subresource}");
    let allowed = RULES.iter().any(|(of, name, verbs)| *of == group && *name == full && verbs.contains(&verb));
    if allowed { Ok(()) } else { no("") }
}
