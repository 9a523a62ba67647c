//! What server-side apply knows about a type: whether a value is one whole, and how its parts are told apart.
//!
//! One view serves both the built-in tables and the schemas of custom resources, so every algorithm is written once.
//! Values without a declared type are deduced: maps are owned key by key, lists as a whole.

use serde_json::Value;

use super::path::{Json, Name, Step};
use crate::schema::encode::empty;
use crate::schema::types::{ListKind, Struct, Type};

/// The type of a value.
#[derive(Debug, Clone, Copy)]
pub enum Shape<'a> {
    /// A built-in type.
    Table(Type),
    /// A custom resource, or another whole object inside one: `apiVersion`, `kind` and `metadata` are known.
    Resource(Custom<'a>),
    /// A part of a custom resource.
    Custom(Custom<'a>),
    /// Undeclared: whatever the value is.
    Deduced,
    /// Undeclared and owned as a whole.
    Whole,
}

/// A node of an `openAPIV3Schema`.
#[derive(Debug, Clone, Copy)]
pub struct Custom<'a> {
    schema: &'a Value,
    meta: &'static Struct,
    unknown: Unknown,
}

/// What becomes of fields that a custom resource's schema does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unknown {
    Refused,
    /// `x-kubernetes-preserve-unknown-fields` here or above.
    Deduced,
}

/// A type seen through a value: what undeclared types are depends on it.
#[derive(Debug, Clone)]
pub(super) enum Atom<'a> {
    Scalar(Scalar),
    List(Listing<'a>),
    Map(Mapping<'a>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
    Text,
    Number,
    Bool,
    /// Any of them.
    Any,
}

#[derive(Debug, Clone)]
pub(super) struct Listing<'a> {
    pub(super) kind: ItemKind<'a>,
    pub(super) item: Shape<'a>,
}

#[derive(Debug, Clone)]
pub(super) enum ItemKind<'a> {
    /// The list is one whole.
    Atomic,
    Set,
    Keyed(Keys<'a>),
}

/// The fields that tell the items of a list apart.
#[derive(Debug, Clone)]
pub(super) enum Keys<'a> {
    Known(&'static [&'static str]),
    Declared(Vec<&'a str>),
}

