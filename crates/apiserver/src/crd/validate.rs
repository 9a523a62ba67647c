//! Validation of custom objects by their schema: types, required fields, bounds, formats of the kind that storage uses,
//! and rules.

use std::cell::Cell;

use serde_json::Value;

use super::prepared::{MOST_STEPS, Node, Schema};
use super::rule::Subjects;
use crate::apply::Json;
use crate::kinds::read;
use crate::schema::trail::Trail;
use crate::status::{FieldError, FieldErrors};

/// A value with its path and, in an update, the value it replaces.
struct Place<'a> {
    path: Trail<'a>,
    value: &'a Value,
    old: Option<&'a Value>,
}

/// A part of a schema, as it was written and as it was prepared. What was not written allows everything.
#[derive(Clone, Copy)]
struct Part<'s> {
    schema: &'s Value,
    node: &'s Node,
}

/// What was found so far, and the steps that rules may still take.
struct Checks {
    errors: FieldErrors,
    steps: Cell<usize>,
}

impl Checks {
    fn push(&mut self, error: FieldError) {
        self.errors.push(error);
    }
}

/// Checks an object, and what an update replaces.
pub(super) fn validate(schema: &Schema, object: &Value, old: Option<&Value>) -> FieldErrors {
    let mut checks = Checks { errors: FieldErrors::new(), steps: Cell::new(MOST_STEPS) };
    let root = Part { schema: &schema.raw, node: &schema.root };
    check(root, &Place { path: Trail::Root, value: object, old }, &mut checks);
    if checks.steps.get() == 0 {
        let detail = format!("the rules of the definition take more than {MOST_STEPS} steps for this object");
        return FieldError::forbidden("", detail).into();
    }
    checks.errors
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn check(part: Part<'_>, place: &Place<'_>, errors: &mut Checks) {
    let schema = part.schema;
    let done = errors.errors.is_full() || errors.steps.get() == 0;
    if done || (place.value.is_null() && schema["nullable"] == true) {
        return;
    }
    if !fits(part, place, errors) {
        return;
    }
    match place.value {
        Value::Object(_) => check_object(part, place, errors),
        Value::Array(_) => check_array(part, place, errors),
        Value::String(text) => check_text(part, place.path, text, errors),
        Value::Number(_) => check_number(part, place, errors),
        Value::Null | Value::Bool(_) => {}
    }
    check_enum(part, place, errors);
    check_rules(part, place, errors);
}

/// Whether the value has the type the schema wants; nothing else about it is worth saying if not.
fn fits(part: Part<'_>, place: &Place<'_>, errors: &mut Checks) -> bool {
    let schema = part.schema;
    let found = type_of(place.value);
    if schema["x-kubernetes-int-or-string"] == true {
        if ["integer", "string"].contains(&found) {
            return true;
        }
        let detail = format!("{} in body must be of type integer,string: {found:?}", place.path);
        errors.push(FieldError::type_invalid(place.path.to_string(), found, detail));
        return false;
    }
    let wanted = read::text(schema, "/type");
    let fits = wanted.is_empty() || wanted == found || (wanted == "number" && found == "integer");
    if !fits {
        let detail = format!("{} in body must be of type {wanted}: {found:?}", place.path);
        errors.push(FieldError::type_invalid(place.path.to_string(), found, detail));
    }
    fits
}

fn check_object(part: Part<'_>, place: &Place<'_>, errors: &mut Checks) {
    let schema = part.schema;
    for name in read::texts(schema, "/required") {
        if place.value.get(name).is_none() {
            errors.push(FieldError::required(Trail::Field(&place.path, name).to_string(), ""));
            if errors.errors.is_full() {
                return;
            }
        }
    }
    let count = place.value.as_object().map_or(0, serde_json::Map::len);
    if read::number(schema, "/minProperties").is_some_and(|least| i64::try_from(count).is_ok_and(|count| count < least))
    {
        let detail = format!("{} in body should have at least {} properties", place.path, schema["minProperties"]);
        errors.push(FieldError::invalid(place.path.to_string(), count, detail));
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, value) in place.value.as_object().into_iter().flatten() {
        // Metadata has rules of its own.
        if matches!(place.path, Trail::Root) && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
            continue;
        }
        let declared = properties.and_then(|all| all.get(name)).zip(part.node.properties.get(name));
        let additional = schema.get("additionalProperties").zip(part.node.additional.as_deref());
        if let Some((schema, node)) = declared.or(additional) {
            let old = place.old.and_then(|old| old.get(name));
            check(Part { schema, node }, &Place { path: Trail::Field(&place.path, name), value, old }, errors);
        }
    }
}

