//! Words and names that do not belong in this code: unfinished work, hidden tests, sleeping, drawers, `unsafe`.

use super::Finding;
use super::source::Source;
use super::tree::File;

/// The one audited module of the program that may talk to the kernel without the type system's help.
const UNSAFE_HOME: &str = "crates/linux/src/ioctl.rs";

/// The one file of a test that may: it seeds the hash maps of a dependency, which takes a function of the C library.
const UNSAFE_TEST: &str = "crates/sim/tests/simulated_day/entropy.rs";

/// Where sleeping is the only way, because the kernel offers no event to wait for: bounded, and said why there.
const SLEEP_HOMES: [&str; 2] = ["crates/csi/src/listen/claim.rs", "crates/linux/src/patience.rs"];

/// What is banned, and what to do about it.
const WORDS: [(&str, &str); 5] = [
    ("todo!", "unfinished work; finish it or leave it out"),
    ("unimplemented!", "unfinished work; split the trait so that there is nothing to leave out"),
    ("dbg!", "debugging left behind; use tracing"),
    ("#[ignore", "a hidden test is no test; make it run, or detect what is missing and report a skip"),
    ("thread::sleep", "sleeping hides a race; wait for the event, or use the runtime's time, which tests can own"),
];

/// Names of modules that collect what has no home.
const DRAWERS: [&str; 6] = ["util", "utils", "common", "helper", "helpers", "misc"];

pub(super) fn check(file: &File, source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, line) in source.code.lines().enumerate() {
        for (word, advice) in WORDS.iter().filter(|(word, _)| has_word(line, word)) {
            if *word == "thread::sleep" && SLEEP_HOMES.contains(&file.path.as_str()) {
                continue;
            }
            findings.push(Finding::new(&file.path, at + 1, format!("`{word}`: {advice}")));
        }
        if ![UNSAFE_HOME, UNSAFE_TEST].contains(&file.path.as_str()) && has_word(line, "unsafe") {
            let text = format!("`unsafe` outside the audited module; put it into {UNSAFE_HOME} or use a safe crate");
            findings.push(Finding::new(&file.path, at + 1, text));
        }
    }
    if let Some(drawer) = drawer(&file.path) {
        let text = format!("a module called `{drawer}` collects what has no home; name it after what it does");
        findings.push(Finding::new(&file.path, 1, text));
    }
    findings
}

/// Does `word` stand in the line, and not as a part of a longer name?
pub(super) fn has_word(line: &str, word: &str) -> bool {
    let in_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let opens = word.starts_with(in_name) && before.is_some_and(in_name);
        let goes_on = word.ends_with(in_name) && after.is_some_and(in_name);
        !opens && !goes_on
    })
}

fn drawer(path: &str) -> Option<&str> {
    let mut parts = path.split('/').map(|part| part.strip_suffix(".rs").unwrap_or(part));
    parts.find(|part| DRAWERS.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        let file = File { path: path.into(), text: text.into() };
        check(&file, &super::super::source::read(text)).iter().map(|finding| finding.line).collect()
    }

    const NOTHING: [usize; 0] = [];

    #[test]
    fn unfinished_work_is_found_in_code_and_not_in_text() {
        let text = "todo!();\nunimplemented!();\ndbg!(x);\n#[ignore]\nstd::thread::sleep(d);\n// todo!()\n\"dbg!(\"";
        assert_eq!(found("crates/a/src/lib.rs", text), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn longer_names_are_not_the_banned_word() {
        assert_eq!(found("crates/a/src/lib.rs", "deny(unsafe_code); my_todo!(); #[ignored_any]"), NOTHING);
    }

    #[test]
    fn unsafe_has_one_home() {
        assert_eq!(found("crates/linux/src/ioctl.rs", "unsafe { x() }"), NOTHING);
        assert_eq!(found("crates/csi/src/ioctl.rs", "\nunsafe { x() }"), [2]);
    }

    #[test]
    fn drawers_are_found_as_file_and_as_folder() {
        assert_eq!(found("crates/a/src/util.rs", ""), [1]);
        assert_eq!(found("crates/a/src/helpers/mod.rs", ""), [1]);
        assert_eq!(found("crates/a/src/utility.rs", ""), NOTHING);
    }
}
