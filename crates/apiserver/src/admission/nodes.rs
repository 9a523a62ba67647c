//! TaintNodesByCondition and NodeRestriction: a new node takes no pods until it is ready, and a node's own identity may
//! only touch what belongs to that node.

use super::references::{PodReference, pod_reference};
use super::{Lookup, Operation, Request};
use crate::keys::{MACHINE_KEY, MIRROR_POD};
use crate::kinds::read::{annotation, copy, flag, list, pairs, present, remove, set, text, unchanged};
use crate::status::{ApiError, Resource};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const NOT_READY: &str = crate::keys::NODE_NOT_READY;

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub struct User<'a> {
    pub name: &'a str,
    pub groups: &'a [&'a str],
}

impl<'a> User<'a> {
    /// The node whose identity this is; empty if the name does not tell it.
    pub(super) fn node(&self) -> Option<&'a str> {
        if self.groups.contains(&"system:nodes") { self.name.strip_prefix("system:node:") } else { None }
    }

    /// The machine beside whose driver this one stands.
    pub(super) fn machine(&self) -> Option<&'a str> {
        if self.groups.contains(&"orlop:machines") { self.name.strip_prefix("orlop:machine:") } else { None }
    }
}

/// TaintNodesByCondition.
pub(super) fn taint(request: &Request<'_>, node: &mut Value) {
    if !request.is(Operation::Create, "", "nodes") {
        return;
    }
    let mut taints = list(node, "/spec/taints").to_vec();
    let tainted = |taint: &Value| text(taint, "/key") == NOT_READY && text(taint, "/effect") == "NoSchedule";
    if !taints.iter().any(tainted) {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
        set(node, "/spec/taints", taints);
    }
}

/// NodeRestriction, for the kinds that are served.
pub(super) fn restrict(
    request: &Request<'_>,
    object: Option<&Value>,
    user: &User<'_>,
    lookup: &dyn Lookup,
) -> Result<(), ApiError> {
    let Some(node) = user.node() else { return Ok(()) };
    if node.is_empty() {
        return Err(request.forbidden(&format!("could not determine node from user {}", quoted(user.name))));
    }
    match (request.resource.group, request.resource.name) {
        ("", "nodes") => restrict_node(request, object, node),
        ("", "pods") => restrict_pod(request, object, node, lookup),
        ("", "persistentvolumeclaims") => restrict_claim(request, object, node),
        ("storage.k8s.io", "csinodes") if request.name != node => {
            Err(request.forbidden("can only access CSINode with the same name as the requesting node"))
        }
        ("coordination.k8s.io", "leases") if request.namespace != "kube-node-lease" => {
            Err(request.forbidden("can only access leases in the \"kube-node-lease\" system namespace"))
        }
        ("coordination.k8s.io", "leases") if request.name != node => {
            Err(request.forbidden("can only access node lease with the same name as the requesting node"))
        }
        _ => Ok(()),
    }
}

/// A node ends its own pods and reports about them. It makes only those that stand for something it runs by itself.
fn restrict_pod(
    request: &Request<'_>,
    object: Option<&Value>,
    node: &str,
    lookup: &dyn Lookup,
) -> Result<(), ApiError> {
    let own = |pod: Option<&Value>| pod.is_some_and(|pod| text(pod, "/spec/nodeName") == node);
    let refused = |why: String| Err(request.forbidden(&why));
    let name = quoted(node);
    match (request.operation, request.subresource) {
        (Operation::Create, "") => restrict_mirror_pod(request, object.unwrap_or(&Value::Null), node, lookup),
        // An object that does not exist is reported by the deletion itself.
        (Operation::Delete, "") if request.old.is_none() || own(request.old) => Ok(()),
        (Operation::Delete, "") => {
            refused(format!("node {name} can only delete pods with spec.nodeName set to itself"))
        }
        (Operation::Update, "status") if !own(request.old) => {
            refused(format!("node {name} can only update pod status for pods with spec.nodeName set to itself"))
        }
        (Operation::Update, "status") => restrict_pod_status(request, object, node),
        (Operation::Create, "eviction") if request.old.is_none() => {
            Err(ApiError::not_found(Resource::new("", "pod"), request.name))
        }
        (Operation::Create, "eviction") if own(request.old) => Ok(()),
        (Operation::Create, "eviction") => {
            refused(format!("node {node} can only evict pods with spec.nodeName set to itself"))
        }
        (operation, "") => {
            let operation = operation_name(operation);
            refused(format!("unexpected operation {operation}, node {name} can only create and delete mirror pods"))
        }
        (operation, "status" | "eviction") => refused(format!("unexpected operation {}", operation_name(operation))),
        (_, other) => {
            let other = quoted(other);
            refused(format!("unexpected pod subresource {other}, only 'status' and 'eviction' are allowed"))
        }
    }
}

