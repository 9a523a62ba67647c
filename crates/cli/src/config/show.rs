//! `orlop config show`: every setting with its value, as a file that says the same.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use clap::{Arg, ArgAction};

use super::effective::Effective;
use super::flags::{Flags, Takes, name, takes};
use crate::cluster::output;

/// Of lines of comments.
const WIDTH: usize = 100;

pub(super) fn print(file: Option<&Path>) -> anyhow::Result<()> {
    let effective = match file {
        Some(file) => Effective::of_file(file)?,
        None => Effective::of_nothing()?,
    };
    output::write(&text(&effective)?)
}

fn text(effective: &Effective) -> anyhow::Result<String> {
    let flags = Flags::of_up();
    // What the other settings leave no room for is not shown as one: the file would be refused.
    let refused: BTreeSet<&str> = effective.args.wrongs(&|_| true).into_iter().map(|wrong| wrong.key).collect();
    let mut text = String::new();
    for flag in flags.all() {
        let key = name(flag);
        comment(&mut text, &flag.get_help().map(ToString::to_string).unwrap_or_default()).context("writing")?;
        if let Some(parts) = usual_parts(effective, key) {
            writeln!(text, "#{key}: [{}]", parts.join(", ")).context("writing")?;
            continue;
        }
        let values = if refused.contains(key) { Vec::new() } else { values(effective, flag) };
        match (values.as_slice(), takes(flag)) {
            ([], _) => {
                let names = flag.get_value_names().and_then(|names| names.first());
                writeln!(text, "#{key}: {}", names.map_or("...", |name| name.as_str()))
            }
            (values, Takes::Many) => {
                let values: Vec<String> = values.iter().map(|value| scalar(value, flag)).collect();
                writeln!(text, "{key}: [{}]", values.join(", "))
            }
            (values, Takes::One | Takes::Switch) => writeln!(text, "{key}: {}", scalar(&values.concat(), flag)),
        }
        .context("writing")?;
    }
    Ok(text)
}

/// A sentence as lines of a comment.
fn comment(text: &mut String, sentence: &str) -> std::fmt::Result {
    let mut line = String::from("#");
    for word in sentence.split_whitespace() {
        if line.len() + word.len() >= WIDTH {
            writeln!(text, "{line}")?;
            line.truncate(1);
        }
        write!(line, " {word}")?;
    }
    writeln!(text, "{line}")
}

/// What runs if the file does not say it. That follows from the cluster and from who runs it, so it is told and not set: a
/// file that says it would go on saying it when `kubeconfig` is added, and asks for root, which mounts need.
fn usual_parts(effective: &Effective, key: &str) -> Option<Vec<String>> {
    (key == "parts" && effective.matches.value_source(key).is_none()).then(|| effective.args.part_names())
}

fn values(effective: &Effective, flag: &Arg) -> Vec<String> {
    let raw = effective.matches.get_raw(flag.get_id().as_str()).into_iter().flatten();
    raw.map(|value| value.to_string_lossy().into_owned()).collect()
}

/// A value as YAML. Whatever might be read as something else gets quotes.
fn scalar(value: &str, flag: &Arg) -> String {
    let switch = matches!(flag.get_action(), ArgAction::SetTrue)
        || flag.get_value_parser().type_id() == std::any::TypeId::of::<bool>();
    let starts = value.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/');
    let plain =
        starts && value.chars().all(|c| c.is_ascii_alphanumeric() || "/._-:".contains(c)) && !value.ends_with(':');
    let word = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&value.to_lowercase().as_str());
    match switch || (plain && !word) {
        true => value.to_owned(),
        // A string of JSON is one of YAML.
        false => serde_json::Value::from(value).to_string(),
    }
}
