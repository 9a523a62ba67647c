//! Reading and writing fields of an object by JSON pointer. Absent, `null` and empty mean the same to most rules, so the
//! readers return an empty answer instead of an option; where they differ, [`present`] tells.

use serde_json::{Map, Value};
use std::cmp::Ordering;

/// The value at `pointer`. `Value::pointer` copies each step twice, in case it is escaped; ours are not, and are walked
/// for every rule of every write.
pub(crate) fn at<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    if pointer.as_bytes().contains(&b'~') {
        return object.pointer(pointer);
    }
    steps(pointer).try_fold(object, |value, step| match value {
        Value::Object(fields) => fields.get(step),
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => None,
    })
}

/// The keys of a pointer without escapes. They are a few letters each: looking at every letter is faster than setting up
/// a search.
fn steps(pointer: &str) -> impl Iterator<Item = &str> {
    let mut rest = pointer.strip_prefix('/');
    std::iter::from_fn(move || {
        let text = rest?;
        let end = text.bytes().position(|byte| byte == b'/');
        rest = end.map(|end| &text[end + 1..]);
        Some(end.map_or(text, |end| &text[..end]))
    })
}

/// As [`at`], for changing.
fn at_mut<'a>(object: &'a mut Value, pointer: &str) -> Option<&'a mut Value> {
    if pointer.as_bytes().contains(&b'~') {
        return object.pointer_mut(pointer);
    }
    steps(pointer).try_fold(object, |value, step| match value {
        Value::Object(fields) => fields.get_mut(step),
        Value::Array(items) => items.get_mut(step.parse::<usize>().ok()?),
        _ => None,
    })
}

/// The text at `pointer`; empty when absent.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    at(object, pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The text at `pointer`, when a value is set there at all.
pub(crate) fn optional_text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    at(object, pointer).and_then(Value::as_str)
}

/// The list at `pointer`; empty when absent.
pub(crate) fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    at(object, pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The strings of the list at `pointer`.
pub(crate) fn texts<'a>(object: &'a Value, pointer: &str) -> Vec<&'a str> {
    list(object, pointer).iter().filter_map(Value::as_str).collect()
}

/// The entries of the map at `pointer` in key order.
pub(crate) fn entries<'a>(object: &'a Value, pointer: &str) -> Vec<(&'a str, &'a Value)> {
    let map = at(object, pointer).and_then(Value::as_object);
    map.into_iter().flatten().map(|(key, value)| (key.as_str(), value)).collect()
}

/// The entries of a map from strings to strings.
pub(crate) fn pairs<'a>(object: &'a Value, pointer: &str) -> Vec<(&'a str, &'a str)> {
    entries(object, pointer).into_iter().map(|(key, value)| (key, value.as_str().unwrap_or_default())).collect()
}

/// The whole number at `pointer`.
pub(crate) fn number(object: &Value, pointer: &str) -> Option<i64> {
    at(object, pointer).and_then(Value::as_i64)
}

/// Whether `true` stands at `pointer`.
pub(crate) fn flag(object: &Value, pointer: &str) -> bool {
    at(object, pointer).and_then(Value::as_bool).unwrap_or(false)
}

/// The value at `pointer` unless it is absent or `null`. An empty object is present.
pub(crate) fn present<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    at(object, pointer).filter(|value| !value.is_null())
}

/// A copy of the value at `pointer`, `null` when absent: what an error about it shows.
pub(crate) fn copy(object: &Value, pointer: &str) -> Value {
    at(object, pointer).cloned().unwrap_or(Value::Null)
}

pub(crate) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    at(object, "/metadata/annotations")?.get(key)?.as_str()
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

pub(crate) fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

pub(crate) fn deleting(object: &Value) -> bool {
    present(object, "/metadata/deletionTimestamp").is_some()
}

/// Writes `value` at `pointer`, making the objects on the way. The keys of a pointer used here hold no `/` or `~`.
pub(crate) fn set(object: &mut Value, pointer: &str, value: impl Into<Value>) {
    let mut place = object;
    for key in steps(pointer) {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        let Value::Object(fields) = place else { return };
        // Most of the way is there already, and then its keys are not copied.
        if !fields.contains_key(key) {
            fields.insert(key.to_owned(), Value::Null);
        }
        place = &mut fields[key];
    }
    *place = value.into();
}

/// Puts an entry into the map at `pointer`; its key may hold anything.
pub(crate) fn insert(object: &mut Value, pointer: &str, key: &str, value: impl Into<Value>) {
    if !at(object, pointer).is_some_and(Value::is_object) {
        set(object, pointer, Map::new());
    }
    if let Some(map) = at_mut(object, pointer).and_then(Value::as_object_mut) {
        map.insert(key.into(), value.into());
    }
}

/// As [`set`], when nothing is there yet.
pub(crate) fn set_default(object: &mut Value, pointer: &str, value: impl Into<Value>) {
    if present(object, pointer).is_none() {
        set(object, pointer, value);
    }
}

/// As [`set_default`], also over an empty string: a Go string has no other way to be absent.
pub(crate) fn set_default_text(object: &mut Value, pointer: &str, value: &str) {
    if text(object, pointer).is_empty() {
        set(object, pointer, value);
    }
}

pub(crate) fn remove(object: &mut Value, pointer: &str) -> Option<Value> {
    let (parent, key) = pointer.rsplit_once('/')?;
    at_mut(object, parent)?.as_object_mut()?.remove(key)
}

/// Makes `pointer` what it is in `old`, absent if absent there.
pub(crate) fn restore(object: &mut Value, old: &Value, pointer: &str) {
    match at(old, pointer) {
        Some(value) => set(object, pointer, value.clone()),
        None => {
            remove(object, pointer);
        }
    }
}

/// The items of a list for changing; nothing when absent.
pub(crate) fn items_mut<'a>(object: &'a mut Value, pointer: &str) -> std::slice::IterMut<'a, Value> {
    match at_mut(object, pointer).and_then(Value::as_array_mut) {
        Some(items) => items.iter_mut(),
        None => [].iter_mut(),
    }
}

/// Whether two optional values mean the same: absent, `null` and empty containers are one.
pub(crate) fn same(left: Option<&Value>, right: Option<&Value>) -> bool {
    match (meaningful(left), meaningful(right)) {
        (None, None) => true,
        (Some(Value::Object(left)), Some(Value::Object(right))) => {
            left.keys().chain(right.keys()).all(|key| same(left.get(key), right.get(key)))
        }
        (Some(Value::Array(left)), Some(Value::Array(right))) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(Some(left), Some(right)))
        }
        (left, right) => left == right,
    }
}

fn meaningful(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    })
}

/// A value that can be a member of a sorted set, so that a repetition in a long list is found without comparing every
/// item with every other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ordered<'a>(pub(crate) &'a Value);

impl PartialEq for Ordered<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ordered<'_> {}

impl PartialOrd for Ordered<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        crate::apply::order(self.0, other.0)
    }
}

/// Whether the field at `pointer` is the same in both.
pub(crate) fn unchanged(object: &Value, old: &Value, pointer: &str) -> bool {
    same(at(object, pointer), at(old, pointer))
}
