//! The golden tables: per row the line, its exit code and its answer, as a person would see them at a terminal.

use std::path::PathBuf;

/// What came of one line.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Words that no person has to understand.
const JARGON: [&str; 12] = [
    "os error",
    "Os {",
    "panicked",
    "backtrace",
    "RUST_",
    "ParseIntError",
    "invalid digit",
    "float literal",
    "..=",
    "Some(",
    "called `",
    "environment variable not found",
];

impl Answer {
    /// What holds for every answer to something wrong.
    fn check(&self, line: &str) {
        let Self { code, out, err } = self;
        assert!(matches!(code, Some(1..=3)), "{line}: ended with {code:?}\n{out}{err}");
        assert!(!err.trim().is_empty(), "{line}: nothing is said\n{out}");
        assert!(err.lines().count() <= 12, "{line}: this is a page, not an answer\n{err}");
        for word in JARGON {
            assert!(!err.contains(word), "{line}: {word:?} is for programmers\n{err}");
        }
    }
}

#[derive(Debug)]
pub(crate) struct Table {
    name: &'static str,
    golden: Vec<(String, String)>,
    seen: Vec<(String, String)>,
    wrong: Vec<String>,
}

impl Table {
    pub(crate) fn open(name: &'static str) -> Self {
        let text = std::fs::read_to_string(file(name)).unwrap_or_default();
        Self { name, golden: parse(&text), seen: Vec::new(), wrong: Vec::new() }
    }

    /// Something wrong, and its answer.
    pub(crate) fn row(&mut self, line: &str, answer: &Answer) {
        answer.check(line);
        let code = answer.code.map_or_else(|| "killed".to_owned(), |code| code.to_string());
        let text = format!("{}{}", answer.out, answer.err);
        self.note(line, &format!("[exit {code}]\n{}", text.trim_end()));
    }

    /// Something wrong with an answer in another form.
    pub(crate) fn note(&mut self, line: &str, answer: &str) {
        let want = self.golden.iter().find(|(typed, _)| typed == line).map(|(_, answer)| answer.as_str());
        if want != Some(answer) {
            self.wrong.push(format!("$ {line}\n--- golden\n{}\n+++ now\n{answer}\n", want.unwrap_or("(none)")));
        }
        assert!(!self.seen.iter().any(|(typed, _)| typed == line), "{line}: the row is there twice");
        self.seen.push((line.to_owned(), answer.to_owned()));
    }

    /// A row that this machine cannot play; its golden answer stays.
    pub(crate) fn skip(&mut self, line: &str, why: &str) {
        println!("skipped: {line}: {why}");
        if let Some(log) = std::env::var_os("ORLOP_SKIP_LOG") {
            use std::io::Write as _;
            let file = std::fs::File::options().append(true).create(true).open(log);
            drop(file.and_then(|mut file| writeln!(file, "wrong input: {why}")));
        }
        if let Some(golden) = self.golden.iter().find(|(typed, _)| typed == line) {
            self.seen.push(golden.clone());
        }
    }

    /// Compares all, or writes the table anew.
    pub(crate) fn close(self) {
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            let text: String = self.seen.iter().map(|(line, answer)| format!("$ {line}\n{answer}\n\n")).collect();
            std::fs::write(file(self.name), text.trim_end().to_owned() + "\n").expect("the golden file can be written");
            return;
        }
        let gone = |(line, _): &&(String, String)| !self.seen.iter().any(|(seen, _)| seen == line);
        let gone: Vec<&str> = self.golden.iter().filter(gone).map(|(line, _)| line.as_str()).collect();
        assert!(gone.is_empty(), "golden rows that nobody plays: {gone:#?}");
        assert!(
            self.wrong.is_empty(),
            "{} answers of {} differ; to accept them: UPDATE_GOLDEN=1 cargo test -p orlop --test wrong\n{}",
            self.wrong.len(),
            self.name,
            self.wrong.join("\n")
        );
    }
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/wrong").join(format!("{name}.txt"))
}

/// Rows begin with `$ `; what follows belongs to them.
fn parse(text: &str) -> Vec<(String, String)> {
    let mut rows: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("$ "), rows.last_mut()) {
            (Some(typed), _) => rows.push((typed.to_owned(), String::new())),
            (None, Some((_, answer))) => *answer += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    rows.into_iter().map(|(line, answer)| (line, answer.trim_end().to_owned())).collect()
}
