//! The vectors were made by us with the Go types of Kubernetes 1.36: kind, body in hexadecimal, the same object as JSON.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{ProtoError, decode, encode, open, seal, seal_list};
use crate::schema::decode::{Expected, Format, decode_request, from_json};
use crate::schema::kinds;
use crate::schema::tables::{apiextensions, authentication, core, meta, persistent, pod};
use crate::schema::types::Struct;

struct Vector {
    kind: &'static str,
    body: Vec<u8>,
    json: &'static str,
}

fn vectors() -> Vec<Vector> {
    let bytes =
        |hex: &str| (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    include_str!("testdata/vectors.tsv")
        .lines()
        .map(|line| {
            let parts: Vec<&'static str> = line.split('\t').collect();
            Vector { kind: parts[0], body: bytes(parts[1]), json: parts[2] }
        })
        .collect()
}

fn schema(api_version: &str, kind: &str) -> &'static Struct {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    match kind {
        "DeleteOptions" => &meta::DELETE_OPTIONS,
        "TokenRequest" => &authentication::TOKEN_REQUEST,
        _ => kinds::by_kind(group, version, kind).expect("a served kind").schema,
    }
}

#[test]
fn bodies_written_by_go_decode_to_the_json_go_prints() {
    for vector in vectors() {
        let envelope = open(&vector.body).unwrap();
        assert_eq!(envelope.kind, vector.kind);
        let schema = schema(&envelope.api_version, &envelope.kind);
        let expected = Expected { api_version: &envelope.api_version, kind: &envelope.kind, schema, also: &[] };
        let body = decode_request(&expected, Format::Protobuf, &vector.body).unwrap();
        let json: Value = serde_json::from_str(vector.json).unwrap();
        assert_eq!(body.object, json, "{}", vector.kind);
    }
}

#[test]
fn the_json_go_prints_is_already_in_printed_form() {
    for vector in vectors() {
        let envelope = open(&vector.body).unwrap();
        let decoded = from_json(schema(&envelope.api_version, &envelope.kind), vector.json.as_bytes()).unwrap();
        assert_eq!(decoded.problems, [], "{}", vector.kind);
        assert_eq!(decoded.object, serde_json::from_str::<Value>(vector.json).unwrap(), "{}", vector.kind);
    }
}

#[test]
fn written_messages_read_back_as_the_same_object() {
    for vector in vectors() {
        let envelope = open(&vector.body).unwrap();
        let schema = schema(&envelope.api_version, &envelope.kind);
        let object = decode(schema, envelope.raw).unwrap();
        let sealed = seal(&envelope.api_version, &envelope.kind, schema, &object);
        let again = open(&sealed).unwrap();
        assert_eq!((&again.api_version, &again.kind), (&envelope.api_version, &envelope.kind));
        assert_eq!(decode(schema, again.raw).unwrap(), object, "{}", vector.kind);
    }
}

/// Absent and empty class names mean different things.
/// Rule: API-6.4
#[test]
fn an_empty_class_name_survives_and_an_empty_volume_name_does_not() {
    let spec = [0x1a, 0, 0x2a, 0];
    let decoded = decode(&persistent::PERSISTENT_VOLUME_CLAIM_SPEC, &spec).unwrap();
    assert_eq!(decoded, json!({"resources": {}, "storageClassName": ""}));
}

#[test]
fn lists_are_sealed_with_their_metadata_and_items() {
    let item = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
    let list = json!({"metadata": {"resourceVersion": "7"}, "items": [item]});
    let sealed = seal_list("v1", "ConfigMapList", &core::CONFIG_MAP, &list);
    let envelope = open(&sealed).unwrap();
    assert_eq!(envelope.kind, "ConfigMapList");
    assert!(envelope.raw.windows(3).any(|window| window == b"\x12\x01\x37"));
    let length = encode(&core::CONFIG_MAP, &item).len();
    assert!(envelope.raw.ends_with(&encode(&core::CONFIG_MAP, &item)) && length < envelope.raw.len());
}

#[test]
fn fields_of_newer_clients_are_skipped() {
    let message = [0xf8, 0x3f, 1, 0x0a, 2, 0x0a, 0];
    assert_eq!(decode(&core::CONFIG_MAP, &message).unwrap(), json!({"metadata": {}}));
}

#[test]
fn broken_bodies_are_refused_with_a_reason() {
    assert_eq!(open(b"xxxx"), Err(ProtoError::Magic));
    assert_eq!(open(b"k8s\0\x0a\x05ab"), Err(ProtoError::Truncated));
    assert_eq!(decode(&core::CONFIG_MAP, &[0x0b]), Err(ProtoError::Tag(11)));
    assert_eq!(decode(&core::CONFIG_MAP, &[0xff; 11]), Err(ProtoError::Varint));
    let wrong = decode(&core::CONFIG_MAP, &[0x08, 1]).unwrap_err();
    assert_eq!(wrong, ProtoError::WireType { message: core::CONFIG_MAP.name, field: "metadata" });
    let error = open(b"k8s\0\x1a\x04gzip").unwrap_err();
    assert_eq!(error, ProtoError::Encoding("gzip".to_owned()));
}

#[test]
fn endless_nesting_is_refused_before_the_stack_ends() {
    // JSONSchemaProps.not (field 28) inside itself.
    let mut message = Vec::new();
    for _ in 0..1000 {
        let mut outer = Vec::new();
        super::wire::put_bytes(&mut outer, 28, &message);
        message = outer;
    }
    assert_eq!(decode(&apiextensions::JSON_SCHEMA_PROPS, &message), Err(ProtoError::TooDeep));
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = open(&bytes);
        let _ = decode(&pod::POD, &bytes);
        let _ = decode(&apiextensions::CUSTOM_RESOURCE_DEFINITION, &bytes);
    }

    #[test]
    fn damaged_bodies_do_not_make_the_reader_panic(which in 0_usize..12, at in any::<prop::sample::Index>(), byte: u8) {
        let vector = &vectors()[which];
        let mut body = vector.body.clone();
        let at = at.index(body.len());
        body[at] = byte;
        if let Ok(envelope) = open(&body) {
            for schema in [&pod::POD, &persistent::PERSISTENT_VOLUME_CLAIM, &apiextensions::CUSTOM_RESOURCE_DEFINITION] {
                if let Ok(object) = decode(schema, envelope.raw) {
                    // Whatever was read is in printed form, so it reads back unchanged.
                    prop_assert_eq!(decode(schema, &encode(schema, &object)).unwrap(), object);
                }
            }
        }
    }
}

#[test]
fn a_message_of_very_many_empty_ones_is_refused() {
    // ConfigMap.data, field 2: entries without key and value.
    let many = [0x12, 0].repeat(300_000);
    assert_eq!(decode(&crate::schema::tables::core::CONFIG_MAP, &many), Err(ProtoError::TooMany));
    assert!(decode(&crate::schema::tables::core::CONFIG_MAP, &many[..2000]).is_ok());
}
