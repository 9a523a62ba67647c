//! Strategic merge patch (API-4.5): maps merge, lists are replaced or merged as their type says, and directives in the
//! patch say the rest. Only built-in types have it.
//!
//! The order in which things happen is part of the contract: `$retainKeys`, then `$setElementOrder`, then the fields by
//! name, of which `$deleteFromPrimitiveList` sorts first.

mod lists;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::BTreeSet;

use serde_json::{Map, Value};
use thiserror::Error;

use super::go_value::go_text;
use crate::schema::types::{ListPatch, Struct, Type};
use lists::{ListRule, Role};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";

/// Why a patch was not applied.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StrategicError {
    /// 400: a directive has the wrong form.
    #[error("invalid patch format of {0}")]
    BadDirective(&'static str),
    /// 422.
    #[error("lists of lists are not supported")]
    ListOfLists,
    /// 500: everything else.
    #[error("{0}")]
    Internal(String),
}

const BAD_ORDER: StrategicError = StrategicError::BadDirective("setElementOrder list");
const BAD_RETAIN_KEYS: StrategicError = StrategicError::BadDirective("retainKeys");
const BAD_DELETION: StrategicError = StrategicError::BadDirective("primitive list");

type Fields = Map<String, Value>;

/// How often the items of one patch may name an item that an earlier one has named: each time, all lists of the item are
/// merged anew.
const MOST_REPETITIONS: usize = 100;

/// The type of what is merged, and how many repetitions are left for the whole patch.
#[derive(Debug, Clone, Copy)]
struct Place<'p> {
    ty: Type,
    repetitions: &'p Cell<usize>,
}

impl Place<'_> {
    fn of(self, ty: Type) -> Self {
        Self { ty, ..self }
    }

    /// Counts an item that is merged for the second time.
    fn repeat(self) -> Result<(), StrategicError> {
        match self.repetitions.get().checked_sub(1) {
            Some(left) => {
                self.repetitions.set(left);
                Ok(())
            }
            None => internal(format!("the items of the patch repeat a merge key more than {MOST_REPETITIONS} times")),
        }
    }
}

/// The document of a built-in type with a patch merged into it. The patch must be a map (anything else is refused with
/// 400 when it is decoded).
pub fn apply(document: &Value, patch: &Fields, ty: &'static Struct) -> Result<Value, StrategicError> {
    let original = document.as_object().cloned().unwrap_or_default();
    let repetitions = Cell::new(MOST_REPETITIONS);
    merge_maps(original, patch.clone(), Place { ty: Type::Struct(ty), repetitions: &repetitions }).map(Value::Object)
}

fn internal<T>(message: String) -> Result<T, StrategicError> {
    Err(StrategicError::Internal(message))
}

/// Merges a patch into a map of this type.
fn merge_maps(original: Fields, mut patch: Fields, at: Place<'_>) -> Result<Fields, StrategicError> {
    if let Some(directive) = patch.get(PATCH) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(PATCH);
                Ok(patch)
            }
            Some("delete") => Ok(Fields::new()),
            _ => internal(bad_directive(directive, &patch)),
        };
    }
    let mut merged = original;
    retain_keys(&mut merged, &mut patch)?;
    set_element_order(&mut merged, &mut patch, at)?;
    for (key, value) in patch {
        let (name, role) = match deletion_target(&key)? {
            Some(name) => (name, Role::Delete),
            None => (key.as_str(), Role::Merge),
        };
        merge_field(&mut merged, name, value, role, at)?;
    }
    Ok(merged)
}

fn bad_directive(directive: &Value, patch: &Fields) -> String {
    let patch = Value::Object(patch.clone());
    let directive = match directive {
        Value::String(text) => text.clone(),
        other => format!("%!s({}={})", kind_name(other), go_text(other)),
    };
    format!("unknown patch type: {directive} in map: {}", go_text(&patch))
}

/// The list that a `$deleteFromPrimitiveList/NAME` key is about.
fn deletion_target(key: &str) -> Result<Option<&str>, StrategicError> {
    if !key.starts_with(DELETE_FROM_LIST) {
        return Ok(None);
    }
    let name = target(key, DELETE_FROM_LIST).ok_or(BAD_DELETION)?;
    Ok(Some(if name.is_empty() { key } else { name }))
}

/// The name after `DIRECTIVE/`.
fn target<'k>(key: &'k str, directive: &str) -> Option<&'k str> {
    key.split_once('/').filter(|(prefix, _)| *prefix == directive).map(|(_, name)| name)
}

