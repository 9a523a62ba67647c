//! One line of the log.
//!
//! A line is flat: its own fields, then those of the spans around it, the innermost first; of two with one name the inner
//! one counts. So `claim`, `volume` and `operation` are at the same place in every line, whoever wrote it. No value can
//! break a line or forge another: what has control characters is quoted.

use std::fmt::{self, Write as _};

use tracing::Level;
use tracing::field::{Field, Visit};

use super::LogFormat;

/// The field that holds what the line says.
const MESSAGE: &str = "message";
/// Names that a line has of its own; a field of that name is told under another one.
const TAKEN: [&str; 5] = ["timestamp", "level", "target", MESSAGE, "repeated"];

/// The value of a field.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// A text, which is quoted.
    Text(String),
    /// What a value says of itself.
    Shown(String),
    Number(serde_json::Number),
    Bool(bool),
}

impl Value {
    fn text(&self, out: &mut String) {
        let _ = match self {
            Self::Text(text) => write!(out, "{text:?}"),
            Self::Shown(text) if text.chars().any(char::is_control) => write!(out, "{text:?}"),
            Self::Shown(text) => write!(out, "{text}"),
            Self::Number(number) => write!(out, "{number}"),
            Self::Bool(value) => write!(out, "{value}"),
        };
    }

    fn json(&self, out: &mut String) {
        match self {
            Self::Text(text) | Self::Shown(text) => json_text(text, out),
            Self::Number(number) => drop(write!(out, "{number}")),
            Self::Bool(value) => drop(write!(out, "{value}")),
        }
    }
}

fn json_text(text: &str, out: &mut String) {
    let _ = write!(out, "{}", serde_json::Value::from(text));
}

/// Fields by name, in the order in which they came.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(held, _)| *held == name).map(|(_, value)| value)
    }

    /// Sets a field; what it was is forgotten.
    pub(super) fn set(&mut self, name: &'static str, value: Value) {
        match self.0.iter_mut().find(|(held, _)| *held == name) {
            Some((_, held)) => *held = value,
            None => self.0.push((name, value)),
        }
    }

    /// Takes a field out.
    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        let at = self.0.iter().position(|(held, _)| *held == name)?;
        Some(self.0.remove(at).1)
    }

    /// Adds what is not there yet.
    pub(super) fn inherit(&mut self, outer: &Fields) {
        for (name, value) in &outer.0 {
            if self.get(name).is_none() {
                self.0.push((name, value.clone()));
            }
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field.name(), Value::Shown(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field.name(), Value::Text(value.to_owned()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field.name(), Value::Number(value.into()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field.name(), Value::Number(value.into()));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        let number = serde_json::Number::from_f64(value);
        self.set(field.name(), number.map_or_else(|| Value::Shown(value.to_string()), Value::Number));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.name(), Value::Bool(value));
    }
}

/// Reads an event: what it says, and its fields.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) message: String,
    pub(super) fields: Fields,
}

impl Said {
    /// A field may be called `message`, too: it follows what the line says.
    fn say(&mut self, text: &str) {
        if !self.message.is_empty() {
            self.message.push_str(": ");
        }
        self.message.push_str(text);
    }
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            MESSAGE => self.say(&format!("{value:?}")),
            _ => self.fields.record_debug(field, value),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            MESSAGE => self.say(value),
            _ => self.fields.record_str(field, value),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.fields.record_i64(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.fields.record_u64(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.fields.record_f64(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.fields.record_bool(field, value);
    }
}

/// A line before it is written.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    pub(super) level: Level,
    pub(super) target: &'static str,
    pub(super) message: String,
    pub(super) fields: Fields,
    /// How often the same was to be said since it was last written.
    pub(super) repeated: u64,
}

impl Line {
    /// The line, with its end. `time` is the moment as it is to be shown.
    pub(super) fn render(&self, format: LogFormat, time: &str) -> String {
        let mut out = String::with_capacity(256);
        match format {
            LogFormat::Text => self.text(time, &mut out),
            LogFormat::Json => self.json(time, &mut out),
        }
        out.push('\n');
        out
    }

