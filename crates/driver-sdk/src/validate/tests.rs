use csi::v1::volume_capability::{AccessMode as WireMode, AccessType, BlockVolume, MountVolume};
use tonic::Code;

use super::*;

fn one(key: &str, value: impl Into<String>) -> StringMap {
    StringMap::from([(key.to_owned(), value.into())])
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T>, part: &str) {
    let error = result.expect_err("must be refused");
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.to_string().contains(part), "{error} does not say {part:?}");
}

/// Rule: WIRE-B.4
#[test]
fn names_may_hold_any_text_but_some_control_characters() {
    for good in ["pvc-1", "a/b/../c", "tab\tlf\ncr\r", "space and 😀", &"x".repeat(128)] {
        assert_eq!(name("name", good.into()).unwrap(), good);
    }
    for code in (0..=0x8).chain([0xb, 0xc]).chain(0xe..=0x1f).chain(0x7f..=0x9f) {
        let text = format!("a{}b", char::from_u32(code).unwrap());
        refused(name("name", text), &format!("U+{code:04X}"));
    }
    refused(name("name", String::new()), "is missing");
    refused(name("name", "é".repeat(65)), "130 bytes");
}

/// Rule: WIRE-B.4
#[test]
fn sizes_have_limits_in_bytes() {
    assert!(required("volume_id", "x".repeat(128)).is_ok());
    refused(required("volume_id", "x".repeat(129)), "volume_id: has 129 bytes");
    assert!(node_id("node_id", "x".repeat(256)).is_ok());
    refused(node_id("node_id", "x".repeat(257)), "node_id");
    assert!(map("parameters", one("k", "v".repeat(4095))).is_ok());
    refused(map("parameters", one("k", "v".repeat(4096))), "4097 bytes");
    assert!(absolute_path("target_path", format!("/{}", "x".repeat(4095))).is_ok());
    refused(absolute_path("target_path", format!("/{}", "x".repeat(4096))), "target_path");
}

/// Rule: WIRE-B.4
#[test]
fn tokens_do_not_count_against_the_size_of_a_context() {
    assert!(map("volume_context", one(TOKEN_KEYS[0], "t".repeat(9000))).is_ok());
}

/// Rules: LOCAL-0.2, WIRE-B.2.6
#[test]
fn relative_paths_are_refused_only_where_a_driver_would_make_something() {
    refused(absolute_path("target_path", "some/path".into()), "not an absolute path");
    assert_eq!(any_path("volume_path", "some/path".into()).unwrap(), PathBuf::from("some/path"), "LOCAL-0.2");
    refused(any_path("volume_path", "a\0b".into()), "zero byte");
    refused(any_path("volume_path", String::new()), "is missing");
}

/// Rule: WIRE-B.4
#[test]
fn secret_keys_are_plain_and_never_their_values_shown() {
    assert!(secrets(one("a-B_1.c", "hunter2")).is_ok());
    for key in ["", "a b", "é", "a/b"] {
        let error = secrets(one(key, "hunter2")).unwrap_err();
        assert!(!error.chain().contains("hunter2"));
        refused::<()>(Err(error), "secrets: key");
    }
}

/// Rule: WIRE-B.2.3
#[test]
fn ranges_are_not_negative_and_not_upside_down() {
    let wire = |required_bytes, limit_bytes| v1::CapacityRange { required_bytes, limit_bytes };
    assert_eq!(range(wire(0, 0)).unwrap(), CapacityRange::default());
    assert_eq!(range(wire(5, 5)).unwrap(), CapacityRange { required: 5, limit: Some(5) });
    for bad in [wire(-1, 0), wire(0, -1), wire(2, 1)] {
        refused(range(bad), "capacity_range");
    }
    refused(required_range(None), "is missing");
    refused(required_range(Some(wire(0, 0))), "needs required_bytes or limit_bytes");
    refused(max_entries("max_entries", -1), "negative");
    assert_eq!(max_entries("max_entries", 0).unwrap(), None);
}

fn capability(mode: i32, access_type: Option<AccessType>) -> v1::VolumeCapability {
    v1::VolumeCapability { access_mode: Some(WireMode { mode }), access_type }
}

fn plain() -> Rules {
    let identity = crate::Identity::new("a.b", "1").unwrap();
    let health = crate::builder::Definition {
        identity,
        health: std::sync::Arc::new(Ready),
        controller: None,
        node: None,
        topology: None,
    };
    Rules::of(&health)
}

struct Ready;

impl crate::Health for Ready {
    fn readiness(&self) -> crate::Readiness {
        crate::Readiness::Ready
    }
}

/// Rule: WIRE-B.2.3
#[test]
fn capabilities_must_say_how_and_in_which_mode() {
    let rules = plain();
    let block = || Some(AccessType::Block(BlockVolume {}));
    let mount = |mount| Some(AccessType::Mount(mount));
    assert!(rules.required(Some(capability(1, block()))).is_ok());
    refused(rules.required(None), "volume_capability: is missing");
    refused(rules.required(Some(capability(1, None))), "access type is unset");
    refused(rules.required(Some(capability(0, block()))), "UNKNOWN");
    refused(rules.required(Some(capability(99, block()))), "access mode 99 is unknown");
    let unset = v1::VolumeCapability { access_mode: None, access_type: block() };
    refused(rules.required(Some(unset)), "access mode is missing");
    refused(rules.at_least_one(Vec::new()), "volume_capabilities: is missing");
    for untracked in [6, 7] {
        refused(rules.required(Some(capability(untracked, block()))), "does not support access mode SINGLE_NODE");
    }
    let flags = MountVolume { mount_flags: vec!["x".repeat(2049); 2], ..Default::default() };
    refused(rules.required(Some(capability(1, mount(flags)))), "mount_flags hold 4098 bytes");
    let group = MountVolume { volume_mount_group: "1000".into(), ..Default::default() };
    refused(rules.required(Some(capability(1, mount(group)))), "does not support volume_mount_group");
}

/// Rule: WIRE-B.4
#[test]
fn topology_keys_and_values_follow_the_specification() {
    for (key, value) in [("zone", "a"), ("topology.example.org/zone_1", "Z-1.b"), ("a1.b/C", "9")] {
        assert!(segments("t", one(key, value)).is_ok(), "{key}={value}");
    }
    let long = "x".repeat(64);
    let bad_keys = ["", "/zone", "A.b/zone", "a..b/zone", "a/b/c", "-zone", "zone-", "a_b.c/zone", long.as_str()];
    for key in bad_keys {
        refused(segments("t", one(key, "a")), "is not a topology key");
    }
    for value in ["", "-a", "a ", long.as_str()] {
        refused(segments("t", one("zone", value)), "is not a topology value");
    }
    let twice = StringMap::from([("Zone".into(), "a".into()), ("zone".into(), "a".into())]);
    refused(segments("t", twice), "occurs twice");
}
