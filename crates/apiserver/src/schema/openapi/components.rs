//! Schemas: one per struct, with what patches need to know as extensions.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::schema::kinds::{Kind, Verb};
use crate::schema::tables::meta;
use crate::schema::types::{Field, List, ListKind, ListPatch, Presence, SchemaOr, Struct, Type};

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
const FIELDS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1";
const MICRO_TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";
pub(super) const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const SCHEMA_OR: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOr";

/// The extension that ties a schema or an operation to a kind.
#[derive(Debug, Clone, Copy)]
pub struct GroupVersionKind<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
}

impl GroupVersionKind<'_> {
    pub fn to_json(self) -> Value {
        json!({"group": self.group, "version": self.version, "kind": self.kind})
    }
}

pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// The name of a kind's list: its own name and `List`.
pub(super) fn list_name(kind: &Kind) -> String {
    format!("{}List", kind.schema.name)
}

/// The schemas of one document.
pub(super) struct Components {
    schemas: BTreeMap<String, Value>,
}

impl Components {
    pub(super) fn new() -> Self {
        Self { schemas: BTreeMap::new() }
    }

    pub(super) fn into_schemas(self) -> BTreeMap<String, Value> {
        self.schemas
    }

    pub(super) fn add_shared(&mut self, group: &str, version: &str) {
        for schema in [&meta::OBJECT_META, &meta::LIST_META, &meta::DELETE_OPTIONS, &meta::STATUS] {
            self.add_struct(schema);
        }
        self.tag(meta::DELETE_OPTIONS.name, GroupVersionKind { group, version, kind: "DeleteOptions" });
        self.tag(meta::STATUS.name, GroupVersionKind { group: "", version: "v1", kind: "Status" });
        self.insert(
            PATCH,
            json!({"type": "object", "description": "A change to an object; its form is in the content type."}),
        );
    }

    pub(super) fn add_kind(&mut self, kind: &Kind) {
        self.add_struct(kind.schema);
        self.tag(kind.schema.name, GroupVersionKind { group: kind.group, version: kind.version, kind: kind.kind });
        for foreign in kind.subresources.iter().filter_map(|subresource| subresource.body) {
            self.add_struct(foreign.schema);
            let gvk = GroupVersionKind { group: foreign.group, version: foreign.version, kind: foreign.kind };
            self.tag(foreign.schema.name, gvk);
        }
        if kind.verbs.contains(&Verb::List) {
            self.add_list(kind);
        }
    }

