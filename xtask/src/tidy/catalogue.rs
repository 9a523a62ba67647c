//! The behaviour catalogue, `docs/behaviour`: each rule that is cited in code, tests or documents has one id and one
//! anchor.
//!
//! An id is the prefix of its page and a rule of it, such as `BIND-U9` and `NODE-30.9`. Its anchor on the page is the
//! id in lower case with `-` for `.`, directly before the id: `<a id="node-30-9"></a>NODE-30.9`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::Finding;
use super::tree::File;

const FOLDER: &str = "docs/behaviour/";

/// The page that lists the others. It has no rules of its own.
const INDEX: &str = "README.md";

/// The prefix of the ids of each page. A prefix belongs to one page.
const PAGES: [(&str, &str); 17] = [
    ("API", "api.md"),
    ("ATTACH", "attaching.md"),
    ("ATTACHER", "attacher.md"),
    ("BIND", "binding.md"),
    ("CTRL", "controllers.md"),
    ("CURRENT", "current.md"),
    ("EXPAND", "expanding.md"),
    ("LOCAL", "local-driver.md"),
    ("MIGRATE", "migration.md"),
    ("NODE", "node.md"),
    ("PROTECT", "protection.md"),
    ("PROVISION", "provisioning.md"),
    ("SCHED", "scheduling.md"),
    ("SIDECAR", "sidecars.md"),
    ("SNAPSHOT", "snapshots.md"),
    ("STORAGE", "storage.md"),
    ("WIRE", "wire.md"),
];

const ANCHOR_START: &str = "<a id=\"";
const ANCHOR_END: &str = "\"></a>";

/// The tests in this file cite rules that do not exist.
const THIS_FILE: &str = "xtask/src/tidy/catalogue.rs";

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let (rules, mut findings) = read_pages(files);
    for file in files.iter().filter(|file| file.path != THIS_FILE) {
        for (at, line) in file.text.lines().enumerate() {
            for id in citations(line).into_iter().filter(|id| !rules.contains_key(id)) {
                let text = format!("{id} is cited, but {FOLDER} has no rule with this id; correct the citation");
                findings.push(Finding::new(&file.path, at + 1, text));
            }
            if let Some(text) = rule_line(line).filter(|_| file.is_rust()).and_then(|line| line.fault()) {
                findings.push(Finding::new(&file.path, at + 1, text));
            }
        }
    }
    findings
}

/// For each page: the number of its rules, and how many of them the tests cite.
pub(super) fn coverage(files: &[File]) -> String {
    let (rules, _) = read_pages(files);
    let mut cited = BTreeSet::new();
    for file in files.iter().filter(|file| file.is_rust() && file.path != THIS_FILE) {
        cited.extend(file.text.lines().filter_map(rule_line).flat_map(|line| line.ids));
    }
    let mut text = String::from("rules of docs/behaviour, and those that a test cites:\n");
    for (prefix, page) in PAGES {
        let of_page = || rules.keys().filter(move |id| id.split('-').next() == Some(prefix));
        let proven = of_page().filter(|id| cited.contains(**id)).count();
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {page:16} {:5} {proven:5}", of_page().count());
    }
    text
}

/// The rules of all pages by id, with the place of their anchors, and the mistakes on the pages.
fn read_pages(files: &[File]) -> (BTreeMap<&str, String>, Vec<Finding>) {
    let mut rules = BTreeMap::new();
    let mut findings = Vec::new();
    for file in files {
        let Some(page) = file.path.strip_prefix(FOLDER).filter(|page| *page != INDEX) else { continue };
        let Some((prefix, _)) = PAGES.iter().find(|(_, name)| *name == page) else {
            let text = format!("the page has no prefix; add it to the table in {THIS_FILE}");
            findings.push(Finding::new(&file.path, 1, text));
            continue;
        };
        for Anchor { line, name, id } in anchors(&file.text) {
            let mut found = |text: String| findings.push(Finding::new(&file.path, line, text));
            if name != anchor_name(id) {
                found(format!("the anchor `{name}` stands before `{id}`; it has to be `{}`", anchor_name(id)));
            } else if !citations(id).contains(&id) || !id.starts_with(&format!("{prefix}-")) {
                found(format!("`{id}` is no id of this page; its ids are `{prefix}-` and a letter or a number"));
            } else if let Some(place) = rules.get(id) {
                found(format!("{id} is defined at {place}, too; an id has one place"));
            } else {
                rules.insert(id, format!("{}:{line}", file.path));
            }
        }
    }
    (rules, findings)
}

