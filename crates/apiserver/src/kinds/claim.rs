//! PersistentVolumeClaim: a wish for storage. Its spec is frozen but for what binding and resizing need.

use super::cells::{
    self, AGE, BETA_CLASS, Column, NAME, VOLUME_MODES, access_modes, amount, as_quantity, class, or_unset, phase,
    quantity, same_amounts,
};
use super::labels::{invalid_each, validate_choice, validate_selector};
use super::read::{
    annotation, copy, entries, list, present, remove, restore, same, set, set_default, set_default_text, text,
    unchanged,
};
use super::time::Timestamp;
use super::{Policy, Rules, golang, meta, names};
use crate::schema::quantity::{Format, Quantity};
use crate::status::{FieldError, FieldErrors};
use serde_json::{Value, json};

const REQUEST: &str = "/spec/resources/requests/storage";
const ATTRIBUTES_CLASS: &str = "/spec/volumeAttributesClassName";

const COLUMNS: &[Column] = &[
    NAME,
    Column::text("Status", "Where the claim is on its way to a volume."),
    Column::text("Volume", "The volume the claim is bound to."),
    Column::text("Capacity", "The size of the bound volume."),
    Column::text("Access Modes", "How the bound volume may be mounted."),
    Column::text("StorageClass", "The class the claim asks for."),
    Column::text("VolumeAttributesClass", "The attributes class the claim asks for."),
    AGE,
    Column::text("VolumeMode", "Whether a filesystem or a raw block device is asked for.").wide(),
];

const RESIZE_STATES: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

#[derive(Debug)]
pub(crate) struct ClaimRules;

impl Rules for ClaimRules {
    fn policy(&self) -> Policy {
        Policy::NAMESPACED
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, claim: &Value, now: Timestamp) -> Vec<Value> {
        let volume = text(claim, "/spec/volumeName");
        let (capacity, modes) = if volume.is_empty() {
            (String::new(), String::new())
        } else {
            (amount(claim, "/status/capacity/storage"), access_modes(claim, "/status/accessModes"))
        };
        vec![
            text(claim, "/metadata/name").into(),
            phase(claim).into(),
            volume.into(),
            capacity.into(),
            modes.into(),
            class(claim).into(),
            or_unset(claim, ATTRIBUTES_CLASS).into(),
            cells::age(claim, now),
            or_unset(claim, "/spec/volumeMode").into(),
        ]
    }

    fn default(&self, claim: &mut Value) {
        default_spec(claim, "/spec");
        for resources in ["/status/capacity", "/status/allocatedResources"] {
            cells::round_resources(claim, resources);
        }
        set_default_text(claim, "/status/phase", "Pending");
    }

    fn prepare_create(&self, claim: &mut Value, _now: Timestamp) {
        set(claim, "/status", json!({"phase": "Pending"}));
        settle_data_source(claim, None);
    }

    fn prepare_update(&self, claim: &mut Value, old: &Value, _now: Timestamp) {
        restore(claim, old, "/status");
        settle_data_source(claim, Some(old));
    }

    fn validate_create(&self, claim: &Value) -> FieldErrors {
        let mut errors = meta::validate_create(claim, &self.policy());
        errors.extend(validate_spec(&claim["spec"], "spec", ApiGroups::Checked));
        errors
    }

    fn validate_update(&self, claim: &Value, old: &Value) -> FieldErrors {
        let groups = api_groups(old);
        let mut errors = meta::validate_core_update(claim, old);
        errors.extend(meta::validate_create(claim, &self.policy()));
        errors.extend(validate_spec(&claim["spec"], "spec", groups));
        errors.extend(validate_frozen(claim, old));
        errors.extend(validate_shrink(claim, old));
        if !unchanged(claim, old, "/spec/volumeMode") {
            errors.push(FieldError::immutable("volumeMode", copy(claim, "/spec/volumeMode")));
        }
        errors.extend(validate_attributes_class(claim, old));
        errors
    }

