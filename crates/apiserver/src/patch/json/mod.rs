//! JSON patch (RFC 6902) with the habits of the reference server (API-0.13): `replace` of a missing map key adds it, a
//! negative index counts from the end, `test` of a missing key against null holds.
//!
//! Invariant: a patch cannot make the document much larger than the patch itself, nor deeper than what can be read back.

#[cfg(test)]
mod tests;

use serde_json::{Map, Value};
use thiserror::Error;

/// Operations that one patch may have.
pub const MAX_OPERATIONS: usize = 10_000;
/// Bytes that the `copy` operations of one patch may add: as much as a request may have.
const MAX_COPIED: usize = 3 * 1024 * 1024;
/// Bytes that the `move` operations of one patch may carry around: every move costs the server a look at its value.
const MAX_MOVED: usize = 16 * 1024 * 1024;
/// Items that insertions into lists and removals from them may shift: each shifts all items behind its place.
const MAX_SHIFTED: usize = 16 * 1024 * 1024;
/// Deeper documents cannot be read back from storage.
const MAX_DEPTH: usize = 120;

/// Why a patch was not applied.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum JsonPatchError {
    /// 400: not a list of operations.
    #[error("error decoding patch: {0}")]
    Undecodable(String),
    /// 413.
    #[error("The allowed maximum operations in a JSON patch is 10000, got {0}")]
    TooManyOperations(usize),
    /// 422, with the generic text of API-0.13.
    #[error("{0}")]
    NotApplicable(Inapplicable),
}

/// Why a patch does not apply to the document.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Inapplicable {
    #[error("unexpected kind: {0}")]
    UnknownOperation(String),
    #[error("{operation} operation has no {field} field")]
    MissingField { operation: &'static str, field: &'static str },
    #[error("{operation} operation does not apply: doc is missing path: {path}")]
    MissingPath { operation: &'static str, path: String },
    #[error("value was not a proper array index: {0:?}")]
    BadIndex(String),
    #[error("testing value {0} failed")]
    TestFailed(String),
    #[error("replace operation value must be object or array")]
    BadRoot,
    #[error("copies of the patch exceed {MAX_COPIED} bytes")]
    CopiesTooLarge,
    #[error("moves of the patch exceed {MAX_MOVED} bytes")]
    MovesTooLarge,
    #[error("the patch shifts more than {MAX_SHIFTED} list items")]
    ShiftsTooMany,
    #[error("the patched document is nested too deeply")]
    TooDeep,
}

/// A decoded patch.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPatch(Vec<Map<String, Value>>);

impl JsonPatch {
    /// Reads a patch: a list of maps. What the maps say is judged when they are applied.
    pub fn decode(patch: &Value) -> Result<Self, JsonPatchError> {
        let undecodable = |what: &str| JsonPatchError::Undecodable(format!("{what} is not an operation list"));
        let operations = match patch {
            Value::Array(operations) => operations,
            Value::Null => return Ok(Self(Vec::new())),
            Value::Object(_) => return Err(undecodable("a map")),
            _ => return Err(undecodable("a scalar")),
        };
        if operations.len() > MAX_OPERATIONS {
            return Err(JsonPatchError::TooManyOperations(operations.len()));
        }
        let operation = |value: &Value| match value {
            Value::Object(fields) => Ok(fields.clone()),
            Value::Null => Ok(Map::new()),
            _ => Err(JsonPatchError::Undecodable("an operation is not a map".to_owned())),
        };
        operations.iter().map(operation).collect::<Result<_, _>>().map(Self)
    }

    /// Whether no operation can read or write the field `name` of the map `parent` at the root. In doubt, one can.
    pub fn leaves_alone(&self, parent: &str, name: &str) -> bool {
        let apart = |path: &str| {
            let mut steps = path.split('/');
            let (root, first, second) = (steps.next(), steps.next(), steps.next());
            let plain = |step: &str| !step.is_empty() && !step.contains('~');
            root == Some("")
                && first.is_some_and(plain)
                && (first != Some(parent) || second.is_some_and(|second| plain(second) && second != name))
        };
        let paths = |operation: &Map<String, Value>| {
            ["path", "from"]
                .iter()
                .filter_map(|field| operation.get(*field))
                .all(|path| path.as_str().is_some_and(apart))
        };
        self.0.iter().all(paths)
    }

