//! How objects lie in the store: JSON without their resourceVersion, which is the revision of the write.

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::store::{Revision, Stored};

/// The stored form of an object.
pub(crate) fn encode(object: &Value) -> Bytes {
    let mut object = object.clone();
    clear_version(&mut object);
    // A `Value` has only string keys and finite numbers, and writing to memory does not fail.
    serde_json::to_vec(&object).map(Bytes::from).unwrap_or_default()
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
