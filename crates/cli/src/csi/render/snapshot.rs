//! Snapshots and groups of them.

use ::csi::v1::{
    CreateSnapshotResponse, CreateVolumeGroupSnapshotResponse, GetSnapshotResponse, GetVolumeGroupSnapshotResponse,
    ListSnapshotsResponse, Snapshot, VolumeGroupSnapshot,
};
use serde_json::{Value, json};

use super::Render;
use super::text::{Fields, capacity, table, yes_no};
use super::volume::more;

fn created(snapshot: &Snapshot) -> Option<String> {
    snapshot.creation_time.as_ref().map(ToString::to_string)
}

fn snapshot_json(snapshot: &Snapshot) -> Value {
    json!({
        "sizeBytes": snapshot.size_bytes,
        "snapshotId": snapshot.snapshot_id,
        "sourceVolumeId": snapshot.source_volume_id,
        "creationTime": created(snapshot),
        "readyToUse": snapshot.ready_to_use,
        "groupSnapshotId": snapshot.group_snapshot_id,
    })
}

fn snapshot_text(snapshot: &Snapshot) -> String {
    Fields::default()
        .one("Snapshot", &snapshot.snapshot_id)
        .one("Of volume", &snapshot.source_volume_id)
        .one("Restores to", capacity(snapshot.size_bytes))
        .some("Created", created(snapshot))
        .one("Ready to use", yes_no(snapshot.ready_to_use))
        .some("Group", (!snapshot.group_snapshot_id.is_empty()).then(|| snapshot.group_snapshot_id.clone()))
        .text()
}

fn snapshot_table<'a>(snapshots: impl Iterator<Item = &'a Snapshot>) -> String {
    let row = |it: &Snapshot| {
        [
            it.snapshot_id.clone(),
            it.source_volume_id.clone(),
            capacity(it.size_bytes),
            created(it).unwrap_or_default(),
            yes_no(it.ready_to_use).to_owned(),
            it.group_snapshot_id.clone(),
        ]
    };
    table(["SNAPSHOT", "OF VOLUME", "RESTORES TO", "CREATED", "READY", "GROUP"], snapshots.map(row).collect())
}

fn group_json(group: &VolumeGroupSnapshot) -> Value {
    json!({
        "groupSnapshotId": group.group_snapshot_id,
        "snapshots": group.snapshots.iter().map(snapshot_json).collect::<Vec<_>>(),
        "creationTime": group.creation_time.as_ref().map(ToString::to_string),
        "readyToUse": group.ready_to_use,
    })
}

fn group_text(group: &VolumeGroupSnapshot) -> String {
    let fields = Fields::default()
        .one("Group", &group.group_snapshot_id)
        .some("Created", group.creation_time.as_ref().map(ToString::to_string))
        .one("Ready to use", yes_no(group.ready_to_use));
    fields.text() + &snapshot_table(group.snapshots.iter())
}

/// A response that holds one message and nothing else.
macro_rules! one_message {
    ($response:ty, $field:ident, $key:literal, $json:ident, $text:ident) => {
        impl Render for $response {
            fn json(&self) -> Value {
                json!({ $key: self.$field.as_ref().map($json) })
            }

            fn text(&self) -> String {
                self.$field.as_ref().map($text).unwrap_or_default()
            }
        }
    };
}

one_message!(CreateSnapshotResponse, snapshot, "snapshot", snapshot_json, snapshot_text);
one_message!(GetSnapshotResponse, snapshot, "snapshot", snapshot_json, snapshot_text);
one_message!(CreateVolumeGroupSnapshotResponse, group_snapshot, "groupSnapshot", group_json, group_text);
one_message!(GetVolumeGroupSnapshotResponse, group_snapshot, "groupSnapshot", group_json, group_text);

impl Render for ListSnapshotsResponse {
    fn json(&self) -> Value {
        let entries =
            self.entries.iter().map(|entry| json!({ "snapshot": entry.snapshot.as_ref().map(snapshot_json) }));
        json!({ "entries": entries.collect::<Vec<_>>(), "nextToken": self.next_token })
    }

    fn text(&self) -> String {
        let snapshots = self.entries.iter().filter_map(|entry| entry.snapshot.as_ref());
        snapshot_table(snapshots) + &more(&self.next_token)
    }
}
