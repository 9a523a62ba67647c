//! The forms of an answer: text for people, with colours where they are wanted, and JSON or YAML for programs.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};

use anyhow::Context as _;
use lifecycle::table::{Look, Paint};
use serde_json::Value;

/// The form of the answer.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct OutputArgs {
    /// Form of the answer; wide has more columns.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    Text,
    Wide,
    Json,
    Yaml,
}

/// An answer that has both forms.
pub(crate) trait Answer {
    fn text(&self, look: Look) -> String;
    fn value(&self) -> Value;
}

impl OutputArgs {
    /// Writes an answer to standard output.
    pub(crate) fn print(self, answer: &impl Answer) -> anyhow::Result<()> {
        write(&self.render(answer))
    }

    fn render(self, answer: &impl Answer) -> String {
        match self.output {
            Format::Text => answer.text(Look { wide: false, paint: paint(), width: width() }),
            Format::Wide => answer.text(Look { wide: true, paint: paint(), width: None }),
            Format::Json => format!("{:#}\n", answer.value()),
            Format::Yaml => yaml(&answer.value()),
        }
    }
}

/// Colours only on a terminal that can show them, and only if nobody said no (no-color.org).
pub(crate) fn paint() -> Paint {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    match std::io::stdout().is_terminal() && !refused && !dumb {
        true => Paint::Colours,
        false => Paint::Plain,
    }
}

/// How many letters a line of the terminal has; nothing if it is none, or does not say.
fn width() -> Option<usize> {
    let out = std::io::stdout();
    let size = out.is_terminal().then(|| rustix::termios::tcgetwinsize(out).ok()).flatten()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns >= NARROWEST)
}

/// In less than this, sentences are not broken: the terminal does it just as badly.
const NARROWEST: usize = 20;

/// A reader that went away, such as `head`, is no failure.
pub(crate) fn write(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error).context("writing the answer"),
        Ok(()) | Err(_) => Ok(()),
    }
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
    use serde_json::json;

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
