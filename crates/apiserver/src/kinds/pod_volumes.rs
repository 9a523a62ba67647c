//! The volumes of a pod and how its containers mount them.

use super::claim::{self, ApiGroups};
use super::labels::{invalid_each, total_size, validate_labels};
use super::names;
use super::read::{entries, items_mut, list, present, remove, set, set_default, set_default_text, text};
use super::volume_source::validate_driver_name;
use crate::status::{FieldError, FieldErrors};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Sources with files made from objects: what mode their files get.
const FILE_MODE: i64 = 0o644;
const TOKEN_SECONDS: i64 = 3600;

pub(crate) fn default_volume(volume: &mut Value) {
    let sources = entries(volume, "").into_iter().filter(|(key, value)| *key != "name" && !value.is_null());
    if sources.count() == 0 {
        set(volume, "/emptyDir", json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if present(volume, &format!("/{source}")).is_some() {
            set_default(volume, &format!("/{source}/defaultMode"), FILE_MODE);
        }
    }
    for source in items_mut(volume, "/projected/sources") {
        if present(source, "/serviceAccountToken").is_some() {
            set_default(source, "/serviceAccountToken/expirationSeconds", TOKEN_SECONDS);
        }
        for item in items_mut(source, "/downwardAPI/items") {
            default_field(item);
        }
    }
    for item in items_mut(volume, "/downwardAPI/items") {
        default_field(item);
    }
    if present(volume, "/hostPath").is_some() {
        set_default(volume, "/hostPath/type", "");
    }
    if present(volume, "/ephemeral/volumeClaimTemplate").is_some() {
        claim::default_spec(volume, "/ephemeral/volumeClaimTemplate/spec");
    }
}

fn default_field(item: &mut Value) {
    if present(item, "/fieldRef").is_some() {
        set_default_text(item, "/fieldRef/apiVersion", "v1");
    }
}

pub(crate) fn validate(pod: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let mut seen = BTreeSet::new();
    for (index, volume) in list(pod, "/spec/volumes").iter().enumerate() {
        let field = format!("spec.volumes[{index}]");
        errors.extend(validate_source(volume, &field));
        match text(volume, "/name") {
            "" => errors.push(FieldError::required(format!("{field}.name"), "")),
            name => {
                let complaints = names::label(name);
                if complaints.is_empty() && !seen.insert(name) {
                    errors.push(FieldError::duplicate(format!("{field}.name"), name));
                }
                errors.extend(invalid_each(&format!("{field}.name"), name, complaints));
            }
        }
    }
    errors
}

fn validate_source(volume: &Value, field: &str) -> FieldErrors {
    let sources: Vec<(&str, &Value)> =
        entries(volume, "").into_iter().filter(|(key, value)| *key != "name" && !value.is_null()).collect();
    let Some((first, value)) = sources.first() else {
        return FieldError::required(field, "must specify a volume type").into();
    };
    let mut errors = validate_one(first, value, &format!("{field}.{first}"));
    for (other, _) in &sources[1..] {
        let detail = "may not specify more than 1 volume type";
        errors.push(FieldError::forbidden(format!("{field}.{other}"), detail));
    }
    errors
}

fn validate_one(source: &str, value: &Value, field: &str) -> FieldErrors {
    let required = |name: &str| {
        let missing = text(value, &format!("/{name}")).is_empty();
        missing.then(|| FieldError::required(format!("{field}.{name}"), "")).into_iter().collect()
    };
    match source {
        "persistentVolumeClaim" => required("claimName"),
        "secret" => required("secretName"),
        "configMap" => required("name"),
        "hostPath" => required("path"),
        "csi" => {
            let mut errors = validate_driver_name(text(value, "/driver"), &format!("{field}.driver"));
            if present(value, "/nodePublishSecretRef").is_some() && text(value, "/nodePublishSecretRef/name").is_empty()
            {
                errors.push(FieldError::required(format!("{field}.nodePublishSecretRef.name"), ""));
            }
            errors
        }
        "ephemeral" => validate_ephemeral(value, &format!("{field}.volumeClaimTemplate")),
        _ => FieldErrors::new(),
    }
}

/// A template may carry labels, annotations and a claim's spec.
fn validate_ephemeral(value: &Value, field: &str) -> FieldErrors {
    let Some(template) = present(value, "/volumeClaimTemplate") else {
        return FieldError::required(field, "").into();
    };
    let mut errors = validate_labels(template, "/metadata/labels", &format!("{field}.metadata.labels"));
    for (key, given) in entries(template, "/metadata") {
        if !["labels", "annotations"].contains(&key) && !given.is_null() {
            errors.push(FieldError::forbidden(format!("{field}.metadata.{key}"), "cannot be set"));
        }
    }
    if total_size(template, "/metadata/annotations") > 256 * 1024 {
        errors.push(FieldError::too_long(format!("{field}.metadata.annotations"), 256 * 1024));
    }
    let mut spec = template["spec"].clone();
    // A source in another namespace is never kept, so it is not checked either.
    remove(&mut spec, "/dataSourceRef/namespace");
    errors.extend(claim::validate_spec(&spec, &format!("{field}.spec"), ApiGroups::Checked));
    errors
}

/// The volumes of a pod by name; of several with one name, the first.
pub(crate) type VolumesByName<'a> = BTreeMap<&'a str, &'a Value>;

pub(crate) fn by_name(pod: &Value) -> VolumesByName<'_> {
    let mut volumes = VolumesByName::new();
    for volume in list(pod, "/spec/volumes") {
        volumes.entry(text(volume, "/name")).or_insert(volume);
    }
    volumes
}