    /// The document after all operations, or the first one that does not apply.
    pub fn apply(&self, document: Value) -> Result<Value, JsonPatchError> {
        let mut patched = Patched { root: document, copied: 0, moved: 0, shifted: 0 };
        self.0.iter().try_for_each(|operation| patched.apply(operation)).map_err(JsonPatchError::NotApplicable)?;
        Ok(patched.root)
    }
}

struct Patched {
    root: Value,
    copied: usize,
    moved: usize,
    shifted: usize,
}

type Outcome = Result<(), Inapplicable>;

impl Patched {
    fn apply(&mut self, operation: &Map<String, Value>) -> Outcome {
        let value = || operation.get("value").unwrap_or(&Value::Null);
        match operation.get("op").and_then(Value::as_str).unwrap_or("unknown") {
            "add" => self.add("add", pointer("add", "path", operation)?, value().clone()),
            "remove" => self.take("remove", pointer("remove", "path", operation)?).map(drop),
            "replace" => self.replace(pointer("replace", "path", operation)?, value().clone()),
            "move" => self.shift(pointer("move", "from", operation)?, pointer("move", "path", operation)?),
            "copy" => self.copy(pointer("copy", "from", operation)?, pointer("copy", "path", operation)?),
            "test" => self.test(pointer("test", "path", operation)?, value()),
            other => Err(Inapplicable::UnknownOperation(other.to_owned())),
        }
    }

    fn add(&mut self, operation: &'static str, path: &str, value: Value) -> Outcome {
        check_depth(path, &value)?;
        match self.parent_mut(operation, path)? {
            (Value::Object(fields), name) => {
                fields.insert(name, value);
            }
            (Value::Array(items), index) if index == "-" => items.push(value),
            (Value::Array(items), index) => {
                let at = position(&index, items.len() + 1)?;
                let behind = items.len() - at;
                items.insert(at, value);
                return self.count_shifted(behind);
            }
            _ => return Err(missing(operation, path)),
        }
        Ok(())
    }

    fn take(&mut self, operation: &'static str, path: &str) -> Result<Value, Inapplicable> {
        match self.parent_mut(operation, path)? {
            (Value::Object(fields), name) => fields.remove(&name).ok_or_else(|| missing(operation, path)),
            (Value::Array(items), index) => {
                let at = position(&index, items.len())?;
                let behind = items.len() - at;
                let taken = items.remove(at);
                self.count_shifted(behind).map(|()| taken)
            }
            _ => Err(missing(operation, path)),
        }
    }

    fn count_shifted(&mut self, items: usize) -> Outcome {
        self.shifted += items;
        if self.shifted > MAX_SHIFTED { Err(Inapplicable::ShiftsTooMany) } else { Ok(()) }
    }

    fn replace(&mut self, path: &str, value: Value) -> Outcome {
        check_depth(path, &value)?;
        if path.is_empty() {
            return match value {
                Value::Object(_) | Value::Array(_) => {
                    self.root = value;
                    Ok(())
                }
                _ => Err(Inapplicable::BadRoot),
            };
        }
        match self.parent_mut("replace", path)? {
            (Value::Object(fields), name) => {
                fields.insert(name, value);
            }
            (Value::Array(items), index) => {
                let at = position(&index, items.len())?;
                items[at] = value;
            }
            _ => return Err(missing("replace", path)),
        }
        Ok(())
    }

    fn copy(&mut self, from: &str, path: &str) -> Outcome {
        let value = self.get("copy", from)?.cloned().unwrap_or(Value::Null);
        self.copied += size(&value);
        if self.copied > MAX_COPIED {
            return Err(Inapplicable::CopiesTooLarge);
        }
        self.add("copy", path, value)
    }

