//! JSON by the server's own tables of types, and changes to JSON.

use apiserver::schema::types::{SchemaOr, Struct, Type};
use serde_json::{Map, Value, json};

use super::texts;
use crate::random::Random;

/// Deeper than this only what cannot go on is made.
const DEPTH: usize = 9;

/// An object of a type: most fields absent, most values plausible.
pub(super) fn of_struct(random: &mut Random, table: &'static Struct, depth: usize) -> Value {
    let mut fields = Map::new();
    for field in table.fields {
        let wanted = match field.name {
            "spec" | "metadata" => 90,
            _ if depth > 3 => 15,
            _ => 40,
        };
        if random.percent(wanted) && field.name != "managedFields" {
            fields.insert(field.name.to_owned(), of_type(random, field.ty, depth + 1));
        }
    }
    Value::Object(fields)
}

fn of_type(random: &mut Random, ty: Type, depth: usize) -> Value {
    if random.percent(3) {
        return odd(random);
    }
    match ty {
        Type::String => match random.below(4) {
            0 => texts::any(random).into(),
            1 => (*random.pick(&WORDS)).into(),
            _ => texts::name(random).into(),
        },
        Type::Int32 | Type::Int64 => integer(random),
        Type::Bool => random.percent(50).into(),
        Type::Float64 => json!(f64::from_bits(random.number())),
        Type::Quantity => texts::quantity(random).into(),
        Type::Time | Type::MicroTime => texts::time(random).into(),
        Type::IntOrString => {
            if random.percent(50) {
                integer(random)
            } else {
                texts::any(random).into()
            }
        }
        Type::Bytes => (*random.pick(&["", "YQ==", "YQ=", "////", "e30="])).into(),
        Type::Any => odd(random),
        Type::SchemaOr(kind) => match (kind, random.percent(50)) {
            (SchemaOr::Bool, true) => true.into(),
            _ => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        },
        Type::Struct(_) | Type::Map(_) | Type::AtomicMap(_) | Type::List(_) if depth > DEPTH => Value::Null,
        Type::Struct(table) => of_struct(random, table, depth),
        Type::Map(item) | Type::AtomicMap(item) => {
            (0..random.below(4)).map(|_| (texts::name(random), of_type(random, *item, depth + 1))).collect()
        }
        Type::List(list) => (0..random.below(4)).map(|_| of_type(random, list.item, depth + 1)).collect(),
    }
}

/// Words that fields of the storage kinds know.
const WORDS: [&str; 20] = [
    "ReadWriteOnce",
    "ReadWriteMany",
    "Block",
    "Filesystem",
    "Bound",
    "Delete",
    "Retain",
    "Immediate",
    "In",
    "Exists",
    "Gt",
    "NoSchedule",
    "Opaque",
    "Always",
    "Normal",
    "Container",
    "PersistentVolumeClaim",
    "True",
    "Foreground",
    "ClusterRole",
];

fn integer(random: &mut Random) -> Value {
    match random.below(6) {
        0 => json!(i64::MAX),
        1 => json!(i64::MIN),
        2 => json!(u64::MAX),
        3 => json!(-1),
        _ => json!(random.below(100)),
    }
}

/// A value of no particular type.
pub(super) fn odd(random: &mut Random) -> Value {
    match random.below(12) {
        0 => Value::Null,
        1 => json!(true),
        2 => integer(random),
        3 => json!(1e300),
        4 => json!([]),
        5 => json!({}),
        6 => nested(random.size(140)),
        7 => Value::from(vec![Value::Null; random.size(2_000)]),
        8 => (0..random.size(2_000)).map(|number| (number.to_string(), Value::Null)).collect(),
        9 => json!([{"name": "a"}, {"name": "a"}, {"$patch": "delete", "name": "a"}]),
        _ => texts::any(random).into(),
    }
}

/// A value inside so many others.
fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, at| if at % 2 == 0 { json!([inner]) } else { json!({"a": inner}) })
}

/// Puts a value at a path of names; what is no object on the way becomes one.
pub(super) fn put(value: &mut Value, path: &[&str], new: Value) {
    match path {
        [] => *value = new,
        [name, rest @ ..] => {
            if !value.is_object() {
                *value = json!({});
            }
            put(&mut value[*name], rest, new);
        }
    }
}

/// Changes a random place of a value.
pub(super) fn change(random: &mut Random, value: &mut Value) {
    let descend = random.percent(80);
    match value {
        Value::Object(fields) if descend && !fields.is_empty() => {
            let at = random.below(fields.len());
            let Some(name) = fields.keys().nth(at).cloned() else { return };
            match random.below(10) {
                0 => drop(fields.remove(&name)),
                1 => {
                    let moved = fields.remove(&name).unwrap_or_default();
                    fields.insert(texts::any(random), moved);
                }
                2 => {
                    fields.insert(texts::name(random), odd(random));
                }
                _ => fields.get_mut(&name).into_iter().for_each(|inner| change(random, inner)),
            }
        }
        Value::Array(items) if descend && !items.is_empty() => {
            let at = random.below(items.len());
            match random.below(6) {
                0 => drop(items.remove(at)),
                1 => {
                    let item = items[at].clone();
                    items.extend(vec![item; random.size(500)]);
                }
                2 => items.insert(at, odd(random)),
                _ => change(random, &mut items[at]),
            }
        }
        other => *other = odd(random),
    }
}
