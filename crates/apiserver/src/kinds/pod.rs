//! Pod, as far as storage and kubectl need it: volumes and mounts are checked in full, containers for sense. A pod's spec
//! is frozen but for a few fields.

use super::cells::{self, AGE, Column, NAME};
use super::labels::{invalid_each, validate_choice};
use super::read::{
    Ordered, copy, entries, insert, items_mut, list, number, present, remove, restore, same, set, set_default,
    set_default_text, text,
};
use super::time::Timestamp;
use super::{Policy, Rules, meta, names, pod_status, pod_volumes};
use crate::status::{FieldError, FieldErrors};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const COLUMNS: &[Column] = &[
    NAME,
    Column::text("Ready", "How many of its containers are ready."),
    Column::text("Status", "What the pod is doing."),
    Column::text("Restarts", "How often containers were restarted, and when last."),
    AGE,
    Column::text("IP", "The address of the pod.").wide(),
    Column::text("Node", "The node the pod is on.").wide(),
    Column::text("Nominated Node", "The node that is being cleared for the pod.").wide(),
    Column::text("Readiness Gates", "How many extra conditions are met.").wide(),
];

/// Container lists of a spec, in the order they are checked.
pub(crate) const CONTAINERS: [&str; 2] = ["/spec/containers", "/spec/initContainers"];

#[derive(Debug)]
pub(crate) struct PodRules;

impl Rules for PodRules {
    fn policy(&self) -> Policy {
        Policy::NAMESPACED
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, pod: &Value, now: Timestamp) -> Vec<Value> {
        pod_status::row(pod, now)
    }

    fn row_conditions(&self, pod: &Value) -> Vec<Value> {
        match text(pod, "/status/phase") {
            phase @ ("Succeeded" | "Failed") => {
                let message = "The pod has completed and is not running.";
                vec![json!({"type": "Completed", "status": "True", "reason": phase, "message": message})]
            }
            _ => Vec::new(),
        }
    }

    fn default(&self, pod: &mut Value) {
        default_spec(pod);
        for containers in CONTAINERS {
            items_mut(pod, containers).for_each(default_container);
        }
        items_mut(pod, "/spec/volumes").for_each(pod_volumes::default_volume);
    }

    fn prepare_create(&self, pod: &mut Value, _now: Timestamp) {
        set(pod, "/metadata/generation", 1);
        let quality = pod_status::quality(pod);
        set(pod, "/status", json!({"phase": "Pending", "qosClass": quality}));
    }

    fn prepare_update(&self, pod: &mut Value, old: &Value, _now: Timestamp) {
        restore(pod, old, "/status");
    }

    fn prepare_status_update(&self, pod: &mut Value, old: &Value, _now: Timestamp) {
        restore(pod, old, "/spec");
        restore(pod, old, "/metadata/ownerReferences");
        remove(pod, "/metadata/deletionTimestamp");
        if text(pod, "/status/qosClass").is_empty() {
            restore(pod, old, "/status/qosClass");
        }
    }

    fn next_generation(&self, pod: &Value, old: &Value) -> Option<i64> {
        let generation = number(old, "/metadata/generation").unwrap_or(0);
        Some(if super::read::unchanged(pod, old, "/spec") { generation.max(1) } else { generation + 1 })
    }

    fn validate_create(&self, pod: &Value) -> FieldErrors {
        let mut errors = meta::validate_create(pod, &self.policy());
        errors.extend(validate_spec(pod));
        errors
    }

    fn validate_update(&self, pod: &Value, old: &Value) -> FieldErrors {
        let mut errors = meta::validate_core_update(pod, old);
        errors.extend(self.validate_create(pod));
        errors.extend(validate_frozen(pod, old));
        errors
    }
}

const DEADLINE: &str = "/spec/activeDeadlineSeconds";
const TOLERATIONS: &str = "/spec/tolerations";