fn operation_name(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "\"CREATE\"",
        Operation::Update => "\"UPDATE\"",
        Operation::Delete => "\"DELETE\"",
    }
}

/// A mirror pod belongs to its node and to nothing else, and names no other object: a node may read what its pods name.
fn restrict_mirror_pod(request: &Request<'_>, pod: &Value, node: &str, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let name = quoted(node);
    let refused = |why: String| Err(request.forbidden(&why));
    let only = |what: &str| Err(request.forbidden(&format!("node {name} can only create pods with {what}")));
    if annotation(pod, MIRROR_POD).is_none() {
        let mirror = quoted(MIRROR_POD);
        return refused(format!("pod does not have {mirror} annotation, node {name} can only create mirror pods"));
    }
    if text(pod, "/spec/nodeName") != node {
        return only("spec.nodeName set to itself");
    }
    let owner = match list(pod, "/metadata/ownerReferences") {
        [owner] => owner,
        [] => return only("an owner reference set to itself"),
        _ => return only("a single owner reference set to itself"),
    };
    let is = |field: &str, wanted: &str| text(owner, field) == wanted;
    if !(is("/apiVersion", "v1") && is("/kind", "Node") && is("/name", node)) {
        return only("an owner reference set to itself");
    }
    if !flag(owner, "/controller") {
        return only("a controller owner reference set to itself");
    }
    if flag(owner, "/blockOwnerDeletion") {
        return refused(format!("node {name} must not set blockOwnerDeletion on an owner reference"));
    }
    let Some(own) = lookup.get("Node", "", node) else {
        return Err(ApiError::not_found(Resource::new("", "node"), node));
    };
    let (given, uid) = (text(owner, "/uid"), text(&own, "/metadata/uid"));
    if given != uid {
        return refused(format!("node {node} UID mismatch: expected {given} got {uid}"));
    }
    match pod_reference(pod) {
        None => Ok(()),
        Some(PodReference::Named(what)) => refused(format!("node {name} can not create pods that reference {what}")),
        Some(PodReference::Unknown(why)) => refused(format!("error checking mirror pod for API references: {why}")),
    }
}

/// A report about a pod changes neither by which labels it is found nor which resource claims it has.
fn restrict_pod_status(request: &Request<'_>, object: Option<&Value>, node: &str) -> Result<(), ApiError> {
    let (Some(pod), Some(old)) = (object, request.old) else { return Ok(()) };
    const KEPT: [(&str, &str); 4] = [
        ("/metadata/labels", "cannot update labels through pod status"),
        ("/status/resourceClaimStatuses", "cannot update resource claim statues"),
        ("/status/extendedResourceClaimStatus", "cannot update extended resource claim status"),
        ("/status/nodeAllocatableResourceClaimStatuses", "cannot update node allocatable resource claim statuses"),
    ];
    match KEPT.iter().find(|(pointer, _)| !unchanged(pod, old, pointer)) {
        Some((_, why)) => Err(request.forbidden(&format!("node {} {why}", quoted(node)))),
        None => Ok(()),
    }
}