    fn shift(&mut self, from: &str, path: &str) -> Outcome {
        let value = self.take("move", from)?;
        self.moved += size(&value);
        if self.moved > MAX_MOVED {
            return Err(Inapplicable::MovesTooLarge);
        }
        self.add("move", path, value)
    }

    fn test(&self, path: &str, expected: &Value) -> Outcome {
        let found = if path.is_empty() { Some(&self.root) } else { self.get("test", path)? };
        if found.unwrap_or(&Value::Null) == expected { Ok(()) } else { Err(Inapplicable::TestFailed(path.to_owned())) }
    }

    /// The value at a path; `None` when its map has no such key.
    fn get(&self, operation: &'static str, path: &str) -> Result<Option<&Value>, Inapplicable> {
        let (parents, last) = split(operation, path)?;
        let mut place = &self.root;
        for token in parents {
            place = child(place, &token).ok_or_else(|| missing(operation, path))?;
        }
        match place {
            Value::Object(fields) => Ok(fields.get(&last)),
            Value::Array(items) => Ok(items.get(position(&last, items.len())?)),
            _ => Err(missing(operation, path)),
        }
    }

    /// The container that a path ends in, and the path's last token.
    fn parent_mut(&mut self, operation: &'static str, path: &str) -> Result<(&mut Value, String), Inapplicable> {
        let (parents, last) = split(operation, path)?;
        let mut place = &mut self.root;
        for token in parents {
            place = child_mut(place, &token).ok_or_else(|| missing(operation, path))?;
        }
        Ok((place, last))
    }
}

fn missing(operation: &'static str, path: &str) -> Inapplicable {
    Inapplicable::MissingPath { operation, path: path.to_owned() }
}

fn pointer<'p>(
    operation: &'static str,
    field: &'static str,
    fields: &'p Map<String, Value>,
) -> Result<&'p str, Inapplicable> {
    fields.get(field).and_then(Value::as_str).ok_or(Inapplicable::MissingField { operation, field })
}

/// The tokens of a pointer: those that lead to the container, and the last one.
fn split(operation: &'static str, path: &str) -> Result<(Vec<String>, String), Inapplicable> {
    let mut tokens: Vec<String> =
        path.split('/').skip(1).map(|token| token.replace("~1", "/").replace("~0", "~")).collect();
    let last = tokens.pop().ok_or_else(|| missing(operation, path))?;
    Ok((tokens, last))
}

fn child<'v>(place: &'v Value, token: &str) -> Option<&'v Value> {
    match place {
        Value::Object(fields) => fields.get(token),
        Value::Array(items) => items.get(position(token, items.len()).ok()?),
        _ => None,
    }
}

fn child_mut<'v>(place: &'v mut Value, token: &str) -> Option<&'v mut Value> {
    match place {
        Value::Object(fields) => fields.get_mut(token),
        Value::Array(items) => {
            let at = position(token, items.len()).ok()?;
            items.get_mut(at)
        }
        _ => None,
    }
}

/// The place an index means among so many; negative ones count from the end.
fn position(index: &str, count: usize) -> Result<usize, Inapplicable> {
    let bad = || Inapplicable::BadIndex(index.to_owned());
    let number: i64 = index.parse().map_err(|_| bad())?;
    let count = i64::try_from(count).map_err(|_| bad())?;
    let at = if number < 0 { number.checked_add(count).ok_or_else(bad)? } else { number };
    if at >= count { Err(bad()) } else { usize::try_from(at).map_err(|_| bad()) }
}

fn check_depth(path: &str, value: &Value) -> Outcome {
    let above = path.matches('/').count();
    if above + depth(value) > MAX_DEPTH { Err(Inapplicable::TooDeep) } else { Ok(()) }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// About the bytes a value has as JSON.
pub(crate) fn size(value: &Value) -> usize {
    match value {
        Value::Object(fields) => 2 + fields.iter().map(|(name, value)| name.len() + 4 + size(value)).sum::<usize>(),
        Value::Array(items) => 2 + items.iter().map(|item| 1 + size(item)).sum::<usize>(),
        Value::String(text) => 2 + text.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 4,
    }
}
