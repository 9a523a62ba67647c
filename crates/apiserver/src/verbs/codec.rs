//! How objects lie in the store: JSON without their resourceVersion, which is the revision of the write.
//!
//! The text starts with `{"apiVersion":"v1","kind":"Pod","metadata":{`, always in this order and without spaces, and the
//! characters that Go escapes are escaped. So an answer is the stored text with the version put in and, in lists, without
//! the first two fields: bytes are copied and nothing is parsed. Text that starts otherwise is parsed and printed.

use std::borrow::Cow;

use bytes::Bytes;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::admission::{NamespaceLife, TERMINATING};
use crate::http::escape;
use crate::store::{Revision, Stored};

/// Between the kind and the metadata.
const METADATA: &[u8] = b"\"metadata\":{";

/// Whether the text of an object says what kind of object it is. Items of lists of built-in kinds do not (API-0.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TypeFields {
    Shown,
    Left,
}

/// The stored form of an object.
pub(crate) fn encode(object: &Value) -> Bytes {
    let Some(fields) = object.as_object() else { return Bytes::from_static(b"{}") };
    let mut out = Vec::with_capacity(1024);
    out.push(b'{');
    for name in ["apiVersion", "kind"] {
        if let Some(value) = fields.get(name) {
            member(&mut out, name, value);
        }
    }
    if let Some(metadata) = fields.get("metadata") {
        key(&mut out, "metadata");
        match metadata {
            Value::Object(fields) => {
                out.push(b'{');
                let kept = fields.iter().filter(|(name, _)| *name != "resourceVersion");
                kept.for_each(|(name, value)| member(&mut out, name, value));
                out.push(b'}');
            }
            other => print(&mut out, other),
        }
    }
    let rest = fields.iter().filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata"));
    rest.for_each(|(name, value)| member(&mut out, name, value));
    out.push(b'}');
    // A boxed slice has exactly its room: this is kept as long as the object lives.
    Bytes::from(escape(out).into_boxed_slice())
}

fn member(out: &mut Vec<u8>, name: &str, value: &Value) {
    key(out, name);
    print(out, value);
}

fn key(out: &mut Vec<u8>, name: &str) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    print(out, name);
    out.push(b':');
}

fn print<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    // A `Value` has only string keys and finite numbers, and writing to memory does not fail.
    let _ = serde_json::to_writer(out, value);
}

/// Adds the text of a stored version to `out`, with `revision` as its version.
pub(crate) fn copy(out: &mut Vec<u8>, stored: &Stored, revision: Revision, types: TypeFields) {
    let Some((types_text, rest)) = split(&stored.value) else {
        return print_parsed(out, stored, revision, types);
    };
    out.reserve(stored.value.len() + 48);
    match types {
        TypeFields::Shown => out.extend_from_slice(types_text),
        TypeFields::Left => out.push(b'{'),
    }
    out.extend_from_slice(METADATA);
    push_version(out, revision);
    out.extend_from_slice(rest);
}

/// The first field of the metadata in every answer.
fn push_version(out: &mut Vec<u8>, revision: Revision) {
    out.extend_from_slice(b"\"resourceVersion\":\"");
    // Writing to memory does not fail.
    let _ = serde_json::to_writer(&mut *out, &revision.0);
    out.extend_from_slice(b"\",");
}

/// Parts stored text: what comes before the metadata, and what comes after its opening brace.
fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let after_version = skip_text(text.strip_prefix(b"{\"apiVersion\":\"")?)?;
    let after_kind = skip_text(after_version.strip_prefix(b",\"kind\":\"")?)?;
    let metadata = after_kind.strip_prefix(b",")?;
    let rest = metadata.strip_prefix(METADATA)?;
    // Metadata without any field would need no comma; no stored object is without a name.
    (rest.first() == Some(&b'"')).then(|| (&text[..text.len() - metadata.len()], rest))
}

/// Adds the metadata of a stored version to `out`, with its revision. False when the text is not laid out as it should
/// be, and then nothing is added.
pub(crate) fn copy_metadata(out: &mut Vec<u8>, stored: &Stored) -> bool {
    let Some((_, rest)) = split(&stored.value) else { return false };
    let Some(end) = end_of_object(rest) else { return false };
    out.push(b'{');
    push_version(out, stored.revision);
    out.extend_from_slice(&rest[..end]);
    true
}