    fn validate_status_update(&self, claim: &Value, old: &Value) -> FieldErrors {
        let mut errors = meta::validate_core_update(claim, old);
        if list(claim, "/spec/accessModes").is_empty() {
            errors.push(FieldError::required("Spec.accessModes", ""));
        }
        for (resource, amount) in entries(claim, "/status/capacity") {
            errors.extend(cells::validate_basic(amount, &format!("status.capacity[{resource}]")));
        }
        errors.extend(validate_resize_states(claim));
        for (resource, amount) in entries(claim, "/status/allocatedResources") {
            let complaints = validate_resource(resource, "status.allocatedResources");
            if complaints.is_empty() {
                errors.extend(cells::validate_basic(amount, &format!("status.allocatedResources[{resource}]")));
            }
            errors.extend(complaints);
        }
        errors
    }

    fn warnings(&self, claim: &Value, _old: Option<&Value>) -> Vec<String> {
        let mut warnings: Vec<String> = cells::beta_class_warning(claim).into_iter().collect();
        warnings.extend(fraction_warning(claim, REQUEST, "spec.resources.requests[storage]"));
        warnings
    }
}

/// The defaults of a claim's spec, which is also the template of an ephemeral volume.
pub(crate) fn default_spec(object: &mut Value, spec: &str) {
    for resources in ["requests", "limits"] {
        cells::round_resources(object, &format!("{spec}/resources/{resources}"));
    }
    set_default(object, &format!("{spec}/volumeMode"), "Filesystem");
}

/// Warns about a size that is no whole number of bytes.
fn fraction_warning(object: &Value, pointer: &str, field: &str) -> Option<String> {
    let size = quantity(object, pointer)?;
    let whole = Quantity::from_integer(size.to_integer()?, Format::BinarySi);
    (whole != size).then(|| format!("{field}: fractional byte value \"{size}\" is invalid, must be an integer"))
}

/// Where the data comes from is written twice, for old and for new clients; sources only new clients could mean are
/// dropped from the old field, and sources in other namespaces are not offered.
fn settle_data_source(claim: &mut Value, old: Option<&Value>) {
    let inherited = old.is_some_and(|old| present(old, "/spec/dataSource").is_some());
    let inherited_reference = old.is_some_and(|old| !text(old, "/spec/dataSourceRef/namespace").is_empty());
    if !text(claim, "/spec/dataSourceRef/namespace").is_empty() && !inherited_reference {
        remove(claim, "/spec/dataSourceRef");
    }
    let reference = present(claim, "/spec/dataSourceRef").cloned();
    if reference.is_none() && !inherited && !is_classic_source(claim) {
        remove(claim, "/spec/dataSource");
    }
    let source = present(claim, "/spec/dataSource").cloned();
    match (source, reference) {
        (Some(source), None) => set(claim, "/spec/dataSourceRef", source),
        (None, Some(reference)) if text(&reference, "/namespace").is_empty() => {
            set(claim, "/spec/dataSource", reference);
            remove(claim, "/spec/dataSource/namespace");
        }
        _ => {}
    }
}

fn is_classic_source(claim: &Value) -> bool {
    let source = (text(claim, "/spec/dataSource/apiGroup"), text(claim, "/spec/dataSource/kind"));
    [("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot")].contains(&source)
}

/// Whether the group of a data source is checked: not where an old object has one already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApiGroups {
    Checked,
    Tolerated,
}

fn api_groups(old: &Value) -> ApiGroups {
    let given = ["/spec/dataSource/apiGroup", "/spec/dataSourceRef/apiGroup"];
    if given.iter().any(|pointer| present(old, pointer).is_some()) { ApiGroups::Tolerated } else { ApiGroups::Checked }
}