fn restrict_node(request: &Request<'_>, object: Option<&Value>, node: &str) -> Result<(), ApiError> {
    let name = quoted(node);
    let refused = |why: &str| Err(request.forbidden(&format!("node {name} is not allowed to {why}")));
    if request.name != node {
        return refused(&format!("modify node {}", quoted(request.name)));
    }
    let Some(object) = object else { return Ok(()) };
    if annotation(object, MACHINE_KEY) != request.old.and_then(|old| annotation(old, MACHINE_KEY)) {
        return refused(&format!("modify the annotation {MACHINE_KEY}"));
    }
    // With a finalizer of its own a machine that is taken out would keep its Node.
    if !unchanged(object, request.old.unwrap_or(&Value::Null), "/metadata/finalizers") {
        return refused("modify finalizers");
    }
    let labels = forbidden_labels(object, request.old);
    let source = present(object, "/spec/configSource");
    let Some(old) = request.old else {
        return match (source, labels.is_empty()) {
            (Some(_), _) => refused("create pods with a non-nil configSource"),
            (None, false) => refused(&format!("set the following labels: {}", labels.join(", "))),
            (None, true) => Ok(()),
        };
    };
    if source.is_some() && !unchanged(object, old, "/spec/configSource") {
        return refused("update configSource to a new non-nil configSource");
    }
    for (pointer, what) in [("/spec/taints", "taints"), ("/metadata/ownerReferences", "ownerReferences")] {
        if !unchanged(object, old, pointer) {
            return refused(&format!("modify {what}"));
        }
    }
    if labels.is_empty() {
        return Ok(());
    }
    Err(request.forbidden(&format!("is not allowed to modify labels: {}", labels.join(", "))))
}

/// The labels a node changes although they are not its to set: with them it could draw pods to itself.
fn forbidden_labels(node: &Value, old: Option<&Value>) -> Vec<String> {
    let before: BTreeMap<&str, &str> =
        old.map(|old| pairs(old, "/metadata/labels")).unwrap_or_default().into_iter().collect();
    let after: BTreeMap<&str, &str> = pairs(node, "/metadata/labels").into_iter().collect();
    let changed = after.iter().filter(|(key, value)| before.get(*key) != Some(*value));
    let removed = before.iter().filter(|(key, _)| !after.contains_key(*key));
    let keys: BTreeSet<&str> = changed.chain(removed).map(|(key, _)| *key).collect();
    keys.into_iter().filter(|key| !is_own_label(key)).map(String::from).collect()
}

/// Whether a node may set a label: everything outside the reserved domains, and what its agent is known to report.
fn is_own_label(key: &str) -> bool {
    const REPORTED: [&str; 11] = [
        crate::keys::HOSTNAME,
        crate::keys::OS,
        crate::keys::ARCH,
        crate::keys::ZONE,
        crate::keys::REGION,
        crate::keys::INSTANCE_TYPE,
        crate::keys::BETA_OS,
        crate::keys::BETA_ARCH,
        crate::keys::BETA_INSTANCE_TYPE,
        crate::keys::BETA_ZONE,
        crate::keys::BETA_REGION,
    ];
    let Some((domain, _)) = key.split_once('/') else { return true };
    let under = |parent: &str| domain == parent || domain.ends_with(&format!(".{parent}"));
    match domain {
        _ if under("node-restriction.kubernetes.io") => false,
        _ if !under("kubernetes.io") && !under("k8s.io") => true,
        _ => under("kubelet.kubernetes.io") || under("node.kubernetes.io") || REPORTED.contains(&key),
    }
}

/// A node reports about claims it serves: only through status, and only what resizing changes.
fn restrict_claim(request: &Request<'_>, object: Option<&Value>, node: &str) -> Result<(), ApiError> {
    if request.subresource != "status" {
        return Err(request.forbidden("may only update PVC status"));
    }
    if request.operation != Operation::Update {
        return Err(request.forbidden(&format!("unexpected operation {}", operation_name(request.operation))));
    }
    let (Some(object), Some(old)) = (object, request.old) else { return Ok(()) };
    let rest = |claim: &Value| {
        let mut rest = json!({"metadata": copy(claim, "/metadata"), "status": copy(claim, "/status")});
        for field in ["capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"] {
            remove(&mut rest, &format!("/status/{field}"));
        }
        for field in ["managedFields", "resourceVersion"] {
            remove(&mut rest, &format!("/metadata/{field}"));
        }
        rest
    };
    if unchanged(&rest(object), &rest(old), "") {
        return Ok(());
    }
    let why = "is not allowed to update fields other than status.quantity and status.conditions";
    Err(request.forbidden(&format!("node {} {why}", quoted(node))))
}

fn quoted(name: &str) -> String {
    crate::status::quote(name)
}
