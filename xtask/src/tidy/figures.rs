//! `cargo xtask tidy --report`: how the production code reads, in numbers, to be compared before and after a change.
//!
//! Production code is `src` of the crates and of `xtask`, without generated files, files of tests, and items that only
//! tests have (`#[cfg(test)]`). Types are structs, enums, unions, traits, and aliases outside of traits and their
//! implementations. A name of one word has no capital letter after its first, or nothing but capitals.

use std::collections::{BTreeMap, BTreeSet};

use super::banned::has_word;
use super::source;
use super::tree::File;

const TEST_MARKS: [&str; 2] = ["#[cfg(test)]", "#[cfg(all(test,"];
const TEST_FILE_MARK: &str = "#![cfg(test)]";
const TYPE_KEYWORDS: [&str; 5] = ["struct ", "enum ", "union ", "trait ", "unsafe trait "];
const VAGUE_WORDS: [&str; 2] = ["nobody", "somebody"];
/// How a reconcile loop begins that is written by hand.
const HAND_WRITTEN_LOOP: &str = "in 0..ROUNDS";

/// "nb": of lines that are not blank.
const HEADER: &str = "\
production code    lines  lines nb  types  per 1000  1000 nb    shared  one word  \"What..\"  somebody  loops
";

/// What is counted in one crate, or in all.
#[derive(Default)]
struct CodeFigures {
    lines: usize,
    /// Lines that are not blank.
    text_lines: usize,
    type_names: Vec<String>,
    /// Comment lines that begin with "What".
    what_comments: usize,
    vague_lines: usize,
    loops: usize,
}

pub(super) fn report(files: &[File]) -> String {
    let mut crates: BTreeMap<&str, CodeFigures> = BTreeMap::new();
    let sources: Vec<&File> = files.iter().filter(|file| file.is_rust() && crate_of(&file.path).is_some()).collect();
    let test_modules: BTreeSet<String> = sources.iter().flat_map(|file| test_modules(file)).collect();
    for file in sources.into_iter().filter(|file| !is_test(&file.path, &test_modules)) {
        if let Some(name) = crate_of(&file.path) {
            count(&file.text, crates.entry(name).or_default());
        }
    }
    let mut uses: BTreeMap<&str, usize> = BTreeMap::new();
    for name in crates.values().flat_map(|figures| &figures.type_names) {
        *uses.entry(name).or_default() += 1;
    }
    let mut all = CodeFigures::default();
    let mut text = HEADER.to_owned();
    for (name, figures) in &crates {
        text.push_str(&row(name, figures, &uses));
        all.add(figures);
    }
    text.push_str(&row("all", &all, &uses));
    text
}

fn row(name: &str, figures: &CodeFigures, uses: &BTreeMap<&str, usize>) -> String {
    let CodeFigures { lines, text_lines, type_names, what_comments, vague_lines, loops } = figures;
    let types = type_names.len();
    let shared = type_names.iter().filter(|name| uses.get(name.as_str()).is_some_and(|count| *count > 1)).count();
    let single = type_names.iter().filter(|name| is_one_word(name)).count();
    let rates = format!("{:9.1} {:8.1}", share(types, *lines) * 10.0, share(types, *text_lines) * 10.0);
    let names = format!("{:7.1} % {:7.1} %", share(shared, types), share(single, types));
    let comments = format!("{what_comments:9} {vague_lines:9} {loops:6}");
    format!("{name:15} {lines:8} {text_lines:9} {types:6} {rates} {names} {comments}\n")
}

/// In percent; nothing of nothing is nothing.
fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

impl CodeFigures {
    fn add(&mut self, other: &Self) {
        self.lines += other.lines;
        self.text_lines += other.text_lines;
        self.type_names.extend_from_slice(&other.type_names);
        self.what_comments += other.what_comments;
        self.vague_lines += other.vague_lines;
        self.loops += other.loops;
    }
}

/// The crate that a file of production code is part of, by its folder.
fn crate_of(path: &str) -> Option<&str> {
    if path.starts_with("xtask/src/") {
        return Some("xtask");
    }
    let (name, inside) = path.strip_prefix("crates/")?.split_once('/')?;
    inside.starts_with("src/").then_some(name)
}