/// An anchor of a page, and the id that follows it.
struct Anchor<'t> {
    line: usize,
    name: &'t str,
    id: &'t str,
}

fn anchors(text: &str) -> Vec<Anchor<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut anchors = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        for (start, _) in line.match_indices(ANCHOR_START) {
            let Some((name, rest)) = line[start + ANCHOR_START.len()..].split_once(ANCHOR_END) else { continue };
            // An anchor that ends its line belongs to the next line with text, which is a heading.
            let following = lines[at + 1..].iter().copied();
            let shown = std::iter::once(rest).chain(following).find(|line| !line.trim().is_empty()).unwrap_or_default();
            let id = leading_id(shown.trim_start_matches(['#', '*', '`', ' ']));
            anchors.push(Anchor { line: at + 1, name, id });
        }
    }
    anchors
}

fn anchor_name(id: &str) -> String {
    id.to_ascii_lowercase().replace('.', "-")
}

/// The ids in a line: a prefix of the table, `-`, and a rule, which has a digit or is one capital letter.
fn citations(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices('-') {
        let outside = line[..at].trim_end_matches(|letter: char| letter.is_ascii_uppercase());
        let prefix = &line[outside.len()..at];
        let goes_on = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-');
        if outside.ends_with(goes_on) || !PAGES.iter().any(|(known, _)| *known == prefix) {
            continue;
        }
        let id = leading_id(&line[outside.len()..]);
        if id.get(prefix.len() + 1..).is_some_and(is_rule) {
            found.push(id);
        }
    }
    found
}

fn is_rule(text: &str) -> bool {
    let opens = text.starts_with(|letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit());
    opens && (text.len() == 1 || text.contains(|letter: char| letter.is_ascii_digit()))
}

/// Letters and digits in parts that a single `.` or `-` joins. A range such as `BIND-W1..BIND-W4` is two ids.
fn leading_id(text: &str) -> &str {
    let mut end = 0;
    for (at, letter) in text.char_indices() {
        if letter.is_ascii_alphanumeric() {
            end = at + 1;
        } else if !matches!(letter, '.' | '-') || end != at {
            break;
        }
    }
    &text[..end]
}

/// A line of documentation that names the rules which a test proves: `/// Rules: BIND-U9, CTRL-14.4`.
struct RuleLine<'t> {
    says_several: bool,
    ids: Vec<&'t str>,
}

fn rule_line(line: &str) -> Option<RuleLine<'_>> {
    let line = line.trim_start();
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?.trim_start();
    let one = text.strip_prefix("Rule:");
    let list = one.or_else(|| text.strip_prefix("Rules:"))?;
    Some(RuleLine { says_several: one.is_none(), ids: list.split(',').map(str::trim).collect() })
}

