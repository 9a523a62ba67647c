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

/// Words as a shell sees them, up to what is no longer this command.
fn words_of(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for letter in line.chars() {
        match (letter, quote) {
            ('|' | '>' | '&' | '#' | ';', None) => break,
            (letter, Some(open)) if letter == open => quote = None,
            ('\'' | '"', None) => quote = Some(letter),
            (' ', None) => words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty())),
            (letter, _) => word.push(letter),
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

/// The command lines of this program in the blocks of a document.
fn typed_in(document: &str) -> Vec<Vec<String>> {
    let mut block = None;
    let mut lines = Vec::new();
    for line in document.replace("\\\n", " ").lines() {
        match (line.trim_start().strip_prefix("```"), block) {
            (Some(kind), None) => block = Some(kind.starts_with("sh") || kind == "text"),
            (Some(_), Some(_)) => block = None,
            (None, Some(true)) => lines.push(line.trim().trim_start_matches("$ ").to_owned()),
            (None, _) => {}
        }
    }
    let typed = |line: String| {
        let words = words_of(&line);
        let is_setting = |word: &String| word.contains('=') && !word.starts_with('-');
        let words: Vec<String> = words.into_iter().skip_while(is_setting).collect();
        let ours = words.first().is_some_and(|word| word == "orlop" || word.ends_with("/orlop"));
        // A usage line, or what the program says.
        let is_form = |word: &String| word.contains(['[', '<']) || word.ends_with(':');
        (ours && words.len() > 1 && !words.iter().any(is_form)).then_some(words)
    };
    lines.into_iter().filter_map(typed).collect()
}

#[test]
fn every_command_line_in_the_documents_is_understood() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = std::fs::read_dir(root.join("docs")).expect("there are docs").flatten().map(|entry| entry.path());
    let pages = docs.filter(|path| path.extension().is_some_and(|kind| kind == "md"));
    let (mut seen, mut wrong) = (0, Vec::new());
    for page in pages.chain([root.join("README.md"), root.join("CONTRIBUTING.md")]) {
        let text = std::fs::read_to_string(&page).expect("a page can be read");
        for line in typed_in(&text) {
            seen += 1;
            if let Err(error) = Orlop::command().try_get_matches_from(&line)
                && error.exit_code() != 0
            {
                wrong.push(format!("{}: {}\n{error}", page.display(), line.join(" ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 80, "only {seen} command lines were found");
}
