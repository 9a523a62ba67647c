//! Answers as people and programs read them.
//!
//! Text is aligned and shows sizes for the eye and in bytes. JSON uses the names of the proto3 JSON mapping
//! (lowerCamelCase, enums by name, timestamps as RFC 3339) with two departures that scripts want: 64-bit integers are
//! numbers, and every key is present, absent messages as `null`.
//!
//! Invariant: no request is ever rendered, and the values of pod tokens and mount options are hidden, so nothing here
//! can print a secret.

mod node;
mod plugin;
mod snapshot;
pub(super) mod text;
mod volume;

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Value, json};

use super::args::Format;
pub(super) use plugin::{Capabilities, Overview, Part};

/// Something a command prints.
pub(super) trait Render {
    fn json(&self) -> Value;
    fn text(&self) -> String;

    /// Whether all of the answer is here; only an overview can have holes.
    fn verdict(&self) -> Verdict {
        Verdict::Complete
    }
}

/// Whether the driver answered all that was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Complete,
    /// A part of an overview is an error; the rest was printed.
    Partial,
}

/// Where answers go, and how.
pub(super) struct Printer<'a> {
    pub(super) format: Format,
    pub(super) out: &'a mut dyn Write,
}

impl Printer<'_> {
    pub(super) fn print(&mut self, answer: &dyn Render) -> io::Result<()> {
        match self.format {
            Format::Text => self.out.write_all(answer.text().as_bytes()),
            Format::Json => writeln!(self.out, "{:#}", answer.json()),
        }
    }
}

/// A call whose answer has no fields: JSON is the empty message, text says what is now true.
pub(super) struct Done(pub(super) String);

impl Render for Done {
    fn json(&self) -> Value {
        json!({})
    }

    fn text(&self) -> String {
        format!("{}\n", text::clean(&self.0))
    }
}

/// An enum of the wire: its name, or its number when a newer driver knows more than we do.
fn enum_json<E: TryFrom<i32>>(number: i32, name: fn(&E) -> &'static str) -> Value {
    E::try_from(number).map_or_else(|_| json!(number), |value| json!(name(&value)))
}

fn enum_text<E: TryFrom<i32>>(number: i32, name: fn(&E) -> &'static str) -> String {
    E::try_from(number).map_or_else(|_| format!("unknown ({number})"), |value| name(&value).to_owned())
}

/// A context map with the values of known token keys hidden.
fn context(map: &BTreeMap<String, String>) -> BTreeMap<&str, &str> {
    let shown = |key: &str| !::csi::TOKEN_KEYS.contains(&key);
    map.iter().map(|(key, value)| (key.as_str(), if shown(key) { value.as_str() } else { ::csi::REDACTED })).collect()
}

/// A map as `key=value` lines.
fn lines<K: AsRef<str>, V: AsRef<str>>(map: &BTreeMap<K, V>) -> Vec<String> {
    map.iter().map(|(key, value)| format!("{}={}", key.as_ref(), value.as_ref())).collect()
}

#[cfg(test)]
mod tests;
