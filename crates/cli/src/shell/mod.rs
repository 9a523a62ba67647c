//! What a shell wants of this program: completions, manual pages, and its name as a plugin of kubectl.

mod groups;
mod markdown;

pub(crate) use markdown::INTERNAL;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Command, CommandFactory as _};

use crate::{Orlop, process, usage};

/// What kubectl looks for on the path to run `kubectl orlop`.
const PLUGIN: &str = "kubectl-orlop";

/// Print a script that completes command lines in a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = COMPLETION_EXAMPLES)]
pub(crate) struct CompletionArgs {
    /// The shell.
    shell: clap_complete::Shell,
}

const COMPLETION_EXAMPLES: &str = "\
Examples:
  orlop completion bash > /etc/bash_completion.d/orlop
  orlop completion zsh > \"${fpath[1]}/_orlop\"
  orlop completion fish > ~/.config/fish/completions/orlop.fish";

/// Write manual pages, or all commands as one page of Markdown.
#[derive(Debug, clap::Args)]
#[command(after_help = MAN_EXAMPLES)]
pub(crate) struct ManArgs {
    /// Directory for the pages, made if it does not exist.
    #[arg(long, value_name = "DIR", required_unless_present = "markdown")]
    dir: Option<PathBuf>,
    /// Print one page of Markdown with every command and flag.
    #[arg(long, conflicts_with = "dir")]
    markdown: bool,
}

const MAN_EXAMPLES: &str = "\
Examples:
  orlop man --dir /usr/local/share/man/man1
  orlop man --dir ./man && man -l ./man/orlop-explain.1
  orlop man --markdown > commands.md";

pub(crate) fn completion(args: &CompletionArgs) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Orlop::command(), "orlop", &mut script);
    let script = String::from_utf8_lossy(&script);
    process::ended("completion", crate::cluster::output::write(&script))
}

pub(crate) fn man(args: &ManArgs) -> ExitCode {
    let written = match &args.dir {
        Some(directory) => write_pages(directory),
        None => crate::cluster::output::write(&markdown::page(Orlop::command())),
    };
    process::ended("man", written)
}

/// One page for each command. Those that help does not show have none.
fn write_pages(directory: &Path) -> anyhow::Result<()> {
    usage::make_directory("--dir", directory)?;
    clap_mangen::generate_to(Orlop::command(), directory)
        .with_context(|| format!("writing pages to {}", directory.display()))
}

/// The command line's definition under the name that it was called by: as a plugin of kubectl, help says so.
pub(crate) fn called_by(given: &[OsString]) -> Command {
    let command = Orlop::command();
    let name = given.first().map(Path::new).and_then(Path::file_name);
    match name.and_then(|name| name.to_str()) {
        Some(PLUGIN) => groups::grouped(as_plugin(command).bin_name("kubectl orlop")),
        Some(_) | None => groups::grouped(command),
    }
}

/// Examples are command lines, too.
fn as_plugin(command: Command) -> Command {
    let after = command.get_after_help().map(|help| help.to_string().replace("  orlop ", "  kubectl orlop "));
    let command = match after {
        Some(after) => command.after_help(after),
        None => command,
    };
    command.mut_subcommands(as_plugin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Orlop::command().debug_assert();
    }

    #[test]
    fn as_a_plugin_help_says_kubectl_orlop() {
        let given = [OsString::from("/usr/local/bin/kubectl-orlop")];
        let mut plugin = called_by(&given);
        plugin.build();
        let explain = plugin.find_subcommand_mut("explain").expect("there is such a command");
        let help = explain.render_long_help().to_string();
        assert!(help.contains("Usage: kubectl orlop explain"), "{help}");
        assert!(help.contains("\n  kubectl orlop explain pvc/data\n"), "{help}");
        let own = called_by(&[OsString::from("orlop")]).render_help().to_string();
        assert!(own.contains("Usage: orlop "), "{own}");
    }
}
