//! Where a persistent volume's data is: exactly one source, and what each source must say.

use super::labels::invalid_each;
use super::names;
use super::read::{number, optional_text, present, text};
use crate::status::{FieldError, FieldErrors};
use serde_json::Value;

/// The sources in the order the reference looks at them: JSON name, and the name its error uses for a second source.
const SOURCES: [(&str, &str); 22] = [
    ("hostPath", "hostPath"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("nfs", "nfs"),
    ("rbd", "rbd"),
    ("quobyte", "quobyte"),
    ("cephfs", "cephFS"),
    ("iscsi", "iscsi"),
    ("cinder", "cinder"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("scaleIO", "scaleIO"),
    ("local", "local"),
    ("storageos", "storageos"),
    ("csi", "csi"),
];

const HOST_PATH_TYPES: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// Whether the spec's node affinity passed its own checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Affinity {
    Given,
    Absent,
}

/// The names of the sources a spec has.
pub(crate) fn given(spec: &Value) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
    SOURCES.into_iter().filter(|(json, _)| present(spec, &format!("/{json}")).is_some())
}

/// Copies the sources of a spec and nothing else.
pub(crate) fn only_sources(spec: &Value) -> Value {
    given(spec).map(|(json, _)| (json.to_string(), spec[json].clone())).collect()
}

/// Exactly one source, with what it needs.
pub(crate) fn validate(spec: &Value, field: &str, affinity: Affinity) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for (index, (json, shown)) in given(spec).enumerate() {
        // The reference forgot this check for flexVolume.
        if index > 0 && json != "flexVolume" {
            let detail = "may not specify more than 1 volume type";
            errors.push(FieldError::forbidden(format!("{field}.{shown}"), detail));
        } else {
            errors.extend(validate_one(json, &spec[json], &format!("{field}.{json}")));
            if json == "local" && affinity == Affinity::Absent {
                let detail = "Local volume requires node affinity";
                errors.push(FieldError::required(format!("{field}.nodeAffinity"), detail));
            }
        }
    }
    if given(spec).next().is_none() {
        errors.push(FieldError::required(field, "must specify a volume type"));
    }
    errors
}

fn validate_one(source: &str, value: &Value, field: &str) -> FieldErrors {
    match source {
        "csi" => validate_csi(value, field),
        "local" => validate_path(value, field),
        "hostPath" => {
            let mut errors = validate_path(value, field);
            if optional_text(value, "/type").is_some_and(|kind| !HOST_PATH_TYPES.contains(&kind)) {
                let kind = text(value, "/type");
                errors.push(FieldError::not_supported(format!("{field}.type"), kind, &HOST_PATH_TYPES));
            }
            errors
        }
        "nfs" => validate_nfs(value, field),
        "gcePersistentDisk" => {
            // The reference prints this field under another name than clients write.
            let mut errors = required(value, &field.replace("gcePersistentDisk", "persistentDisk"), &["pdName"]);
            if number(value, "/partition").is_some_and(|number| !(0..=255).contains(&number)) {
                let shown = number(value, "/partition");
                errors.push(FieldError::invalid(
                    format!("{field}.partition"),
                    shown,
                    "must be between 0 and 255, inclusive",
                ));
            }
            errors
        }
        "awsElasticBlockStore" | "cinder" | "portworxVolume" => required(value, field, &["volumeID"]),
        "glusterfs" => required(value, field, &["endpoints", "path"]),
        "rbd" => required(value, field, &["image"]),
        "flexVolume" => required(value, field, &["driver"]),
        "azureFile" => required(value, field, &["secretName", "shareName"]),
        "azureDisk" => required(value, field, &["diskName", "diskURI"]),
        "vsphereVolume" => required(value, field, &["volumePath"]),
        "photonPersistentDisk" => required(value, field, &["pdID"]),
        "scaleIO" => required(value, field, &["gateway", "system", "volumeName"]),
        "storageos" => required(value, field, &["volumeName"]),
        _ => FieldErrors::new(),
    }
}

fn required(value: &Value, field: &str, names: &[&str]) -> FieldErrors {
    let missing = names.iter().filter(|name| text(value, &format!("/{name}")).is_empty());
    missing.map(|name| FieldError::required(format!("{field}.{name}"), "")).collect()
}

fn validate_path(value: &Value, field: &str) -> FieldErrors {
    match text(value, "/path") {
        "" => FieldError::required(format!("{field}.path"), "").into(),
        path if path.split('/').any(|element| element == "..") => {
            FieldError::invalid(format!("{field}.path"), path, "must not contain '..'").into()
        }
        _ => FieldErrors::new(),
    }
}

fn validate_nfs(value: &Value, field: &str) -> FieldErrors {
    let mut errors = required(value, field, &["server", "path"]);
    let path = text(value, "/path");
    if !path.starts_with('/') {
        errors.push(FieldError::invalid(format!("{field}.path"), path, "must be an absolute path"));
    }
    errors
}

fn validate_csi(value: &Value, field: &str) -> FieldErrors {
    let mut errors = validate_driver_name(text(value, "/driver"), &format!("{field}.driver"));
    errors.extend(required(value, field, &["volumeHandle"]));
    // nodeStageSecretRef is never looked at (API-0.20).
    for reference in
        ["controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"]
    {
        if let Some(secret) = present(value, &format!("/{reference}")) {
            errors.extend(validate_secret(secret, &format!("{field}.{reference}")));
        }
    }
    errors
}

fn validate_secret(secret: &Value, field: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    match text(secret, "/name") {
        "" => errors.push(FieldError::required(format!("{field}.name"), "")),
        name => errors.extend(invalid_each(&format!("{field}.name"), name, names::subdomain(name))),
    }
    match text(secret, "/namespace") {
        "" => errors.push(FieldError::required(format!("{field}.namespace"), "")),
        name => errors.extend(invalid_each(&format!("{field}.namespace"), name, names::label(name))),
    }
    errors
}

/// A CSI driver's name: a DNS subdomain whatever its case, of at most 63 bytes.
pub(crate) fn validate_driver_name(name: &str, field: &str) -> FieldErrors {
    if name.is_empty() {
        return FieldError::required(field, "").into();
    }
    let mut errors = FieldErrors::new();
    if name.len() > 63 {
        errors.push(FieldError::too_long(field, 63));
    }
    errors.extend(invalid_each(field, name, names::subdomain(&name.to_lowercase())));
    errors
}