/// Whether only tests have a file: by its name, by its folder, or because its parent declares it so.
fn is_test(path: &str, test_modules: &BTreeSet<String>) -> bool {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let by_name = path.contains("/tests/") || stem.ends_with("/tests") || stem.ends_with("_tests");
    by_name
        || test_modules.iter().any(|module| {
            stem.strip_prefix(module.as_str()).is_some_and(|rest| matches!(rest.chars().next(), None | Some('/')))
        })
}

/// The modules in other files that a file declares for tests only, as paths without `.rs`.
fn test_modules(file: &File) -> Vec<String> {
    let stem = file.path.strip_suffix(".rs").unwrap_or(&file.path);
    let folder = match stem.rsplit_once('/') {
        Some((folder, "mod" | "lib" | "main")) => folder,
        _ => stem,
    };
    let items = test_items(&source::read(&file.text).code);
    items.into_iter().filter_map(|item| item.module).map(|name| format!("{folder}/{name}")).collect()
}

/// An item that only tests have.
#[derive(Debug, PartialEq, Eq)]
struct TestItem {
    /// Its first and its last line, from zero.
    first_line: usize,
    last_line: usize,
    /// Its name, if it is a module in another file.
    module: Option<String>,
}

fn test_items(code: &str) -> Vec<TestItem> {
    let line_of = |at: usize| code[..at].matches('\n').count();
    let mut items = Vec::new();
    let mut from = 0;
    while let Some(found) = TEST_MARKS.iter().filter_map(|mark| code[from..].find(*mark)).min() {
        let mark = from + found;
        let start = mark + attributes_end(&code[mark..]);
        let end = start + item_end(&code[start..]);
        let module = code[start..end].strip_suffix(';').and_then(|item| item.rsplit_once("mod "));
        items.push(TestItem {
            first_line: line_of(mark),
            last_line: line_of(end),
            module: module.map(|(_, name)| name.trim().to_owned()),
        });
        from = end;
    }
    items
}

/// Where the attributes at the start of a text end, and the item begins.
fn attributes_end(code: &str) -> usize {
    let mut at = 0;
    loop {
        at += code[at..].len() - code[at..].trim_start().len();
        if !code[at..].starts_with("#[") {
            return at;
        }
        let mut depth = 0_usize;
        for (ahead, letter) in code[at..].char_indices() {
            match letter {
                '[' => depth += 1,
                ']' => depth -= 1,
                _ => continue,
            }
            if depth == 0 {
                at += ahead + 1;
                break;
            }
        }
        if depth > 0 {
            return code.len();
        }
    }
}