fn default_spec(pod: &mut Value) {
    set_default_text(pod, "/spec/restartPolicy", "Always");
    set_default_text(pod, "/spec/dnsPolicy", "ClusterFirst");
    set_default_text(pod, "/spec/schedulerName", "default-scheduler");
    set_default(pod, "/spec/terminationGracePeriodSeconds", 30);
    if number(pod, "/spec/terminationGracePeriodSeconds").is_some_and(|grace| grace < 0) {
        set(pod, "/spec/terminationGracePeriodSeconds", 1);
    }
    set_default(pod, "/spec/securityContext", json!({}));
    set_default(pod, "/spec/enableServiceLinks", true);
    // The account has an old name that clients still read.
    match (text(pod, "/spec/serviceAccountName"), text(pod, "/spec/serviceAccount")) {
        ("", "") => {}
        ("", _) => set(pod, "/spec/serviceAccountName", copy(pod, "/spec/serviceAccount")),
        _ => set(pod, "/spec/serviceAccount", copy(pod, "/spec/serviceAccountName")),
    }
}

fn default_container(container: &mut Value) {
    set_default_text(container, "/terminationMessagePath", "/dev/termination-log");
    set_default_text(container, "/terminationMessagePolicy", "File");
    let policy = if is_latest(text(container, "/image")) { "Always" } else { "IfNotPresent" };
    set_default_text(container, "/imagePullPolicy", policy);
    for port in items_mut(container, "/ports") {
        set_default_text(port, "/protocol", "TCP");
    }
    for resources in ["/resources/limits", "/resources/requests"] {
        cells::round_resources(container, resources);
    }
    // What is limited is also requested.
    if let Some(Value::Object(limits)) = present(container, "/resources/limits").cloned() {
        for (resource, amount) in limits {
            let requests = container.pointer("/resources/requests");
            if requests.and_then(|requests| requests.get(&resource)).is_none() {
                insert(container, "/resources/requests", &resource, amount);
            }
        }
    }
    for probe in ["/livenessProbe", "/readinessProbe", "/startupProbe"] {
        if present(container, probe).is_some() {
            let defaults =
                [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)];
            for (field, value) in defaults {
                set_default(container, &format!("{probe}/{field}"), value);
            }
        }
    }
    for variable in items_mut(container, "/env") {
        if present(variable, "/valueFrom/fieldRef").is_some() {
            set_default_text(variable, "/valueFrom/fieldRef/apiVersion", "v1");
        }
    }
}

