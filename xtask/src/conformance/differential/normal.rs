//! Takes out of a server's answers what may differ between two servers: uids, times, versions, generated names, tokens.
//!
//! What is taken out keeps its meaning where it has one: equal uids stay equal, and a version says whether its object has
//! changed since it was last seen.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Map, Value, json};

use super::play::Reply;
use super::wire;

/// What one script got from one server, comparable with what it got from another.
pub(super) fn transcript(replies: &[Reply], address: &str) -> Vec<Value> {
    let mut normal = Normal { address: address.to_owned(), ..Normal::default() };
    let answers: Vec<Value> = replies.iter().map(answer).collect();
    answers.iter().for_each(|answer| normal.learn_names(answer));
    answers.into_iter().map(|answer| normal.value(answer, Place::default())).collect()
}

/// One answer as a value.
fn answer(reply: &Reply) -> Value {
    let text = String::from_utf8_lossy(&reply.body);
    let body = if reply.events {
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| json!(line))).collect()
    } else if reply.content_type.contains("protobuf") {
        let message = reply.body.strip_prefix(b"k8s\0").and_then(wire::decode);
        message.map_or_else(|| json!(text), |message| json!({ "protobuf": message }))
    } else {
        serde_json::from_str(&text).unwrap_or_else(|_| json!(text))
    };
    json!({ "status": reply.status, "contentType": reply.content_type, "warnings": reply.warnings, "body": body })
}

/// Where in an answer a value is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Anywhere,
    /// Cells of a table, which hold ages.
    Cells,
    Protobuf,
}

#[derive(Debug, Default)]
struct Normal {
    address: String,
    /// Uids and the names of what they belong to.
    uids: BTreeMap<String, String>,
    /// Generated names and what they are called here.
    names: BTreeMap<String, String>,
    /// The last version seen of each object, by uid.
    versions: BTreeMap<String, u64>,
}

impl Normal {
    fn learn_names(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                if let (Some(prefix), Some(name)) = (text(fields, "generateName"), text(fields, "name"))
                    && name.len() == prefix.len() + 5
                    && name.starts_with(prefix)
                {
                    let called = format!("{prefix}<generated {}>", self.names.len());
                    self.names.entry(name.to_owned()).or_insert(called);
                }
                if let (Some(uid), Some(name)) = (text(fields, "uid"), text(fields, "name")) {
                    self.uids.entry(uid.to_owned()).or_insert_with(|| name.to_owned());
                }
                fields.values().for_each(|value| self.learn_names(value));
            }
            Value::Array(items) => items.iter().for_each(|value| self.learn_names(value)),
            _ => {}
        }
    }

    fn value(&mut self, value: Value, place: Place) -> Value {
        match value {
            Value::String(text) => json!(self.text(&text, place)),
            Value::Array(items) => items.into_iter().map(|item| self.value(item, place)).collect(),
            Value::Object(fields) => Value::Object(self.fields(fields, place)),
            Value::Number(number) if place == Place::Protobuf && is_time(&number) => json!("<time>"),
            other => other,
        }
    }

    fn fields(&mut self, fields: Map<String, Value>, place: Place) -> Map<String, Value> {
        let collection = is_collection(&fields);
        let uid = text(&fields, "uid").unwrap_or_default().to_owned();
        let mut normal = Map::new();
        for (key, value) in fields {
            let inner = match key.as_str() {
                "cells" => Place::Cells,
                "protobuf" => Place::Protobuf,
                _ => place,
            };
            let value = match (key.as_str(), value) {
                ("resourceVersion", Value::String(version)) => self.version(&uid, &version),
                ("continue", Value::String(token)) if !token.is_empty() => json!("<continue>"),
                ("metadata", Value::Object(metadata)) if collection => {
                    let mut metadata = self.fields(metadata, inner);
                    if metadata.contains_key("resourceVersion") {
                        metadata.insert("resourceVersion".to_owned(), json!("<now>"));
                    }
                    Value::Object(metadata)
                }
                // Entries are in the order of their times, and conflicts in no order at all.
                ("managedFields", Value::Array(mut entries)) => {
                    entries.sort_by_key(|entry| {
                        ["operation", "manager", "apiVersion", "subresource"].map(|key| entry[key].to_string())
                    });
                    self.value(Value::Array(entries), inner)
                }
                ("causes", Value::Array(mut causes))
                    if causes.iter().all(|cause| cause["reason"] == "FieldManagerConflict") =>
                {
                    causes.sort_by_key(|cause| cause.to_string());
                    self.value(Value::Array(causes), inner)
                }
                (_, value) => self.value(value, inner),
            };
            normal.insert(self.text(&key, Place::Anywhere), value);
        }
        normal
    }

    /// Whether an object has changed since it was last seen. A version without an object means the present.
    fn version(&mut self, uid: &str, version: &str) -> Value {
        let Ok(number) = version.parse::<u64>() else { return json!(version) };
        if uid.is_empty() {
            return json!("<now>");
        }
        match self.versions.insert(uid.to_owned(), number) {
            None => json!("<first>"),
            Some(last) if last == number => json!("<same>"),
            Some(last) if last < number => json!("<newer>"),
            Some(_) => json!("<older>"),
        }
    }

    fn text(&mut self, text: &str, place: Place) -> String {
        let mut text = text.replace(&self.address, "<server>");
        for (name, called) in &self.names {
            text = text.replace(name, called);
        }
        match place {
            Place::Cells if AGE.is_match(&text) => return "<age>".to_owned(),
            Place::Protobuf if NUMBER.is_match(&text) => return "<number>".to_owned(),
            _ => {}
        }
        let (uids, names) = (&self.uids, &self.names);
        let text = UID.replace_all(&text, |found: &Captures<'_>| match uids.get(&found[0]) {
            Some(name) => format!("<uid of {}>", names.get(name).unwrap_or(name)),
            None => "<uid>".to_owned(),
        });
        let text = MICROTIME.replace_all(&text, "<microtime>");
        let text = TIME.replace_all(&text, "<time>");
        let text = TOKEN.replace_all(&text, "<token>");
        let text = ACCESS.replace_all(&text, "kube-api-access-<generated>");
        let text = GENERATED.replace_all(&text, "$1<generated>");
        let text = UNIQUE.replace_all(&text, "<unique>");
        VERSION.replace_all(&text, "$1<version>").into_owned()
    }
}

