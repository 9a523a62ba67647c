//! `metadata.managedFields`: who owns which fields, as stored in the object.
//!
//! Invariant: two entries never have the same manager, operation and subresource, and for updates the same version
//! (API-4.6). Times are RFC 3339 in UTC with whole seconds, as the server prints them, so their text order is time
//! order.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use thiserror::Error;

use super::path::{escape_like_go, same};
use super::set::{FieldSet, FieldsError};

/// Updates are told apart for this many managers; the changes of older ones are thrown together.
const MAX_UPDATE_MANAGERS: usize = 10;
const OLD_UPDATES: &str = "ancient-changes";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Apply,
    Update,
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// One manager's fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub manager: String,
    pub operation: Operation,
    pub api_version: String,
    /// Empty for the object itself.
    pub subresource: String,
    pub time: Option<String>,
    pub fields: FieldSet,
}

impl Entry {
    /// What tells entries apart, in the order conflicts are reported. Applied fields belong to the manager whatever the
    /// version was.
    pub(super) fn identity(&self) -> String {
        let mut identity = String::with_capacity(128);
        identity.push_str("{\"manager\":");
        push_quoted(&mut identity, &self.manager);
        identity.extend([",\"operation\":\"", self.operation.as_str(), "\""]);
        if self.operation == Operation::Update {
            identity.push_str(",\"apiVersion\":");
            push_quoted(&mut identity, &self.api_version);
        }
        if !self.subresource.is_empty() {
            identity.push_str(",\"subresource\":");
            push_quoted(&mut identity, &self.subresource);
        }
        identity.push('}');
        identity
    }
}

/// Adds a text as JSON writes it. Names rarely have anything to escape.
fn push_quoted(out: &mut String, text: &str) {
    if text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./: ".contains(&byte)) {
        out.extend(["\"", text, "\""]);
    } else {
        out.push_str(&escape_like_go(&Value::from(text).to_string()));
    }
}

/// Why managedFields cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ManagedError {
    #[error("managedFields must be a list of entries")]
    NotEntries,
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    #[error("apiVersion must not be empty")]
    ApiVersion,
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    #[error("invalid fieldsType {kind:?} in managed fields entry {entry}")]
    FieldsType { kind: String, entry: usize },
    #[error("error decoding set: {0}")]
    Fields(FieldsError),
}

/// All entries of an object by their identity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Managers(pub(super) BTreeMap<String, Entry>);

impl Managers {
    /// Reads the entries of an object; an object without managedFields has none.
    pub fn of(object: &Value) -> Result<Self, ManagedError> {
        let entries = match stored(object) {
            None | Some(Value::Null) => return Ok(Self::default()),
            Some(Value::Array(entries)) => entries,
            Some(_) => return Err(ManagedError::NotEntries),
        };
        let mut managers = Self::default();
        for (index, entry) in entries.iter().enumerate() {
            managers.insert(decode_entry(index, entry)?);
        }
        Ok(managers)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entries in no particular order.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.0.values()
    }

    pub(super) fn insert(&mut self, entry: Entry) {
        self.0.insert(entry.identity(), entry);
    }

    /// Writes the entries into an object: by operation, time, manager, version and subresource.
    pub fn store(&self, object: &mut Value) {
        clear(object);
        if self.0.is_empty() {
            return;
        }
        let mut entries: Vec<&Entry> = self.0.values().collect();
        entries.sort_by_key(|entry| {
            (
                entry.operation,
                entry.time.as_deref().unwrap_or(""),
                &entry.manager,
                &entry.api_version,
                &entry.subresource,
            )
        });
        let encoded: Vec<Value> = entries.into_iter().map(encode_entry).collect();
        if let Value::Object(fields) = object {
            let meta = fields.entry("metadata").or_insert_with(|| json!({}));
            if let Value::Object(meta) = meta {
                meta.insert("managedFields".to_owned(), Value::Array(encoded));
            }
        }
    }

    /// Throws the oldest updates of each version together until few enough are left.
    pub(super) fn cap(&mut self) {
        let mut updates: Vec<&Entry> = self.0.values().filter(|entry| entry.operation == Operation::Update).collect();
        let mut count = updates.len();
        if count <= MAX_UPDATE_MANAGERS {
            return;
        }
        updates.sort_by_cached_key(|entry| (entry.time.clone(), entry.identity()));
        let oldest: Vec<Entry> = updates.into_iter().cloned().collect();
        let mut first_of_version: BTreeMap<String, Entry> = BTreeMap::new();
        for entry in oldest {
            if count <= MAX_UPDATE_MANAGERS {
                return;
            }
            let Some(first) = first_of_version.get(&entry.api_version) else {
                first_of_version.insert(entry.api_version.clone(), entry);
                continue;
            };
            self.throw_together(first, entry);
            count -= 1;
        }
    }

