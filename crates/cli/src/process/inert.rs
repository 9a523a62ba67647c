//! Flags of the originals that are taken so that their manifests work as they are, and that change nothing here.
//!
//! A table is all there is to such a flag: help shows it under a heading of its own with the reason, and whoever gives it is
//! told the same once, in the log. A value is read as the original reads it, so that a mistyped one is still noticed.

use std::marker::PhantomData;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use runtime::args::parse_duration;

/// The heading in help and in docs/commands.md.
pub(crate) const HEADING: &str = "Accepted, without effect";

/// One such flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flag {
    pub(crate) name: &'static str,
    pub(crate) value: Value,
    /// Why nothing needs it here: the end of a sentence.
    pub(crate) why: &'static str,
}

/// What stands behind the flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    /// Nothing, or `=true` or `=false`.
    Bool,
    Duration,
    /// A number, which may be negative.
    Number,
    /// Anything, by this name.
    Text(&'static str),
}

/// The flags of one command.
pub(crate) trait Table: std::fmt::Debug + Clone {
    const FLAGS: &'static [&'static [Flag]];
}

/// Those of a table's flags that were given.
#[derive(Debug, Clone)]
pub(crate) struct Inert<T> {
    given: Vec<&'static Flag>,
    table: PhantomData<T>,
}

impl<T: Table> Inert<T> {
    /// Says of each flag that was given that it changes nothing.
    pub(crate) fn tell(&self) {
        for Flag { name, why, .. } in &self.given {
            tracing::info!(flag = %format!("--{name}"), %why, "a flag is taken and has no effect");
        }
    }

    fn all() -> impl Iterator<Item = &'static Flag> {
        T::FLAGS.iter().copied().flatten()
    }
}

fn argument(Flag { name, value, why }: &Flag) -> Arg {
    let argument = Arg::new(*name).long(*name).help(*why).help_heading(HEADING).action(ArgAction::Set);
    match value {
        Value::Bool => argument
            .value_name("BOOL")
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .hide_possible_values(true)
            .value_parser(clap::value_parser!(bool)),
        Value::Duration => argument.value_name("DURATION").value_parser(parse_duration),
        Value::Number => argument.value_name("N").allow_negative_numbers(true).value_parser(clap::value_parser!(f64)),
        Value::Text(name) => argument.value_name(*name),
    }
}

impl<T: Table> clap::Args for Inert<T> {
    fn augment_args(command: Command) -> Command {
        command.args(Self::all().map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<T: Table> clap::FromArgMatches for Inert<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |flag: &&Flag| matches.value_source(flag.name) == Some(ValueSource::CommandLine);
        Ok(Self { given: Self::all().filter(given).collect(), table: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;

    #[derive(Debug, Clone)]
    struct Few;

    impl Table for Few {
        const FLAGS: &'static [&'static [Flag]] = &[
            &[
                Flag { name: "profile", value: Value::Bool, why: "there is no profiler" },
                Flag { name: "pause", value: Value::Duration, why: "nothing pauses" },
            ],
            &[Flag { name: "limit", value: Value::Number, why: "nothing is limited" }],
        ];
    }

    fn given(line: &[&str]) -> anyhow::Result<Vec<&'static str>> {
        let found: Inert<Few> = process::flags(line)?;
        Ok(found.given.iter().map(|flag| flag.name).collect())
    }

    #[test]
    fn what_is_given_is_remembered_and_what_is_not_is_not() {
        assert!(given(&[]).unwrap().is_empty());
        assert_eq!(given(&["--profile", "--limit", "-1"]).unwrap(), ["profile", "limit"]);
        assert_eq!(given(&["--pause=10s", "--profile=false"]).unwrap(), ["profile", "pause"]);
    }

    #[test]
    fn a_value_that_the_original_refuses_is_refused() {
        for line in ["--pause=10", "--limit=many", "--profile=perhaps"] {
            assert!(given(&[line]).is_err(), "{line}");
        }
    }

    #[test]
    fn help_says_that_they_do_nothing_and_why() {
        let mut command = <Inert<Few> as clap::Args>::augment_args(Command::new("orlop"));
        let help = command.render_help().to_string();
        assert!(help.contains(&format!("{HEADING}:\n")), "{help}");
        assert!(help.contains("there is no profiler"), "{help}");
    }
}
