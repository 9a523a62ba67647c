//! Metadata keys are declared once, with their type, in a file of their own.
//!
//! This file is called `keys.rs` because it has to hold the forbidden text itself.

use super::Finding;
use super::source::Source;
use super::tree::File;

const FORBIDDEN: [&str; 2] = ["kubernetes.io/", "csi.storage.k8s.io/"];
/// Files whose purpose is to hold keys: declarations, and the list of keys whose values are secret.
const HOMES: [&str; 2] = ["keys.rs", "redact.rs"];
/// Tests of the API server write keys as its clients do: what they check is the text on the wire.
const WIRE_TESTS: &str = "crates/apiserver/";
/// The fuzzer writes whatever it can think of.
const FUZZER: &str = "fuzz/";

pub(super) fn check(file: &File, source: &Source) -> Vec<Finding> {
    let wire_test =
        file.path.starts_with(WIRE_TESTS) && (file.path.contains("/tests/") || file.path.ends_with("tests.rs"));
    if wire_test || file.path.starts_with(FUZZER) || HOMES.contains(&file.name()) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for literal in &source.literals {
        if let Some(part) = FORBIDDEN.iter().find(|part| literal.text.contains(**part)) {
            let text = format!(
                "a key literal holding {part:?}: a key written twice drifts apart; declare it in the crate's keys.rs and use it from there"
            );
            findings.push(Finding::new(&file.path, literal.line, text));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let file = File { path: path.into(), text: text.into() };
        check(&file, &super::super::source::read(text)).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_key_outside_its_home_is_found_and_a_comment_is_not() {
        let text = "// pv.kubernetes.io/x\nlet a = \"csi.storage.k8s.io/fstype\";\nlet b = r\"pv.kubernetes.io/y\";";
        assert_eq!(lines("crates/a/src/lib.rs", text), [2, 3]);
    }

    #[test]
    fn keys_and_redact_are_the_homes_of_keys() {
        assert_eq!(lines("crates/a/src/keys.rs", "\"csi.storage.k8s.io/fstype\""), [0_usize; 0]);
        assert_eq!(lines("crates/csi/src/redact.rs", "\"csi.storage.k8s.io/fstype\""), [0_usize; 0]);
        assert_eq!(lines("crates/csi/src/monkeys.rs", "\"csi.storage.k8s.io/fstype\""), [1]);
    }
}