    fn text(&self, time: &str, out: &mut String) {
        let _ = write!(out, "{time} {:>5} {}: ", self.level.as_str(), self.target);
        match self.message.chars().any(char::is_control) {
            true => drop(write!(out, "{}", self.message.escape_debug())),
            false => out.push_str(&self.message),
        }
        if self.repeated > 0 {
            let _ = write!(out, " (repeated {} times)", self.repeated);
        }
        for (name, value) in &self.fields.0 {
            let _ = write!(out, " {name}=");
            value.text(out);
        }
    }

    fn json(&self, time: &str, out: &mut String) {
        let _ = write!(out, "{{\"timestamp\":\"{time}\",\"level\":\"{}\",\"target\":", self.level.as_str());
        json_text(self.target, out);
        out.push_str(",\"message\":");
        json_text(&self.message, out);
        if self.repeated > 0 {
            let _ = write!(out, ",\"repeated\":{}", self.repeated);
        }
        for (name, value) in &self.fields.0 {
            let own = if TAKEN.contains(name) { "field_" } else { "" };
            out.push(',');
            json_text(&format!("{own}{name}"), out);
            out.push(':');
            value.json(out);
        }
        out.push('}');
    }

    /// What makes two lines the same: everything but the attempt that wrote them.
    pub(super) fn sameness(&self) -> String {
        let mut key = format!("{} {} {}", self.level.as_str(), self.target, self.message);
        for (name, value) in self.fields.0.iter().filter(|(name, _)| *name != super::lines::OPERATION) {
            let _ = write!(key, "\u{1f}{name}=");
            value.text(&mut key);
        }
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(message: &str, fields: &[(&'static str, Value)]) -> Line {
        let fields = Fields(fields.to_vec());
        Line { level: Level::WARN, target: "orlop::up", message: message.to_owned(), fields, repeated: 0 }
    }

    #[test]
    fn both_forms_have_the_fields_flat() {
        let fields = [
            ("claim", Value::Shown("default/data".into())),
            ("driver", Value::Text("d".into())),
            ("n", Value::Number(7.into())),
        ];
        let line = line("a step failed", &fields);
        assert_eq!(
            line.render(LogFormat::Text, "T"),
            "T  WARN orlop::up: a step failed claim=default/data driver=\"d\" n=7\n"
        );
        assert_eq!(
            line.render(LogFormat::Json, "T"),
            "{\"timestamp\":\"T\",\"level\":\"WARN\",\"target\":\"orlop::up\",\"message\":\"a step failed\",\
             \"claim\":\"default/data\",\"driver\":\"d\",\"n\":7}\n"
        );
    }

    #[test]
    fn no_value_can_forge_a_line() {
        let fields = [("why", Value::Shown("x\n2026 INFO orlop: all is well".into()))];
        let line = line("bad\u{1b}[31m", &fields);
        let text = line.render(LogFormat::Text, "T");
        assert_eq!(text, "T  WARN orlop::up: bad\\u{1b}[31m why=\"x\\n2026 INFO orlop: all is well\"\n");
        let json: serde_json::Value = serde_json::from_str(&line.render(LogFormat::Json, "T")).expect("it is JSON");
        assert_eq!(json["why"], "x\n2026 INFO orlop: all is well");
    }

    #[test]
    fn a_field_with_the_name_of_a_part_of_the_line_does_not_replace_it() {
        let line = line("m", &[("target", Value::Text("/mnt".into()))]);
        let json: serde_json::Value = serde_json::from_str(&line.render(LogFormat::Json, "T")).expect("it is JSON");
        assert_eq!((&json["target"], &json["field_target"]), (&"orlop::up".into(), &"/mnt".into()));
    }
}
