//! ATTACH-6 as tables.

mod holds;
mod nodes;
mod targets;
mod wishes;

use api::keys::{annotation, taint};
use api::object::UnixSeconds;
use api::{Attachment, Node, Pod, Volume};
use serde_json::{Value, json};

use super::hold::Rules;
use super::{Target, attachment_name, unique_name};

pub(super) const DRIVER: &str = "d.example.com";

pub(super) fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(super) fn rules() -> Rules {
    Rules { now: UnixSeconds(1_767_312_000), force_after: None, unready_for: None }
}

pub(super) fn unique(handle: &str) -> String {
    unique_name(DRIVER, handle)
}

/// A node of the given readiness that uses these volumes and was told of those.
pub(super) fn node(name: &str, ready: &str, used: &[&str], told: &[&str]) -> Node {
    let told: Vec<Value> = told.iter().map(|handle| json!({"name": unique(handle), "devicePath": ""})).collect();
    let used: Vec<String> = used.iter().map(|handle| unique(handle)).collect();
    read(json!({
        "metadata": {"name": name, "uid": "node", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
                     "annotations": {annotation::MANAGED_ATTACH.text(): "true"}},
        "status": {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T23:50:00Z"}],
                   "volumesAttached": told, "volumesInUse": used},
    }))
}

pub(super) fn tainted(mut node: Node) -> Node {
    node.taints = read(json!([{"key": taint::OUT_OF_SERVICE.text(), "effect": "NoExecute"}]));
    node
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Coming,
    Attached,
    Leaving,
}

pub(super) fn attachment(handle: &str, node: &str, state: State) -> Attachment {
    let deleted = (state == State::Leaving).then_some("2026-01-01T23:59:00Z");
    read(json!({
        "metadata": {"name": attachment_name(DRIVER, handle, node), "uid": "va", "resourceVersion": "5",
                     "creationTimestamp": "2026-01-01T12:00:00Z", "deletionTimestamp": deleted},
        "spec": {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": format!("pv-{handle}")}},
        "status": {"attached": state != State::Coming},
    }))
}

pub(super) fn volume(handle: &str, modes: &[&str]) -> Volume {
    read(json!({
        "metadata": {"name": format!("pv-{handle}"), "uid": "pv"},
        "spec": {"accessModes": modes, "csi": {"driver": DRIVER, "volumeHandle": handle},
                 "claimRef": {"namespace": "n", "name": "c", "uid": "claim"}},
        "status": {"phase": "Bound"},
    }))
}

pub(super) fn target(handle: &str, modes: &[&str]) -> Target {
    Target::of_volume(&volume(handle, modes)).unwrap().unwrap()
}

pub(super) fn pod(volumes: Value) -> Pod {
    read(json!({
        "metadata": {"namespace": "n", "name": "p", "uid": "pod"},
        "spec": {"nodeName": "a", "volumes": volumes},
    }))
}