fn text<'a>(fields: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    fields.get(key).and_then(Value::as_str)
}

/// Lists and tables carry the version of the moment, not that of an object.
fn is_collection(fields: &Map<String, Value>) -> bool {
    text(fields, "kind").is_some_and(|kind| kind.ends_with("List") || kind == "Table")
}

/// Seconds since 1970 of this time.
fn is_time(number: &serde_json::Number) -> bool {
    number.as_u64().is_some_and(|number| (1_700_000_000..4_000_000_000).contains(&number))
}

/// A pattern that is known when this is compiled.
fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the patterns of this file are correct; a test compiles each")
}

static UID: LazyLock<Regex> = LazyLock::new(|| pattern("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
// Times of this run, not the ones of scripts, which are of 2020.
static TIME: LazyLock<Regex> = LazyLock::new(|| pattern(r"20(2[4-9]|[3-9]\d)-\d\d-\d\dT\d\d:\d\d:\d\dZ"));
static MICROTIME: LazyLock<Regex> = LazyLock::new(|| pattern(r"20(2[4-9]|[3-9]\d)-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"));
static TOKEN: LazyLock<Regex> = LazyLock::new(|| pattern(r"eyJ[\w-]+\.[\w-]+\.[\w-]+"));
static ACCESS: LazyLock<Regex> = LazyLock::new(|| pattern("kube-api-access-[a-z0-9]{5}"));
// Scripts generate names from this prefix where the object is refused and so never shows the prefix itself.
static GENERATED: LazyLock<Regex> = LazyLock::new(|| pattern("(Bad_)[a-z0-9]{5}"));
/// Ids that a server makes for an answer, such as an expression's position in memory or a certificate's hash.
static UNIQUE: LazyLock<Regex> = LazyLock::new(|| pattern("0xc[0-9a-f]{8,}|X509SHA256=[0-9a-f]{64}"));
static NUMBER: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\d+$"));
static AGE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(\d+[ydhms])+$"));
static VERSION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"((?:resourceVersion\\*":\\*"|resourceVersion:|ResourceVersion in record \(|ResourceVersion in the precondition \(|esource version: |current: |ResourceVersion: "?))\d+"#,
    )
});

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(body: Value) -> Reply {
        Reply {
            status: 200,
            content_type: "application/json".to_owned(),
            warnings: Vec::new(),
            body: body.to_string().into_bytes(),
            events: false,
        }
    }

    fn object(uid: &str, version: &str) -> Reply {
        reply(
            json!({"metadata": {"uid": uid, "resourceVersion": version, "creationTimestamp": "2025-01-02T03:04:05Z"}}),
        )
    }

    #[test]
    fn two_servers_with_other_uids_times_and_versions_are_alike() {
        const A: &str = "11111111-1111-4111-8111-111111111111";
        const B: &str = "22222222-2222-4222-8222-222222222222";
        let ours = transcript(&[object(A, "7"), object(A, "9"), object(A, "9")], "https://127.0.0.1:1");
        let theirs = transcript(&[object(B, "100"), object(B, "200"), object(B, "200")], "https://127.0.0.1:2");
        assert_eq!(ours, theirs);
        assert_eq!(ours[1]["body"]["metadata"]["resourceVersion"], "<newer>");
        assert_eq!(ours[2]["body"]["metadata"]["resourceVersion"], "<same>");
        assert_eq!(ours[0]["body"]["metadata"]["creationTimestamp"], "<time>");
    }

    #[test]
    fn a_generated_name_is_recognised_everywhere() {
        let made = reply(json!({"metadata": {"generateName": "g-", "name": "g-abcde"}}));
        let refused = reply(json!({"message": "configmaps \"g-abcde\" not found"}));
        let normal = transcript(&[made, refused], "https://127.0.0.1:1");
        assert_eq!(normal[1]["body"]["message"], "configmaps \"g-<generated 0>\" not found");
    }

    #[test]
    fn versions_in_messages_are_taken_out() {
        let said = reply(json!({"message": "does not match the ResourceVersion in record (207). The object"}));
        let normal = transcript(&[said], "https://127.0.0.1:1");
        assert_eq!(
            normal[0]["body"]["message"],
            "does not match the ResourceVersion in record (<version>). The object"
        );
    }

    #[test]
    fn every_pattern_compiles() {
        for pattern in [&UID, &TIME, &MICROTIME, &TOKEN, &ACCESS, &UNIQUE, &NUMBER, &AGE, &VERSION] {
            assert!(!pattern.is_match(""));
        }
    }
}
