//! The flags of `orlop up` as the command line defines them, and what a file may say for each.

use std::any::TypeId;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args as _, Command};

use super::yaml::{Kind, Scalar};
use crate::up;

/// What is about one call and not about the stack.
const ONLY_FLAGS: [&str; 3] = ["config", "print-systemd", "help"];
/// Stands for a file in words that are parsed only to be checked, so that nothing is missed that a file may bring.
const SOME_FILE: &str = "--config=-";

/// The flags of `orlop up`.
#[derive(Debug)]
pub(super) struct Flags {
    command: Command,
}

/// How many values a flag takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// None: it is there or not.
    Switch,
    One,
    Many,
}

pub(super) fn takes(flag: &Arg) -> Takes {
    match flag.get_action() {
        ArgAction::SetTrue => Takes::Switch,
        ArgAction::Append => Takes::Many,
        _ => Takes::One,
    }
}

/// Paths in a file are relative to the file.
pub(super) fn is_path(flag: &Arg) -> bool {
    flag.get_value_parser().type_id() == TypeId::of::<PathBuf>()
}

/// Text that YAML would take for something else needs quotes, so that nothing is read otherwise than it was meant.
fn is_text(flag: &Arg) -> bool {
    is_path(flag) || flag.get_value_parser().type_id() == TypeId::of::<String>()
}

pub(super) fn name(flag: &Arg) -> &str {
    flag.get_long().unwrap_or_default()
}

impl Flags {
    pub(super) fn of_up() -> Self {
        let command = Command::new("up").no_binary_name(true).disable_help_flag(true);
        Self { command: up::Args::augment_args(command) }
    }

    /// Those that may stand in a file.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arg> {
        self.command.get_arguments().filter(|flag| flag.get_long().is_some_and(|name| !ONLY_FLAGS.contains(&name)))
    }

    pub(super) fn find(&self, key: &str) -> Option<&Arg> {
        self.all().find(|flag| name(flag) == key)
    }

    /// What was probably meant, in the words that the command line itself would find.
    pub(super) fn nearest(&self, key: &str) -> Option<String> {
        let error = self.command.clone().try_get_matches_from([SOME_FILE, &format!("--{key}=x")]).err()?;
        let Some(ContextValue::String(flag)) = error.get(ContextKind::SuggestedArg) else { return None };
        let found = flag.trim_start_matches('-').to_owned();
        self.find(&found).map(|_| found)
    }

    /// Why a key is not known, in a sentence.
    pub(super) fn unknown(&self, key: &str) -> String {
        if ONLY_FLAGS.contains(&key) {
            return format!("{key:?} is a flag only: it is about one call of `orlop up`");
        }
        let secret = ["token", "password", "secret"].iter().any(|word| key.to_lowercase().contains(word));
        match (secret, self.nearest(key)) {
            (_, Some(meant)) => format!("unknown key {key:?}; did you mean {meant:?}?"),
            (true, None) => format!("unknown key {key:?}; secrets do not belong into this file"),
            (false, None) => format!("unknown key {key:?}; `orlop config show` prints all that there are"),
        }
    }

    /// Whether the command line would take this value for this flag; why not.
    pub(super) fn check(&self, flag: &Arg, value: &Scalar) -> Result<(), String> {
        let text = &value.text;
        match value.kind {
            Kind::Null => return Err("has no value; leave the key out for the default".to_owned()),
            Kind::Number if is_text(flag) => {
                return Err(format!("{text} is a number; write \"{text}\" if text is meant"));
            }
            Kind::Bool if is_text(flag) => {
                return Err(format!("{text} is a boolean; write \"{text}\" if text is meant"));
            }
            Kind::Number | Kind::Bool | Kind::Text => {}
        }
        if takes(flag) == Takes::Switch {
            return match text.as_str() {
                "true" | "false" => Ok(()),
                _ => Err(format!("{text:?} is not one of true, false")),
            };
        }
        let words = [SOME_FILE.to_owned(), format!("--{}={text}", name(flag))];
        match self.command.clone().try_get_matches_from(words) {
            Ok(_) => Ok(()),
            Err(error) => Err(reason(text, &error)),
        }
    }

    /// A value as a word of a command line; none for a switch that is off.
    pub(super) fn word(&self, flag: &Arg, text: &str, base: &Path) -> Option<OsString> {
        let mut word = OsString::from(format!("--{}", name(flag)));
        match takes(flag) {
            Takes::Switch => return (text == "true").then_some(word),
            Takes::One | Takes::Many => {}
        }
        word.push("=");
        match is_path(flag) {
            true => word.push(base.join(text)),
            false => word.push(text),
        }
        Some(word)
    }

    pub(super) fn parse(&self, words: Vec<OsString>) -> Result<ArgMatches, clap::Error> {
        self.command.clone().try_get_matches_from(words)
    }
}

/// Why a value is refused, without the flag's name, which is told in front.
fn reason(text: &str, error: &clap::Error) -> String {
    if text.is_empty() {
        return "must not be empty".to_owned();
    }
    let strings = |kind| match error.get(kind) {
        Some(ContextValue::Strings(found)) => found.clone(),
        Some(ContextValue::String(found)) => vec![found.clone()],
        _ => Vec::new(),
    };
    let valid = strings(ContextKind::ValidValue);
    if !valid.is_empty() {
        let meant = strings(ContextKind::SuggestedValue);
        let meant = meant.first().map(|meant| format!("; did you mean {meant:?}?")).unwrap_or_default();
        return format!("{text:?} is not one of {}{meant}", valid.join(", "));
    }
    match std::error::Error::source(error) {
        Some(source) => format!("{text:?} is refused: {source}"),
        None => {
            let said = error.to_string();
            said.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
        }
    }
}

/// Whether a flag was on the command line that these matches are of.
pub(super) fn is_given(matches: &ArgMatches, flag: &Arg) -> bool {
    matches.value_source(flag.get_id().as_str()) == Some(ValueSource::CommandLine)
}

/// The flags that were on a command line, word by word, paths without a reference to the working directory.
pub(crate) fn given_words(matches: &ArgMatches) -> Vec<OsString> {
    let flags = Flags::of_up();
    let mut words = Vec::new();
    for flag in flags.command.get_arguments().filter(|flag| is_given(matches, flag)) {
        let mut word = OsString::from(format!("--{}", name(flag)));
        if takes(flag) == Takes::Switch {
            words.push(word);
            continue;
        }
        word.push("=");
        for value in matches.get_raw(flag.get_id().as_str()).into_iter().flatten() {
            let mut word = word.clone();
            match is_path(flag) {
                // An empty path has no absolute form; it is refused later, as it is.
                true => word.push(std::path::absolute(value).unwrap_or_else(|_| PathBuf::from(value))),
                false => word.push(value),
            }
            words.push(word);
        }
    }
    words
}
