//! What may not stand in documents and settings, and what README must offer.

use super::Finding;
use super::tree::File;

/// A folder of the machines this was written on. No reader has it.
const MACHINE_PATH: &str = "/work/";

/// Hosts a document may point at. Anything else (a package registry, somebody's mirror) is the reader's own setting.
const HOSTS: [&str; 13] = [
    "github.com",
    "kubernetes.io",
    "kubernetes-csi.github.io",
    "www.apache.org",
    "keepachangelog.com",
    "semver.org",
    "docs.kernel.org",
    "grpc.io",
    "protobuf.dev",
    "prometheus.io",
    "localhost",
    "127.0.0.1",
    "10.0.0.1",
];

/// How README's first command may start: what a reader types to get a program.
const FIRST_COMMAND: [&str; 3] = ["cargo build", "cargo run", "cargo install --path"];
const TEST_COMMAND: &str = "cargo xtask test";

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| !file.is_rust()) {
        for (at, line) in file.text.lines().enumerate() {
            findings.extend(line_faults(line).into_iter().map(|text| Finding::new(&file.path, at + 1, text)));
        }
    }
    match files.iter().find(|file| file.path == "README.md") {
        Some(readme) => findings.extend(readme_faults(readme)),
        None => findings.push(Finding::new(
            "README.md",
            1,
            "there is no README; say what this is and give its two commands",
        )),
    }
    findings
}

fn line_faults(line: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if line.contains(MACHINE_PATH) {
        faults
            .push(format!("`{MACHINE_PATH}` is a folder of one machine; write a path from the root of the repository"));
    }
    for (at, mark) in line.match_indices("://") {
        let before = &line[..at];
        let host: String = line[at + mark.len()..].chars().take_while(|letter| is_host(*letter)).collect();
        if (before.ends_with("http") || before.ends_with("https"))
            && !host.is_empty()
            && !HOSTS.contains(&host.as_str())
        {
            faults.push(format!("the host {host} is not one that documents may name; say it in words, or add it to xtask/src/tidy/documents.rs"));
        }
    }
    faults
}

fn is_host(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-')
}

fn readme_faults(readme: &File) -> Vec<Finding> {
    let commands = fenced(&readme.text);
    let mut faults = Vec::new();
    if !commands.iter().any(|line| FIRST_COMMAND.iter().any(|start| line.starts_with(start))) {
        let text = format!(
            "no fenced block has a line that starts with one of {FIRST_COMMAND:?}; show how to get the program"
        );
        faults.push(Finding::new(&readme.path, 1, text));
    }
    if !commands.contains(&TEST_COMMAND) {
        faults.push(Finding::new(
            &readme.path,
            1,
            format!("no fenced block has the line `{TEST_COMMAND}`; show how to test"),
        ));
    }
    faults
}

/// The lines inside fenced blocks, without a leading `$ `.
fn fenced(text: &str) -> Vec<&str> {
    let mut inside = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if inside {
            let line = line.trim();
            lines.push(line.strip_prefix("$ ").unwrap_or(line));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<File> =
            files.iter().map(|(path, text)| File { path: (*path).into(), text: (*text).into() }).collect();
        check(&files).iter().map(|finding| format!("{}:{}", finding.file, finding.line)).collect()
    }

    const README: (&str, &str) = ("README.md", "# x\n```sh\ncargo build --release\n$ cargo xtask test\n```\n");

    #[test]
    fn a_readme_with_both_commands_is_fine() {
        assert_eq!(report(&[README]), [""; 0]);
    }

    #[test]
    fn a_missing_readme_and_missing_commands_are_found() {
        assert_eq!(report(&[]), ["README.md:1"]);
        assert_eq!(report(&[("README.md", "cargo build\ncargo xtask test\n")]), ["README.md:1", "README.md:1"]);
    }

    #[test]
    fn machine_paths_and_foreign_hosts_are_found() {
        let page =
            ("docs/a.md", "ok\nsee /work/x\nhttps://registry.invalid/x and https://github.com/x\nunix:///run/x.sock\n");
        assert_eq!(report(&[README, page]), ["docs/a.md:2", "docs/a.md:3"]);
    }
}
