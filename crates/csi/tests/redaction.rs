//! No secret reaches a `Debug` (WIRE-B.5, LOCAL-0.28 and LOCAL-0.29).
//!
//! The messages to test are read from the `.proto` file itself, so a field that is added there and missing here fails.
//! Each message is built from wire bytes made of the numbers in that file, which needs no knowledge of its Rust type.

use std::collections::BTreeMap;
use std::fmt::Debug;

use csi::{REDACTED, TOKEN_KEYS, v1};
use prost::Message;

const PROTO: &str = include_str!("../proto/csi/v1/csi.proto");

const SECRET: &str = "hunter2-do-not-print";
const PUBLIC: &str = "may-be-printed";

/// What must not be shown of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Guard {
    /// Every value of the map.
    Secrets,
    /// The values of token keys.
    Context,
    /// What follows `=`.
    Flags,
}

/// A guarded field: its message, with outer messages in front, and its number.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Field {
    message: String,
    number: u64,
    guard: Guard,
}

/// Reads the guarded fields from the text of the `.proto` file.
fn guarded_fields() -> Vec<Field> {
    let mut open: Vec<(&str, &str)> = Vec::new();
    let mut fields = Vec::new();
    for line in PROTO.lines() {
        let code = line.split("//").next().unwrap_or_default().trim();
        let mut words = code.split_whitespace();
        if code.ends_with('{') {
            open.push((words.next().unwrap_or_default(), words.next().unwrap_or_default()));
        } else if code == "}" {
            open.pop();
        } else if let Some(guard) = guard(code) {
            let message = open.iter().filter(|(kind, _)| *kind == "message").map(|(_, name)| *name);
            let number = code.split('=').nth(1).expect("a field has a number");
            let number: String = number.trim().chars().take_while(char::is_ascii_digit).collect();
            let number = number.parse().expect("a field number");
            fields.push(Field { message: message.collect::<Vec<_>>().join("."), number, guard });
        }
    }
    fields
}

fn guard(code: &str) -> Option<Guard> {
    if code.contains("(csi_secret) = true") {
        Some(Guard::Secrets)
    } else if code.starts_with("map<string, string> volume_context") || code.contains("> publish_context") {
        Some(Guard::Context)
    } else if code.contains(" mount_flags ") {
        Some(Guard::Flags)
    } else {
        None
    }
}

/// Appends a length-delimited field.
fn put(out: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    prost::encoding::encode_varint(number << 3 | 2, out);
    prost::encoding::encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn put_entry(out: &mut Vec<u8>, number: u64, key: &str, value: &str) {
    let mut entry = Vec::new();
    put(&mut entry, 1, key.as_bytes());
    put(&mut entry, 2, value.as_bytes());
    put(out, number, &entry);
}

/// The wire bytes of a message with something to hide, and in context maps something to show, in that field.
fn wire(field: &Field) -> Vec<u8> {
    let mut out = Vec::new();
    match field.guard {
        Guard::Secrets => put_entry(&mut out, field.number, "the-key", SECRET),
        Guard::Context => {
            put_entry(&mut out, field.number, TOKEN_KEYS[0], SECRET);
            put_entry(&mut out, field.number, "plain", PUBLIC);
        }
        Guard::Flags => {
            put(&mut out, field.number, b"noatime");
            put(&mut out, field.number, format!("password={SECRET}").as_bytes());
            put(&mut out, field.number, format!("ro,pass={SECRET}=x,rw").as_bytes());
        }
    }
    out
}

/// Both forms of `Debug`.
fn shown<M: Message + Default + Debug>(wire: &[u8]) -> [String; 2] {
    let message = M::decode(wire).expect("the bytes are a message");
    assert_eq!(message.encode_to_vec().len(), wire.len(), "every field was understood");
    [format!("{message:?}"), format!("{message:#?}")]
}

type Show = fn(&[u8]) -> [String; 2];

/// The Rust type of each message that guards a field.
fn types() -> BTreeMap<&'static str, Show> {
    macro_rules! table {
        ($($name:literal => $type:ty,)*) => { BTreeMap::from([$(($name, shown::<$type> as Show),)*]) };
    }
    table! {
        "CreateVolumeRequest" => v1::CreateVolumeRequest,
        "VolumeCapability.MountVolume" => v1::volume_capability::MountVolume,
        "Volume" => v1::Volume,
        "DeleteVolumeRequest" => v1::DeleteVolumeRequest,
        "ControllerPublishVolumeRequest" => v1::ControllerPublishVolumeRequest,
        "ControllerPublishVolumeResponse" => v1::ControllerPublishVolumeResponse,
        "ControllerUnpublishVolumeRequest" => v1::ControllerUnpublishVolumeRequest,
        "ValidateVolumeCapabilitiesRequest" => v1::ValidateVolumeCapabilitiesRequest,
        "ValidateVolumeCapabilitiesResponse.Confirmed" => v1::validate_volume_capabilities_response::Confirmed,
        "ControllerModifyVolumeRequest" => v1::ControllerModifyVolumeRequest,
        "CreateSnapshotRequest" => v1::CreateSnapshotRequest,
        "DeleteSnapshotRequest" => v1::DeleteSnapshotRequest,
        "ListSnapshotsRequest" => v1::ListSnapshotsRequest,
        "GetSnapshotRequest" => v1::GetSnapshotRequest,
        "ControllerExpandVolumeRequest" => v1::ControllerExpandVolumeRequest,
        "NodeStageVolumeRequest" => v1::NodeStageVolumeRequest,
        "NodePublishVolumeRequest" => v1::NodePublishVolumeRequest,
        "NodeExpandVolumeRequest" => v1::NodeExpandVolumeRequest,
        "CreateVolumeGroupSnapshotRequest" => v1::CreateVolumeGroupSnapshotRequest,
        "DeleteVolumeGroupSnapshotRequest" => v1::DeleteVolumeGroupSnapshotRequest,
        "GetVolumeGroupSnapshotRequest" => v1::GetVolumeGroupSnapshotRequest,
        "GetMetadataAllocatedRequest" => v1::GetMetadataAllocatedRequest,
        "GetMetadataDeltaRequest" => v1::GetMetadataDeltaRequest,
    }
}

