//! Volumes as the controller sees them.

use ::csi::v1::volume_capability::{AccessType, access_mode};
use ::csi::v1::volume_content_source::Type as Source;
use ::csi::v1::{
    ControllerExpandVolumeResponse, ControllerGetVolumeResponse, ControllerPublishVolumeResponse, CreateVolumeResponse,
    GetCapacityResponse, ListVolumesResponse, Topology, ValidateVolumeCapabilitiesResponse, Volume, VolumeCapability,
    VolumeCondition, VolumeContentSource, validate_volume_capabilities_response::Confirmed,
};
use serde_json::{Value, json};

use super::text::{Fields, capacity, size, table, yes_no};
use super::{Render, context, enum_json, enum_text, lines};

fn source_json(source: &VolumeContentSource) -> Value {
    match &source.r#type {
        Some(Source::Snapshot(it)) => json!({ "snapshot": { "snapshotId": it.snapshot_id } }),
        Some(Source::Volume(it)) => json!({ "volume": { "volumeId": it.volume_id } }),
        None => json!({}),
    }
}

fn source_text(source: &VolumeContentSource) -> String {
    match &source.r#type {
        Some(Source::Snapshot(it)) => format!("snapshot {}", it.snapshot_id),
        Some(Source::Volume(it)) => format!("volume {}", it.volume_id),
        None => "unknown".to_owned(),
    }
}

pub(super) fn topology_json(topology: &Topology) -> Value {
    json!({ "segments": topology.segments })
}

pub(super) fn topology_text(topology: &Topology) -> String {
    lines(&topology.segments).join(",")
}

pub(super) fn condition_json(condition: &VolumeCondition) -> Value {
    json!({ "abnormal": condition.abnormal, "message": condition.message })
}

pub(super) fn condition_text(condition: &VolumeCondition) -> String {
    let state = if condition.abnormal { "abnormal" } else { "normal" };
    if condition.message.is_empty() { state.to_owned() } else { format!("{state}: {}", condition.message) }
}

fn volume_json(volume: &Volume) -> Value {
    json!({
        "capacityBytes": volume.capacity_bytes,
        "volumeId": volume.volume_id,
        "volumeContext": context(&volume.volume_context),
        "contentSource": volume.content_source.as_ref().map(source_json),
        "accessibleTopology": volume.accessible_topology.iter().map(topology_json).collect::<Vec<_>>(),
    })
}

fn volume_fields(volume: &Volume) -> Fields {
    Fields::default()
        .one("Volume", &volume.volume_id)
        .one("Capacity", capacity(volume.capacity_bytes))
        .any("Context", lines(&context(&volume.volume_context)))
        .some("Content of", volume.content_source.as_ref().map(source_text))
        .any("Reachable from", volume.accessible_topology.iter().map(topology_text).collect())
}

impl Render for CreateVolumeResponse {
    fn json(&self) -> Value {
        json!({ "volume": self.volume.as_ref().map(volume_json) })
    }

    fn text(&self) -> String {
        self.volume.as_ref().map(volume_fields).unwrap_or_default().text()
    }
}

fn status_json(nodes: &[String], condition: Option<&VolumeCondition>) -> Value {
    json!({ "publishedNodeIds": nodes, "volumeCondition": condition.map(condition_json) })
}

impl Render for ControllerGetVolumeResponse {
    fn json(&self) -> Value {
        let status = self.status.as_ref().map(|it| status_json(&it.published_node_ids, it.volume_condition.as_ref()));
        json!({ "volume": self.volume.as_ref().map(volume_json), "status": status })
    }

    fn text(&self) -> String {
        let fields = self.volume.as_ref().map(volume_fields).unwrap_or_default();
        let Some(status) = &self.status else { return fields.text() };
        fields
            .any("Attached to", status.published_node_ids.clone())
            .some("Condition", status.volume_condition.as_ref().map(condition_text))
            .text()
    }
}

impl Render for ListVolumesResponse {
    fn json(&self) -> Value {
        let entries = self.entries.iter().map(|entry| {
            let status =
                entry.status.as_ref().map(|it| status_json(&it.published_node_ids, it.volume_condition.as_ref()));
            json!({ "volume": entry.volume.as_ref().map(volume_json), "status": status })
        });
        json!({ "entries": entries.collect::<Vec<_>>(), "nextToken": self.next_token })
    }

