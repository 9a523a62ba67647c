//! An explanation for people and for programs.
//!
//! The JSON is described in docs/orlop-explain.md. It changes only by new members; one that changes its meaning gets a new
//! number as `form`.

use std::fmt::Write as _;

use lifecycle::explain::{Explanation, Link, Subject, Unseen};
use serde_json::{Value, json};

use super::Format;

/// The form of the JSON.
const FORM: u32 = 1;

pub(super) fn render(explanation: &Explanation, format: Format) -> String {
    match format {
        Format::Text => explanation.to_string(),
        Format::Json => format!("{:#}\n", value(explanation)),
        Format::Yaml => yaml(&value(explanation)),
    }
}

fn value(explanation: &Explanation) -> Value {
    json!({
        "form": FORM,
        "subject": subject(&explanation.subject),
        "state": explanation.state,
        "standing": explanation.standing.name(),
        "healthy": explanation.healthy(),
        "sentence": explanation.sentence,
        "chain": explanation.chain.iter().map(link).collect::<Vec<_>>(),
        "fix": explanation.fix,
        "unseen": explanation.unseen.iter().map(unseen).collect::<Vec<_>>(),
    })
}

fn subject(subject: &Subject) -> Value {
    json!({"kind": subject.kind, "namespace": subject.namespace, "name": subject.name})
}

fn link(link: &Link) -> Value {
    json!({
        "subject": subject(&link.subject),
        "depth": link.depth,
        "step": link.step.name(),
        "reason": link.code,
        "standing": link.standing.name(),
        "sentence": link.sentence,
        "evidence": link.evidence,
    })
}

fn unseen(unseen: &Unseen) -> Value {
    json!({"what": unseen.what, "why": unseen.why})
}

/// The same as YAML. Texts are quoted as in JSON, which YAML reads alike.
fn yaml(value: &Value) -> String {
    let mut text = String::new();
    block(&mut text, value, 0);
    text
}

fn block(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (name, value) in members {
                let _ = write!(text, "{:indent$}{name}:", "");
                nested(text, value, indent + 2);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                let start = text.len();
                block(text, item, indent + 2);
                // The dash takes the place of the first line's last two blanks.
                text.replace_range(start + indent..start + indent + 2, "- ");
            }
        }
        scalar => {
            let _ = writeln!(text, "{:indent$}{scalar}", "");
        }
    }
}

fn nested(text: &mut String, value: &Value, indent: usize) {
    let empty = value.as_object().is_some_and(serde_json::Map::is_empty) || value.as_array().is_some_and(Vec::is_empty);
    match value {
        Value::Object(_) | Value::Array(_) if !empty => {
            text.push('\n');
            block(text, value, indent);
        }
        scalar => {
            let _ = writeln!(text, " {scalar}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_has_the_shape_of_the_json() {
        let value = json!({
            "a": [{"x": 1, "y": ["p", "q: \"r\""]}, {"x": null}],
            "b": {"c": {}, "d": [], "e": true},
        });
        let expected = "\
a:
  - x: 1
    y:
      - \"p\"
      - \"q: \\\"r\\\"\"
  - x: null
b:
  c: {}
  d: []
  e: true
";
        assert_eq!(yaml(&value), expected);
    }
}
