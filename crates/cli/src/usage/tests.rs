//! What is advised exists.

use clap::CommandFactory as _;

use super::*;
use crate::Orlop;

/// The command lines that a tip quotes, such as `orlop up --data DIR`.
fn quoted(tip: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = tip.split('\'').filter(|part| part.starts_with("orlop "));
    lines.map(|line| line.split_whitespace().skip(1).collect())
}

#[test]
fn every_command_that_a_tip_names_exists_with_its_flags() {
    let mut seen = 0;
    for tip in words::tips() {
        for line in quoted(tip) {
            let mut here = Orlop::command();
            for word in line.iter().take_while(|word| word.starts_with(|letter: char| letter.is_ascii_lowercase())) {
                match here.find_subcommand(word) {
                    Some(below) => here = below.clone(),
                    None => assert!(word.contains('/'), "{tip}: there is no {word}"),
                }
            }
            for flag in line.iter().filter_map(|word| word.strip_prefix("--")).filter(|flag| *flag != "version") {
                let has = here.get_arguments().any(|argument| argument.get_long() == Some(flag));
                assert!(has, "{tip}: {} has no --{flag}", here.get_name());
            }
            seen += 1;
        }
    }
    assert!(seen > 15, "only {seen} command lines were found in the tips");
}

#[test]
fn as_a_plugin_tips_and_help_are_kubectls() {
    let line: Vec<OsString> = ["kubectl-orlop", "status"].map(OsString::from).into();
    let mut command = crate::shell::called_by(&line);
    let error = command.try_get_matches_from_mut(&line).expect_err("there is no such command");
    let text = text(error, &mut command, &line);
    assert!(text.contains("tip: 'kubectl orlop tree' shows"), "{text}");
    assert!(text.contains("try 'kubectl orlop --help'"), "{text}");
}