/// Whether an image has no fixed version: the tag `latest`, or neither tag nor digest.
fn is_latest(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let last = image.rsplit('/').next().unwrap_or_default();
    last.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn validate_spec(pod: &Value) -> FieldErrors {
    let mut errors = pod_volumes::validate(pod);
    errors.extend(validate_containers(pod));
    errors.extend(validate_choice(pod, "/spec/restartPolicy", "spec.restartPolicy", &["Always", "OnFailure", "Never"]));
    let policies = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
    errors.extend(validate_choice(pod, "/spec/dnsPolicy", "spec.dnsPolicy", &policies));
    for field in ["nodeName", "serviceAccountName"] {
        match text(pod, &format!("/spec/{field}")) {
            "" => {}
            value => errors.extend(invalid_each(&format!("spec.{field}"), value, names::subdomain(value))),
        }
    }
    if let Some(deadline) = number(pod, DEADLINE).filter(|deadline| !(1..=i64::from(i32::MAX)).contains(deadline)) {
        let detail = "must be between 1 and 2147483647, inclusive";
        errors.push(FieldError::invalid("spec.activeDeadlineSeconds", deadline, detail));
    }
    errors
}

fn validate_containers(pod: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if list(pod, "/spec/containers").is_empty() {
        errors.push(FieldError::required("spec.containers", ""));
    }
    let mut seen = BTreeSet::new();
    let volumes = pod_volumes::by_name(pod);
    for containers in CONTAINERS {
        let field = containers[1..].replace('/', ".");
        for (index, container) in list(pod, containers).iter().enumerate() {
            let field = format!("{field}[{index}]");
            match text(container, "/name") {
                "" => errors.push(FieldError::required(format!("{field}.name"), "")),
                name => errors.extend(invalid_each(&format!("{field}.name"), name, names::label(name))),
            }
            let name = text(container, "/name");
            if !seen.insert(name) {
                errors.push(FieldError::duplicate(format!("{field}.name"), name));
            }
            match text(container, "/image") {
                "" => errors.push(FieldError::required(format!("{field}.image"), "")),
                image if image.trim() != image => {
                    let detail = "must not have leading or trailing whitespace";
                    errors.push(FieldError::invalid(format!("{field}.image"), image, detail));
                }
                _ => {}
            }
            errors.extend(validate_requests(container, &field));
            errors.extend(pod_volumes::validate_mounts(&volumes, container, &field));
        }
    }
    errors
}

/// A container may not ask for more than it may have.
fn validate_requests(container: &Value, field: &str) -> FieldErrors {
    let limits = container.pointer("/resources/limits");
    let mut errors = FieldErrors::new();
    for (resource, request) in entries(container, "/resources/requests") {
        let limit = limits.and_then(|limits| limits.get(resource)).and_then(cells::as_quantity);
        if let (Some(asked), Some(limit)) = (cells::as_quantity(request), limit)
            && asked > limit
        {
            let detail = format!("must be less than or equal to {resource} limit of {limit}");
            errors.push(FieldError::invalid(format!("{field}.resources.requests"), asked.to_string(), detail));
        }
    }
    errors
}

/// Only images, the deadline, more tolerations, a negative grace and fewer scheduling gates may change.
fn validate_frozen(pod: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for containers in CONTAINERS {
        if list(pod, containers).len() != list(old, containers).len() {
            let field = containers.trim_start_matches('/').replace('/', ".");
            errors.push(FieldError::forbidden(field, "pod updates may not add or remove containers"));
            return errors;
        }
    }
    if let Some(error) = validate_deadline(pod, old) {
        errors.push(error);
        // A deadline of a wrong size ends the comparison, a missing one does not.
        if number(pod, DEADLINE).is_some() {
            return errors;
        }
    }
    if !tolerations_kept(pod, old) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden("spec.tolerations", detail));
        return errors;
    }
    let mut spec = json!({"spec": pod["spec"]});
    for containers in CONTAINERS {
        for (container, before) in items_mut(&mut spec, containers).zip(list(old, containers)) {
            restore(container, before, "/image");
        }
    }
    restore(&mut spec, old, DEADLINE);
    restore(&mut spec, old, TOLERATIONS);
    let grace = "/spec/terminationGracePeriodSeconds";
    if number(old, grace).is_some_and(|grace| grace < 0) && number(pod, grace) == Some(1) {
        restore(&mut spec, old, grace);
    }
    let gates = "/spec/schedulingGates";
    let gates_before: BTreeSet<Ordered<'_>> = list(old, gates).iter().map(Ordered).collect();
    if list(pod, gates).iter().all(|gate| gates_before.contains(&Ordered(gate))) {
        restore(&mut spec, old, gates);
    }
    if !same(spec.get("spec"), old.get("spec")) {
        let detail = "pod updates may not change fields other than \
                      `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
                      `spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` \
                      (allow it to be set to 1 if it was previously negative)";
        errors.push(FieldError::forbidden("spec", detail));
    }
    errors
}

/// A deadline may appear and come nearer.
/// A deadline may be set once and then only come closer.
fn validate_deadline(pod: &Value, old: &Value) -> Option<FieldError> {
    let (value, why) = match (number(pod, DEADLINE), number(old, DEADLINE)) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            (new.into(), "must be between 0 and 2147483647, inclusive")
        }
        (Some(new), Some(before)) if new > before => (new.into(), "must be less than or equal to previous value"),
        (None, Some(_)) => (Value::Null, "must not update from a positive integer to nil value"),
        (Some(_) | None, _) => return None,
    };
    Some(FieldError::invalid("spec.activeDeadlineSeconds", value, why))
}

/// Whether every old toleration is still there; how long it lasts may change.
fn tolerations_kept(pod: &Value, old: &Value) -> bool {
    let lasting = |object: &Value| -> Vec<Value> {
        let mut tolerations = list(object, TOLERATIONS).to_vec();
        for toleration in &mut tolerations {
            remove(toleration, "/tolerationSeconds");
        }
        tolerations
    };
    let new = lasting(pod);
    let new: BTreeSet<Ordered<'_>> = new.iter().map(Ordered).collect();
    lasting(old).iter().all(|toleration| new.contains(&Ordered(toleration)))
}
