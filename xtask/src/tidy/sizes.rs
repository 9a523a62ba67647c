//! Files and functions that grew too long, with a list of exceptions that may only shrink.
//!
//! An entry of the list holds the present size. A file or function that grew past its entry fails; so does one that
//! shrank below it or that is gone, because the list must never leave room to grow again.

use std::collections::BTreeMap;

use super::Finding;
use super::source::{self, Source};
use super::tree::File;

pub(super) const EXCEPTIONS: &str = "xtask/tidy-exceptions.txt";
const FILE_LINES: usize = 800;
/// Lines that hold code, from `fn` to the closing brace.
const FUNCTION_LINES: usize = 70;

/// Something measured: where, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    line: usize,
    lines: usize,
    limit: usize,
}

pub(super) fn check(files: &[File], exceptions: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut sizes = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        measure(file, &mut sizes);
    }
    let mut excused = BTreeMap::new();
    for (at, line) in exceptions.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        match line.split_once(' ').map(|(name, size)| (name, size.trim().parse::<usize>())) {
            Some((name, Ok(size))) => drop(excused.insert(name.to_owned(), (at + 1, size))),
            _ => findings.push(Finding::new(EXCEPTIONS, at + 1, "not `path[::function] lines`")),
        }
    }
    for (name, size) in &sizes {
        findings.extend(judge(name, *size, excused.remove(name)));
    }
    for (name, (line, _)) in excused {
        findings.push(Finding::new(EXCEPTIONS, line, format!("{name} is within its limit now; delete this entry")));
    }
    findings
}

fn judge(name: &str, size: Size, excuse: Option<(usize, usize)>) -> Option<Finding> {
    let Size { line, lines, limit } = size;
    let file = name.split("::").next().unwrap_or(name);
    match excuse {
        None => Some(Finding::new(
            file,
            line,
            format!("{name} has {lines} lines, the limit is {limit}; split it by what it does"),
        )),
        Some((_, allowed)) if lines > allowed => {
            let text = format!("{name} grew from {allowed} to {lines} lines; an exception may only shrink");
            Some(Finding::new(file, line, text))
        }
        Some((entry, allowed)) if lines < allowed => {
            let text = format!("{name} shrank from {allowed} lines; write `{name} {lines}`");
            Some(Finding::new(EXCEPTIONS, entry, text))
        }
        Some(_) => None,
    }
}

/// Adds what is over its limit. Of two functions with one name in one file, the longer one counts.
fn measure(file: &File, sizes: &mut BTreeMap<String, Size>) {
    let lines = file.text.lines().count();
    if lines > FILE_LINES {
        sizes.insert(file.path.clone(), Size { line: 1, lines, limit: FILE_LINES });
    }
    for Function { name, line, lines } in functions(&source::read(&file.text)) {
        let key = format!("{}::{name}", file.path);
        let known = sizes.get(&key).map_or(0, |size| size.lines);
        if lines > FUNCTION_LINES.max(known) {
            sizes.insert(key, Size { line, lines, limit: FUNCTION_LINES });
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    line: usize,
    lines: usize,
}

fn functions(source: &Source) -> Vec<Function> {
    let code = &source.code;
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_') {
            continue;
        }
        let name: String =
            code[at + 3..].chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
        // A name is missing in a function type, a body in a trait's declaration.
        if let Some(end) = body_end(&code[at..]).filter(|_| !name.is_empty()) {
            let lines = code[at..at + end].lines().filter(|line| !line.trim().is_empty()).count();
            found.push(Function { name, line: code[..at].lines().count().max(1), lines });
        }
    }
    found
}

/// Where the body that follows a signature ends. Braces inside brackets belong to the signature.
fn body_end(code: &str) -> Option<usize> {
    let mut brackets = 0_i32;
    let mut braces = 0_i32;
    for (at, letter) in code.char_indices() {
        match letter {
            '(' | '[' if braces == 0 => brackets += 1,
            ')' | ']' if braces == 0 => brackets -= 1,
            ';' if braces == 0 && brackets == 0 => return None,
            '{' if brackets == 0 => braces += 1,
            '}' if brackets == 0 => braces -= 1,
            _ => continue,
        }
        if letter == '}' && braces == 0 && brackets == 0 {
            return Some(at + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(name: &str, statements: usize) -> String {
        format!("fn {name}() {{\n{}}}\n", "    step();\n".repeat(statements))
    }

    fn file(path: &str, text: String) -> File {
        File { path: path.into(), text }
    }

    fn report(files: &[File], exceptions: &str) -> Vec<String> {
        check(files, exceptions).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn functions_are_found_with_their_size() {
        let text = "struct A;\nimpl A {\n    fn one(&self, x: [u8; { 2 }]) -> u8 {\n        // why\n\n        let f = |y: fn(u8)| { y };\n        1\n    }\n    fn declared();\n}\n";
        let found = functions(&source::read(text));
        assert_eq!(found, [Function { name: "one".into(), line: 3, lines: 4 }]);
    }

    #[test]
    fn braces_in_text_do_not_count() {
        let found = functions(&source::read("fn a() {\n    print(\"}\"); // }\n    x('}');\n}\nfn b() {}\n"));
        assert_eq!(found.iter().map(|function| function.lines).collect::<Vec<_>>(), [4, 1]);
    }

    #[test]
    fn a_long_function_needs_an_exception() {
        let files = [file("crates/a/src/lib.rs", long("deed", 80))];
        assert_eq!(
            report(&files, ""),
            [
                "crates/a/src/lib.rs:1: crates/a/src/lib.rs::deed has 82 lines, the limit is 70; split it by what it does"
            ]
        );
        assert_eq!(report(&files, "# why\ncrates/a/src/lib.rs::deed 82\n"), [""; 0]);
    }

    #[test]
    fn an_exception_may_only_shrink() {
        let files = [file("a.rs", long("deed", 80))];
        assert_eq!(
            report(&files, "a.rs::deed 81"),
            ["a.rs:1: a.rs::deed grew from 81 to 82 lines; an exception may only shrink"]
        );
        assert_eq!(
            report(&files, "a.rs::deed 90"),
            ["xtask/tidy-exceptions.txt:1: a.rs::deed shrank from 90 lines; write `a.rs::deed 82`"]
        );
    }

    #[test]
    fn an_obsolete_or_unreadable_exception_is_refused() {
        assert_eq!(
            report(&[], "gone.rs 900\nnonsense"),
            [
                "xtask/tidy-exceptions.txt:2: not `path[::function] lines`",
                "xtask/tidy-exceptions.txt:1: gone.rs is within its limit now; delete this entry"
            ]
        );
    }

    #[test]
    fn a_long_file_is_found() {
        let files = [file("a.rs", "x();\n".repeat(801))];
        assert_eq!(report(&files, ""), ["a.rs:1: a.rs has 801 lines, the limit is 800; split it by what it does"]);
    }
}
