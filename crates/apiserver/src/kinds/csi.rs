//! What CSI drivers tell the cluster: how a driver wants to be called (CSIDriver), where it runs (CSINode), what room is
//! left (CSIStorageCapacity).

use super::cells::{self, AGE, Column, NAME};
use super::labels::{invalid_each, validate_choice, validate_selector};
use super::read::{copy, flag, list, name, number, present, remove, set, set_default, text, texts, unchanged};
use super::time::Timestamp;
use super::volume_source::validate_driver_name;
use super::{DeleteAnswer, Policy, Rules, Versionless, golang, meta, names};
use crate::status::{FieldError, FieldErrors};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const DRIVER_COLUMNS: &[Column] = &[
    NAME,
    Column::of("AttachRequired", "boolean", "Whether volumes must be attached before they are mounted."),
    Column::of("PodInfoOnMount", "boolean", "Whether the driver wants to know the pod."),
    Column::of("StorageCapacity", "boolean", "Whether scheduling looks at the room that is left."),
    Column::text("TokenRequests", "The audiences of the service account tokens the driver gets."),
    Column::of("RequiresRepublish", "boolean", "Whether the driver is called again while a volume is mounted."),
    Column::text("Modes", "The kinds of volumes the driver supports."),
    AGE,
];

const NODE_COLUMNS: &[Column] = &[NAME, Column::of("Drivers", "integer", "How many drivers run on the node."), AGE];

const POLICIES: [&str; 3] = ["File", "None", "ReadWriteOnceWithFSType"];

/// A version is mandatory on updates of all three.
const CLUSTER: Policy = Policy { versionless: Versionless::Refused, ..Policy::CLUSTER };

#[derive(Debug)]
pub(crate) struct DriverRules;

impl Rules for DriverRules {
    fn policy(&self) -> Policy {
        CLUSTER
    }

    fn columns(&self) -> &'static [Column] {
        DRIVER_COLUMNS
    }

    fn row(&self, driver: &Value, now: Timestamp) -> Vec<Value> {
        let audiences: Vec<&str> =
            list(driver, "/spec/tokenRequests").iter().map(|request| text(request, "/audience")).collect();
        let tokens = if audiences.is_empty() { "<unset>".into() } else { audiences.join(",") };
        let modes = texts(driver, "/spec/volumeLifecycleModes");
        let modes = if modes.is_empty() { "<none>".into() } else { modes.join(",") };
        // Attaching is required unless a driver says otherwise.
        let attach = present(driver, "/spec/attachRequired").is_none_or(|value| value == &json!(true));
        vec![
            name(driver).into(),
            attach.into(),
            flag(driver, "/spec/podInfoOnMount").into(),
            flag(driver, "/spec/storageCapacity").into(),
            tokens.into(),
            flag(driver, "/spec/requiresRepublish").into(),
            modes.into(),
            cells::age(driver, now),
        ]
    }

    fn default(&self, driver: &mut Value) {
        set_default(driver, "/spec/attachRequired", true);
        for field in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
            set_default(driver, &format!("/spec/{field}"), false);
        }
        set_default(driver, "/spec/fsGroupPolicy", "ReadWriteOnceWithFSType");
        if list(driver, "/spec/volumeLifecycleModes").is_empty() {
            set(driver, "/spec/volumeLifecycleModes", json!(["Persistent"]));
        }
    }

    fn validate_create(&self, driver: &Value) -> FieldErrors {
        let mut errors = meta::validate_create(driver, &self.policy());
        errors.extend(validate_driver(driver));
        errors
    }

    fn validate_update(&self, driver: &Value, old: &Value) -> FieldErrors {
        let mut errors = meta::validate_core_update(driver, old);
        errors.extend(validate_driver(driver));
        // The first path is misspelt in the reference (API-0.18).
        let immutable = [("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")];
        for (field, shown) in immutable {
            let pointer = format!("/spec/{field}");
            if !unchanged(driver, old, &pointer) {
                errors.push(FieldError::immutable(format!("spec.{shown}"), copy(driver, &pointer)));
            }
        }
        errors
    }

    fn warnings(&self, driver: &Value, old: Option<&Value>) -> Vec<String> {
        let unset = present(driver, "/spec/serviceAccountTokenInSecrets").is_none();
        let tokens = !list(driver, "/spec/tokenRequests").is_empty();
        let changed = old.is_none_or(|old| !unchanged(driver, old, "/spec/tokenRequests"));
        if !(unset && tokens && changed) {
            return Vec::new();
        }
        vec![
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible \
             logging of tokens in volume attributes"
                .into(),
        ]
    }

    fn next_generation(&self, driver: &Value, old: &Value) -> Option<i64> {
        let generation = number(old, "/metadata/generation");
        if unchanged(driver, old, "/spec") { generation } else { Some(generation.unwrap_or(0) + 1) }
    }
}

fn validate_driver(driver: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    errors.extend(validate_choice(driver, "/spec/fsGroupPolicy", "spec.fsGroupPolicy", &POLICIES));
    errors.extend(validate_tokens(driver));
    for mode in texts(driver, "/spec/volumeLifecycleModes") {
        if !["Persistent", "Ephemeral"].contains(&mode) {
            errors.push(FieldError::not_supported("spec.volumeLifecycleModes", mode, &["Persistent", "Ephemeral"]));
        }
    }
    if let Some(period) = number(driver, "/spec/nodeAllocatableUpdatePeriodSeconds").filter(|period| *period < 10) {
        let detail = "must be greater than or equal to 10 seconds";
        errors.push(FieldError::invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, detail));
    }
    let in_secrets = present(driver, "/spec/serviceAccountTokenInSecrets");
    if let (Some(value), true) = (in_secrets, list(driver, "/spec/tokenRequests").is_empty()) {
        let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        errors.push(FieldError::invalid("spec.serviceAccountTokenInSecrets", value.clone(), detail));
    }
    errors
}