    fn text(&self) -> String {
        let rows = self.entries.iter().map(|entry| {
            let volume = entry.volume.clone().unwrap_or_default();
            let status = entry.status.clone().unwrap_or_default();
            [
                volume.volume_id,
                capacity(volume.capacity_bytes),
                status.published_node_ids.join(","),
                status.volume_condition.as_ref().map(condition_text).unwrap_or_default(),
            ]
        });
        let rows = table(["VOLUME", "CAPACITY", "ATTACHED TO", "CONDITION"], rows.collect());
        rows + &more(&self.next_token)
    }
}

/// What a page that is not the last one ends with.
pub(super) fn more(next_token: &str) -> String {
    if next_token.is_empty() {
        return String::new();
    }
    format!("There is more: continue with --token {}\n", super::text::clean(next_token))
}

/// Mount options can hold passwords, so an option keeps its name and loses its value.
fn flags(flags: &[String]) -> Vec<String> {
    let hide = |flag: &String| match flag.split_once('=') {
        Some((name, _)) => format!("{name}={}", ::csi::REDACTED),
        None => flag.clone(),
    };
    flags.iter().map(hide).collect()
}

fn capability_json(capability: &VolumeCapability) -> Value {
    let mode = capability.access_mode.map(|it| enum_json(it.mode, access_mode::Mode::as_str_name));
    let mut object = json!({ "accessMode": mode.map(|mode| json!({ "mode": mode })) });
    match &capability.access_type {
        Some(AccessType::Block(_)) => object["block"] = json!({}),
        Some(AccessType::Mount(mount)) => {
            object["mount"] = json!({
                "fsType": mount.fs_type,
                "mountFlags": flags(&mount.mount_flags),
                "volumeMountGroup": mount.volume_mount_group,
            });
        }
        None => {}
    }
    object
}

fn capability_text(capability: &VolumeCapability) -> String {
    let mode = capability.access_mode.map(|it| enum_text(it.mode, access_mode::Mode::as_str_name));
    let access = match &capability.access_type {
        Some(AccessType::Block(_)) => "block".to_owned(),
        Some(AccessType::Mount(mount)) => {
            let parts = ["mount".to_owned(), mount.fs_type.clone(), flags(&mount.mount_flags).join(",")];
            parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
        }
        None => "unknown".to_owned(),
    };
    format!("{access}, {}", mode.as_deref().unwrap_or("no access mode"))
}

fn confirmed_json(confirmed: &Confirmed) -> Value {
    json!({
        "volumeContext": context(&confirmed.volume_context),
        "volumeCapabilities": confirmed.volume_capabilities.iter().map(capability_json).collect::<Vec<_>>(),
        "parameters": confirmed.parameters,
        "mutableParameters": confirmed.mutable_parameters,
    })
}

impl Render for ValidateVolumeCapabilitiesResponse {
    fn json(&self) -> Value {
        json!({ "confirmed": self.confirmed.as_ref().map(confirmed_json), "message": self.message })
    }

    fn text(&self) -> String {
        let message = (!self.message.is_empty()).then(|| self.message.clone());
        let fields = Fields::default().one("Confirmed", yes_no(self.confirmed.is_some())).some("Message", message);
        let Some(confirmed) = &self.confirmed else { return fields.text() };
        fields
            .any("Use", confirmed.volume_capabilities.iter().map(capability_text).collect())
            .any("Context", lines(&context(&confirmed.volume_context)))
            .any("Parameters", lines(&confirmed.parameters))
            .any("Mutable", lines(&confirmed.mutable_parameters))
            .text()
    }
}

impl Render for GetCapacityResponse {
    fn json(&self) -> Value {
        json!({
            "availableCapacity": self.available_capacity,
            "maximumVolumeSize": self.maximum_volume_size,
            "minimumVolumeSize": self.minimum_volume_size,
        })
    }

    fn text(&self) -> String {
        Fields::default()
            .one("Available", size(self.available_capacity))
            .some("Largest volume", self.maximum_volume_size.map(size))
            .some("Smallest volume", self.minimum_volume_size.map(size))
            .text()
    }
}

impl Render for ControllerPublishVolumeResponse {
    fn json(&self) -> Value {
        json!({ "publishContext": context(&self.publish_context) })
    }

    fn text(&self) -> String {
        Fields::default().one("Attached", "yes").any("Context", lines(&context(&self.publish_context))).text()
    }
}

impl Render for ControllerExpandVolumeResponse {
    fn json(&self) -> Value {
        json!({ "capacityBytes": self.capacity_bytes, "nodeExpansionRequired": self.node_expansion_required })
    }

    fn text(&self) -> String {
        let next = if self.node_expansion_required { "yes: `orlop csi node-expand` on its node" } else { "no" };
        Fields::default().one("Capacity", capacity(self.capacity_bytes)).one("Node must expand", next).text()
    }
}