/// The spec of a claim or of a claim template.
pub(crate) fn validate_spec(spec: &Value, field: &str, groups: ApiGroups) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if list(spec, "/accessModes").is_empty() {
        errors.push(FieldError::required(format!("{field}.accessModes"), "at least 1 access mode is required"));
    }
    if let Some(selector) = present(spec, "/selector") {
        errors.extend(validate_selector(selector, &format!("{field}.selector")));
    }
    errors.extend(cells::validate_access_modes(spec, &format!("{field}.accessModes")));
    let request = format!("{field}.resources[storage]");
    match present(spec, "/resources/requests/storage") {
        None => errors.push(FieldError::required(request, "")),
        Some(size) => errors.extend(cells::validate_positive(size, &request)),
    }
    errors.extend(validate_class_name(spec, "storageClassName", field));
    errors.extend(validate_choice(spec, "/volumeMode", &format!("{field}.volumeMode"), &VOLUME_MODES));
    for source in ["dataSource", "dataSourceRef"] {
        if let Some(reference) = present(spec, &format!("/{source}")) {
            errors.extend(validate_data_source(reference, &format!("{field}.{source}"), groups));
        }
    }
    errors.extend(validate_sources_agree(spec, field));
    errors.extend(validate_class_name(spec, "volumeAttributesClassName", field));
    errors
}

fn validate_class_name(spec: &Value, name: &str, field: &str) -> FieldErrors {
    match text(spec, &format!("/{name}")) {
        "" => FieldErrors::new(),
        class => invalid_each(&format!("{field}.{name}"), class, names::subdomain(class)),
    }
}

fn validate_data_source(reference: &Value, field: &str, groups: ApiGroups) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for part in ["name", "kind"] {
        if text(reference, &format!("/{part}")).is_empty() {
            errors.push(FieldError::required(format!("{field}.{part}"), ""));
        }
    }
    let (group, kind) = (text(reference, "/apiGroup"), text(reference, "/kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.push(FieldError::invalid(field, kind, detail));
    }
    if !group.is_empty() && groups == ApiGroups::Checked {
        errors.extend(invalid_each(&format!("{field}.apiGroup"), group, names::subdomain(group)));
    }
    match text(reference, "/namespace") {
        "" => {}
        other => errors.extend(invalid_each(&format!("{field}.namespace"), other, names::label(other))),
    }
    errors
}

fn validate_sources_agree(spec: &Value, field: &str) -> Option<FieldError> {
    let (source, reference) = (present(spec, "/dataSource")?, present(spec, "/dataSourceRef")?);
    if !text(reference, "/namespace").is_empty() {
        let detail = "may not be specified when dataSourceRef.namespace is specified";
        return Some(FieldError::invalid(field, json!({}), detail));
    }
    let agree = ["/apiGroup", "/kind", "/name"].iter().all(|part| source.pointer(part) == reference.pointer(part));
    // The reference prints a path object here, which JSON shows as nothing.
    (!agree).then(|| FieldError::invalid(field, json!({}), "must match dataSourceRef"))
}

/// The spec may not change but for what binding, classes and resizing need.
fn validate_frozen(claim: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let mut spec = claim["spec"].clone();
    let mut before = old["spec"].clone();
    if text(&before, "/volumeName").is_empty() {
        restore(&mut before, &spec, "/volumeName");
    }
    if class_moved_from_annotation(claim, old) {
        remove(&mut spec, "/storageClassName");
    } else {
        errors.extend(validate_beta_annotation(claim, old));
        if class_was_absent(claim, old) {
            restore(&mut spec, &before, "/storageClassName");
        }
    }
    if text(claim, "/status/phase") == "Bound" {
        if present(&spec, "/resources/requests").is_some() {
            restore(&mut spec, &before, "/resources/requests/storage");
        }
        restore(&mut spec, &before, "/volumeAttributesClassName");
    }
    for resources in ["requests", "limits"] {
        keep_spelling(&mut spec, &before, &format!("/resources/{resources}"));
    }
    if !same(Some(&spec), Some(&before)) {
        let detail = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound \
             claims\n{}",
            golang::diff(&before, &spec, golang::CLAIM_SPEC)
        );
        errors.push(FieldError::forbidden("spec", detail));
    }
    errors
}

