//! Printer columns: cells that a definition describes by paths.

use serde_json::{Value, json};

use crate::kinds::{Timestamp, age, read};

/// One additional column.
#[derive(Debug)]
pub(crate) struct PrinterColumn {
    name: String,
    kind: String,
    format: String,
    description: String,
    priority: i64,
    path: Vec<Step>,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    Item(usize),
}

impl PrinterColumn {
    /// The columns of a version; a version without any shows the age.
    pub(super) fn all_of(version: &Value) -> Vec<Self> {
        let declared = read::list(version, "/additionalPrinterColumns");
        if declared.is_empty() {
            let age = json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"});
            return vec![Self::of(&age)];
        }
        declared.iter().map(Self::of).collect()
    }

    fn of(column: &Value) -> Self {
        Self {
            name: read::text(column, "/name").to_owned(),
            kind: read::text(column, "/type").to_owned(),
            format: read::text(column, "/format").to_owned(),
            description: read::text(column, "/description").to_owned(),
            priority: read::number(column, "/priority").unwrap_or(0),
            path: steps(read::text(column, "/jsonPath")),
        }
    }

    pub(super) fn definitions(columns: &[Self]) -> Vec<Value> {
        let name = json!({
            "name": "Name", "type": "string", "format": "name", "priority": 0,
            "description": "The name of the object, unique for its kind and namespace.",
        });
        let shown = columns.iter().map(|column| {
            json!({
                "name": column.name, "type": column.kind, "format": column.format,
                "description": column.description, "priority": column.priority,
            })
        });
        [name].into_iter().chain(shown).collect()
    }

    pub(super) fn cells(columns: &[Self], object: &Value, now: Timestamp) -> Vec<Value> {
        let name = Value::from(read::name(object));
        [name].into_iter().chain(columns.iter().map(|column| column.cell(object, now))).collect()
    }

    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let found = self.path.iter().try_fold(object, |value, step| match step {
            Step::Field(name) => value.get(name),
            Step::Item(index) => value.get(index),
        });
        match (self.kind.as_str(), found) {
            (_, None | Some(Value::Null)) => Value::Null,
            ("date", Some(Value::String(text))) => age::since(Some(text), now).into(),
            ("integer", Some(value @ Value::Number(_))) | ("number", Some(value @ Value::Number(_))) => value.clone(),
            ("boolean", Some(value @ Value::Bool(_))) => value.clone(),
            ("string", Some(Value::String(text))) => text.as_str().into(),
            ("string", Some(value)) => value.to_string().into(),
            (_, Some(_)) => Value::Null,
        }
    }
}

/// The part of JSON paths that definitions use: fields, escaped dots, quoted fields and indices.
fn steps(path: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut field = String::new();
    let mut characters = path.trim().trim_start_matches('{').trim_end_matches('}').chars().peekable();
    let flush = |field: &mut String, steps: &mut Vec<Step>| {
        if !field.is_empty() {
            steps.push(Step::Field(std::mem::take(field)));
        }
    };
    while let Some(character) = characters.next() {
        match character {
            '\\' => field.extend(characters.next()),
            '.' => flush(&mut field, &mut steps),
            '[' => {
                flush(&mut field, &mut steps);
                let inside: String = characters.by_ref().take_while(|character| *character != ']').collect();
                match inside.parse() {
                    Ok(index) => steps.push(Step::Item(index)),
                    Err(_) => steps.push(Step::Field(inside.trim_matches(['\'', '"']).to_owned())),
                }
            }
            other => field.push(other),
        }
    }
    flush(&mut field, &mut steps);
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_escape_dots_and_count() {
        let path = steps(r".metadata.annotations.a\.b/c[0]");
        let field = |name: &str| Step::Field(name.to_owned());
        assert_eq!(path, [field("metadata"), field("annotations"), field("a.b/c"), Step::Item(0)]);
    }
}
