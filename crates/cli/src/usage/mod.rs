//! What a wrong command line is answered: clap's sentence, and where that leaves a person alone, what to type instead.
//!
//! clap knows what it expected. What it cannot know is what people come with: kubectl's verbs, the flags and names of the
//! programs this one stands in for, `--listen 6443`, `5 minutes`. Those are in `words.rs`; this file finds the place in the
//! command line, adds the tips and replaces what the standard library says about numbers and addresses.
//!
//! # Invariants
//! 1. A tip is a command line or a flag that exists: a test types every one of them.
//! 2. Exit codes and the first words of clap's sentences stay: scripts and habits rely on them.

mod address;
mod amount;
mod name;
mod near;
mod place;
#[cfg(test)]
mod tests;
mod words;

use std::error::Error as _;
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::net::AddrParseError;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};
use std::process::ExitCode;

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

pub(crate) use address::{NotAnAddress, parse as parse_address, require_free};
pub(crate) use amount::meant;
pub(crate) use name::{check as check_name, parse_namespace};
pub(crate) use near::nearest;
pub(crate) use place::{make_directory, make_private_directory, require_parent, require_room_for_sockets};

/// Tells what is wrong with the command line, and gives the exit code. Help and versions were asked for and end here, too.
pub(crate) fn answer(error: Error, command: &mut Command, line: &[OsString]) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        | ErrorKind::Io
        | ErrorKind::Format => error.format(command).exit(),
        _ => {
            eprint!("{}", text(error, command, line));
            ExitCode::from(2)
        }
    }
}

/// The answer as it is printed.
fn text(error: Error, command: &mut Command, line: &[OsString]) -> String {
    let words: Vec<String> = line.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let place = Place::of(command, words);
    if let Some(sentence) = place.instead(&error) {
        return format!("error: {sentence}\n\nFor more information, try '{} --help'.\n", place.full);
    }
    let tips = place.tips(&error);
    let mut error = error;
    best_guess(&mut error);
    if error.kind() == ErrorKind::UnknownArgument {
        // "To pass it as a value, use '-- --flag'": nobody who mistypes a flag wants that.
        if let Some(ContextValue::StyledStrs(mut said)) = error.remove(ContextKind::Suggested) {
            said.retain(|tip| !tip.to_string().contains("as a value"));
            if !said.is_empty() {
                error.insert(ContextKind::Suggested, ContextValue::StyledStrs(said));
            }
        }
    }
    if !tips.is_empty() {
        for guess in [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue] {
            error.remove(guess);
        }
        let tips = tips.into_iter().map(Into::into).collect();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    let rendered = error.render();
    let text = match std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        true => rendered.ansi().to_string(),
        false => rendered.to_string(),
    };
    // Whose help is meant, in full: it can be pasted.
    match text.rsplit_once("--help") {
        Some((before, after)) => format!("{before}{} --help{after}", place.full),
        None => text,
    }
}

/// Where in the command line the mistake was made.
struct Place {
    /// The innermost command that was named.
    command: Command,
    /// Its name as it is typed: `orlop csi create`.
    full: String,
    /// Everything that was typed behind the program's name.
    words: Vec<String>,
}

impl Place {
    fn of(command: &Command, words: Vec<String>) -> Self {
        let mut here = command;
        let mut full = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
        for word in words.iter().filter(|word| !word.starts_with('-')) {
            // `help` is followed by commands, too; a value of a flag that is called like a command is not worth more care.
            match here.find_subcommand(word) {
                Some(_) if word == "help" => {}
                Some(below) => {
                    here = below;
                    full = format!("{full} {}", below.get_name());
                }
                None if here.has_subcommands() => {}
                None => break,
            }
        }
        Self { command: here.clone(), full, words }
    }

    fn has(&self, flag: &str) -> bool {
        self.command.get_arguments().any(|argument| argument.get_long() == Some(flag))
    }

    /// What to type instead, where clap does not know it.
    fn tips(&self, error: &Error) -> Vec<String> {
        match error.kind() {
            ErrorKind::InvalidSubcommand => {
                let word = said(error, ContextKind::InvalidSubcommand).unwrap_or_default();
                words::command(self.command.get_name(), &word).into_iter().map(|tip| self.named(tip)).collect()
            }
            ErrorKind::UnknownArgument => {
                let word = said(error, ContextKind::InvalidArg).unwrap_or_default();
                self.unknown(&word).into_iter().collect()
            }
            ErrorKind::MissingRequiredArgument => {
                let missing = said(error, ContextKind::InvalidArg).unwrap_or_default();
                self.example(missing.split(' ').next().unwrap_or_default()).into_iter().collect()
            }
            ErrorKind::ArgumentConflict => match said(error, ContextKind::InvalidArg) {
                same @ Some(_) if same == said(error, ContextKind::PriorArg) => {
                    vec!["give it once: which of the values is meant cannot be guessed".to_owned()]
                }
                _ => Vec::new(),
            },
            ErrorKind::InvalidValue => {
                let value = said(error, ContextKind::InvalidValue).unwrap_or_default();
                let argument = said(error, ContextKind::InvalidArg).unwrap_or_default();
                match value.is_empty() {
                    true => self.example_with(&argument).into_iter().collect(),
                    false => words::value(&argument, &value).map(str::to_owned).into_iter().collect(),
                }
            }
            _ => Vec::new(),
        }
    }