fn merge_field(merged: &mut Fields, name: &str, value: Value, role: Role, at: Place<'_>) -> Result<(), StrategicError> {
    if value.is_null() {
        merged.remove(name);
        return Ok(());
    }
    let Some(original) = merged.get_mut(name) else {
        if role == Role::Merge {
            set(merged, name, without_nulls(value));
        }
        return Ok(());
    };
    match (original, value) {
        (Value::Object(original), Value::Object(patch)) => {
            *original = merge_maps(std::mem::take(original), patch, at.of(field_type(at.ty, name)?))?;
        }
        (Value::Array(original), Value::Array(patch)) => {
            let rule = list_rule(at, name)?;
            *original = rule.merge(std::mem::take(original), patch, role)?;
        }
        (original, value) if same_kind(original, &value) => set(merged, name, value),
        (_, value) => {
            if role == Role::Merge {
                set(merged, name, without_nulls(value));
            }
        }
    }
    Ok(())
}

/// Whether two scalars are of one kind: whole numbers and fractions are not.
fn same_kind(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.is_i64() == right.is_i64(),
        (left, right) => std::mem::discriminant(left) == std::mem::discriminant(right),
    }
}

/// Sets a field to a value of the patch, or removes it when the value is but a directive.
fn set(fields: &mut Fields, name: &str, value: Value) {
    match without_directives(value) {
        Some(value) => fields.insert(name.to_owned(), value),
        None => fields.remove(name),
    };
}

/// A value without the maps that carry a `$patch` directive; `None` when it is one.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(PATCH) => None,
        Value::Object(fields) => {
            let kept = fields.into_iter().filter_map(|(name, value)| Some((name, without_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        scalar => Some(scalar),
    }
}

/// A new value has nothing to delete: the nulls in its maps disappear.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        scalar => scalar,
    }
}

/// `$retainKeys`: every other key of the original goes, and the patch may set no other key.
fn retain_keys(original: &mut Fields, patch: &mut Fields) -> Result<(), StrategicError> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(keys) = keys else { return Err(BAD_RETAIN_KEYS) };
    let keys: BTreeSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let retained = |name: &str| keys.contains(name);
    let directive = |name: &str| name.starts_with(DELETE_FROM_LIST) || name.starts_with(SET_ELEMENT_ORDER);
    if patch.iter().any(|(name, value)| !value.is_null() && !directive(name) && !retained(name)) {
        return Err(BAD_RETAIN_KEYS);
    }
    original.retain(|name, _| retained(name));
    Ok(())
}

/// `$setElementOrder/NAME`: the list is merged with its patch at once, and ordered.
fn set_element_order(original: &mut Fields, patch: &mut Fields, at: Place<'_>) -> Result<(), StrategicError> {
    let keys: Vec<String> = patch.keys().filter(|key| key.starts_with(SET_ELEMENT_ORDER)).cloned().collect();
    for key in keys {
        let order = match patch.remove(&key) {
            Some(Value::Array(order)) => order,
            other => return internal(not_a_list(other.as_ref())),
        };
        let name = target(&key, SET_ELEMENT_ORDER).ok_or(BAD_ORDER)?;
        let live = list_of(original.get(name))?;
        let wanted = list_of(patch.get(name))?;
        let rule = list_rule(at, name)?;
        rule.check_order(wanted.as_deref().unwrap_or_default(), &order)?;
        if let Some(ordered) = rule.merge_in_order(live, wanted, &order)? {
            original.insert(name.to_owned(), Value::Array(ordered));
            patch.remove(name);
        }
    }
    Ok(())
}

fn list_of(value: Option<&Value>) -> Result<Option<Vec<Value>>, StrategicError> {
    match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items.clone())),
        Some(other) => internal(not_a_list(Some(other))),
    }
}

fn not_a_list(value: Option<&Value>) -> String {
    format!("expected a []interface {{}}, but received a {}", kind_name(value.unwrap_or(&Value::Null)))
}

fn kind_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// The type of a field that is merged with a patch.
fn field_type(ty: Type, name: &str) -> Result<Type, StrategicError> {
    match ty {
        Type::Struct(of) => match of.field(name) {
            Some(field) => Ok(field.ty),
            None => {
                let short = of.name.rsplit('.').next().unwrap_or(of.name);
                internal(format!("unable to find api field in struct {short} for the json field {name:?}"))
            }
        },
        Type::Map(_) | Type::AtomicMap(_) => {
            internal("merging an object in json but data type is not struct, instead is: map".to_owned())
        }
        _ => internal(format!("unable to find api field for the json field {name:?}")),
    }
}

/// How a list field is merged.
fn list_rule<'p>(at: Place<'p>, name: &str) -> Result<ListRule<'p>, StrategicError> {
    let Type::List(list) = field_type(at.ty, name)? else {
        return internal("expected slice or array type, but got: struct".to_owned());
    };
    Ok(match list.strategic {
        ListPatch::Replace => ListRule { item: at.of(list.item), merges: lists::Merges::Replaced, key: None },
        ListPatch::MergeScalars => ListRule { item: at.of(list.item), merges: lists::Merges::Merged, key: None },
        ListPatch::MergeBy(key) | ListPatch::MergeByRetainKeys(key) => {
            ListRule { item: at.of(list.item), merges: lists::Merges::Merged, key: Some(key) }
        }
    })
}