/// Amounts that only changed their spelling count as unchanged.
fn keep_spelling(spec: &mut Value, before: &Value, pointer: &str) {
    for (resource, amount) in entries(before, pointer) {
        if let Some(new) = spec.pointer_mut(pointer).and_then(|resources| resources.get_mut(resource))
            && same_amounts(new, amount)
        {
            *new = amount.clone();
        }
    }
}

fn class_moved_from_annotation(claim: &Value, old: &Value) -> bool {
    let Some(class) = annotation(old, BETA_CLASS) else { return false };
    present(old, "/spec/storageClassName").is_none()
        && present(claim, "/spec/storageClassName").and_then(Value::as_str) == Some(class)
        && annotation(claim, BETA_CLASS).is_none_or(|new| new == class)
}

fn class_was_absent(claim: &Value, old: &Value) -> bool {
    let new = present(claim, "/spec/storageClassName").and_then(Value::as_str);
    present(old, "/spec/storageClassName").is_none()
        && new.is_some()
        && annotation(old, BETA_CLASS).is_none_or(|class| new == Some(class))
}

fn validate_beta_annotation(claim: &Value, old: &Value) -> Option<FieldError> {
    let (new, before) =
        (annotation(claim, BETA_CLASS).unwrap_or_default(), annotation(old, BETA_CLASS).unwrap_or_default());
    (new != before).then(|| FieldError::immutable(format!("metadata.annotations.{BETA_CLASS}"), new))
}

/// A request may shrink again only while it stays above what the volume already has.
fn validate_shrink(claim: &Value, old: &Value) -> Option<FieldError> {
    let size = |object: &Value, pointer| object.pointer(pointer).and_then(as_quantity).unwrap_or_else(Quantity::zero);
    let (new, before) = (size(claim, REQUEST), size(old, REQUEST));
    let capacity = size(old, "/status/capacity/storage");
    let detail = "field can not be less than status.capacity";
    (new < before && new <= capacity).then(|| FieldError::forbidden("spec.resources.requests.storage", detail))
}

/// Once an attributes class is in effect, a claim cannot go back to none.
fn validate_attributes_class(claim: &Value, old: &Value) -> Option<FieldError> {
    present(old, "/status/currentVolumeAttributesClassName")?;
    if unchanged(claim, old, ATTRIBUTES_CLASS) {
        return None;
    }
    let detail = match present(claim, ATTRIBUTES_CLASS).and_then(Value::as_str) {
        None => "update to nil is forbidden when status.currentVolumeAttributesClassName is not nil",
        Some("") => "update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil",
        Some(_) => return None,
    };
    Some(FieldError::forbidden("spec.volumeAttributesClassName", detail))
}

fn validate_resize_states(claim: &Value) -> FieldErrors {
    const FIELD: &str = "status.allocatedResourceStatuses";
    let mut errors = FieldErrors::new();
    for (resource, state) in entries(claim, "/status/allocatedResourceStatuses") {
        errors.extend(validate_resource(resource, FIELD));
        if !state.as_str().is_some_and(|state| RESIZE_STATES.contains(&state)) {
            let mut supported = RESIZE_STATES;
            supported.sort_unstable();
            // The reference shows the resource here, not the state.
            errors.push(FieldError::not_supported(FIELD, resource, &supported));
        }
    }
    errors
}

/// A resource of a claim's status: storage, or something that does not belong to Kubernetes.
fn validate_resource(resource: &str, field: &str) -> FieldErrors {
    let errors = invalid_each(field, resource, names::qualified(resource));
    let native = !resource.contains('/') || resource.contains(crate::keys::NATIVE_PART);
    if errors.is_empty() && native && resource != "storage" {
        return FieldError::not_supported(field, resource, &["storage"]).into();
    }
    errors
}
