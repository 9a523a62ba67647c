//! What people and programs get to see, for answers that have something in every field and for answers that have not.

use ::csi::v1::plugin_capability::{Service, Type as PluginType};
use ::csi::v1::volume_capability::{AccessMode, AccessType, MountVolume, access_mode};
use ::csi::v1::{
    CreateVolumeResponse, GetCapacityResponse, GetPluginCapabilitiesResponse, ListSnapshotsResponse,
    ListVolumesResponse, NodeGetVolumeStatsResponse, PluginCapability, Snapshot, Topology,
    ValidateVolumeCapabilitiesResponse, Volume, VolumeCapability, VolumeCondition, VolumeUsage,
    list_snapshots_response, list_volumes_response, validate_volume_capabilities_response::Confirmed,
    volume_usage::Unit,
};
use serde_json::json;

use super::text::size;
use super::{Done, Render};

fn map<const N: usize>(pairs: [(&str, &str); N]) -> std::collections::BTreeMap<String, String> {
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

fn volume() -> Volume {
    Volume {
        capacity_bytes: 1 << 30,
        volume_id: "v1".to_owned(),
        volume_context: map([("pool", "fast"), (::csi::TOKEN_KEYS[0], "eyJhbGciOi")]),
        content_source: None,
        accessible_topology: vec![Topology { segments: map([("node", "n1"), ("zone", "z1")]) }],
    }
}

#[test]
fn sizes_are_cut_and_never_rounded_up() {
    let rows = [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB (1024 bytes)"),
        (1_610_612_736, "1.5 GiB (1610612736 bytes)"),
        ((2 << 30) - 1, "1.9 GiB (2147483647 bytes)"),
        (i64::MAX, "7.9 EiB (9223372036854775807 bytes)"),
        (-1, "-1 bytes"),
    ];
    for (bytes, want) in rows {
        assert_eq!(size(bytes), want);
    }
}

#[test]
fn a_volume_is_aligned_text_with_its_token_hidden() {
    let answer = CreateVolumeResponse { volume: Some(volume()) };
    let want = "Volume          v1\n\
                Capacity        1 GiB (1073741824 bytes)\n\
                Context         TOKEN=***\n\
                \x20               pool=fast\n\
                Reachable from  node=n1,zone=z1\n";
    assert_eq!(answer.text(), want.replace("TOKEN", ::csi::TOKEN_KEYS[0]));
    assert!(!answer.json().to_string().contains("eyJhbGciOi"));
}

#[test]
fn json_has_the_proto_names_numbers_for_sizes_and_every_key() {
    let answer = CreateVolumeResponse { volume: Some(Volume { volume_context: map([]), ..volume() }) };
    assert_eq!(
        answer.json(),
        json!({ "volume": {
            "capacityBytes": 1_073_741_824_i64,
            "volumeId": "v1",
            "volumeContext": {},
            "contentSource": null,
            "accessibleTopology": [{ "segments": { "node": "n1", "zone": "z1" } }],
        } })
    );
    let capacity =
        GetCapacityResponse { available_capacity: 5, maximum_volume_size: Some(4), minimum_volume_size: None };
    assert_eq!(capacity.json(), json!({ "availableCapacity": 5, "maximumVolumeSize": 4, "minimumVolumeSize": null }));
}

#[test]
fn a_list_is_a_table_and_says_when_there_is_more() {
    let entry = |id: &str, nodes: &[&str], condition: Option<VolumeCondition>| list_volumes_response::Entry {
        volume: Some(Volume { volume_id: id.to_owned(), ..Volume::default() }),
        status: Some(list_volumes_response::VolumeStatus {
            published_node_ids: nodes.iter().map(ToString::to_string).collect(),
            volume_condition: condition,
        }),
    };
    let sick = VolumeCondition { abnormal: true, message: "pool is read-only".to_owned() };
    let answer = ListVolumesResponse {
        entries: vec![entry("a", &["n1", "n2"], None), entry("a-long-id", &[], Some(sick))],
        next_token: "a-long-id".to_owned(),
    };
    assert_eq!(
        answer.text(),
        "VOLUME     CAPACITY  ATTACHED TO  CONDITION\n\
         a          unknown   n1,n2        -\n\
         a-long-id  unknown   -            abnormal: pool is read-only\n\
         There is more: continue with --token a-long-id\n"
    );
    assert_eq!(answer.json()["nextToken"], "a-long-id");
}

#[test]
fn times_are_rfc_3339() {
    let time = "2026-03-01T12:00:00Z".parse().unwrap();
    let snapshot = Snapshot { creation_time: Some(time), ready_to_use: true, ..Snapshot::default() };
    let entries = vec![list_snapshots_response::Entry { snapshot: Some(snapshot) }];
    let answer = ListSnapshotsResponse { entries, next_token: String::new() };
    assert_eq!(answer.json()["entries"][0]["snapshot"]["creationTime"], "2026-03-01T12:00:00Z");
    assert!(answer.text().contains("2026-03-01T12:00:00Z  yes"), "{}", answer.text());
}

#[test]
fn a_confirmed_capability_hides_the_values_of_mount_options() {
    let mount = MountVolume {
        fs_type: "ext4".to_owned(),
        mount_flags: vec!["noatime".to_owned(), "password=hunter2".to_owned()],
        volume_mount_group: String::new(),
    };
    let capability = VolumeCapability {
        access_mode: Some(AccessMode { mode: access_mode::Mode::SingleNodeWriter.into() }),
        access_type: Some(AccessType::Mount(mount)),
    };
    let confirmed = Confirmed { volume_capabilities: vec![capability], ..Confirmed::default() };
    let answer = ValidateVolumeCapabilitiesResponse { confirmed: Some(confirmed), message: String::new() };
    assert_eq!(answer.text(), "Confirmed  yes\nUse        mount ext4 noatime,password=***, SINGLE_NODE_WRITER\n");
    let json = answer.json();
    assert_eq!(json["confirmed"]["volumeCapabilities"][0]["accessMode"]["mode"], "SINGLE_NODE_WRITER");
    assert!(!json.to_string().contains("hunter2"));
}

#[test]
fn bytes_and_inodes_share_a_table_but_not_a_unit() {
    let usage = |unit: Unit, total| VolumeUsage { available: 1024, total, used: 0, unit: unit.into() };
    let answer = NodeGetVolumeStatsResponse {
        usage: vec![usage(Unit::Bytes, 4096), usage(Unit::Inodes, 4096)],
        volume_condition: Some(VolumeCondition { abnormal: false, message: String::new() }),
    };
    assert_eq!(
        answer.text(),
        "UNIT    TOTAL               USED     AVAILABLE\n\
         BYTES   4 KiB (4096 bytes)  0 bytes  1 KiB (1024 bytes)\n\
         INODES  4096                0        1024\n\
         Condition  normal\n"
    );
}

#[test]
fn a_capability_of_a_newer_driver_shows_as_its_number() {
    let capability = PluginCapability { r#type: Some(PluginType::Service(Service { r#type: 99 })) };
    let answer = GetPluginCapabilitiesResponse { capabilities: vec![capability] };
    assert_eq!(answer.text(), "Plugin  unknown (99)\n");
    assert_eq!(answer.json(), json!({ "capabilities": [{ "service": { "type": 99 } }] }));
}

/// Rule: WIRE-B.4
#[test]
fn a_driver_cannot_steer_the_terminal() {
    // WIRE-B.4: names may hold tabs and line breaks.
    let answer =
        CreateVolumeResponse { volume: Some(Volume { volume_id: "a\n\u{1b}[2Jb".to_owned(), ..Volume::default() }) };
    assert_eq!(answer.text(), "Volume    a\\n\\u{1b}[2Jb\nCapacity  unknown\n");
    assert_eq!(Done("volume \u{7} is deleted".to_owned()).text(), "volume \\u{7} is deleted\n");
    assert_eq!(Done(String::new()).json(), json!({}));
}