/// Where an item ends: behind its body or its `;`, or before the end of what it is in.
fn item_end(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, letter) in code.char_indices() {
        match letter {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' if depth == 0 => return at,
            '}' if depth == 1 => return at + 1,
            '}' | ')' | ']' => depth -= 1,
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

fn count(text: &str, figures: &mut CodeFigures) {
    let code = source::read(text).code;
    if code.contains(TEST_FILE_MARK) {
        return;
    }
    let tests = test_items(&code);
    for (at, (line, code)) in text.lines().zip(code.lines()).enumerate() {
        if tests.iter().any(|item| (item.first_line..=item.last_line).contains(&at)) {
            continue;
        }
        figures.lines += 1;
        figures.text_lines += usize::from(!line.trim().is_empty());
        figures.type_names.extend(type_name(code).map(str::to_owned));
        figures.what_comments += usize::from(begins_with_what(line));
        let lower = line.to_lowercase();
        figures.vague_lines += usize::from(VAGUE_WORDS.iter().any(|word| has_word(&lower, word)));
        figures.loops += usize::from(code.contains(HAND_WRITTEN_LOOP));
    }
}

/// The type that a line of code defines.
fn type_name(line: &str) -> Option<&str> {
    let indented = line.starts_with(' ');
    let item = line.trim_start();
    let item = match item.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ").map_or(rest, |(_, item)| item),
        Some(rest) => rest.trim_start(),
        None => item,
    };
    let named = TYPE_KEYWORDS.iter().find_map(|keyword| item.strip_prefix(keyword));
    // An indented alias belongs to a trait.
    let named = named.or_else(|| item.strip_prefix("type ").filter(|_| !indented))?;
    let end = named.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(named.len());
    let name = &named[..end];
    name.starts_with(|letter: char| letter.is_ascii_uppercase()).then_some(name)
}

fn is_one_word(name: &str) -> bool {
    let capitals = name.chars().filter(char::is_ascii_uppercase).count();
    capitals < 2 || !name.contains(|letter: char| letter.is_ascii_lowercase())
}

fn begins_with_what(line: &str) -> bool {
    let comment =
        line.trim_start().strip_prefix("//").map(|comment| comment.trim_start_matches(['/', '!']).trim_start());
    let rest = comment.and_then(|comment| comment.strip_prefix("What"));
    rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(text: &str) -> CodeFigures {
        let mut figures = CodeFigures::default();
        count(text, &mut figures);
        figures
    }

    fn all(files: &[(&str, &str)]) -> String {
        let files: Vec<File> =
            files.iter().map(|(path, text)| File { path: (*path).into(), text: (*text).into() }).collect();
        report(&files).lines().last().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn types_are_found_by_their_keyword_at_the_start_of_a_line() {
        let text = "pub struct A;\n    pub(crate) enum PodVolume {\npub(in crate::x) union U {\nunsafe trait T {\n\
                    type Alias = u8;\n    type Item = u8;\nfn f() { struct Inner; }\nstruct $name;\n// struct B;\n\
                    public struct_like();\n";
        assert_eq!(counted(text).type_names, ["A", "PodVolume", "U", "T", "Alias"]);
    }

    #[test]
    fn one_word_has_one_capital_or_nothing_but_capitals() {
        assert!(["Seen", "URL", "T", "Ext4"].into_iter().all(is_one_word));
        assert!(!["BindReason", "PVClaim", "IoError"].into_iter().any(is_one_word));
    }

    #[test]
    fn comments_and_words_are_counted() {
        let text = "/// What it is.\n//! What's there.\n// Whatever.\nlet a = \"What\";\n// Nobody's\n\
                    log(\"somebody\");\n\nfor _ in 0..ROUNDS {\n";
        let CodeFigures { lines, text_lines, what_comments, vague_lines, loops, .. } = counted(text);
        assert_eq!((lines, text_lines, what_comments, vague_lines, loops), (8, 7, 2, 2, 1));
    }

    #[test]
    fn items_of_tests_are_left_out() {
        let text = "struct A;\n#[cfg(test)]\n#[derive(Debug)]\nstruct B([u8; 2]);\n#[cfg(test)]\nmod tests {\n\
                    struct C {\n        x: u8,\n    }\n}\n\
                    #[cfg(test)]\nuse x::{y, z};\n#[cfg(any(test, unix))]\nstruct D;\n";
        let figures = counted(text);
        assert_eq!(figures.type_names, ["A", "D"]);
        assert_eq!(figures.lines, 3);
        assert_eq!(counted("#![cfg(test)]\nstruct A;\n").lines, 0);
    }

    #[test]
    fn modules_of_tests_are_named() {
        let items = test_items("#[cfg(test)]\npub(crate) mod fixture;\nmod a;\n#[cfg(all(test, unix))]\nmod b;\n");
        let modules: Vec<_> = items.into_iter().map(|item| (item.first_line, item.last_line, item.module)).collect();
        assert_eq!(modules, [(0, 1, Some("fixture".to_owned())), (3, 4, Some("b".to_owned()))]);
    }

    #[test]
    fn only_production_code_is_counted() {
        let files = [
            ("crates/a/src/lib.rs", "#[cfg(test)]\nmod fixture;\nstruct Seen;\n"),
            ("crates/a/src/fixture/mod.rs", "struct A;\n"),
            ("crates/a/src/fixtures.rs", "struct TwoWords;\n"),
            ("crates/a/src/b/mod.rs", "#[cfg(test)]\nmod rows;\n"),
            ("crates/a/src/b/rows.rs", "struct A;\n"),
            ("crates/a/src/b_tests.rs", "struct A;\n"),
            ("crates/a/src/c/tests/d.rs", "struct A;\n"),
            ("crates/a/tests/e.rs", "struct A;\n"),
            ("fuzz/src/lib.rs", "struct A;\n"),
            ("xtask/src/main.rs", "struct Seen;\n\n"),
        ];
        assert_eq!(all(&files), "all 4 3 3 750.0 1000.0 66.7 % 66.7 % 0 0 0");
    }
}
