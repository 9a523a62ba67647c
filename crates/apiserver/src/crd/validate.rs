//! Validation of custom objects by their schema: types, required fields, bounds, formats of the kind that storage uses,
//! and rules.

use std::collections::BTreeMap;

use regex::{Regex, RegexBuilder};
use serde_json::Value;

use super::rule::{Rule, Subjects};
use super::trail::Trail;
use crate::kinds::read;
use crate::status::FieldError;

/// Bytes of errors that are collected: more are not told. See [`crate::status::ApiError::invalid`].
const ROOM: usize = 1 << 20;
/// Bytes that a pattern may have when it is compiled: what makes it slow is how large it is.
const PATTERN_BYTES: usize = 4 << 20;

/// A value with its path and, in an update, the value it replaces.
struct Place<'a> {
    path: Trail<'a>,
    value: &'a Value,
    old: Option<&'a Value>,
}

/// What was found so far, and what was read of the schema: thousands of items share a pattern or a rule.
struct Checks<'s> {
    errors: Vec<FieldError>,
    room: usize,
    patterns: BTreeMap<&'s str, Option<Regex>>,
    rules: BTreeMap<&'s str, Option<Rule>>,
}

impl<'s> Checks<'s> {
    fn push(&mut self, error: FieldError) {
        if self.room > 0 {
            self.room = self.room.saturating_sub(error.size());
            self.errors.push(error);
        }
    }

    /// Definitions with a pattern that cannot be read are refused, so one that cannot be read here matches nothing.
    fn matches(&mut self, text: &'s str, value: &str) -> bool {
        let compiled = self.patterns.entry(text).or_insert_with(|| pattern(text).ok());
        compiled.as_ref().is_some_and(|pattern| pattern.is_match(value))
    }

    /// The definition was refused if a rule cannot be read.
    fn rule(&mut self, text: &'s str) -> Option<&Rule> {
        self.rules.entry(text).or_insert_with(|| Rule::parse(text)).as_ref()
    }
}

/// Reads a pattern of a schema.
pub(super) fn pattern(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text).size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES).build()
}

pub(super) fn validate(schema: &Value, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let (patterns, rules) = (BTreeMap::new(), BTreeMap::new());
    let mut checks = Checks { errors: Vec::new(), room: ROOM, patterns, rules };
    check(schema, &Place { path: Trail::Root, value: object, old }, &mut checks);
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

fn check<'s>(schema: &'s Value, place: &Place<'_>, errors: &mut Checks<'s>) {
    let full = errors.room == 0;
    if full || (place.value.is_null() && schema["nullable"] == true) {
        return;
    }
    if !fits(schema, place, errors) {
        return;
    }
    match place.value {
        Value::Object(_) => check_object(schema, place, errors),
        Value::Array(_) => check_array(schema, place, errors),
        Value::String(text) => check_text(schema, place.path, text, errors),
        Value::Number(_) => check_number(schema, place, errors),
        Value::Null | Value::Bool(_) => {}
    }
    check_enum(schema, place, errors);
    check_rules(schema, place, errors);
}

/// Whether the value has the type the schema wants; nothing else about it is worth saying if not.
fn fits<'s>(schema: &'s Value, place: &Place<'_>, errors: &mut Checks<'s>) -> bool {
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

fn check_object<'s>(schema: &'s Value, place: &Place<'_>, errors: &mut Checks<'s>) {
    for name in read::texts(schema, "/required") {
        if place.value.get(name).is_none() {
            errors.push(FieldError::required(Trail::Field(&place.path, name).to_string(), ""));
            if errors.room == 0 {
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
        let declared = properties.and_then(|properties| properties.get(name));
        let additional = schema.get("additionalProperties").filter(|schema| schema.is_object());
        if let Some(schema) = declared.or(additional) {
            let old = place.old.and_then(|old| old.get(name));
            check(schema, &Place { path: Trail::Field(&place.path, name), value, old }, errors);
        }
    }
}

fn check_array<'s>(schema: &'s Value, place: &Place<'_>, errors: &mut Checks<'s>) {
    let items = place.value.as_array().map(Vec::as_slice).unwrap_or_default();
    let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
    if let Some(least) = read::number(schema, "/minItems").filter(|least| count < *least) {
        let detail = format!("{} in body should have at least {least} items", place.path);
        errors.push(FieldError::invalid(place.path.to_string(), count, detail));
    }
    if let Some(most) = read::number(schema, "/maxItems").filter(|most| count > *most) {
        errors.push(FieldError::too_many(place.path.to_string(), items.len(), usize::try_from(most).unwrap_or(0)));
    }
    for (index, value) in items.iter().enumerate() {
        // Items of a list have no old value: nothing says which one is which.
        check(&schema["items"], &Place { path: Trail::Item(&place.path, index), value, old: None }, errors);
    }
}

fn check_text<'s>(schema: &'s Value, path: Trail<'_>, text: &str, errors: &mut Checks<'s>) {
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
    if !pattern.is_empty() && !errors.matches(pattern, text) {
        errors.push(FieldError::invalid(told(), text, format!("{path} in body should match '{pattern}'")));
    }
    if read::text(schema, "/format") == "date-time" && crate::kinds::Timestamp::parse(text).is_none() {
        let detail = format!("{path} in body must be of type date-time: {text:?}");
        errors.push(FieldError::invalid(told(), text, detail));
    }
}

fn check_number<'s>(schema: &'s Value, place: &Place<'_>, errors: &mut Checks<'s>) {
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

fn check_enum<'s>(schema: &'s Value, place: &Place<'_>, errors: &mut Checks<'s>) {
    let Some(allowed) = schema.get("enum").and_then(Value::as_array) else { return };
    if !allowed.contains(place.value) {
        let shown: Vec<String> =
            allowed.iter().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).collect();
        let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
        errors.push(FieldError::not_supported(place.path.to_string(), place.value.clone(), &shown));
    }
}

fn check_rules<'s>(schema: &'s Value, place: &Place<'_>, errors: &mut Checks<'s>) {
    for declared in read::list(schema, "/x-kubernetes-validations") {
        let text = read::text(declared, "/rule");
        let Some(rule) = errors.rule(text) else { continue };
        if rule.is_about_change() && place.old.is_none() {
            continue;
        }
        if !rule.holds(Subjects { new: place.value, old: place.old }) {
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