    /// Moves an entry into its version's bucket. The first entry of a version makes the bucket when there is none, and
    /// also when the entry is the bucket itself: the reference server then loses the bucket's fields.
    fn throw_together(&mut self, first: &Entry, entry: Entry) {
        self.0.remove(&entry.identity());
        let mut bucket = Entry { manager: OLD_UPDATES.to_owned(), subresource: String::new(), ..entry };
        match self.0.remove(&bucket.identity()) {
            // The smaller set is added to the larger one: the bucket grows with every entry.
            Some(before) => bucket.fields.absorb(before.fields),
            None => {
                self.0.remove(&first.identity());
                bucket.fields.absorb(first.fields.clone());
            }
        }
        self.insert(bucket);
    }
}

/// Removes managedFields from an object.
pub fn clear(object: &mut Value) {
    if let Some(Value::Object(meta)) = object.get_mut("metadata") {
        meta.remove("managedFields");
    }
}

/// The stored managedFields value of an object.
pub(super) fn stored(object: &Value) -> Option<&Value> {
    object.get("metadata").and_then(|meta| meta.get("managedFields"))
}

/// Whether a write asks to forget all owners: an empty list, or one empty entry.
pub(super) fn asks_to_forget(object: &Value) -> bool {
    match stored(object) {
        Some(Value::Array(entries)) => match entries.as_slice() {
            [] => true,
            [Value::Object(entry)] => entry.values().all(|value| value.is_null() || value.as_str() == Some("")),
            _ => false,
        },
        _ => false,
    }
}

/// Keeps the old times when a write changed nothing else, so that it is no change at all (API-4.6). Both objects must
/// be in the form in which they are stored.
pub fn keep_times_if_unchanged(old: &Value, new: &mut Value) {
    let (Some(Value::Array(before)), Some(Value::Array(after))) = (stored(old), stored(new)) else { return };
    let mut pairs = before.iter().zip(after);
    if before.len() != after.len() || !pairs.all(|(old, new)| same_apart(old, new, "time", |_, _| true)) {
        return;
    }
    let unchanged = same_apart(old, new, "metadata", |old, new| match (old, new) {
        (Some(old), Some(new)) => same_apart(old, new, "managedFields", |_, _| true),
        _ => false,
    });
    if unchanged {
        let before = Value::Array(before.clone());
        if let Some(times) = new.get_mut("metadata").and_then(|meta| meta.get_mut("managedFields")) {
            *times = before;
        }
    }
}

/// Whether two maps mean the same, where the values of one key are judged by `judge`.
fn same_apart(left: &Value, right: &Value, key: &str, judge: impl Fn(Option<&Value>, Option<&Value>) -> bool) -> bool {
    let (Value::Object(left), Value::Object(right)) = (left, right) else { return same(left, right) };
    let mut rest = right.iter().filter(|(name, _)| *name != key);
    let others = left.iter().filter(|(name, _)| *name != key);
    judge(left.get(key), right.get(key))
        && others
            .into_iter()
            .all(|(name, value)| rest.next().is_some_and(|(other, beside)| name == other && same(value, beside)))
        && rest.next().is_none()
}

fn decode_entry(index: usize, entry: &Value) -> Result<Entry, ManagedError> {
    let entry = entry.as_object().ok_or(ManagedError::NotEntries)?;
    let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or("");
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err(ManagedError::Operation),
    };
    if text("apiVersion").is_empty() {
        return Err(ManagedError::ApiVersion);
    }
    match text("fieldsType") {
        "FieldsV1" => {}
        "" => return Err(ManagedError::NoFieldsType(index)),
        other => return Err(ManagedError::FieldsType { kind: other.to_owned(), entry: index }),
    }
    let fields = entry.get("fieldsV1").unwrap_or(&Value::Null);
    Ok(Entry {
        manager: text("manager").to_owned(),
        operation,
        api_version: text("apiVersion").to_owned(),
        subresource: text("subresource").to_owned(),
        time: entry.get("time").and_then(Value::as_str).map(str::to_owned),
        fields: FieldSet::decode(fields).map_err(ManagedError::Fields)?,
    })
}

fn encode_entry(entry: &Entry) -> Value {
    let mut encoded = Map::new();
    if !entry.manager.is_empty() {
        encoded.insert("manager".to_owned(), entry.manager.as_str().into());
    }
    encoded.insert("operation".to_owned(), entry.operation.as_str().into());
    encoded.insert("apiVersion".to_owned(), entry.api_version.as_str().into());
    if let Some(time) = &entry.time {
        encoded.insert("time".to_owned(), time.as_str().into());
    }
    encoded.insert("fieldsType".to_owned(), "FieldsV1".into());
    encoded.insert("fieldsV1".to_owned(), entry.fields.encode());
    if !entry.subresource.is_empty() {
        encoded.insert("subresource".to_owned(), entry.subresource.as_str().into());
    }
    Value::Object(encoded)
}