    /// A flag or a word that the command does not have.
    fn unknown(&self, word: &str) -> Option<String> {
        if let Some(tip) = words::flag(self.command.get_name(), word, |flag| self.has(flag)) {
            return Some(self.named(tip));
        }
        // `--no-page`, which Go's programs do not have either.
        if let Some(flag) = word.strip_prefix("--no-").filter(|flag| self.is_boolean(flag)) {
            return Some(format!("'--{flag}=false' switches it off"));
        }
        if word.starts_with('-') {
            return None;
        }
        // `--leader-election true`: a boolean is there or has its value behind `=`.
        let at = self.words.iter().position(|given| given == word);
        let before = at.and_then(|at| self.words.get(at.checked_sub(1)?)?.strip_prefix("--"));
        if let Some(flag) = before.filter(|flag| self.is_boolean(flag)) {
            return Some(format!("write '--{flag}={word}', in one word"));
        }
        // `orlop up DIR`: there is one flag that such a word can only belong to.
        let missing = |argument: &&clap::Arg| {
            let flag = argument.get_long().map(|flag| format!("--{flag}"));
            flag.is_some_and(|flag| !self.words.iter().any(|word| word.starts_with(&flag)))
        };
        let mut arguments: Vec<&clap::Arg> = self.command.get_arguments().filter(missing).collect();
        arguments.sort_by_key(|argument| !argument.is_required_set());
        let flag = arguments.into_iter().find(|argument| argument.is_required_set() || argument.get_id() == "data");
        let flag = flag?.get_long()?;
        Some(format!("did you mean '{} --{flag} {word}'?", self.full))
    }

    /// Whether a flag takes true or false, and only behind `=`.
    fn is_boolean(&self, flag: &str) -> bool {
        let boolean = |argument: &clap::Arg| argument.is_require_equals_set();
        self.command.get_arguments().any(|argument| argument.get_long() == Some(flag) && boolean(argument))
    }

    /// The first example of the command's help, or rather the first with that flag.
    fn example(&self, with: &str) -> Option<String> {
        let after = self.command.get_after_help()?.to_string();
        let start = format!("{} ", self.full);
        let lines: Vec<&str> = after.lines().map(str::trim).filter(|line| line.starts_with(&start)).collect();
        let line = lines.iter().find(|line| line.contains(with)).or(lines.first())?;
        Some(format!("for example: {line}"))
    }

    /// An example of an argument whose value is missing; one without it would not help.
    fn example_with(&self, argument: &str) -> Option<String> {
        let word = argument.split(' ').next().unwrap_or_default();
        match word.starts_with("--") {
            true => self.example(word).filter(|example| example.contains(word)),
            false => self.example(""),
        }
    }

    /// A tip in the name that this program was called by.
    fn named(&self, tip: &str) -> String {
        match self.full.starts_with("kubectl ") {
            true => tip.replace("'orlop ", "'kubectl orlop "),
            false => tip.to_owned(),
        }
    }

    /// A sentence in the place of one that speaks of digits, literals and ranges.
    fn instead(&self, error: &Error) -> Option<String> {
        let argument = said(error, ContextKind::InvalidArg)?;
        if error.kind() == ErrorKind::UnknownArgument {
            return self.negative(&argument);
        }
        if error.kind() != ErrorKind::ValueValidation {
            return None;
        }
        let value = said(error, ContextKind::InvalidValue)?;
        let must = wanted(error)?;
        Some(format!("invalid value '{value}' for '{argument}': {must}"))
    }

    /// `--count -1`: clap takes the value for a flag, and offers to pass it in a way that would be wrong.
    fn negative(&self, word: &str) -> Option<String> {
        if !word.strip_prefix('-').is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit())) {
            return None;
        }
        // clap names the word up to its first letter that is no flag.
        let at = self.words.iter().position(|given| given.starts_with(word))?;
        let (flag, value) = (self.words.get(at.checked_sub(1)?)?, self.words.get(at)?);
        let known = flag.strip_prefix("--").is_some_and(|flag| self.has(flag));
        known.then(|| format!("invalid value '{value}' for '{flag}': it must not be negative"))
    }
}

/// What a value has to be, where the standard library or clap says it in terms of Rust.
fn wanted(error: &Error) -> Option<String> {
    let source = error.source()?;
    if let Some(number) = source.downcast_ref::<ParseIntError>() {
        let too_large = matches!(number.kind(), IntErrorKind::PosOverflow | IntErrorKind::NegOverflow);
        return Some(if too_large { "it is too large" } else { "it must be a whole number, such as 10" }.to_owned());
    }
    if source.is::<AddrParseError>() {
        return Some("it must be an IP address and a port, such as 127.0.0.1:8080".to_owned());
    }
    if source.is::<ParseFloatError>() {
        return Some("it must be a number, such as 1.5".to_owned());
    }
    let said = source.to_string();
    let (_, range) = said.split_once(" is not in ")?;
    let (least, most) = range.split_once("..=")?;
    Some(format!("it must be between {least} and {most}"))
}

/// Of several commands that look similar, the most similar one: clap puts it last.
fn best_guess(error: &mut Error) {
    if let Some(ContextValue::Strings(guesses)) = error.get(ContextKind::SuggestedSubcommand)
        && let Some(best) = guesses.last().cloned()
    {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![best]));
    }
}

/// One thing that clap noted about the mistake.
fn said(error: &Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => texts.first().cloned(),
        _ => None,
    }
}
