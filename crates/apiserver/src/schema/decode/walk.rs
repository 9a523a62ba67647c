//! The walk over a document beside its table: checks types, rewrites scalars, collects problems in document order.
//!
//! One visitor per type of the table. A visitor that finds a wrong type stores the reason in the walker and stops the
//! reader with a placeholder error, because the reader would otherwise add positions to the text.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};

use super::{DecodeError, Problem, base64};
use crate::schema::encode;
use crate::schema::quantity::{MILLI, Quantity};
use crate::schema::tables::apiextensions::JSON_SCHEMA_PROPS;
use crate::schema::time::{self, Precision};
use crate::schema::types::{Field, Presence, SchemaOr, Struct, Type};

/// As many problems as the reference server reports.
const MAX_PROBLEMS: usize = 100;
/// Bytes that the paths of all reported problems may have together; the one that goes beyond is the last one.
const MAX_PROBLEM_BYTES: usize = 1 << 20;
/// Deeper documents are refused; JSON text is limited by its reader already, values made by patches are not.
const MAX_DEPTH: usize = 128;

enum Step {
    Key(&'static str),
    /// A key of a map, which is no field: messages about types leave it out.
    Entry(String),
    Index(usize),
}

/// What the walk knows so far.
pub(super) struct Walker {
    path: Vec<Step>,
    depth: usize,
    quiet: bool,
    problems: Vec<Problem>,
    reported: BTreeSet<Problem>,
    /// Bytes that are left for the paths of problems.
    room: usize,
    failure: Option<DecodeError>,
}

impl Walker {
    pub(super) fn new() -> Self {
        Self {
            path: Vec::new(),
            depth: 0,
            quiet: false,
            problems: Vec::new(),
            reported: BTreeSet::new(),
            room: MAX_PROBLEM_BYTES,
            failure: None,
        }
    }

    /// A walk that looks for wrong types only.
    pub(super) fn quiet() -> Self {
        Self { quiet: true, ..Self::new() }
    }