impl<'a> Keys<'a> {
    fn names(&self) -> &[&'a str] {
        match self {
            Self::Known(names) => names,
            Self::Declared(names) => names,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Mapping<'a> {
    pub(super) unity: Unity,
    of: Shape<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unity {
    Granular,
    Atomic,
}

/// Keys of keyed lists that have a default other than the zero value, so that an item may leave them out.
const KEY_DEFAULTS: &[(&str, &str)] = &[("protocol", "TCP")];

impl<'a> Shape<'a> {
    /// A custom resource by its version's `openAPIV3Schema`; `meta` is the type of `metadata`.
    pub fn custom_resource(schema: &'a Value, meta: &'static Struct) -> Self {
        Shape::Resource(Custom { schema, meta, unknown: Unknown::Refused }.here())
    }

    /// What the type is for this value.
    pub(super) fn atom(self, value: Option<&Value>) -> Atom<'a> {
        match self {
            Shape::Table(ty) => table_atom(ty, value),
            Shape::Resource(_) => Atom::Map(Mapping { unity: Unity::Granular, of: self }),
            Shape::Custom(node) => node.atom(value),
            Shape::Deduced => match value {
                Some(Value::Array(_)) => Atom::List(Listing { kind: ItemKind::Atomic, item: Shape::Whole }),
                Some(Value::Object(_) | Value::Null) | None => Atom::Map(Mapping { unity: Unity::Granular, of: self }),
                Some(_) => Atom::Scalar(Scalar::Any),
            },
            Shape::Whole => match value {
                Some(Value::Array(_)) => Atom::List(Listing { kind: ItemKind::Atomic, item: Shape::Whole }),
                Some(Value::Object(_) | Value::Null) | None => Atom::Map(Mapping { unity: Unity::Atomic, of: self }),
                Some(_) => Atom::Scalar(Scalar::Any),
            },
        }
    }

    /// The object of this type that a create starts from: what the server prints for it when nothing is set.
    pub fn blank(self, api_version: &str, kind: &str) -> Value {
        let mut blank = match self {
            Shape::Table(Type::Struct(of)) => empty(of),
            _ => Value::Object(serde_json::Map::new()),
        };
        if let Value::Object(fields) = &mut blank {
            fields.insert("apiVersion".to_owned(), api_version.into());
            fields.insert("kind".to_owned(), kind.into());
        }
        blank
    }
}

fn table_atom(ty: Type, value: Option<&Value>) -> Atom<'static> {
    match ty {
        Type::String | Type::Bytes => Atom::Scalar(Scalar::Text),
        Type::Int32 | Type::Int64 | Type::Float64 => Atom::Scalar(Scalar::Number),
        Type::Bool => Atom::Scalar(Scalar::Bool),
        Type::Quantity | Type::Time | Type::MicroTime | Type::IntOrString => Atom::Scalar(Scalar::Any),
        Type::Any => Shape::Deduced.atom(value),
        Type::Struct(of) => {
            let unity = if of.atomic { Unity::Atomic } else { Unity::Granular };
            Atom::Map(Mapping { unity, of: Shape::Table(ty) })
        }
        Type::Map(_) => Atom::Map(Mapping { unity: Unity::Granular, of: Shape::Table(ty) }),
        Type::AtomicMap(_) => Atom::Map(Mapping { unity: Unity::Atomic, of: Shape::Table(ty) }),
        Type::SchemaOr(_) => Shape::Whole.atom(value),
        Type::List(list) => {
            let kind = match list.apply {
                ListKind::Atomic => ItemKind::Atomic,
                ListKind::Set => ItemKind::Set,
                ListKind::Map(keys) => ItemKind::Keyed(Keys::Known(keys)),
            };
            Atom::List(Listing { kind, item: Shape::Table(list.item) })
        }
    }
}

impl<'a> Custom<'a> {
    /// Unknown fields stay allowed below the node that allows them.
    fn here(self) -> Self {
        match self.schema["x-kubernetes-preserve-unknown-fields"] {
            Value::Bool(true) => Self { unknown: Unknown::Deduced, ..self },
            _ => self,
        }
    }

    fn shape_of(self, schema: &'a Value) -> Shape<'a> {
        let node = Self { schema, ..self }.here();
        match schema["x-kubernetes-embedded-resource"] {
            Value::Bool(true) => Shape::Resource(node),
            _ => Shape::Custom(node),
        }
    }

    fn atom(self, value: Option<&Value>) -> Atom<'a> {
        match self.schema["type"].as_str() {
            Some("object") => self.mapping(),
            Some("array") => self.listing(),
            Some("string") => Atom::Scalar(Scalar::Text),
            Some("integer" | "number") => Atom::Scalar(Scalar::Number),
            Some("boolean") => Atom::Scalar(Scalar::Bool),
            Some(_) => Atom::Scalar(Scalar::Any),
            None => match value {
                Some(Value::Array(_)) => self.listing(),
                Some(Value::Object(_) | Value::Null) | None => self.mapping(),
                Some(_) => Atom::Scalar(Scalar::Any),
            },
        }
    }

    fn mapping(self) -> Atom<'a> {
        let unity = match self.schema["x-kubernetes-map-type"].as_str() {
            Some("atomic") => Unity::Atomic,
            _ => Unity::Granular,
        };
        Atom::Map(Mapping { unity, of: Shape::Custom(self) })
    }

    fn listing(self) -> Atom<'a> {
        let kind = match self.schema["x-kubernetes-list-type"].as_str() {
            Some("set") => ItemKind::Set,
            Some("map") => {
                let keys = self.schema["x-kubernetes-list-map-keys"].as_array();
                ItemKind::Keyed(Keys::Declared(keys.into_iter().flatten().filter_map(Value::as_str).collect()))
            }
            _ => ItemKind::Atomic,
        };
        let item = self.schema.get("items").map_or(Shape::Whole, |items| self.shape_of(items));
        Atom::List(Listing { kind, item })
    }

    /// The declared type of a field.
    fn property(self, name: &str) -> Option<Shape<'a>> {
        self.schema.get("properties")?.get(name).map(|schema| self.shape_of(schema))
    }

    /// The type of fields that are not declared.
    fn additional(self) -> Option<Shape<'a>> {
        let declared = self.schema.get("properties").and_then(Value::as_object).is_some_and(|all| !all.is_empty());
        match self.schema.get("additionalProperties") {
            None if self.unknown == Unknown::Deduced || !declared => Some(Shape::Deduced),
            None | Some(Value::Bool(false)) => None,
            Some(Value::Bool(true)) => Some(Shape::Deduced),
            Some(schema) => Some(self.shape_of(schema)),
        }
    }
}

