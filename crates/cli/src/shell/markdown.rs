//! Every command and flag as one page of Markdown: docs/commands.md is this page.
//!
//! It is made from the definitions that parse the command line, so that it says what is true. Flags that help does not show
//! are named as well: they are those of the originals, for manifests that were written for them.

use std::fmt::Write as _;

use clap::{Arg, Command};

/// The heading of hidden flags that a command uses to call itself.
pub(crate) const INTERNAL: &str = "Internal";

const INTRODUCTION: &str = "\
# Commands

Every command of `orlop` with every flag, as `--help` shows it. This page is made by the program itself:
`orlop man --markdown > docs/commands.md`; a test compares the two.
";

/// The page.
pub(super) fn page(mut command: Command) -> String {
    command.build();
    let mut out = INTRODUCTION.to_owned();
    index(&command, &mut out);
    each(&command, &mut |command| section(command, &mut out));
    out
}

/// All commands that help shows, depth first, without the program itself.
fn each(command: &Command, show: &mut impl FnMut(&Command)) {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help") {
        show(inner);
        each(inner, show);
    }
}

fn name(command: &Command) -> String {
    command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned()
}

fn index(command: &Command, out: &mut String) {
    out.push_str("\n| Command | What it does |\n|---|---|\n");
    each(command, &mut |inner| {
        let (name, about) = (name(inner), inner.get_about().map(ToString::to_string).unwrap_or_default());
        let _ = writeln!(out, "| [`{name}`](#{}) | {} |", name.replace(' ', "-"), in_table(&about));
    });
}

fn section(command: &Command, out: &mut String) {
    let _ = write!(out, "\n## {}\n", name(command));
    let about = command.get_long_about().or(command.get_about());
    if let Some(about) = about {
        let _ = write!(out, "\n{}\n", prose(&about.to_string()));
    }
    let usage = command.clone().render_usage().to_string();
    let _ = write!(out, "\n```text\n{}\n```\n", usage.trim_start_matches("Usage: ").trim());
    let mut headings: Vec<Option<&str>> = Vec::new();
    for argument in shown(command) {
        if !headings.contains(&argument.get_help_heading()) {
            headings.push(argument.get_help_heading());
        }
    }
    headings.sort_by_key(Option::is_some);
    for heading in headings {
        if let Some(heading) = heading {
            let _ = write!(out, "\n**{heading}**\n");
        }
        out.push('\n');
        shown(command).filter(|argument| argument.get_help_heading() == heading).for_each(|one| item(one, out));
    }
    let taken = |one: &&Arg| one.is_hide_set() && one.get_help_heading() != Some(INTERNAL);
    let hidden: Vec<String> = command.get_arguments().filter(taken).map(flag).collect();
    if !hidden.is_empty() {
        let _ = write!(out, "\nAlso taken, for manifests of the originals: {}.\n", hidden.join(", "));
    }
    if let Some(after) = command.get_after_help() {
        let _ = write!(out, "\n```text\n{}\n```\n", after.to_string().trim());
    }
}

/// Arguments that help shows, and that are not the same for every command.
fn shown(command: &Command) -> impl Iterator<Item = &Arg> {
    let own = |one: &&Arg| !one.is_hide_set() && !matches!(one.get_id().as_str(), "help" | "version");
    command.get_arguments().filter(own)
}

fn item(argument: &Arg, out: &mut String) {
    let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let _ = write!(out, "- {}: {}", flag(argument), prose(&help).replace('\n', "\n  "));
    let takes_value = argument.get_action().takes_values();
    let defaults: Vec<String> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    if takes_value && !defaults.is_empty() && !argument.is_hide_default_value_set() && defaults != [""] {
        let _ = write!(out, " Default: `{}`.", defaults.join(","));
    }
    let values = argument.get_possible_values();
    let values: Vec<&str> = values.iter().filter(|value| !value.is_hide_set()).map(|value| value.get_name()).collect();
    if takes_value && !values.is_empty() && !argument.is_hide_possible_values_set() {
        let _ = write!(out, " One of: `{}`.", values.join("`, `"));
    }
    if let Some(variable) = argument.get_env().filter(|_| !argument.is_hide_env_set()) {
        let _ = write!(out, " From the environment: `{}`.", variable.to_string_lossy());
    }
    if argument.is_required_set() {
        out.push_str(" Required.");
    }
    out.push('\n');
}

/// How an argument is written.
fn flag(argument: &Arg) -> String {
    let values: Vec<String> = argument.get_value_names().into_iter().flatten().map(ToString::to_string).collect();
    let value = match argument.get_action().takes_values() {
        true if !values.is_empty() => values.join(" "),
        _ => String::new(),
    };
    let with_value = |spelled: String| match value.as_str() {
        "" => format!("`{spelled}`"),
        // A boolean: there, or with its value in the same word.
        value if argument.is_require_equals_set() => format!("`{spelled}[={value}]`"),
        value => format!("`{spelled} {value}`"),
    };
    match (argument.get_short(), argument.get_long()) {
        (None, None) if value.is_empty() => format!("`{}`", argument.get_id()),
        (None, None) => format!("`{value}`"),
        (Some(short), None) => with_value(format!("-{short}")),
        (None, Some(long)) => with_value(format!("--{long}")),
        (Some(short), Some(long)) => format!("`-{short}`, {}", with_value(format!("--{long}"))),
    }
}

/// Text as Markdown: it ends as a sentence does, and what it says in angle brackets is not taken for HTML.
fn prose(text: &str) -> String {
    let text = text.trim().replace('<', "\\<");
    match text.ends_with(['.', ':', '!', '?', ']']) || text.is_empty() {
        true => text,
        false => format!("{text}."),
    }
}

fn in_table(text: &str) -> String {
    prose(text.lines().next().unwrap_or_default()).replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::Orlop;

    #[test]
    fn every_command_and_every_flag_is_on_the_page() {
        let page = page(Orlop::command());
        let mut command = Orlop::command();
        command.build();
        let mut count = 0;
        each(&command, &mut |command| {
            assert!(page.contains(&format!("\n## {}\n", name(command))), "{}", name(command));
            let told = |one: &&Arg| {
                one.get_id() != "help" && one.get_id() != "version" && one.get_help_heading() != Some(INTERNAL)
            };
            for argument in command.get_arguments().filter(told) {
                assert!(page.contains(&flag(argument)), "{} {}", name(command), flag(argument));
                count += 1;
            }
        });
        assert!(count > 100, "{count}");
    }

    #[test]
    fn a_flag_is_written_as_it_is_typed() {
        let arg = |arg: Arg| flag(&arg);
        assert_eq!(arg(Arg::new("dir").long("dir").value_name("DIR")), "`--dir DIR`");
        assert_eq!(arg(Arg::new("all").long("all").short('A').action(clap::ArgAction::SetTrue)), "`-A`, `--all`");
        assert_eq!(arg(Arg::new("shell").value_name("SHELL")), "`SHELL`");
        let boolean = Arg::new("on").long("on").value_name("BOOL").num_args(0..=1).require_equals(true);
        assert_eq!(arg(boolean), "`--on[=BOOL]`");
    }
}