    fn add_list(&mut self, kind: &Kind) {
        let gvk = GroupVersionKind { group: kind.group, version: kind.version, kind: kind.list_kind };
        let schema = json!({
            "type": "object",
            "description": format!("A list of {} objects.", kind.kind),
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string", "description": "Group and version this list is written in."},
                "kind": {"type": "string", "description": "Kind of the list."},
                "metadata": described(reference(meta::LIST_META.name), "Revision and place of the list."),
                "items": {"type": "array", "items": reference(kind.schema.name), "description": "The objects."},
            },
            "x-kubernetes-group-version-kind": [gvk.to_json()],
        });
        self.schemas.insert(list_name(kind), schema);
    }

    fn tag(&mut self, name: &str, gvk: GroupVersionKind<'_>) {
        if let Some(schema) = self.schemas.get_mut(name) {
            schema["x-kubernetes-group-version-kind"] = json!([gvk.to_json()]);
        }
    }

    fn insert(&mut self, name: &str, schema: Value) {
        self.schemas.entry(name.to_owned()).or_insert(schema);
    }

    fn add_struct(&mut self, schema: &'static Struct) {
        if self.schemas.contains_key(schema.name) {
            return;
        }
        // The place is taken first, because a struct may contain itself.
        self.schemas.insert(schema.name.to_owned(), Value::Null);
        let properties: Map<String, Value> =
            schema.fields.iter().map(|field| (field.name.to_owned(), self.property(schema, field))).collect();
        let required: Vec<&str> =
            schema.fields.iter().filter(|field| is_required(field)).map(|field| field.name).collect();
        let mut object = json!({"type": "object", "description": schema.doc});
        if !properties.is_empty() {
            object["properties"] = Value::Object(properties);
        }
        if !required.is_empty() {
            object["required"] = json!(required);
        }
        if schema.is_atomic_by_default() {
            object["x-kubernetes-map-type"] = json!("atomic");
        }
        self.schemas.insert(schema.name.to_owned(), object);
    }

    fn property(&mut self, owner: &Struct, field: &Field) -> Value {
        let schema = match (field.name, field.ty) {
            // The one free-form value that has a name of its own.
            ("fieldsV1", Type::Any) => {
                self.named(FIELDS, || json!({"type": "object", "description": "A set of fields, as a tree."}))
            }
            (_, ty) => self.type_schema(ty),
        };
        let mut property = described(schema, field.doc);
        match field.ty {
            Type::List(list) => list_extensions(&mut property, list),
            Type::AtomicMap(_) => property["x-kubernetes-map-type"] = json!("atomic"),
            Type::Struct(schema) if schema.is_atomic_by_default() && !schema.atomic => {
                property["x-kubernetes-map-type"] = json!("granular");
            }
            _ => {}
        }
        if let Some(default) = owner.key_default(field.name) {
            property["default"] = json!(default);
        }
        property
    }

    fn type_schema(&mut self, ty: Type) -> Value {
        match ty {
            Type::String => json!({"type": "string"}),
            Type::Int32 => json!({"type": "integer", "format": "int32"}),
            Type::Int64 => json!({"type": "integer", "format": "int64"}),
            Type::Bool => json!({"type": "boolean"}),
            Type::Float64 => json!({"type": "number", "format": "double"}),
            Type::Bytes => json!({"type": "string", "format": "byte"}),
            Type::Any => json!({"x-kubernetes-preserve-unknown-fields": true}),
            Type::Quantity => self.named(QUANTITY, || {
                json!({"oneOf": [{"type": "string"}, {"type": "number"}],
                    "description": "An exact number with a suffix, such as 500m, 10Gi or 2e3."})
            }),
            Type::IntOrString => self.named(INT_OR_STRING, || {
                json!({"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string",
                    "description": "A number or a name."})
            }),
            Type::Time => self.named(TIME, || {
                json!({"type": "string", "format": "date-time", "description": "A moment in whole seconds, RFC 3339."})
            }),
            Type::MicroTime => self.named(MICRO_TIME, || {
                json!({"type": "string", "format": "date-time", "description": "A moment with six digits, RFC 3339."})
            }),
            Type::SchemaOr(or) => self.schema_or(or),
            Type::Struct(schema) => {
                self.add_struct(schema);
                reference(schema.name)
            }
            Type::Map(item) | Type::AtomicMap(item) => {
                json!({"type": "object", "additionalProperties": self.type_schema(*item)})
            }
            Type::List(list) => json!({"type": "array", "items": self.type_schema(list.item)}),
        }
    }

    fn schema_or(&mut self, or: SchemaOr) -> Value {
        let (suffix, doc) = match or {
            SchemaOr::Bool => ("Bool", "A schema or a boolean."),
            SchemaOr::Schemas => ("Array", "A schema or a list of schemas."),
            SchemaOr::Strings => ("StringArray", "A schema or a list of strings."),
        };
        self.named(&format!("{SCHEMA_OR}{suffix}"), || json!({ "description": doc }))
    }

    fn named(&mut self, name: &str, schema: impl FnOnce() -> Value) -> Value {
        if !self.schemas.contains_key(name) {
            self.schemas.insert(name.to_owned(), schema());
        }
        reference(name)
    }
}

/// A reference takes no siblings in OpenAPI 3.0, so the description wraps it.
fn described(schema: Value, doc: &str) -> Value {
    let mut schema = if schema.get("$ref").is_some() { json!({ "allOf": [schema] }) } else { schema };
    schema["description"] = json!(doc);
    schema
}

fn is_required(field: &Field) -> bool {
    let optional_when_empty = matches!(
        field.ty,
        Type::Struct(_) | Type::Time | Type::MicroTime | Type::Quantity | Type::Any | Type::SchemaOr(_)
    );
    field.presence == Presence::Always && !optional_when_empty
}

fn list_extensions(property: &mut Value, list: &List) {
    let kind = match list.apply {
        ListKind::Atomic => "atomic",
        ListKind::Set => "set",
        ListKind::Map(keys) => {
            property["x-kubernetes-list-map-keys"] = json!(keys);
            "map"
        }
    };
    property["x-kubernetes-list-type"] = json!(kind);
    let (strategy, key) = match list.strategic {
        ListPatch::Replace => return,
        ListPatch::MergeScalars => ("merge", None),
        ListPatch::MergeBy(key) => ("merge", Some(key)),
        ListPatch::MergeByRetainKeys(key) => ("merge,retainKeys", Some(key)),
    };
    property["x-kubernetes-patch-strategy"] = json!(strategy);
    if let Some(key) = key {
        property["x-kubernetes-patch-merge-key"] = json!(key);
    }
}