impl<'a> Mapping<'a> {
    /// The type of a field by its name; `None` when the type has no such field.
    pub(super) fn child(&self, name: &str) -> Option<Shape<'a>> {
        self.declared(name).or_else(|| match self.of {
            Shape::Table(Type::Map(value) | Type::AtomicMap(value)) => Some(Shape::Table(*value)),
            Shape::Custom(node) | Shape::Resource(node) => node.additional(),
            Shape::Deduced => Some(Shape::Deduced),
            Shape::Whole => Some(Shape::Whole),
            Shape::Table(_) => None,
        })
    }

    /// The type of a field that the type names, as opposed to a key of a map.
    pub(super) fn declared(&self, name: &str) -> Option<Shape<'a>> {
        match (self.of, name) {
            (Shape::Table(Type::Struct(of)), _) => of.field(name).map(|field| Shape::Table(field.ty)),
            (Shape::Resource(_), "apiVersion" | "kind") => Some(Shape::Table(Type::String)),
            (Shape::Resource(node), "metadata") => Some(Shape::Table(Type::Struct(node.meta))),
            (Shape::Resource(node) | Shape::Custom(node), _) => node.property(name),
            _ => None,
        }
    }

    /// The step to a field.
    pub(super) fn step(&self, name: &str) -> Step {
        let known = match self.of {
            Shape::Table(Type::Struct(of)) => of.field(name),
            _ => None,
        };
        Step::Field(known.map_or_else(|| name.into(), |field| Name::Known(field.name)))
    }

    /// Nothing at all is known about the fields.
    pub(super) fn is_deduced(&self) -> bool {
        match self.of {
            Shape::Deduced => true,
            Shape::Custom(node) => {
                node.schema.get("properties").is_none() && matches!(node.additional(), Some(Shape::Deduced))
            }
            _ => false,
        }
    }
}

impl<'a> Listing<'a> {
    pub(super) fn is_atomic(&self) -> bool {
        matches!(self.kind, ItemKind::Atomic)
    }

    /// The step that leads to an item, or why the item has none.
    pub(super) fn step(&self, item: &Value) -> Result<Step, String> {
        match &self.kind {
            ItemKind::Atomic => Err("invalid indexing of non-associative list".to_owned()),
            ItemKind::Set => set_step(item),
            ItemKind::Keyed(keys) => self.keyed_step(keys.names(), item),
        }
    }

    fn keyed_step(&self, keys: &[&str], item: &Value) -> Result<Step, String> {
        let fields = match item {
            Value::Object(fields) => fields,
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let found = keys.iter().filter_map(|key| {
            let value = fields.get(*key).cloned().or_else(|| self.key_default(key))?;
            Some(((*key).to_owned(), Json(value)))
        });
        let mut found: Vec<(String, Json)> = found.collect();
        if found.is_empty() {
            let names: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
                 values for any key fields)",
                names.join(" ")
            ));
        }
        found.sort_by(|left, right| left.0.cmp(&right.0));
        Ok(Step::Key(found))
    }

    /// A key that an item leaves out has its type's default value.
    fn key_default(&self, key: &str) -> Option<Value> {
        match self.item {
            Shape::Table(Type::Struct(of)) => {
                let named = KEY_DEFAULTS.iter().find(|(name, _)| *name == key).map(|(_, default)| (*default).into());
                named.or_else(|| empty(of).get(key).cloned())
            }
            Shape::Custom(node) | Shape::Resource(node) => {
                node.schema.get("properties")?.get(key)?.get("default").cloned()
            }
            _ => None,
        }
    }
}

fn set_step(item: &Value) -> Result<Step, String> {
    match item {
        Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
        Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
        Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
        scalar => Ok(Step::Value(Json(scalar.clone()))),
    }
}
