//! Every list, map and text that an object of a served type has.

use std::fmt;

use apiserver::schema::kinds::{ALL, Foreign, Kind, Subresource};
use apiserver::schema::types::{Struct, Type};
use serde_json::{Map, Value, json};

/// A place in the objects of a kind that can be grown.
#[derive(Debug, Clone)]
pub struct Place {
    pub kind: &'static Kind,
    /// What is asked of an object of the kind, if the place is in the body of that.
    pub below: Option<Question>,
    path: Vec<Hop>,
    ty: Type,
}

/// A body of another kind, sent to a subresource.
#[derive(Debug, Clone, Copy)]
pub struct Question {
    pub subresource: &'static Subresource,
    pub body: &'static Foreign,
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
            Type::Bytes if self != Self::Invalid => "YWJj".repeat(count).into(),
            Type::Quantity => match self {
                Self::Equal => "9".repeat(4 * count),
                Self::Distinct => format!("0.{}1", "0".repeat(4 * count)),
                Self::Invalid => format!("1e{}", "9".repeat(4 * count)),
            }
            .into(),
            Type::Any => {
                let entries = (0..count).map(|number| (format!("k{number}"), self.entry(Type::Any, number)));
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
        if let Some(below) = self.below {
            write!(f, "/{}", below.subresource.name)?;
        }
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

    pub fn is_status(&self) -> bool {
        self.path.first() == Some(&Hop::Field("status"))
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

/// All places of all kinds, and of what is asked of their objects.
pub fn all_places() -> Vec<Place> {
    let mut places = Vec::new();
    for kind in ALL.iter().copied() {
        // Metadata is one type for all kinds: it is grown in full for one of them.
        let mut walk = Walk { kind, below: None, path: Vec::new(), above: Vec::new(), places: &mut places };
        walk.collect(kind.schema);
        for subresource in kind.subresources {
            if let Some(body) = &subresource.body {
                let below = Some(Question { subresource, body });
                let mut walk = Walk { kind, below, path: Vec::new(), above: Vec::new(), places: &mut places };
                walk.collect(body.schema);
            }
        }
    }
    let is_grown = |place: &Place| place.below.is_none() && ["ConfigMap", "Pod"].contains(&place.kind.kind);
    places.retain(|place| !place.is_metadata() || is_grown(place));
    places
}

/// The way through the types of one body.
struct Walk<'a> {
    kind: &'static Kind,
    below: Option<Question>,
    path: Vec<Hop>,
    /// The types that the way leads through.
    above: Vec<&'static str>,
    places: &'a mut Vec<Place>,
}

impl Walk<'_> {
    fn collect(&mut self, of: &'static Struct) {
        // A type may contain itself: it is followed once.
        if self.above.iter().filter(|name| **name == of.name).count() > 1 {
            return;
        }
        self.above.push(of.name);
        for field in of.fields {
            // What an object is and is called cannot be grown.
            if self.path.is_empty() && ["apiVersion", "kind"].contains(&field.name) {
                continue;
            }
            self.path.push(Hop::Field(field.name));
            self.visit(field.ty);
            self.path.pop();
        }
        self.above.pop();
    }

    fn visit(&mut self, ty: Type) {
        let (hop, item) = match ty {
            Type::Struct(of) => return self.collect(of),
            Type::String
            | Type::Bytes
            | Type::Quantity
            | Type::Time
            | Type::MicroTime
            | Type::IntOrString
            | Type::Any => return self.add(ty),
            Type::List(list) => (Hop::Item, list.item),
            Type::Map(item) | Type::AtomicMap(item) => (Hop::Entry, *item),
            _ => return,
        };
        self.add(ty);
        self.path.push(hop);
        match item {
            Type::String => {}
            item => self.visit(item),
        }
        self.path.pop();
    }

    fn add(&mut self, ty: Type) {
        self.places.push(Place { kind: self.kind, below: self.below, path: self.path.clone(), ty });
    }
}