/// Mounts and devices of one container against the volumes of its pod.
pub(crate) fn validate_mounts(volumes: &VolumesByName<'_>, container: &Value, field: &str) -> FieldErrors {
    let volume = |name: &str| volumes.get(name).copied();
    let devices = list(container, "/volumeDevices");
    let device_names: BTreeSet<&str> = devices.iter().map(|device| text(device, "/name")).collect();
    let mut errors = FieldErrors::new();
    let mut paths = BTreeSet::new();
    let list_field = &format!("{field}.volumeMounts");
    for (index, mount) in list(container, "/volumeMounts").iter().enumerate() {
        let field = format!("{list_field}[{index}]");
        let (name, path) = (text(mount, "/name"), text(mount, "/mountPath"));
        if name.is_empty() {
            errors.push(FieldError::required(format!("{field}.name"), ""));
        }
        if volume(name).is_none() {
            errors.push(FieldError::not_found(format!("{field}.name"), name));
        }
        if path.is_empty() {
            errors.push(FieldError::required(format!("{field}.mountPath"), ""));
        }
        if !paths.insert(path) {
            errors.push(FieldError::invalid(format!("{field}.mountPath"), path, "must be unique"));
        }
        if device_names.contains(name) {
            let detail = "must not already exist in volumeDevices";
            errors.push(FieldError::invalid(format!("{field}.name"), name, detail));
        }
        errors.extend(validate_sub_paths(mount, list_field, &field));
    }
    for (index, device) in devices.iter().enumerate() {
        let field = format!("{field}.volumeDevices[{index}]");
        errors.extend(validate_device(device, volume(text(device, "/name")), &field));
    }
    errors
}

/// A part of a volume does not lead out of it. As the reference does, what is wrong with a path is told without the place of
/// its mount in the list.
fn validate_sub_paths(mount: &Value, list_field: &str, field: &str) -> FieldErrors {
    let (path, expression) = (text(mount, "/subPath"), text(mount, "/subPathExpr"));
    let mut errors = FieldErrors::new();
    if !path.is_empty() && !expression.is_empty() {
        let detail = "subPathExpr and subPath are mutually exclusive";
        errors.push(FieldError::invalid(format!("{field}.subPathExpr"), expression, detail));
    }
    for (name, path) in [("subPath", path), ("subPathExpr", expression)] {
        if path.starts_with('/') {
            errors.push(FieldError::invalid(format!("{list_field}.{name}"), path, "must be a relative path"));
        }
        if path.split('/').any(|part| part == "..") {
            errors.push(FieldError::invalid(format!("{list_field}.{name}"), path, "must not contain '..'"));
        }
    }
    errors
}

fn validate_device(device: &Value, volume: Option<&Value>, field: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let name = text(device, "/name");
    if name.is_empty() {
        errors.push(FieldError::required(format!("{field}.name"), ""));
    }
    match volume {
        None => errors.push(FieldError::not_found(format!("{field}.name"), name)),
        Some(volume) => {
            let block = ["/persistentVolumeClaim", "/ephemeral"].iter().any(|source| present(volume, source).is_some());
            if !block {
                let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.push(FieldError::invalid(format!("{field}.name"), name, detail));
            }
        }
    }
    if text(device, "/devicePath").is_empty() {
        errors.push(FieldError::required(format!("{field}.devicePath"), ""));
    }
    errors
}