/// Where an object ends whose opening brace was taken off: behind its closing one.
fn end_of_object(text: &[u8]) -> Option<usize> {
    let (mut depth, mut in_text, mut escaped) = (1_usize, false, false);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_text = !in_text,
            b'{' if !in_text => depth += 1,
            b'}' if !in_text => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// What follows the end of a string without escapes whose opening quote was taken off.
fn skip_text(text: &[u8]) -> Option<&[u8]> {
    let end = text.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    (text[end] == b'"').then(|| &text[end + 1..])
}

fn print_parsed(out: &mut Vec<u8>, stored: &Stored, revision: Revision, types: TypeFields) {
    let mut object = decode_at(stored, revision);
    if types == TypeFields::Left {
        clear_types(&mut object);
    }
    print_escaped(out, &object);
}

/// Adds the text of a value to `out`, escaped as Go escapes it.
pub(crate) fn print_escaped(out: &mut Vec<u8>, value: &Value) {
    out.extend_from_slice(&crate::http::json_bytes(value));
}

pub(crate) fn clear_types(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
}

/// The object of a stored version, with the revision of that version.
pub(crate) fn decode(stored: &Stored) -> Value {
    decode_at(stored, stored.revision)
}

/// As [`decode`], with another revision: events about a removed object carry the one of the removal.
pub(crate) fn decode_at(stored: &Stored, revision: Revision) -> Value {
    // The store checks what it reads from disk, so bytes that are no JSON were never written by `encode`.
    let mut object = serde_json::from_slice(&stored.value).unwrap_or_else(|error| {
        tracing::error!(key = %stored.key, %error, "a stored object is not JSON");
        Value::Object(Map::new())
    });
    set_version(&mut object, revision);
    object
}

/// As [`decode`], without the owners of fields: they are half of a small object, and no column of a table shows them.
pub(crate) fn decode_unowned(stored: &Stored) -> Value {
    let mut reader = serde_json::Deserializer::from_slice(&stored.value);
    let read = Unowned::Object.deserialize(&mut reader);
    let mut object = read.unwrap_or_else(|_| decode(stored));
    set_version(&mut object, stored.revision);
    object
}

/// Reads an object, or its metadata, and skips the owners.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unowned {
    Object,
    Metadata,
}

impl<'de> DeserializeSeed<'de> for Unowned {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Unowned {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            let value = match (self, name.as_str()) {
                (Self::Object, "metadata") => entries.next_value_seed(Self::Metadata)?,
                (Self::Metadata, "managedFields") => {
                    entries.next_value::<IgnoredAny>()?;
                    continue;
                }
                _ => entries.next_value()?,
            };
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }
}

/// What decides about the life of an object: its name, uid, owners, finalizers and whether it is being deleted. All else
/// is skipped, which takes a fraction of the time and memory that [`decode`] takes.
pub(crate) fn decode_outline(stored: &Stored) -> Value {
    let outline = serde_json::from_slice::<Outline>(&stored.value);
    outline.and_then(serde_json::to_value).unwrap_or_else(|error| {
        tracing::error!(key = %stored.key, %error, "a stored object is not JSON");
        Value::Object(Map::new())
    })
}

/// How it is with a stored namespace, without making an object of it.
pub(crate) fn namespace_life(stored: &Stored) -> NamespaceLife {
    match serde_json::from_slice::<NamespaceOutline<'_>>(&stored.value) {
        Ok(outline) if outline.metadata.deletion_timestamp.is_some() => NamespaceLife::Terminating,
        Ok(outline) if outline.status.phase.as_deref() == Some(TERMINATING) => NamespaceLife::Terminating,
        Ok(_) => NamespaceLife::Open,
        Err(error) => {
            tracing::error!(key = %stored.key, %error, "a stored namespace cannot be read");
            NamespaceLife::Open
        }
    }
}

#[derive(Deserialize)]
struct NamespaceOutline<'a> {
    #[serde(default)]
    metadata: NamespaceMetadata,
    #[serde(default, borrow)]
    status: NamespacePhase<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct NamespaceMetadata {
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Deserialize, Default)]
struct NamespacePhase<'a> {
    #[serde(borrow)]
    phase: Option<Cow<'a, str>>,
}

#[derive(Serialize, Deserialize)]
struct Outline {
    metadata: OutlineMetadata,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OutlineMetadata {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deletion_timestamp: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finalizers: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_references: Option<Value>,
}

pub(crate) fn set_version(object: &mut Value, revision: Revision) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".to_owned(), revision.to_string().into());
    }
}

