//! One step of the path to a field, as managedFields writes it: a field by name (`f:`), an item of a keyed list by its
//! keys (`k:`), an item of a set by its value (`v:`) or an item by its index (`i:`).
//!
//! Invariant: steps are totally ordered (names, keys, values, indexes) with numbers compared as numbers, so that
//! sets of steps have one form whatever order they were built in.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Number, Value};
use thiserror::Error;

/// One step of the path to a field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    Field(Name),
    /// The key fields of a list item, sorted by name.
    Key(Vec<(String, Json)>),
    Value(Json),
    Index(i64),
}

/// The name of a field. Most are in a table of the program; the others are shared, because sets of fields are built from
/// copies of paths.
#[derive(Clone)]
pub enum Name {
    Known(&'static str),
    Shared(Arc<str>),
}

impl std::ops::Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Known(name) => name,
            Self::Shared(name) => name,
        }
    }
}

impl<T: Into<Arc<str>>> From<T> for Name {
    fn from(name: T) -> Self {
        Self::Shared(name.into())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, out)
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

/// A path from the object's root.
pub type Path = Vec<Step>;

/// Why a key of a FieldsV1 object is not a step.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StepError {
    #[error("key must be 2 characters long:")]
    TooShort,
    #[error("missing colon: {0}")]
    NoColon(String),
    #[error("invalid value in path element: {0}")]
    BadContent(String),
    /// Written by a newer server: to be skipped, not refused.
    #[error("unknown path element type")]
    UnknownType,
}

impl Step {
    pub fn field(name: &str) -> Self {
        Step::Field(name.into())
    }

    /// Reads a step from a key of a FieldsV1 object.
    pub fn decode(text: &str) -> Result<Self, StepError> {
        if text.len() < 2 {
            return Err(StepError::TooShort);
        }
        if text.as_bytes()[1] != b':' {
            return Err(StepError::NoColon(text.to_owned()));
        }
        let bad = || StepError::BadContent(text.to_owned());
        let content = text.get(2..).ok_or_else(bad)?;
        match text.as_bytes()[0] {
            b'f' => Ok(Step::field(content)),
            b'v' => serde_json::from_str(content).map(|value| Step::Value(Json(value))).map_err(|_| bad()),
            b'k' => {
                let keys: Map<String, Value> = serde_json::from_str(content).map_err(|_| bad())?;
                Ok(Step::Key(keys.into_iter().map(|(name, value)| (name, Json(value))).collect()))
            }
            b'i' => content.parse().map(Step::Index).map_err(|_| bad()),
            _ => Err(StepError::UnknownType),
        }
    }

    /// The key of a FieldsV1 object for this step.
    pub fn encode(&self) -> String {
        match self {
            Step::Field(name) => ["f:", name].concat(),
            Step::Key(keys) => {
                let keys: Map<String, Value> =
                    keys.iter().map(|(name, value)| (name.clone(), value.0.clone())).collect();
                format!("k:{}", escape_like_go(&Value::Object(keys).to_string()))
            }
            Step::Value(value) => format!("v:{}", escape_like_go(&value.0.to_string())),
            Step::Index(index) => format!("i:{index}"),
        }
    }
}

/// The form in which conflicts and errors name a field: `.spec.drivers[name="a"].nodeID`.
impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Field(name) => write!(out, ".{}", &**name),
            Step::Key(keys) => {
                let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
                write!(out, "[{}]", keys.join(","))
            }
            Step::Value(value) => write!(out, "[={value}]"),
            Step::Index(index) => write!(out, "[{index}]"),
        }
    }
}

/// The text of a whole path.
pub fn path_text(path: &[Step]) -> String {
    path.iter().map(Step::to_string).collect()
}

/// Existing entries were written with these characters escaped inside the step's own JSON; another spelling would make
/// a second field of the same item.
pub(super) fn escape_like_go(json: &str) -> Cow<'_, str> {
    if !json.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => escaped.push_str(&format!("\\u{:04x}", u32::from(letter))),
            _ => escaped.push(letter),
        }
    }
    Cow::Owned(escaped)
}

/// A JSON value with a total order.
#[derive(Debug, Clone)]
pub struct Json(pub Value);

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Json {}

impl PartialOrd for Json {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Json {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.0, &other.0)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| Json(item.clone()).to_string()).collect();
                write!(out, "[{}]", items.join(","))
            }
            Value::Object(fields) => {
                fields.iter().try_for_each(|(name, value)| write!(out, "{name}={}", Json(value.clone())))
            }
            scalar => write!(out, "{scalar}"),
        }
    }
}

/// Orders any two values: numbers, texts, booleans, lists, maps, null.
pub(crate) fn compare(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare_numbers(left, right),
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => compare_lists(left, right),
        (Value::Object(left), Value::Object(right)) => compare_maps(left, right),
        _ => rank(left).cmp(&rank(right)),
    }
}

/// Whether two values mean the same: `1` and `1.0` do.
pub fn same(left: &Value, right: &Value) -> bool {
    compare(left, right) == Ordering::Equal
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn compare_numbers(left: &Number, right: &Number) -> Ordering {
    match (left.as_i64(), right.as_i64()) {
        (Some(left), Some(right)) => left.cmp(&right),
        // JSON has no NaN, so every two numbers have an order.
        _ => left.as_f64().partial_cmp(&right.as_f64()).unwrap_or(Ordering::Equal),
    }
}

fn compare_lists(left: &[Value], right: &[Value]) -> Ordering {
    let differing = left.iter().zip(right).map(|(left, right)| compare(left, right)).find(|order| order.is_ne());
    differing.unwrap_or_else(|| left.len().cmp(&right.len()))
}

fn compare_maps(left: &Map<String, Value>, right: &Map<String, Value>) -> Ordering {
    let pairs = left.iter().zip(right);
    let mut orders = pairs
        .map(|((left_name, left), (right_name, right))| left_name.cmp(right_name).then_with(|| compare(left, right)));
    orders.find(|order| order.is_ne()).unwrap_or_else(|| left.len().cmp(&right.len()))
}