/// Rules: WIRE-B.5, LOCAL-0.28, LOCAL-0.29
#[test]
fn every_guarded_field_of_the_proto_file_is_hidden() {
    let types = types();
    for field in guarded_fields() {
        let show = types.get(field.message.as_str()).unwrap_or_else(|| panic!("add {} to types()", field.message));
        for text in show(&wire(&field)) {
            assert!(!text.contains(SECRET), "{field:?}: {text}");
            assert!(text.contains(REDACTED), "{field:?}: {text}");
            let visible = match field.guard {
                Guard::Secrets => "the-key",
                Guard::Context => PUBLIC,
                Guard::Flags => "noatime",
            };
            assert!(text.contains(visible), "{field:?} hides too much: {text}");
        }
    }
}

/// Rule: WIRE-B.5
#[test]
fn the_proto_file_is_read_rightly() {
    let fields = guarded_fields();
    let count = |guard| fields.iter().filter(|field| field.guard == guard).count();
    // WIRE-B.5 lists nineteen requests with secrets.
    assert_eq!(count(Guard::Secrets), 19);
    assert_eq!(count(Guard::Secrets), PROTO.matches("(csi_secret) = true").count());
    assert_eq!(count(Guard::Flags), 1);
    let contexts = |line: &&str| {
        let code = line.split("//").next().unwrap_or_default();
        code.contains("volume_context =") || code.contains("publish_context =")
    };
    assert_eq!(count(Guard::Context), PROTO.lines().filter(contexts).count());
    let named: std::collections::BTreeSet<&str> = fields.iter().map(|field| field.message.as_str()).collect();
    assert!(named.into_iter().eq(types().into_keys()), "types() lists a message that guards nothing");
}

/// Rule: WIRE-B.5
#[test]
fn messages_inside_messages_hide_too() {
    let mount =
        v1::volume_capability::MountVolume { mount_flags: vec![format!("password={SECRET}")], ..Default::default() };
    let capability = v1::VolumeCapability {
        access_type: Some(v1::volume_capability::AccessType::Mount(mount)),
        ..Default::default()
    };
    let volume = v1::Volume {
        volume_context: BTreeMap::from([(TOKEN_KEYS[0].to_owned(), SECRET.to_owned())]),
        ..Default::default()
    };
    let create = v1::CreateVolumeRequest { volume_capabilities: vec![capability.clone()], ..Default::default() };
    let get_capacity = v1::GetCapacityRequest { volume_capabilities: vec![capability], ..Default::default() };
    let entry = v1::list_volumes_response::Entry { volume: Some(volume.clone()), ..Default::default() };
    let list = v1::ListVolumesResponse { entries: vec![entry], ..Default::default() };
    let created = v1::CreateVolumeResponse { volume: Some(volume) };
    let shown: [&dyn Debug; 4] = [&create, &get_capacity, &list, &created];
    for message in shown {
        for text in [format!("{message:?}"), format!("{message:#?}")] {
            assert!(!text.contains(SECRET) && text.contains(REDACTED), "{text}");
        }
    }
}
