//! The forms an object can be answered in besides its own: rows of a table, metadata only, items of a list.

use serde_json::{Map, Value, json};

use crate::catalog::Resource;
use crate::kinds::{Timestamp, read};
use crate::request::IncludeObject;

const META_VERSION: &str = "meta.k8s.io/v1";
/// What stands before the metadata in the text of [`partial`].
pub(crate) const PARTIAL_HEAD: &str = r#"{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":"#;

/// How a table is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableForm<'a> {
    pub(crate) resource: &'a Resource,
    pub(crate) include: IncludeObject,
    pub(crate) now: Timestamp,
}

/// Whether a table says what its columns are: the later tables of a watch do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Headings {
    Shown,
    Left,
}

impl TableForm<'_> {
    /// A table with a row per object. `metadata` is that of the list, or the version of the one object.
    pub(crate) fn table(&self, objects: &[Value], metadata: Value, headings: Headings) -> Value {
        let columns: Value = match headings {
            Headings::Shown => self.resource.columns().into(),
            Headings::Left => Value::Null,
        };
        let rows: Vec<Value> = objects.iter().map(|object| self.row(object)).collect();
        json!({
            "kind": "Table", "apiVersion": META_VERSION, "metadata": metadata,
            "columnDefinitions": columns, "rows": rows,
        })
    }

    /// A table with one row, as GET and watch events show it.
    pub(crate) fn one(&self, object: Value, headings: Headings) -> Value {
        let metadata = json!({"resourceVersion": read::text(&object, "/metadata/resourceVersion")});
        self.table(&[object], metadata, headings)
    }

    /// The row of one object.
    pub(crate) fn row(&self, object: &Value) -> Value {
        let shown = match self.include {
            IncludeObject::Metadata => partial(object),
            IncludeObject::Object => object.clone(),
            IncludeObject::None => Value::Null,
        };
        let mut row = json!({"cells": self.resource.cells(object, self.now), "object": shown});
        if let Some(reason) = finished(object) {
            let message = "The pod has completed successfully.";
            let message = if reason == "Succeeded" { message } else { "The pod failed." };
            row["conditions"] = json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]);
        }
        row
    }
}

/// The final phase of a pod; nothing else finishes.
fn finished(object: &Value) -> Option<&str> {
    let phase = read::text(object, "/status/phase");
    (object["kind"] == "Pod" && ["Succeeded", "Failed"].contains(&phase)).then_some(phase)
}

/// Only the metadata of an object.
pub(crate) fn partial(object: &Value) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| Value::Object(Map::new()));
    json!({"kind": "PartialObjectMetadata", "apiVersion": META_VERSION, "metadata": metadata})
}

/// A list of the metadata of objects.
pub(crate) fn partial_list(objects: &[Value], metadata: Value) -> Value {
    let items: Vec<Value> = objects.iter().map(partial).collect();
    json!({"kind": "PartialObjectMetadataList", "apiVersion": META_VERSION, "metadata": metadata, "items": items})
}

/// A list; items of built-in kinds do not repeat what they are (API-0.5).
pub(crate) fn list(resource: &Resource, mut objects: Vec<Value>, metadata: Value) -> Value {
    if resource.custom().is_none() {
        objects.iter_mut().for_each(super::codec::clear_types);
    }
    json!({
        "kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": metadata, "items": objects,
    })
}
