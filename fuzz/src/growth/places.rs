//! Every list, map and text that an object of a served type has.

use std::fmt;

use apiserver::schema::kinds::{ALL, Kind, Persistence};
use apiserver::schema::types::{Struct, Type};
use serde_json::{Map, Value, json};

/// A place in the objects of a kind that can be grown.
#[derive(Debug, Clone)]
pub struct Place {
    pub kind: &'static Kind,
    path: Vec<Hop>,
    ty: Type,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hop {
    Field(&'static str),
    Item,
    Entry,
}

/// What a grown place is filled with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filling {
    Equal,
    Distinct,
    /// Names that are none, and numbers out of range.
    Invalid,
}

impl Filling {
    pub const ALL: [Self; 3] = [Self::Equal, Self::Distinct, Self::Invalid];

    fn text(self, number: usize) -> String {
        match self {
            Self::Equal => "a".to_owned(),
            Self::Distinct => format!("a{number}"),
            Self::Invalid => format!("-{number}!"),
        }
    }

    fn number(self) -> i64 {
        if self == Self::Invalid { -5 } else { 1 }
    }

    fn scalar(self, ty: Type, number: usize) -> Value {
        match ty {
            Type::String => self.text(number).into(),
            Type::Int32 | Type::Int64 | Type::IntOrString => self.number().into(),
            Type::Bool => true.into(),
            Type::Float64 => 1.5.into(),
            Type::Quantity => if self == Self::Invalid { "-1" } else { "1" }.into(),
            Type::Time => "2026-01-01T00:00:00Z".into(),
            Type::MicroTime => "2026-01-01T00:00:00.000000Z".into(),
            Type::Bytes => "YQ==".into(),
            _ => Value::Null,
        }
    }

    /// An entry of a list or map: a struct has all of its scalars, and one entry of its lists of texts.
    fn entry(self, ty: Type, number: usize) -> Value {
        match ty {
            Type::Struct(of) => {
                let fields = of.fields.iter().map(|field| {
                    let value = match field.ty {
                        Type::List(list) if list.item == Type::String => json!([self.text(number)]),
                        ty => self.scalar(ty, number),
                    };
                    (field.name.to_owned(), value)
                });
                Value::Object(fields.filter(|(_, value)| !value.is_null()).collect())
            }
            Type::Map(_) | Type::AtomicMap(_) => json!({}),
            Type::List(_) => json!([]),
            Type::Any => json!({"a": self.text(number)}),
            Type::SchemaOr(_) => json!({"type": "string"}),
            scalar => self.scalar(scalar, number),
        }
    }

    fn grown(self, ty: Type, count: usize) -> Value {
        match ty {
            Type::List(list) => (0..count).map(|number| self.entry(list.item, number)).collect(),
            Type::Map(item) | Type::AtomicMap(item) => {
                let key = |number: usize| if self == Self::Equal { format!("k{number}") } else { self.text(number) };
                let entries = (0..count).map(|number| (key(number), self.entry(*item, number)));
                Value::Object(entries.collect::<Map<_, _>>())
            }
            // Texts are as long as a list of their entries would be.
            _ => (0..count).map(|number| self.text(number)).collect::<Vec<_>>().join(".").into(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind.kind)?;
        self.path.iter().try_for_each(|hop| match hop {
            Hop::Field(name) => write!(f, ".{name}"),
            Hop::Item => write!(f, "[0]"),
            Hop::Entry => write!(f, "[k]"),
        })
    }
}

impl Place {
    pub fn depth(&self) -> usize {
        self.path.len()
    }

    pub fn is_metadata(&self) -> bool {
        self.path.first() == Some(&Hop::Field("metadata"))
    }

    /// An object that has so many entries at this place and nothing else.
    pub fn filled(&self, filling: Filling, count: usize) -> Value {
        let leaf = filling.grown(self.ty, count);
        self.path.iter().rev().fold(leaf, |value, hop| match hop {
            Hop::Field(name) => json!({ *name: value }),
            Hop::Item => {
                let mut item = value;
                if let Some(item) = item.as_object_mut() {
                    item.entry("name").or_insert("a".into());
                }
                json!([item])
            }
            Hop::Entry => json!({ "k": value }),
        })
    }
}

/// All places of all kinds that have objects.
pub fn all_places() -> Vec<Place> {
    let mut places = Vec::new();
    for kind in ALL.iter().copied().filter(|kind| kind.persistence != Persistence::Virtual) {
        // Metadata is one type for all kinds: it is grown in full for one of them.
        collect(kind, kind.schema, &mut Vec::new(), &mut Vec::new(), &mut places);
    }
    places.retain(|place| !place.is_metadata() || ["ConfigMap", "Pod"].contains(&place.kind.kind));
    places
}

fn collect(
    kind: &'static Kind,
    of: &'static Struct,
    path: &mut Vec<Hop>,
    above: &mut Vec<&'static str>,
    places: &mut Vec<Place>,
) {
    // A type may contain itself: it is followed once.
    if above.iter().filter(|name| **name == of.name).count() > 1 {
        return;
    }
    above.push(of.name);
    for field in of.fields {
        // What an object is and is called cannot be grown.
        if path.is_empty() && ["apiVersion", "kind"].contains(&field.name) {
            continue;
        }
        path.push(Hop::Field(field.name));
        visit(kind, field.ty, path, above, places);
        path.pop();
    }
    above.pop();
}

fn visit(kind: &'static Kind, ty: Type, path: &mut Vec<Hop>, above: &mut Vec<&'static str>, places: &mut Vec<Place>) {
    let (hop, item) = match ty {
        Type::Struct(of) => return collect(kind, of, path, above, places),
        Type::String => {
            return places.push(Place { kind, path: path.clone(), ty });
        }
        Type::List(list) => (Hop::Item, list.item),
        Type::Map(item) | Type::AtomicMap(item) => (Hop::Entry, *item),
        _ => return,
    };
    places.push(Place { kind, path: path.clone(), ty });
    path.push(hop);
    match item {
        Type::String => {}
        item => visit(kind, item, path, above, places),
    }
    path.pop();
}
