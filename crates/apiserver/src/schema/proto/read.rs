//! From messages to objects.

use std::cell::Cell;

use serde_json::{Map, Number, Value};

use super::wire::{Fields, Payload};
use super::{MAGIC, ProtoError};
use crate::schema::decode::encode_base64;
use crate::schema::encode;
use crate::schema::quantity::{MILLI, Quantity};
use crate::schema::tables::apiextensions::JSON_SCHEMA_PROPS;
use crate::schema::time::{self, Moment, Precision};
use crate::schema::types::{Field, SchemaOr, Struct, Type, Wire};

/// As deep as JSON may nest.
const MAX_DEPTH: usize = 128;
/// A list and each of its items count, so that this is as much as JSON bodies may have.
const MAX_VALUES: usize = 2 * crate::request::MAX_BODY_VALUES;
/// The years 0 to 9999.
const SECONDS: std::ops::RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;

/// What is around an object's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope<'a> {
    pub api_version: String,
    pub kind: String,
    pub raw: &'a [u8],
}

/// Opens the envelope of a body.
pub fn open(body: &[u8]) -> Result<Envelope<'_>, ProtoError> {
    if body.is_empty() {
        return Err(ProtoError::Empty);
    }
    let mut fields = Fields::new(body.strip_prefix(&MAGIC).ok_or(ProtoError::Magic)?);
    let mut envelope = Envelope { api_version: String::new(), kind: String::new(), raw: &[] };
    while let Some((number, payload)) = fields.next()? {
        match (number, payload) {
            (1, Payload::Bytes(type_meta)) => {
                let mut fields = Fields::new(type_meta);
                while let Some((number, payload)) = fields.next()? {
                    match (number, payload) {
                        (1, Payload::Bytes(text)) => envelope.api_version = lossy(text),
                        (2, Payload::Bytes(text)) => envelope.kind = lossy(text),
                        _ => {}
                    }
                }
            }
            (2, Payload::Bytes(raw)) => envelope.raw = raw,
            (3, Payload::Bytes(encoding)) if !encoding.is_empty() => return Err(ProtoError::Encoding(lossy(encoding))),
            _ => {}
        }
    }
    Ok(envelope)
}

/// Decodes one message into an object in printed form.
pub fn decode(schema: &'static Struct, message: &[u8]) -> Result<Value, ProtoError> {
    let mut fields = Map::new();
    let left = Cell::new(MAX_VALUES);
    read_struct(schema, Place::Own, message, &mut Level { fields: &mut fields, depth: 0, left: &left })?;
    let mut object = Value::Object(fields);
    encode::complete(schema, &mut object);
    Ok(object)
}

/// Which fields of a struct a message carries: its own, or those of one message that JSON shows inline.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Own,
    Inside(u32),
}

/// Where decoded fields go.
struct Level<'a> {
    fields: &'a mut Map<String, Value>,
    depth: usize,
    /// How many values may still come: an empty message is two bytes, and none of them small once it is an object.
    left: &'a Cell<usize>,
}

/// What a field number means to a struct.
enum Target {
    Field(&'static Field),
    Inline,
    Unknown,
}

fn target(schema: &'static Struct, place: Place, wanted: u32) -> Target {
    for field in schema.fields {
        match (place, field.wire()) {
            (Place::Own, Wire::Direct(number)) if number == wanted => return Target::Field(field),
            (Place::Own, Wire::Inside { message, .. }) if message == wanted => return Target::Inline,
            (Place::Inside(outer), Wire::Inside { message, number }) if message == outer && number == wanted => {
                return Target::Field(field);
            }
            _ => {}
        }
    }
    Target::Unknown
}

fn read_struct(schema: &'static Struct, place: Place, message: &[u8], level: &mut Level<'_>) -> Result<(), ProtoError> {
    if level.depth > MAX_DEPTH {
        return Err(ProtoError::TooDeep);
    }
    let mut fields = Fields::new(message);
    while let Some((number, payload)) = fields.next()? {
        match (target(schema, place, number), payload) {
            (Target::Field(field), payload) => {
                let context =
                    Context { message: schema.name, field: field.name, depth: level.depth + 1, left: level.left };
                let slot = level.fields.entry(field.name).or_insert(Value::Null);
                context.read(field.ty, payload, slot)?;
            }
            (Target::Inline, Payload::Bytes(inner)) => read_struct(schema, Place::Inside(number), inner, level)?,
            (Target::Inline, _) => return Err(ProtoError::WireType { message: schema.name, field: "inline" }),
            // Newer clients may send fields we do not know; they are skipped as protobuf demands.
            (Target::Unknown, _) => {}
        }
    }
    Ok(())
}

/// The field being read, for errors.
#[derive(Clone, Copy)]
struct Context<'b> {
    message: &'static str,
    field: &'static str,
    depth: usize,
    left: &'b Cell<usize>,
}