    pub(super) fn root(&mut self, schema: &'static Struct) -> Seed<'_> {
        Seed { walker: self, ty: Type::Struct(schema), owner: "", rounding: Rounding::Nano }
    }

    pub(super) fn into_parts(self) -> (Option<DecodeError>, Vec<Problem>) {
        (self.failure, self.problems)
    }

    /// Reports a problem of `key` below the current place. Its path is written only if it is reported: a path may be
    /// long, and the problems many.
    fn report(&mut self, key: &str, problem: fn(String) -> Problem) {
        if self.quiet || self.problems.len() >= MAX_PROBLEMS || self.room == 0 {
            return;
        }
        let path = self.path_to(key);
        self.room = self.room.saturating_sub(path.len());
        let problem = problem(path);
        if self.reported.insert(problem.clone()) {
            self.problems.push(problem);
        }
    }

    /// The path of `key` below the current place: `spec.containers[0].name`.
    fn path_to(&self, key: &str) -> String {
        let mut text = String::new();
        for step in &self.path {
            match step {
                Step::Key(key) => push_key(&mut text, key),
                Step::Entry(key) => push_key(&mut text, key),
                Step::Index(index) => text.push_str(&format!("[{index}]")),
            }
        }
        if text.is_empty() { key.to_owned() } else { format!("{text}.{key}") }
    }

    fn field_path(&self) -> String {
        let keys = self.path.iter().filter_map(|step| match step {
            Step::Key(key) => Some(*key),
            Step::Entry(_) | Step::Index(_) => None,
        });
        keys.collect::<Vec<_>>().join(".")
    }

    /// Stops the reader; the reason is kept here.
    fn fail<E: Error>(&mut self, failure: DecodeError) -> E {
        self.failure.get_or_insert(failure);
        E::custom("stopped")
    }
}

fn push_key(text: &mut String, key: &str) {
    if !text.is_empty() {
        text.push('.');
    }
    text.push_str(key);
}

/// Resource lists are kept in thousandths, other quantities in billionths.
#[derive(Clone, Copy)]
enum Rounding {
    Nano,
    Milli,
}

/// Reads one value of a type.
pub(super) struct Seed<'w> {
    walker: &'w mut Walker,
    ty: Type,
    /// The struct the value belongs to, for messages.
    owner: &'static str,
    rounding: Rounding,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.ty {
            Type::Any => Value::deserialize(deserializer),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'w> Seed<'w> {
    /// Goes one level down. Inside the unions of schemas the reference server does not look for problems.
    fn descend<E: Error>(mut self, read: impl FnOnce(&mut Seed<'w>) -> Result<Value, E>) -> Result<Value, E> {
        if self.walker.depth == MAX_DEPTH {
            return Err(self.walker.fail(DecodeError::TooDeep));
        }
        self.walker.depth += 1;
        let quiet = self.walker.quiet;
        self.walker.quiet |= matches!(self.ty, Type::SchemaOr(_));
        let value = read(&mut self);
        self.walker.quiet = quiet;
        self.walker.depth -= 1;
        value
    }

    fn mismatch<E: Error>(self, found: &str) -> E {
        let (found, wanted) = (found.to_owned(), type_name(self.ty));
        let path = self.walker.field_path();
        let failure = if path.is_empty() {
            DecodeError::TopLevel { found, wanted }
        } else {
            DecodeError::Type { found, owner: self.owner.to_owned(), path, wanted }
        };
        self.walker.fail(failure)
    }

    fn quantity<E: Error>(self, text: &str) -> Result<Value, E> {
        match Quantity::parse(text.trim()) {
            Ok(quantity) => Ok(Value::from(match self.rounding {
                Rounding::Nano => quantity.to_string(),
                Rounding::Milli => quantity.round_up(MILLI).to_string(),
            })),
            Err(error) => Err(self.walker.fail(DecodeError::Quantity(error))),
        }
    }

    fn moment<E: Error>(self, text: &str, precision: Precision) -> Result<Value, E> {
        match time::parse(text, precision) {
            Ok(moment) if moment == time::ZERO => Ok(Value::Null),
            // What can be read and has this length and this end is written as it would be printed.
            Ok(_) if text.len() == precision.printed_len() && text.ends_with('Z') => Ok(Value::from(text)),
            Ok(moment) => Ok(Value::from(time::print(moment, precision))),
            Err(error) => Err(self.walker.fail(DecodeError::Time(error))),
        }
    }

    fn integer<E: Error>(self, value: i64) -> Result<Value, E> {
        match self.ty {
            Type::Int32 | Type::IntOrString if i32::try_from(value).is_err() => {
                Err(self.mismatch(&format!("number {value}")))
            }
            Type::Int32 | Type::Int64 | Type::IntOrString | Type::Float64 => Ok(Value::from(value)),
            Type::Quantity => self.quantity(&value.to_string()),
            _ => Err(self.mismatch("number")),
        }
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        match self.ty {
            Type::Bool | Type::SchemaOr(SchemaOr::Bool) => Ok(Value::from(value)),
            // Quantities read themselves, so anything that is not text or a number is a quantity of a wrong form.
            Type::Quantity => self.quantity(&value.to_string()),
            _ => Err(self.mismatch("bool")),
        }
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.integer(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        match i64::try_from(value) {
            Ok(value) => self.integer(value),
            Err(_) => match self.ty {
                Type::Quantity => self.quantity(&value.to_string()),
                Type::Float64 => Ok(Value::from(value)),
                _ => Err(self.mismatch(&format!("number {value}"))),
            },
        }
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        match self.ty {
            Type::Float64 => Ok(Number::from_f64(value).map_or(Value::Null, Value::Number)),
            Type::Quantity => self.quantity(&value.to_string()),
            Type::Int32 | Type::Int64 | Type::IntOrString => Err(self.mismatch(&format!("number {value}"))),
            _ => Err(self.mismatch("number")),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        match self.ty {
            Type::String | Type::IntOrString => Ok(Value::from(text)),
            Type::Quantity => self.quantity(text),
            Type::Time => self.moment(text, Precision::Seconds),
            Type::MicroTime => self.moment(text, Precision::Micros),
            Type::Bytes => match base64::decode(text) {
                Ok(bytes) => Ok(Value::from(base64::encode(&bytes))),
                Err(at) => Err(self.walker.fail(DecodeError::Base64(at))),
            },
            _ => Err(self.mismatch("string")),
        }
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Value, E> {
        match self.ty {
            Type::String | Type::IntOrString => Ok(Value::String(text)),
            _ => self.visit_str(&text),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Value, A::Error> {
        let item = match self.ty {
            Type::List(list) => list.item,
            Type::SchemaOr(SchemaOr::Schemas) => Type::Struct(&JSON_SCHEMA_PROPS),
            Type::SchemaOr(SchemaOr::Strings) => Type::String,
            _ => return Err(self.mismatch("array")),
        };
        self.descend(|seed| read_list(seed, item, items))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Value, A::Error> {
        match self.ty {
            Type::Struct(schema) => self.descend(|seed| read_struct(seed.walker, schema, entries)),
            Type::SchemaOr(_) => self.descend(|seed| read_struct(seed.walker, &JSON_SCHEMA_PROPS, entries)),
            Type::Map(item) | Type::AtomicMap(item) => self.descend(|seed| read_map(seed, *item, entries)),
            _ => Err(self.mismatch("object")),
        }
    }
}

fn read_list<'de, A: SeqAccess<'de>>(seed: &mut Seed<'_>, item: Type, mut items: A) -> Result<Value, A::Error> {
    let mut list = Vec::new();
    loop {
        seed.walker.path.push(Step::Index(list.len()));
        let next = Seed { walker: seed.walker, ty: item, owner: seed.owner, rounding: Rounding::Nano };
        let Some(value) = items.next_element_seed(next)? else { break };
        seed.walker.path.pop();
        list.push(if value.is_null() { encode::zero(item) } else { value });
    }
    seed.walker.path.pop();
    Ok(Value::Array(list))
}

fn read_map<'de, A: MapAccess<'de>>(seed: &mut Seed<'_>, item: Type, mut entries: A) -> Result<Value, A::Error> {
    let rounding = if item == Type::Quantity { Rounding::Milli } else { Rounding::Nano };
    let mut object = Map::new();
    while let Some(key) = entries.next_key::<String>()? {
        if object.contains_key(&key) {
            seed.walker.report(&key, Problem::Duplicate);
        }
        seed.walker.path.push(Step::Entry(key));
        let value = entries.next_value_seed(Seed { walker: seed.walker, ty: item, owner: seed.owner, rounding })?;
        // Lists and structs take away what they put on the path, so this is the key again.
        if let Some(Step::Entry(key)) = seed.walker.path.pop() {
            object.insert(key, if value.is_null() { encode::zero(item) } else { value });
        }
    }
    Ok(Value::Object(object))
}

fn read_struct<'de, A: MapAccess<'de>>(
    walker: &mut Walker,
    schema: &'static Struct,
    mut entries: A,
) -> Result<Value, A::Error> {
    let owner = schema.name.rsplit('.').next().unwrap_or(schema.name);
    let mut object = Map::new();
    let mut seen = vec![false; schema.fields.len()];
    while let Some(key) = entries.next_key_seed(FieldKey(schema))? {
        let at = match key {
            Key::Field(at) => at,
            Key::Unknown(key) => {
                walker.report(&key, Problem::Unknown);
                entries.next_value::<IgnoredAny>()?;
                continue;
            }
        };
        let field = &schema.fields[at];
        if std::mem::replace(&mut seen[at], true) {
            walker.report(field.name, Problem::Duplicate);
        }
        walker.path.push(Step::Key(field.name));
        let value = entries.next_value_seed(Seed { walker, ty: field.ty, owner, rounding: Rounding::Nano })?;
        walker.path.pop();
        put(&mut object, field, value);
    }
    Ok(Value::Object(object))
}

/// Reads a key of a struct: the place of its field, so that nothing is copied for the fields that the struct has.
struct FieldKey(&'static Struct);

enum Key {
    Field(usize),
    Unknown(String),
}

impl<'de> DeserializeSeed<'de> for FieldKey {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldKey {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Key, E> {
        let at = self.0.fields.iter().position(|field| field.name == key);
        Ok(at.map_or_else(|| Key::Unknown(key.to_owned()), Key::Field))
    }
}

/// Stores a field. Given twice, structs and maps are merged, as a reader does that fills one object in place.
fn put(object: &mut Map<String, Value>, field: &Field, value: Value) {
    match (object.get_mut(field.name), value) {
        (Some(_), Value::Null) if clears(field) => {
            object.remove(field.name);
        }
        (_, Value::Null) => {}
        (Some(Value::Object(old)), Value::Object(new)) if matches!(field.ty, Type::Struct(_) | Type::Map(_)) => {
            old.extend(new);
        }
        (_, value) => {
            object.insert(field.name.to_owned(), value);
        }
    }
}

/// Whether a later `null` takes an earlier value away: it does for pointers and collections.
fn clears(field: &Field) -> bool {
    matches!(field.presence, Presence::Pointer | Presence::PointerOrNull)
        || matches!(field.ty, Type::List(_) | Type::Map(_) | Type::AtomicMap(_) | Type::Bytes)
}

/// The type as the reference names it, without the package of named strings.
fn type_name(ty: Type) -> String {
    match ty {
        Type::String => "string".to_owned(),
        Type::Int32 => "int32".to_owned(),
        Type::Int64 => "int64".to_owned(),
        Type::Bool => "bool".to_owned(),
        Type::Float64 => "float64".to_owned(),
        Type::Quantity => "resource.Quantity".to_owned(),
        Type::Time | Type::MicroTime => "string".to_owned(),
        Type::IntOrString => "intstr.IntOrString".to_owned(),
        Type::Bytes => "[]uint8".to_owned(),
        Type::Any => "runtime.RawExtension".to_owned(),
        Type::SchemaOr(_) => "v1.JSONSchemaProps".to_owned(),
        Type::Struct(schema) => {
            let mut parts = schema.name.rsplit('.');
            let (name, version) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            format!("{version}.{name}")
        }
        Type::Map(item) | Type::AtomicMap(item) => format!("map[string]{}", type_name(*item)),
        Type::List(list) => format!("[]{}", type_name(list.item)),
    }
}