fn validate_tokens(driver: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let mut audiences = BTreeSet::new();
    for (index, request) in list(driver, "/spec/tokenRequests").iter().enumerate() {
        let field = format!("spec.tokenRequests[{index}]");
        let audience = text(request, "/audience");
        if !audiences.insert(audience) {
            errors.push(FieldError::duplicate(format!("{field}.audience"), audience));
            continue;
        }
        let detail = match number(request, "/expirationSeconds") {
            Some(..600) => "may not specify a duration less than 10 minutes",
            Some(4_294_967_297..) => "may not specify a duration larger than 2^32 seconds",
            Some(600..) | None => continue,
        };
        errors.push(FieldError::invalid(
            format!("{field}.expirationSeconds"),
            copy(request, "/expirationSeconds"),
            detail,
        ));
    }
    errors
}

#[derive(Debug)]
pub(crate) struct NodeRules;

impl Rules for NodeRules {
    fn policy(&self) -> Policy {
        CLUSTER
    }

    fn columns(&self) -> &'static [Column] {
        NODE_COLUMNS
    }

    fn row(&self, node: &Value, now: Timestamp) -> Vec<Value> {
        vec![name(node).into(), list(node, "/spec/drivers").len().into(), cells::age(node, now)]
    }

    fn default(&self, node: &mut Value) {
        // An absent list is printed as null.
        if list(node, "/spec/drivers").is_empty() && node.pointer("/spec/drivers") != Some(&json!([])) {
            set(node, "/spec/drivers", Value::Null);
        }
    }

    fn validate_create(&self, node: &Value) -> FieldErrors {
        let mut errors = meta::validate_create(node, &self.policy());
        let mut names_seen = BTreeSet::new();
        for (index, driver) in list(node, "/spec/drivers").iter().enumerate() {
            let field = format!("spec.drivers[{index}]");
            errors.extend(validate_node_driver(driver, &field));
            let name = text(driver, "/name");
            if !names_seen.insert(name) {
                errors.push(FieldError::duplicate(format!("{field}.name"), name));
            }
            errors.extend(validate_topology_keys(driver, &field));
        }
        errors
    }

    fn validate_update(&self, node: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate_create(node);
        let mut by_name: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for driver in list(node, "/spec/drivers") {
            by_name.entry(text(driver, "/name")).or_default().push(driver);
        }
        // Names are unique in what is stored, so that each new driver is compared once.
        for before in list(old, "/spec/drivers") {
            for driver in by_name.remove(text(before, "/name")).unwrap_or_default() {
                let (mut driver, mut before) = (driver.clone(), before.clone());
                // How many volumes fit may change while the driver runs.
                remove(&mut driver, "/allocatable");
                remove(&mut before, "/allocatable");
                if !unchanged(&driver, &before, "") {
                    let shown = golang::compact(&driver, golang::CSI_NODE_DRIVER);
                    errors.push(FieldError::invalid_shown("spec.drivers", shown, "field is immutable"));
                }
            }
        }
        errors
    }
}

fn validate_node_driver(driver: &Value, field: &str) -> FieldErrors {
    let mut errors = validate_driver_name(text(driver, "/name"), &format!("{field}.name"));
    match text(driver, "/nodeID") {
        "" => errors.push(FieldError::required(format!("{field}.nodeID"), "")),
        id if id.len() > 256 => {
            errors.push(FieldError::invalid(format!("{field}.nodeID"), id, "must be 256 characters or less"));
        }
        _ => {}
    }
    if let Some(count) = number(driver, "/allocatable/count").filter(|count| *count < 0) {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(format!("{field}.allocatable.count"), count, detail));
    }
    errors
}

/// Complaints about keys name the driver, not the key.
fn validate_topology_keys(driver: &Value, field: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let mut seen = BTreeSet::new();
    for key in texts(driver, "/topologyKeys") {
        if key.is_empty() {
            errors.push(FieldError::required(field, ""));
        }
        if !seen.insert(key) {
            errors.push(FieldError::duplicate(field, key));
        }
        errors.extend(invalid_each(field, key, names::qualified(key)));
    }
    errors
}

#[derive(Debug)]
pub(crate) struct CapacityRules;

impl Rules for CapacityRules {
    fn policy(&self) -> Policy {
        Policy { versionless: Versionless::Refused, delete_answer: DeleteAnswer::Status, ..Policy::NAMESPACED }
    }

    fn columns(&self) -> &'static [Column] {
        cells::PLAIN
    }

    fn row(&self, capacity: &Value, _now: Timestamp) -> Vec<Value> {
        cells::plain_row(capacity)
    }

    fn validate_create(&self, capacity: &Value) -> FieldErrors {
        let mut errors = meta::validate_create(capacity, &self.policy());
        if let Some(topology) = present(capacity, "/nodeTopology") {
            errors.extend(validate_selector(topology, "nodeTopology"));
        }
        let class = text(capacity, "/storageClassName");
        errors.extend(invalid_each("storageClassName", class, names::subdomain(class)));
        if let Some(room) = present(capacity, "/capacity") {
            errors.extend(cells::validate_not_negative(room, "capacity"));
        }
        errors
    }

    fn validate_update(&self, capacity: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate_create(capacity);
        errors.extend(meta::validate_core_update(capacity, old));
        for field in ["nodeTopology", "storageClassName"] {
            let pointer = format!("/{field}");
            if !unchanged(capacity, old, &pointer) {
                errors.push(FieldError::immutable(field, copy(capacity, &pointer)));
            }
        }
        errors
    }
}
