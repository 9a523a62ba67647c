//! OpenAPI documents of custom resources, made from their schemas.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::catalog::{Resource, Version};
use crate::schema::kinds::ALL;
use crate::schema::openapi::{Document, Served, Strategic, assemble, resource_paths, shared_schemas};
use crate::schema::tables::meta::{LIST_META, OBJECT_META};

/// The document of one version of a group.
pub(crate) fn document(group: &str, version: &Version) -> Document {
    let mut schemas = shared_schemas(group, &version.name);
    let mut paths = BTreeMap::new();
    for resource in &version.resources {
        let (name, list) = (name_of(resource, &resource.kind), name_of(resource, &resource.list_kind));
        schemas.insert(name.clone(), schema_of(resource));
        schemas.insert(list.clone(), list_schema_of(resource, &name));
        if let Some(served) = served(resource, name, list) {
            paths.extend(resource_paths(&served));
        }
    }
    Document::new(group, &version.name, &assemble(paths, schemas))
}

fn name_of(resource: &Resource, kind: &str) -> String {
    let reversed: Vec<&str> = resource.group.rsplit('.').collect();
    format!("{}.{}.{kind}", reversed.join("."), resource.version)
}

/// A row of the same shape as a built-in one, with this resource's names.
fn served(resource: &Resource, schema: String, list_schema: String) -> Option<Served> {
    let namespaced = |kind: &&&crate::schema::kinds::Kind| {
        let like = if resource.namespaced { "PersistentVolumeClaim" } else { "PersistentVolume" };
        kind.kind == like
    };
    let mut served = Served::from(*ALL.iter().find(namespaced)?);
    served.group.clone_from(&resource.group);
    served.version.clone_from(&resource.version);
    served.kind.clone_from(&resource.kind);
    served.resource.clone_from(&resource.plural);
    served.subresources.retain(|subresource| resource.subresource(subresource.name).is_some());
    served.schema = schema;
    served.list_schema = list_schema;
    // kubectl believes what the document says.
    served.strategic = Strategic::Unknown;
    Some(served)
}

fn kind_extension(resource: &Resource, kind: &str) -> Value {
    json!([{"group": resource.group, "version": resource.version, "kind": kind}])
}

fn reference(name: &str) -> Value {
    json!({"allOf": [{"$ref": format!("#/components/schemas/{name}")}]})
}

fn schema_of(resource: &Resource) -> Value {
    let mut schema = resource.custom().map(|custom| custom.schema().clone()).unwrap_or_else(|| json!({}));
    for name in ["apiVersion", "kind"] {
        schema["properties"][name] = json!({"type": "string"});
    }
    schema["properties"]["metadata"] = reference(OBJECT_META.name);
    schema["x-kubernetes-group-version-kind"] = kind_extension(resource, &resource.kind);
    schema
}

fn list_schema_of(resource: &Resource, item: &str) -> Value {
    json!({
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": reference(LIST_META.name),
            "items": {"type": "array", "items": reference(item)},
        },
        "x-kubernetes-group-version-kind": kind_extension(resource, &resource.list_kind),
    })
}