impl RuleLine<'_> {
    /// What is wrong with the line, apart from ids that no page has.
    fn fault(&self) -> Option<String> {
        if let Some(other) = self.ids.iter().find(|id| citations(id) != [**id]) {
            return Some(format!("`{other}` is no id; the line has ids only, as in `/// Rules: BIND-U9, CTRL-14.4`"));
        }
        match (self.says_several, self.ids.len()) {
            (false, 1) | (true, 2..) => None,
            (false, _) => Some("the line has several ids; begin it with `Rules:`".to_owned()),
            (true, _) => Some("the line has one id; begin it with `Rule:`".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINDING: &str = "# Binding\n\n<a id=\"bind-4-7\"></a>\n\n## BIND-4.7 Matching\n\n\
                           - <a id=\"bind-4-7-15\"></a>BIND-4.7.15: a\n\n| id | rule |\n|---|---|\n\
                           | <a id=\"bind-u9\"></a>BIND-U9 | a |\n| <a id=\"bind-v9b\"></a>BIND-V9b | b |\n";

    fn files(others: &[(&str, &str)]) -> Vec<File> {
        let page = std::iter::once(&("docs/behaviour/binding.md", BINDING));
        page.chain(others).map(|(path, text)| File { path: (*path).into(), text: (*text).into() }).collect()
    }

    fn report(others: &[(&str, &str)]) -> Vec<String> {
        check(&files(others)).iter().map(|finding| format!("{}:{}", finding.file, finding.line)).collect()
    }

    const NOTHING: [&str; 0] = [];

    #[test]
    fn ids_of_headings_items_and_rows_can_be_cited() {
        let code = "//! BIND-4.7, (BIND-4.7.15) and `BIND-U9`.\nassert!(ok, \"BIND-V9b: {text}\");\n";
        assert_eq!(report(&[("crates/a/src/lib.rs", code)]), NOTHING);
    }

    #[test]
    fn an_id_that_no_page_has_is_found_in_code_documents_and_scripts() {
        let places = [
            ("crates/a/src/lib.rs", "// BIND-U9\n// BIND-U99\n"),
            ("docs/a.md", "BIND-4.7.16\n"),
            ("tests/a.py", "# API-C001\n"),
        ];
        assert_eq!(report(&places), ["crates/a/src/lib.rs:2", "docs/a.md:1", "tests/a.py:1"]);
    }

    #[test]
    fn other_words_with_a_dash_are_no_citations() {
        let text = "API-server API-level X-BIND-U99 my_BIND-U99 NODE-ID BINDING-9 BIND- CTRL-click API-%";
        assert_eq!(citations(text), NOTHING);
    }

    #[test]
    fn an_id_ends_where_its_sentence_goes_on() {
        let text = "BIND-U9's, BIND-4.7. BIND-W1..BIND-W4, BIND-V1/BIND-V2 CURRENT-K137-54: `WIRE-A`; ATTACHER-3.6.5-";
        let expected = [
            "BIND-U9",
            "BIND-4.7",
            "BIND-W1",
            "BIND-W4",
            "BIND-V1",
            "BIND-V2",
            "CURRENT-K137-54",
            "WIRE-A",
            "ATTACHER-3.6.5",
        ];
        assert_eq!(citations(text), expected);
    }

    #[test]
    fn an_anchor_is_its_id_in_lower_case_with_dashes() {
        let wrong = "<a id=\"api-4.2\"></a>API-4.2\n<a id=\"api-c2\"></a>API-C1\n<a id=\"api-k1\"></a>\n";
        assert_eq!(
            report(&[("docs/behaviour/api.md", wrong)]),
            ["docs/behaviour/api.md:1", "docs/behaviour/api.md:2", "docs/behaviour/api.md:3"]
                .into_iter()
                // The two ids that have no anchor are not defined either.
                .chain(["docs/behaviour/api.md:1", "docs/behaviour/api.md:2"])
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn an_id_has_one_place_on_the_page_of_its_prefix() {
        let twice = "<a id=\"api-1\"></a>API-1\n<a id=\"api-1\"></a>API-1\n";
        assert_eq!(report(&[("docs/behaviour/api.md", twice)]), ["docs/behaviour/api.md:2"]);
        let elsewhere = "<a id=\"bind-u1\"></a>BIND-U1\n";
        let found = report(&[("docs/behaviour/api.md", elsewhere)]);
        assert_eq!(found, ["docs/behaviour/api.md:1", "docs/behaviour/api.md:1"]);
        assert_eq!(report(&[("docs/behaviour/novelty.md", "")]), ["docs/behaviour/novelty.md:1"]);
        assert_eq!(report(&[("docs/behaviour/README.md", "BIND-U9 is on [its page](binding.md).")]), NOTHING);
    }

    #[test]
    fn a_rule_line_has_ids_only_and_counts_them() {
        let fault = |line: &str| rule_line(line).and_then(|line| line.fault()).is_some();
        let good = [
            "/// Rule: BIND-U9",
            "    /// Rules: BIND-U9, BIND-4.7",
            "//! Rule: BIND-U99",
            "/// The rule: x",
            "// Rule: x",
        ];
        for line in good {
            assert!(!fault(line), "{line}");
        }
        let bad =
            ["/// Rule: BIND-U9.", "/// Rule: U9", "/// Rules: BIND-U9", "/// Rule: BIND-U9, BIND-4.7", "/// Rule:"];
        for line in bad {
            assert!(fault(line), "{line}");
        }
        assert_eq!(report(&[("crates/a/src/lib.rs", "/// Rule: BIND-U9 and more\n")]), ["crates/a/src/lib.rs:1"]);
    }

    #[test]
    fn rules_that_tests_cite_are_counted() {
        let text = coverage(&files(&[("crates/a/src/lib.rs", "/// Rules: BIND-U9, BIND-4.7\n// BIND-V9b\n")]));
        assert!(text.lines().any(|line| line.split_whitespace().eq(["binding.md", "4", "2"])), "{text}");
    }
}