impl Context<'_> {
    /// Counts one more value.
    fn spend(self) -> Result<(), ProtoError> {
        self.left.set(self.left.get().checked_sub(1).ok_or(ProtoError::TooMany)?);
        Ok(())
    }

    fn wrong(self) -> ProtoError {
        ProtoError::WireType { message: self.message, field: self.field }
    }

    fn bytes(self, payload: Payload<'_>) -> Result<&[u8], ProtoError> {
        match payload {
            Payload::Bytes(bytes) => Ok(bytes),
            _ => Err(self.wrong()),
        }
    }

    /// Reads one occurrence of a field: collections grow, messages merge, scalars are replaced.
    fn read(self, ty: Type, payload: Payload<'_>, slot: &mut Value) -> Result<(), ProtoError> {
        self.spend()?;
        match ty {
            Type::List(list) => {
                if !slot.is_array() {
                    *slot = Value::Array(Vec::new());
                }
                if let Value::Array(items) = slot {
                    self.read_item(list.item, payload, items)?;
                }
            }
            Type::Map(item) | Type::AtomicMap(item) => {
                if !slot.is_object() {
                    *slot = Value::Object(Map::new());
                }
                if let Value::Object(entries) = slot {
                    let (key, value) = self.read_entry(*item, self.bytes(payload)?)?;
                    entries.insert(key, value);
                }
            }
            Type::Struct(schema) => {
                if !slot.is_object() {
                    *slot = Value::Object(Map::new());
                }
                if let Value::Object(fields) = slot {
                    let level = &mut Level { fields, depth: self.depth, left: self.left };
                    read_struct(schema, Place::Own, self.bytes(payload)?, level)?;
                }
            }
            scalar => *slot = self.read_scalar(scalar, payload)?,
        }
        Ok(())
    }

    fn read_item(self, item: Type, payload: Payload<'_>, items: &mut Vec<Value>) -> Result<(), ProtoError> {
        // Numbers may come packed into one field.
        if let (Type::Int32 | Type::Int64, Payload::Bytes(packed)) = (item, payload) {
            let mut fields = Fields::new(packed);
            while !fields.is_empty() {
                self.spend()?;
                items.push(self.read_scalar(item, Payload::Varint(fields.varint()?))?);
            }
            return Ok(());
        }
        let mut value = Value::Null;
        self.read(item, payload, &mut value)?;
        items.push(value);
        Ok(())
    }

    /// A map entry is a message of a key and a value; a list as value is a message of its own.
    fn read_entry(self, item: Type, entry: &[u8]) -> Result<(String, Value), ProtoError> {
        let (mut key, mut value) = (String::new(), Value::Null);
        let mut fields = Fields::new(entry);
        while let Some((number, payload)) = fields.next()? {
            match (number, item) {
                (1, _) => key = lossy(self.bytes(payload)?),
                (2, Type::List(_)) => {
                    let mut inner = Fields::new(self.bytes(payload)?);
                    while let Some((number, payload)) = inner.next()? {
                        if number == 1 {
                            self.read(item, payload, &mut value)?;
                        }
                    }
                }
                (2, Type::Quantity) => value = quantity(self.bytes(payload)?, MILLI)?,
                (2, _) => self.read(item, payload, &mut value)?,
                _ => {}
            }
        }
        Ok((key, if value.is_null() { encode::zero(item) } else { value }))
    }

    fn read_scalar(self, ty: Type, payload: Payload<'_>) -> Result<Value, ProtoError> {
        match (ty, payload) {
            (Type::String, Payload::Bytes(text)) => Ok(Value::from(lossy(text))),
            (Type::Int32, Payload::Varint(number)) => Ok(Value::from(number as i32)),
            (Type::Int64, Payload::Varint(number)) => Ok(Value::from(number as i64)),
            (Type::Bool, Payload::Varint(number)) => Ok(Value::from(number != 0)),
            (Type::Float64, Payload::Fixed64(bits)) => Ok(float(f64::from_bits(bits))),
            (Type::Float64, Payload::Fixed32(bits)) => Ok(float(f32::from_bits(bits).into())),
            (Type::Quantity, Payload::Bytes(message)) => quantity(message, i32::MIN),
            (Type::Time, Payload::Bytes(message)) => moment(message, Precision::Seconds),
            (Type::MicroTime, Payload::Bytes(message)) => moment(message, Precision::Micros),
            (Type::IntOrString, Payload::Bytes(message)) => int_or_string(message),
            (Type::Bytes, Payload::Bytes(bytes)) => Ok(Value::from(encode_base64(bytes))),
            (Type::Any, Payload::Bytes(message)) => any(message),
            (Type::SchemaOr(or), Payload::Bytes(message)) => self.schema_or(or, message),
            _ => Err(self.wrong()),
        }
    }

    fn schema_or(self, or: SchemaOr, message: &[u8]) -> Result<Value, ProtoError> {
        let (mut schema, mut simple) = (Value::Null, Value::Null);
        let mut fields = Fields::new(message);
        while let Some((number, payload)) = fields.next()? {
            match (or, number) {
                (SchemaOr::Bool, 1) => simple = self.read_scalar(Type::Bool, payload)?,
                (SchemaOr::Bool, 2) | (SchemaOr::Schemas | SchemaOr::Strings, 1) => {
                    self.read(Type::Struct(&JSON_SCHEMA_PROPS), payload, &mut schema)?;
                }
                (SchemaOr::Schemas, 2) => self.push(Type::Struct(&JSON_SCHEMA_PROPS), payload, &mut simple)?,
                (SchemaOr::Strings, 2) => self.push(Type::String, payload, &mut simple)?,
                _ => {}
            }
        }
        Ok(match (or, schema, simple) {
            (SchemaOr::Bool, Value::Null, simple) => Value::from(simple == Value::Bool(true)),
            (SchemaOr::Bool, schema, _) => schema,
            (_, schema, Value::Null) => schema,
            (_, _, list) => list,
        })
    }

    fn push(self, item: Type, payload: Payload<'_>, slot: &mut Value) -> Result<(), ProtoError> {
        let mut value = Value::Null;
        self.read(item, payload, &mut value)?;
        match slot {
            Value::Array(items) => items.push(value),
            other => *other = Value::Array(vec![value]),
        }
        Ok(())
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn float(value: f64) -> Value {
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

fn quantity(message: &[u8], scale: i32) -> Result<Value, ProtoError> {
    let mut fields = Fields::new(message);
    let mut quantity = Quantity::zero();
    while let Some((number, payload)) = fields.next()? {
        if let (1, Payload::Bytes(text)) = (number, payload) {
            quantity = Quantity::parse(&lossy(text)).map_err(ProtoError::Quantity)?;
        }
    }
    Ok(Value::from(quantity.round_up(scale).to_string()))
}

fn moment(message: &[u8], precision: Precision) -> Result<Value, ProtoError> {
    if message.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0, 0);
    let mut fields = Fields::new(message);
    while let Some((number, payload)) = fields.next()? {
        match (number, payload) {
            (1, Payload::Varint(number)) => seconds = number as i64,
            (2, Payload::Varint(number)) => nanos = number as i32,
            _ => {}
        }
    }
    // Whole seconds are all that JSON clients would see again, so the rest is dropped for both.
    let nanos = if precision == Precision::Micros { u32::try_from(nanos).unwrap_or(0) % 1_000_000_000 } else { 0 };
    let moment = Moment { seconds, nanos };
    match moment {
        time::ZERO => Ok(Value::Null),
        _ if SECONDS.contains(&seconds) => Ok(Value::from(time::print(moment, precision))),
        _ => Err(ProtoError::Year),
    }
}

fn int_or_string(message: &[u8]) -> Result<Value, ProtoError> {
    let (mut is_text, mut number, mut text) = (false, 0, String::new());
    let mut fields = Fields::new(message);
    while let Some((field, payload)) = fields.next()? {
        match (field, payload) {
            (1, Payload::Varint(kind)) => is_text = kind == 1,
            (2, Payload::Varint(value)) => number = value as i32,
            (3, Payload::Bytes(bytes)) => text = lossy(bytes),
            _ => {}
        }
    }
    Ok(if is_text { Value::from(text) } else { Value::from(number) })
}

fn any(message: &[u8]) -> Result<Value, ProtoError> {
    let mut fields = Fields::new(message);
    let mut value = Value::Null;
    while let Some((number, payload)) = fields.next()? {
        if let (1, Payload::Bytes(raw)) = (number, payload)
            && !raw.is_empty()
        {
            value = serde_json::from_slice(raw).map_err(|_| ProtoError::NotJson)?;
        }
    }
    Ok(value)
}
