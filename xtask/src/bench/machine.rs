//! What the numbers were measured on and with.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::report::Table;

/// Machine, date and versions, without anything that names this very machine.
pub(super) fn describe(orlop: &Path, peers: &[(&str, String)]) -> String {
    let mut table = Table::new(&["measured on", ""]);
    let mut row = |name: &str, value: String| table.row(&[name.to_owned(), value]);
    let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    row("processor", format!("{} ({cpus} cores)", field("/proc/cpuinfo", "model name")));
    row("memory", field("/proc/meminfo", "MemTotal"));
    row("kernel", rustix::system::uname().release().to_string_lossy().into_owned());
    row("disk", said("stat", &["-f", "-c", "%T", &crate::target().display().to_string()]));
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    row("load", load.split_whitespace().take(3).collect::<Vec<_>>().join(" "));
    row("date", said("date", &["-u", "+%Y-%m-%d"]));
    row("orlop", said(&orlop.display().to_string(), &["--version"]));
    row("rustc", said("rustc", &["--version"]));
    for (name, version) in peers {
        row(name, version.clone());
    }
    table.text()
}

/// What programs say of their version, without where they are.
pub(super) fn versions<'a>(
    programs: impl IntoIterator<Item = (&'static str, &'a Path)>,
) -> Vec<(&'static str, String)> {
    let version = |program: &Path| {
        let path = program.display().to_string();
        let said = said(&path, &["--version"]);
        // Some begin with the path they were started by, which is this machine's business.
        said.lines().next().unwrap_or_default().replace(&path, "").trim().to_owned()
    };
    programs.into_iter().map(|(name, program)| (name, version(program))).collect()
}

pub(super) fn said(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_else(|_| "unknown".to_owned())
}

fn field(file: &str, name: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
    line.unwrap_or("unknown").trim().to_owned()
}