pub(crate) fn clear_version(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::Key;

    fn stored(value: Bytes) -> Stored {
        let key = Key::new("configmaps", Some("default"), "one").expect("a good key");
        Stored { key, value, revision: Revision(7), created: Revision(7), expires: None }
    }

    fn copied(stored: &Stored, types: TypeFields) -> Value {
        let mut out = Vec::new();
        copy(&mut out, stored, Revision(9), types);
        serde_json::from_slice(&out).expect("what was copied is JSON")
    }

    #[test]
    fn a_copy_is_the_object_with_its_version() {
        let object = json!({
            "allowed": true, "apiVersion": "v1", "data": {"a": "<b> & \"c\""}, "kind": "ConfigMap",
            "metadata": {"name": "one", "resourceVersion": "3", "annotations": {"kind": "x"}},
        });
        let stored = stored(encode(&object));
        assert!(split(&stored.value).is_some(), "{:?}", stored.value);
        assert!(!stored.value.contains(&b'<'));
        let mut expected = object;
        expected["metadata"]["resourceVersion"] = "9".into();
        assert_eq!(copied(&stored, TypeFields::Shown), expected);
        assert_eq!(decode_at(&stored, Revision(9)), expected);
        let fields = expected.as_object_mut().expect("an object");
        fields.remove("kind");
        fields.remove("apiVersion");
        assert_eq!(copied(&stored, TypeFields::Left), expected);
    }

    #[test]
    fn metadata_is_copied_to_its_closing_brace_and_owners_can_be_left_out() {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "}"},
            "metadata": {
                "annotations": {"a": "}{\\\"}"}, "name": "one", "resourceVersion": "7",
                "managedFields": [{"manager": "m", "fieldsV1": {"f:data": {}}}],
            },
        });
        let stored = stored(encode(&object));
        let mut out = Vec::new();
        assert!(copy_metadata(&mut out, &stored));
        let copied: Value = serde_json::from_slice(&out).expect("what was copied is JSON");
        assert_eq!(copied, object["metadata"]);
        let mut unowned = object;
        crate::apply::clear(&mut unowned);
        assert_eq!(decode_unowned(&stored), unowned);
    }

    #[test]
    fn an_outline_has_what_decides_about_the_life_of_an_object_and_no_more() {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}, "status": {"phase": "Active", "a": "b"},
            "metadata": {
                "name": "one", "namespace": "default", "uid": "u", "labels": {"a": "b"}, "finalizers": ["f"],
                "deletionTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [{"uid": "o"}],
            },
        });
        let mut expected = json!({"metadata": object["metadata"]});
        expected["metadata"].as_object_mut().expect("an object").remove("labels");
        let stored = stored(encode(&object));
        assert_eq!(decode_outline(&stored), expected);
    }

    #[test]
    fn a_namespace_is_terminating_when_it_was_deleted_or_says_so() {
        let life = |object: Value| namespace_life(&stored(encode(&object)));
        let named = json!({"name": "one", "deletionTimestamp": null});
        assert_eq!(life(json!({"metadata": named, "status": {"phase": "Active"}})), NamespaceLife::Open);
        assert_eq!(life(json!({"metadata": named})), NamespaceLife::Open);
        assert_eq!(life(json!({"metadata": named, "status": {"phase": "Terminating"}})), NamespaceLife::Terminating);
        let deleted = json!({"name": "one", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(life(json!({"metadata": deleted, "status": {"phase": "Active"}})), NamespaceLife::Terminating);
    }

    #[test]
    fn text_of_another_layout_is_parsed() {
        for text in [
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"one"}}"#,
            r#"{"apiVersion":"v1","data":{"metadata":"{"},"kind":"ConfigMap","metadata":{"name":"one"}}"#,
            r#"{"apiVersion":"v\u0031","kind":"ConfigMap","metadata":{"name":"one"}}"#,
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}"#,
        ] {
            let stored = stored(Bytes::from_static(text.as_bytes()));
            assert!(split(&stored.value).is_none(), "{text}");
            assert_eq!(copied(&stored, TypeFields::Shown), decode_at(&stored, Revision(9)), "{text}");
            assert_eq!(copied(&stored, TypeFields::Left)["metadata"]["resourceVersion"], "9", "{text}");
        }
    }
}