fn check_array(part: Part<'_>, place: &Place<'_>, errors: &mut Checks) {
    let schema = part.schema;
    let items = place.value.as_array().map(Vec::as_slice).unwrap_or_default();
    let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
    if let Some(least) = read::number(schema, "/minItems").filter(|least| count < *least) {
        let detail = format!("{} in body should have at least {least} items", place.path);
        errors.push(FieldError::invalid(place.path.to_string(), count, detail));
    }
    if let Some(most) = read::number(schema, "/maxItems").filter(|most| count > *most) {
        errors.push(FieldError::too_many(place.path.to_string(), items.len(), usize::try_from(most).unwrap_or(0)));
    }
    let Some(node) = part.node.items.as_deref() else { return };
    for (index, value) in items.iter().enumerate() {
        // Items of a list have no old value: nothing says which one is which.
        check(
            Part { schema: &schema["items"], node },
            &Place { path: Trail::Item(&place.path, index), value, old: None },
            errors,
        );
    }
}

fn check_text(part: Part<'_>, path: Trail<'_>, text: &str, errors: &mut Checks) {
    let schema = part.schema;
    let told = || path.to_string();
    let count = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    if let Some(least) = read::number(schema, "/minLength").filter(|least| count < *least) {
        let detail = format!("{path} in body should be at least {least} chars long");
        errors.push(FieldError::invalid(told(), text, detail));
    }
    if let Some(most) = read::number(schema, "/maxLength").filter(|most| count > *most) {
        errors.push(FieldError::too_long(told(), usize::try_from(most).unwrap_or(0)));
    }
    let pattern = read::text(schema, "/pattern");
    if !part.node.matches(text) {
        errors.push(FieldError::invalid(told(), text, format!("{path} in body should match '{pattern}'")));
    }
    if read::text(schema, "/format") == "date-time" && crate::kinds::Timestamp::parse(text).is_none() {
        let detail = format!("{path} in body must be of type date-time: {text:?}");
        errors.push(FieldError::invalid(told(), text, detail));
    }
}

fn check_number(part: Part<'_>, place: &Place<'_>, errors: &mut Checks) {
    let schema = part.schema;
    let number = place.value.as_f64().unwrap_or_default();
    let (path, value) = (place.path, place.value.clone());
    if let Some(least) = schema["minimum"].as_f64() {
        let exclusive = schema["exclusiveMinimum"] == true;
        if number < least || (exclusive && number == least) {
            let or_equal = if exclusive { "" } else { " or equal to" };
            let detail = format!("{path} in body should be greater than{or_equal} {}", schema["minimum"]);
            errors.push(FieldError::invalid(path.to_string(), value.clone(), detail));
        }
    }
    if let Some(most) = schema["maximum"].as_f64() {
        let exclusive = schema["exclusiveMaximum"] == true;
        if number > most || (exclusive && number == most) {
            let or_equal = if exclusive { "" } else { " or equal to" };
            let detail = format!("{path} in body should be less than{or_equal} {}", schema["maximum"]);
            errors.push(FieldError::invalid(path.to_string(), value, detail));
        }
    }
}

fn check_enum(part: Part<'_>, place: &Place<'_>, errors: &mut Checks) {
    let schema = part.schema;
    let Some(allowed) = schema.get("enum").and_then(Value::as_array) else { return };
    if !part.node.allowed.as_ref().is_some_and(|allowed| allowed.contains(&Json(place.value.clone()))) {
        let shown: Vec<String> =
            allowed.iter().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).collect();
        let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
        errors.push(FieldError::not_supported(place.path.to_string(), place.value.clone(), &shown));
    }
}

fn check_rules(part: Part<'_>, place: &Place<'_>, errors: &mut Checks) {
    let schema = part.schema;
    for (declared, rule) in read::list(schema, "/x-kubernetes-validations").iter().zip(&part.node.rules) {
        let text = read::text(declared, "/rule");
        let Some(rule) = rule else { continue };
        if rule.is_about_change() && place.old.is_none() {
            continue;
        }
        if !rule.holds(Subjects { new: place.value, old: place.old, steps: &errors.steps }) {
            let message = match read::text(declared, "/message") {
                "" => format!("failed rule: {text}"),
                message => message.to_owned(),
            };
            // Only scalars are shown; of the others, only what they are.
            let shown = match place.value {
                Value::Object(_) | Value::Array(_) => Value::from(type_of(place.value)),
                scalar => scalar.clone(),
            };
            errors.push(FieldError::invalid(place.path.to_string(), shown, message));
        }
    }
}
