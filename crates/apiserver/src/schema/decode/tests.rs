use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Expected, Format, Problem, base64, decode_request, from_json, from_value, parse_yaml, strict_message};
use crate::schema::kinds;
use crate::schema::tables::{apiextensions, core, events, meta, persistent, pod, rbac, storage};
use crate::schema::types::Struct;

fn problems(schema: &'static Struct, body: &str) -> Vec<String> {
    from_json(schema, body.as_bytes()).unwrap().problems.iter().map(Problem::to_string).collect()
}

fn object(schema: &'static Struct, body: &str) -> Value {
    from_json(schema, body.as_bytes()).unwrap().object
}

fn claim() -> Expected<'static> {
    let schema = &persistent::PERSISTENT_VOLUME_CLAIM;
    Expected { api_version: "v1", kind: "PersistentVolumeClaim", schema, also: &[] }
}

fn refusal(body: &[u8]) -> String {
    decode_request(&claim(), Format::Json, body).unwrap_err().to_string()
}

/// Rule: API-4.4
#[test]
fn unknown_and_duplicate_fields_are_reported_with_their_paths_in_document_order() {
    let pvc = &persistent::PERSISTENT_VOLUME_CLAIM;
    let cases = [
        (r#"{"spec":{"foo":1}}"#, vec![r#"unknown field "spec.foo""#]),
        (r#"{"spec":{"AccessModes":[]}}"#, vec![r#"unknown field "spec.AccessModes""#]),
        (r#"{"spec":{"volumeName":"a","volumeName":"b"}}"#, vec![r#"duplicate field "spec.volumeName""#]),
        (r#"{"metadata":{"labels":{"a":"1","a":"2"}}}"#, vec![r#"duplicate field "metadata.labels.a""#]),
        (
            r#"{"z":1,"spec":{"b":{"c":1,"c":2},"a":1},"spec":{}}"#,
            vec![
                r#"unknown field "z""#,
                r#"unknown field "spec.b""#,
                r#"unknown field "spec.a""#,
                r#"duplicate field "spec""#,
            ],
        ),
        (r#"{"spec":{"foo":1,"foo":2}}"#, vec![r#"unknown field "spec.foo""#]),
    ];
    for (body, expected) in cases {
        assert_eq!(problems(pvc, body), expected, "{body}");
    }
    let body = r#"{"spec":{"containers":[{"name":"a"},{"nmae":"b"}]}}"#;
    assert_eq!(problems(&pod::POD, body), [r#"unknown field "spec.containers[1].nmae""#]);
}

#[test]
fn no_more_than_a_hundred_problems_are_kept() {
    let fields: Vec<String> = (0..300).map(|number| format!(r#""x{number}":1"#)).collect();
    assert_eq!(problems(&core::CONFIG_MAP, &format!("{{{}}}", fields.join(","))).len(), 100);
}

#[test]
fn of_a_field_given_twice_the_last_value_wins_and_structs_are_merged() {
    let pvc = &persistent::PERSISTENT_VOLUME_CLAIM;
    let decoded = object(pvc, r#"{"spec":{"volumeName":"a","volumeName":"b"},"spec":{"storageClassName":"c"}}"#);
    assert_eq!(decoded["spec"], json!({"volumeName": "b", "storageClassName": "c", "resources": {}}));
}

/// Rules: API-4.4, API-5
#[test]
fn strict_requests_are_refused_in_the_words_of_the_reference() {
    let body = br#"{"kind":"PersistentVolumeClaim","spec":{"foo":1,"volumeName":"a","volumeName":"b"}}"#;
    let decoded = decode_request(&claim(), Format::Json, body).unwrap();
    assert_eq!(decoded.problems.len(), 2);
    assert_eq!(
        decoded.strict(&claim()).unwrap_err().to_string(),
        r#"PersistentVolumeClaim in version "v1" cannot be handled as a PersistentVolumeClaim: strict decoding error: unknown field "spec.foo", duplicate field "spec.volumeName""#
    );
    assert_eq!(strict_message(&[Problem::Unknown("a".to_owned())]), r#"strict decoding error: unknown field "a""#);
}

/// Malformed bodies.
/// Rule: API-5
#[test]
fn malformed_bodies_are_refused_in_the_words_of_the_reference() {
    let prefix = "the object provided is unrecognized (must be of type PersistentVolumeClaim): couldn't get version/kind; json parse error: ";
    for (body, rest) in [
        ("{", "unexpected end of JSON input ({)"),
        ("", "unexpected end of JSON input (<empty>)"),
        ("{x", "invalid character 'x' looking for beginning of object key string ({x)"),
        ("{} x", "invalid character 'x' after top-level value ({} x)"),
        ("[]", "json: cannot unmarshal array into Go value of type v1.TypeMeta (5b5d)"),
        (
            r#"{"kind":5}"#,
            r#"json: cannot unmarshal number into Go struct field TypeMeta.kind of type string ({"kind":5})"#,
        ),
    ] {
        assert_eq!(refusal(body.as_bytes()), format!("{prefix}{rest}"), "{body}");
    }
    let prefix = r#"PersistentVolumeClaim in version "v1" cannot be handled as a PersistentVolumeClaim: "#;
    for (body, rest) in [
        (
            r#"{"spec":{"accessModes":"x"}}"#,
            "json: cannot unmarshal string into Go struct field PersistentVolumeClaimSpec.spec.accessModes of type []string",
        ),
        (
            r#"{"spec":{"resources":{"requests":{"storage":"1Zi"}}}}"#,
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            r#"{"metadata":{"generation":1.5}}"#,
            "json: cannot unmarshal number 1.5 into Go struct field ObjectMeta.metadata.generation of type int64",
        ),
        (
            r#"{"metadata":{"creationTimestamp":"soon"}}"#,
            r#"parsing time "soon" as "2006-01-02T15:04:05Z07:00": cannot parse "soon" as "2006""#,
        ),
    ] {
        assert_eq!(refusal(body.as_bytes()), format!("{prefix}{rest}"), "{body}");
    }
}

#[test]
fn a_body_of_another_kind_is_refused_and_a_body_without_kind_is_taken() {
    let text = refusal(br#"{"apiVersion":"v1","kind":"Secret"}"#);
    assert!(text.starts_with(r#"Secret in version "v1" cannot be handled as a PersistentVolumeClaim: "#), "{text}");
    let body = decode_request(&claim(), Format::Json, b"{}").unwrap();
    let expected = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {}, "spec": {"resources": {}}, "status": {}});
    assert_eq!(body.object, expected);
    assert_eq!(decode_request(&claim(), Format::Json, b"null").unwrap().object, expected);
}

#[test]
fn delete_options_come_under_several_group_versions() {
    let schema = &meta::DELETE_OPTIONS;
    let expected =
        Expected { api_version: "v1", kind: "DeleteOptions", schema, also: &["meta.k8s.io/v1", "storage.k8s.io/v1"] };
    for version in ["v1", "meta.k8s.io/v1", "storage.k8s.io/v1"] {
        let body = format!(r#"{{"apiVersion":"{version}","kind":"DeleteOptions"}}"#);
        assert!(decode_request(&expected, Format::Json, body.as_bytes()).is_ok(), "{version}");
    }
    assert!(decode_request(&expected, Format::Json, br#"{"apiVersion":"apps/v1"}"#).is_err());
}

/// The shape of the printed JSON.
/// Rule: API-2
#[test]
fn zero_structs_are_printed_and_empty_collections_are_not() {
    let cases: [(&'static Struct, &str, Value); 8] = [
        (
            &persistent::PERSISTENT_VOLUME_CLAIM,
            r#"{"metadata":{"labels":{},"finalizers":[],"creationTimestamp":null},"spec":{"storageClassName":"","volumeName":""}}"#,
            json!({"metadata": {}, "spec": {"resources": {}, "storageClassName": ""}, "status": {}}),
        ),
        (&storage::CSI_NODE, r#"{"spec":{"drivers":[]}}"#, json!({"metadata": {}, "spec": {"drivers": []}})),
        (&rbac::ROLE, "{}", json!({"metadata": {}, "rules": null})),
        (
            &core::EVENT,
            r#"{"firstTimestamp":"2024-05-06T07:08:09.5+02:00"}"#,
            json!({"metadata": {}, "involvedObject": {}, "source": {}, "firstTimestamp": "2024-05-06T05:08:09Z",
                "lastTimestamp": null, "eventTime": null, "reportingComponent": "", "reportingInstance": ""}),
        ),
        (
            &events::EVENT,
            r#"{"eventTime":"2024-05-06T07:08:09.123456Z"}"#,
            json!({"metadata": {}, "regarding": {}, "deprecatedSource": {}, "deprecatedFirstTimestamp": null,
                "deprecatedLastTimestamp": null, "eventTime": "2024-05-06T07:08:09.123456Z"}),
        ),
        (&core::SECRET, r#"{"data":{"a":null,"b":"AP8="}}"#, json!({"metadata": {}, "data": {"a": "", "b": "AP8="}})),
        (
            &core::CONFIG_MAP,
            r#"{"data":{"a":null},"immutable":false}"#,
            json!({"metadata": {}, "data": {"a": ""}, "immutable": false}),
        ),
        (
            &pod::POD,
            r#"{"spec":{"containers":[{"name":"a"}]}}"#,
            json!({"metadata": {}, "spec": {"containers": [{"name": "a", "resources": {}}]}, "status": {}}),
        ),
    ];
    for (schema, body, expected) in cases {
        assert_eq!(object(schema, body), expected, "{body}");
    }
}

/// Quantities in resource lists.
/// Rule: API-2
#[test]
fn quantities_are_rewritten_and_lists_are_rounded_to_milli() {
    let body =
        r#"{"spec":{"resources":{"requests":{"storage":"1024Mi","a":"1u","b":5,"c":0.5,"d":" 1Gi ","e":null}}}}"#;
    let decoded = object(&persistent::PERSISTENT_VOLUME_CLAIM, body);
    let expected = json!({"storage": "1Gi", "a": "1m", "b": "5", "c": "500m", "d": "1Gi", "e": "0"});
    assert_eq!(decoded["spec"]["resources"]["requests"], expected);
    let capacity = object(&storage::CSI_STORAGE_CAPACITY, r#"{"storageClassName":"x","capacity":"1u"}"#);
    assert_eq!(capacity["capacity"], "1u");
}

#[test]
fn schemas_of_custom_resources_may_be_booleans_lists_or_schemas() {
    let body = r#"{"items":[{"type":"string"}],"additionalProperties":false,"properties":{"a":{"items":{"type":"x","zz":1}}},
        "default":{"any":[1,{"thing":null}]},"dependencies":{"d":["e"]},"x-kubernetes-preserve-unknown-fields":true}"#;
    let decoded = from_json(&apiextensions::JSON_SCHEMA_PROPS, body.as_bytes()).unwrap();
    assert_eq!(decoded.problems, [], "the reference does not look for unknown fields inside unions");
    assert_eq!(
        decoded.object,
        json!({"items": [{"type": "string"}], "additionalProperties": false, "properties": {"a": {"items": {"type": "x"}}},
            "default": {"any": [1, {"thing": null}]}, "dependencies": {"d": ["e"]}, "x-kubernetes-preserve-unknown-fields": true})
    );
}

#[test]
fn yaml_is_read_with_the_booleans_and_octals_of_yaml_1_1() {
    let (value, problems) = parse_yaml(b"a: yes\nb: 'yes'\nc: 0644\nd: off\ne: 12e3\n").unwrap();
    assert_eq!(value, json!({"a": true, "b": "yes", "c": 420, "d": false, "e": 12000}));
    assert_eq!(problems, []);
    let (value, problems) = parse_yaml(b"a: 1\nb: 2\na: 3\n").unwrap();
    assert_eq!(value, json!({"a": 3, "b": 2}));
    assert_eq!(problems[0].to_string(), r#"line 3: key "a" already set in map"#);
    assert!(parse_yaml(b"a: [1").is_err());
    assert!(parse_yaml(b"\xff").is_err());
}

#[test]
fn yaml_bodies_decode_as_json_bodies_do() {
    let body = b"apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}\nspec:\n  foo: 1\n  resources: {requests: {storage: 1024Mi}}\n";
    let decoded = decode_request(&claim(), Format::Yaml, body).unwrap();
    assert_eq!(decoded.problems, [Problem::Unknown("spec.foo".to_owned())]);
    assert_eq!(decoded.object["spec"]["resources"]["requests"]["storage"], "1Gi");
}

#[test]
fn values_made_by_patches_may_not_be_bottomless() {
    let mut value = json!({});
    for _ in 0..500 {
        value = json!({ "not": value });
    }
    let error = from_value(&apiextensions::JSON_SCHEMA_PROPS, value).unwrap_err();
    assert_eq!(error.to_string(), "exceeded max depth");
}

#[test]
fn base64_round_trips_and_refuses_nonsense() {
    for length in 0..10 {
        let bytes: Vec<u8> = (0..length).map(|byte: u8| byte.wrapping_mul(37)).collect();
        assert_eq!(base64::decode(&base64::encode(&bytes)), Ok(bytes));
    }
    assert_eq!(base64::decode("QU\nJD"), Ok(b"ABC".to_vec()));
    for bad in ["A", "QQ=", "QQ=a", "*", "====", "QUI=="] {
        assert!(base64::decode(bad).is_err(), "{bad}");
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let names = prop::sample::select(vec![
        "metadata",
        "spec",
        "name",
        "labels",
        "containers",
        "resources",
        "requests",
        "volumes",
        "x",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z0-9.+-]{0,6}".prop_map(Value::from)
    ];
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names.clone().prop_map(str::to_owned), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_text_makes_the_decoder_panic(text in "\\PC{0,120}") {
        let _ = from_json(&pod::POD, text.as_bytes());
        let _ = decode_request(&claim(), Format::Yaml, text.as_bytes());
    }

    #[test]
    fn decoding_is_idempotent(value in json_value()) {
        for kind in kinds::ALL {
            if let Ok(decoded) = from_value(kind.schema, value.clone()) {
                let again = from_json(kind.schema, decoded.object.to_string().as_bytes()).unwrap();
                prop_assert_eq!(&again.object, &decoded.object);
                prop_assert_eq!(&again.problems, &[]);
            }
        }
    }
}

/// The reader's own limit is lower than that of JSON; this notices if it ever changes.
#[test]
fn yaml_is_no_deeper_than_json_can_be_read_back() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let (value, _) = parse_yaml(nested(60).as_bytes()).expect("sixty levels are read");
    assert!(serde_json::from_str::<Value>(&value.to_string()).is_ok());
    assert!(parse_yaml(nested(130).as_bytes()).is_err());
    assert!(parse_yaml(nested(100_000).as_bytes()).is_err());
}
