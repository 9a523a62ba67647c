//! The commands in help, by what somebody wants to do: a list of thirty in the order of their making helps nobody.

use std::fmt::Write as _;

use clap::Command;

const GROUPS: [(&str, &[&str]); 7] = [
    ("Start here", &["demo", "up", "config"]),
    ("Look at it, on any cluster", &["tree", "explain", "top", "orphans", "page"]),
    ("Use a claim on this machine", &["mount", "umount"]),
    (
        "Single parts, beside Kubernetes or in the place of its own",
        &["controllers", "scheduler", "sidecar", "registrar", "livenessprobe", "node", "token"],
    ),
    ("Drivers", &["driver", "csi"]),
    ("The embedded API and its data", &["api", "backup", "restore", "check", "salvage"]),
    ("Tools", &["bench", "completion", "man"]),
];

/// The program with its commands in groups.
pub(super) fn grouped(command: Command) -> Command {
    let header = *command.get_styles().get_header();
    let literal = *command.get_styles().get_literal();
    let widest = command.get_subcommands().map(|inner| inner.get_name().len()).max().unwrap_or_default();
    let mut listed = String::new();
    for (title, names) in GROUPS {
        let _ = writeln!(listed, "{header}{title}:{header:#}");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(listed, "  {literal}{name:<widest$}{literal:#}  {about}");
        }
        listed.push('\n');
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{listed}{header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    let program = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    command.help_template(template).after_help(format!("'{program} COMMAND --help' has the flags and examples of one."))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::Orlop;

    #[test]
    fn every_command_that_help_shows_is_in_one_group() {
        let command = Orlop::command();
        let shown = command.get_subcommands().filter(|inner| !inner.is_hide_set()).map(Command::get_name);
        let mut shown: Vec<&str> = shown.collect();
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        shown.sort_unstable();
        listed.sort_unstable();
        assert_eq!(shown, listed);
    }

    #[test]
    fn each_command_is_one_line_of_help() {
        let help = grouped(Orlop::command()).render_help().to_string();
        for line in help.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
        assert!(help.contains("\nStart here:\n  demo "), "{help}");
        assert!(help.contains("\nOptions:\n  -h, --help"), "{help}");
    }
}
