//! Server-side apply: field sets, the rules of API-4.6 one by one, and random cases whose outcome the reference gave.

mod rules;
mod sets;
mod vectors;

use serde_json::Value;

use super::*;
use crate::schema::tables;
use crate::schema::types::{Struct, Type};

const NOW: &str = "2030-01-01T00:00:00Z";

fn table(kind: &str) -> &'static Struct {
    match kind {
        "ConfigMap" => &tables::core::CONFIG_MAP,
        "ServiceAccount" => &tables::core::SERVICE_ACCOUNT,
        "PersistentVolumeClaim" => &tables::persistent::PERSISTENT_VOLUME_CLAIM,
        "PersistentVolume" => &tables::persistent::PERSISTENT_VOLUME,
        "Pod" => &tables::pod::POD,
        "Node" => &tables::node::NODE,
        "CSINode" => &tables::storage::CSI_NODE,
        "CSIDriver" => &tables::storage::CSI_DRIVER,
        "StorageClass" => &tables::storage::STORAGE_CLASS,
        "VolumeAttachment" => &tables::storage::VOLUME_ATTACHMENT,
        other => panic!("no table for {other}"),
    }
}

/// The fields that an endpoint resets: the main one status, `/status` spec.
fn reset(subresource: &str) -> FieldSet {
    if subresource == "status" { FieldSet::of(&[&["spec"]]) } else { FieldSet::of(&[&["status"]]) }
}

fn built_in<'a>(kind: &'a str, api_version: &'a str, subresource: &'a str, reset: &'a FieldSet) -> Manager<'a> {
    let shape = Shape::Table(Type::Struct(table(kind)));
    Manager { api_version, kind, shape, other_versions: &[], subresource, reset }
}

fn managed_fields(object: &Value) -> &Value {
    &object["metadata"]["managedFields"]
}
