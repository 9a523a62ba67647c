//! TaintNodesByCondition and NodeRestriction: a new node takes no pods until it is ready, and a node's own identity may
//! only touch what belongs to that node.

use super::{Operation, Request};
use crate::keys::{MACHINE_KEY, MIRROR_POD};
use crate::kinds::read::{annotation, copy, list, pairs, remove, set, text, unchanged};
use crate::status::ApiError;
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
    /// The node whose identity this is.
    fn node(&self) -> Option<&'a str> {
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

/// NodeRestriction, for the kinds storage touches.
pub(super) fn restrict(request: &Request<'_>, object: Option<&Value>, user: &User<'_>) -> Result<(), ApiError> {
    let Some(node) = user.node() else { return Ok(()) };
    match (request.resource.group, request.resource.name) {
        ("", "nodes") => restrict_node(request, object, node),
        ("", "pods") => restrict_pod(request, object, node),
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
fn restrict_pod(request: &Request<'_>, object: Option<&Value>, node: &str) -> Result<(), ApiError> {
    let own = |pod: Option<&Value>| pod.is_some_and(|pod| text(pod, "/spec/nodeName") == node);
    let refused = |why: &str| Err(request.forbidden(&format!("node {} can only {why}", quoted(node))));
    match (request.operation, request.subresource) {
        (Operation::Create, "") => match (object.and_then(|pod| annotation(pod, MIRROR_POD)), own(object)) {
            (Some(_), true) => Ok(()),
            (Some(_), false) => refused("create pods with spec.nodeName set to itself"),
            (None, _) => refused("create mirror pods"),
        },
        // What does not exist is for who deletes to say.
        (Operation::Delete, "") if request.old.is_none() || own(request.old) => Ok(()),
        (Operation::Delete, "") => refused("delete pods with spec.nodeName set to itself"),
        (Operation::Update, "status") if own(request.old) => Ok(()),
        (Operation::Update, "status") => refused("update pod status for pods with spec.nodeName set to itself"),
        (Operation::Create, "eviction") => Ok(()),
        _ => refused("update the status of pods"),
    }
}

fn restrict_node(request: &Request<'_>, object: Option<&Value>, node: &str) -> Result<(), ApiError> {
    if request.name != node {
        let why = format!("node {} is not allowed to modify node {}", quoted(node), quoted(request.name));
        return Err(request.forbidden(&why));
    }
    let Some(object) = object else { return Ok(()) };
    if annotation(object, MACHINE_KEY) != request.old.and_then(|old| annotation(old, MACHINE_KEY)) {
        let why = format!("node {} is not allowed to modify the annotation {MACHINE_KEY}", quoted(node));
        return Err(request.forbidden(&why));
    }
    let labels = forbidden_labels(object, request.old);
    let Some(old) = request.old else {
        let why = format!("is not allowed to set the following labels: {}", labels.join(", "));
        return if labels.is_empty() { Ok(()) } else { Err(request.forbidden(&why)) };
    };
    for (pointer, what) in [("/spec/taints", "taints"), ("/metadata/ownerReferences", "ownerReferences")] {
        if !unchanged(object, old, pointer) {
            return Err(request.forbidden(&format!("node {} is not allowed to modify {what}", quoted(node))));
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
    if request.operation != Operation::Update || request.subresource != "status" {
        return Err(request.forbidden("may only update PVC status"));
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
