//! Node, as far as storage needs it: labels for topology, volumes in use and attached, readiness.

use super::cells::{self, AGE, Column, NAME};
use super::labels::{invalid_each, validate_key};
use super::read::{copy, entries, flag, list, name, pairs, present, restore, set, text, unchanged};
use super::time::Timestamp;
use super::{DeleteAnswer, Policy, Rules, meta, names};
use crate::status::{FieldError, FieldErrors, quote};
use serde_json::Value;
use std::collections::BTreeSet;

const COLUMNS: &[Column] = &[
    NAME,
    Column::text("Status", "Whether the node takes pods."),
    Column::text("Roles", "What the node is for."),
    AGE,
    Column::text("Version", "The version of the node's agent."),
    Column::text("Internal-IP", "The address inside the cluster.").wide(),
    Column::text("External-IP", "The address outside the cluster.").wide(),
    Column::text("OS-Image", "The operating system.").wide(),
    Column::text("Kernel-Version", "The kernel.").wide(),
    Column::text("Container-Runtime", "What runs containers.").wide(),
];

const ROLE_PREFIX: &str = crate::keys::NODE_ROLE_PREFIX;

#[derive(Debug)]
pub(crate) struct NodeRules;

impl Rules for NodeRules {
    fn policy(&self) -> Policy {
        Policy { delete_answer: DeleteAnswer::Status, ..Policy::CLUSTER }
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, node: &Value, now: Timestamp) -> Vec<Value> {
        let info = |field: &str| text(node, &format!("/status/nodeInfo/{field}"));
        let known = |text: &str| if text.is_empty() { "<unknown>" } else { text }.to_string();
        vec![
            name(node).into(),
            status(node).into(),
            roles(node).into(),
            cells::age(node, now),
            info("kubeletVersion").into(),
            address(node, "InternalIP").into(),
            address(node, "ExternalIP").into(),
            known(info("osImage")).into(),
            known(info("kernelVersion")).into(),
            known(info("containerRuntimeVersion")).into(),
        ]
    }

    fn default(&self, node: &mut Value) {
        settle_ranges(node);
        for resources in ["/status/capacity", "/status/allocatable"] {
            cells::round_resources(node, resources);
        }
        if entries(node, "/status/allocatable").is_empty() && !entries(node, "/status/capacity").is_empty() {
            set(node, "/status/allocatable", copy(node, "/status/capacity"));
        }
    }

    fn prepare_update(&self, node: &mut Value, old: &Value, _now: Timestamp) {
        restore(node, old, "/status");
    }

    fn validate_create(&self, node: &Value) -> FieldErrors {
        let mut errors = meta::validate_create(node, &self.policy());
        errors.extend(validate_taints(node));
        errors.extend(validate_resources(node));
        errors
    }

    fn validate_update(&self, node: &Value, old: &Value) -> FieldErrors {
        let mut errors = meta::validate_core_update(node, old);
        errors.extend(validate_taints(node));
        errors.extend(validate_resources(node));
        for (field, shown) in [("podCIDRs", "podCIDR"), ("providerID", "providerID")] {
            let pointer = format!("/spec/{field}");
            let before = present(old, &pointer).is_some_and(|value| value != "");
            if before && !unchanged(node, old, &pointer) {
                let detail = format!("node updates may not change {shown} except from \"\" to valid");
                errors.push(FieldError::forbidden(format!("spec.{field}"), detail));
            }
        }
        errors
    }

    fn validate_status_update(&self, node: &Value, old: &Value) -> FieldErrors {
        self.validate_update(node, old)
    }
}

fn status(node: &Value) -> String {
    let ready = list(node, "/status/conditions").iter().find(|condition| text(condition, "/type") == "Ready");
    let mut status = String::from(match ready.map(|condition| text(condition, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    });
    if flag(node, "/spec/unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn roles(node: &Value) -> String {
    let mut roles = BTreeSet::new();
    for (label, value) in pairs(node, "/metadata/labels") {
        match label.strip_prefix(ROLE_PREFIX) {
            Some(role) if !role.is_empty() => roles.insert(role),
            _ if label == crate::keys::NODE_ROLE && !value.is_empty() => roles.insert(value),
            _ => false,
        };
    }
    if roles.is_empty() { "<none>".into() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    let found = list(node, "/status/addresses").iter().find(|address| text(address, "/type") == kind);
    found.map_or("<none>", |address| text(address, "/address"))
}

/// The older field is the first item of the newer one. Where they disagree, the older one is believed.
fn settle_ranges(node: &mut Value) {
    let first = list(node, "/spec/podCIDRs").first().and_then(Value::as_str).unwrap_or_default().to_owned();
    let single = text(node, "/spec/podCIDR").to_owned();
    if single.is_empty() && !first.is_empty() {
        set(node, "/spec/podCIDR", first);
    } else if single != first {
        set(node, "/spec/podCIDRs", vec![Value::from(single)]);
    }
}

/// The reference reports taints under `metadata`, where they once were.
fn validate_taints(node: &Value) -> FieldErrors {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let mut errors = FieldErrors::new();
    let mut seen = BTreeSet::new();
    for (index, taint) in list(node, "/spec/taints").iter().enumerate() {
        let field = format!("metadata.taints[{index}]");
        let (key, value, effect) = (text(taint, "/key"), text(taint, "/value"), text(taint, "/effect"));
        errors.extend(validate_key(key, &format!("{field}.key")));
        errors.extend(invalid_each(&format!("{field}.value"), value, names::label_value(value)));
        match effect {
            "" => errors.push(FieldError::required(format!("{field}.effect"), "")),
            _ if EFFECTS.contains(&effect) => {}
            _ => errors.push(FieldError::not_supported(format!("{field}.effect"), effect, &EFFECTS)),
        }
        if !seen.insert((effect, key)) {
            let shown = format!(
                "{{\"Key\":{},\"Value\":{},\"Effect\":{},\"TimeAdded\":null}}",
                quote(key),
                quote(value),
                quote(effect)
            );
            errors.push(FieldError::duplicate_shown(field, shown, "taints must be unique by key and effect pair"));
        }
    }
    errors
}

fn validate_resources(node: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for list in ["capacity", "allocatable"] {
        for (resource, amount) in entries(node, &format!("/status/{list}")) {
            errors.extend(cells::validate_not_negative(amount, &format!("status.{list}.{resource}")));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_older_range_of_a_node_is_the_first_of_the_newer_ones() {
        let table = [
            (json!({"podCIDR": "a"}), json!({"podCIDR": "a", "podCIDRs": ["a"]})),
            (json!({"podCIDRs": ["a", "b"]}), json!({"podCIDR": "a", "podCIDRs": ["a", "b"]})),
            (json!({"podCIDR": "a", "podCIDRs": ["b"]}), json!({"podCIDR": "a", "podCIDRs": ["a"]})),
            (json!({}), json!({})),
        ];
        for (given, expected) in table {
            let mut node = json!({ "spec": given });
            settle_ranges(&mut node);
            assert_eq!(node["spec"], expected);
        }
    }
}
