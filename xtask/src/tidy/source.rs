//! Rust text split into code and literals, so that no check mistakes a comment or a string for code.
//!
//! This is no parser: it knows comments, strings, raw strings and characters, and leaves everything else alone.

/// A string literal and the line it starts on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Literal {
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// A source file, read.
#[derive(Debug)]
pub(crate) struct Source {
    /// The text with comments and the insides of literals blanked; every line keeps its number and its length.
    pub(crate) code: String,
    pub(crate) literals: Vec<Literal>,
}

pub(crate) fn read(text: &str) -> Source {
    let mut reader = Reader { text: text.chars().collect(), at: 0, line: 1, code: String::new(), literals: Vec::new() };
    while let Some(letter) = reader.peek(0) {
        reader.step(letter);
    }
    Source { code: reader.code, literals: reader.literals }
}

struct Reader {
    text: Vec<char>,
    at: usize,
    line: usize,
    code: String,
    literals: Vec<Literal>,
}

impl Reader {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.text.get(self.at + ahead).copied()
    }

    fn step(&mut self, letter: char) {
        match (letter, self.peek(1)) {
            ('/', Some('/')) => self.blank_while(|reader| reader.peek(0).is_some_and(|next| next != '\n')),
            ('/', Some('*')) => self.block_comment(),
            ('"', _) => self.string(),
            ('r', _) if self.starts_word() && self.raw_hashes().is_some() => self.raw_string(),
            ('\'', Some('\\')) => self.escaped_character(),
            ('\'', _) if self.peek(2) == Some('\'') => (0..3).for_each(|_| self.blank()),
            _ => self.keep(),
        }
    }

    fn keep(&mut self) {
        if let Some(letter) = self.peek(0) {
            self.code.push(letter);
            self.line += usize::from(letter == '\n');
            self.at += 1;
        }
    }

    fn blank(&mut self) {
        if let Some(letter) = self.peek(0) {
            self.code.push(if letter == '\n' { '\n' } else { ' ' });
            self.line += usize::from(letter == '\n');
            self.at += 1;
        }
    }

    fn blank_while(&mut self, more: impl Fn(&Self) -> bool) {
        while self.at < self.text.len() && more(self) {
            self.blank();
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while self.at < self.text.len() {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => depth += 1,
                (Some('*'), Some('/')) => depth -= 1,
                _ => {
                    self.blank();
                    continue;
                }
            }
            self.blank();
            self.blank();
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        let line = self.line;
        self.keep();
        let start = self.at;
        while let Some(letter) = self.peek(0).filter(|letter| *letter != '"') {
            if letter == '\\' {
                self.blank();
            }
            self.blank();
        }
        self.literals.push(Literal { line, text: self.text[start..self.at].iter().collect() });
        self.keep();
    }

    /// May a prefixed literal start here? Not in the middle of a name; `b` and `c` may stand before the `r`.
    fn starts_word(&self) -> bool {
        let before = |back: usize| self.at.checked_sub(back).map(|at| self.text[at]);
        let in_name = |letter: char| letter.is_alphanumeric() || letter == '_';
        match before(1) {
            Some('b' | 'c') => !before(2).is_some_and(in_name),
            other => !other.is_some_and(in_name),
        }
    }

    /// How many `#` stand between the `r` here and its quote. `None`: no raw string, such as `r#type`.
    fn raw_hashes(&self) -> Option<usize> {
        let hashes = (1..).take_while(|ahead| self.peek(*ahead) == Some('#')).count();
        (self.peek(1 + hashes) == Some('"')).then_some(hashes)
    }

    fn raw_string(&mut self) {
        let hashes = self.raw_hashes().unwrap_or_default();
        let line = self.line;
        (0..hashes + 2).for_each(|_| self.keep());
        let start = self.at;
        let closes =
            |reader: &Self| reader.peek(0) == Some('"') && (1..=hashes).all(|ahead| reader.peek(ahead) == Some('#'));
        self.blank_while(|reader| !closes(reader));
        self.literals.push(Literal { line, text: self.text[start..self.at].iter().collect() });
        (0..hashes + 1).for_each(|_| self.keep());
    }

    fn escaped_character(&mut self) {
        // The quote, the backslash and what it escapes, which may itself be a quote.
        (0..3).for_each(|_| self.blank());
        self.blank_while(|reader| reader.peek(0) != Some('\''));
        self.blank();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literals(text: &str) -> Vec<(usize, String)> {
        read(text).literals.into_iter().map(|literal| (literal.line, literal.text)).collect()
    }

    #[test]
    fn comments_are_blanked_and_lines_stay() {
        let source = read("a // unsafe\n/* x /* unsafe */ y */ b\n");
        assert_eq!(source.code.lines().map(str::trim_end).collect::<Vec<_>>(), ["a", "                       b"]);
    }

    #[test]
    fn strings_are_collected_with_their_line() {
        assert_eq!(literals("let a =\n\"x\\\"y\";\nlet b = r#\"q\"r\"#;"), [(2, "x\\\"y".into()), (3, "q\"r".into())]);
        assert_eq!(literals("b\"bytes\" br\"raw\" c\"c\""), [(1, "bytes".into()), (1, "raw".into()), (1, "c".into())]);
    }

    #[test]
    fn a_quote_in_a_character_opens_no_string() {
        let source = read("let q = '\"'; let e = '\\''; let l: &'static str = \"s\"; x('\\u{1F600}')");
        assert_eq!(source.literals, [Literal { line: 1, text: "s".into() }]);
        assert!(source.code.contains("&'static str"), "a lifetime is code: {}", source.code);
    }

    #[test]
    fn a_raw_identifier_is_code() {
        assert!(read("let r#type = 1; parser(\"x\")").code.contains("r#type = 1"));
    }

    #[test]
    fn a_comment_mark_in_a_string_is_text() {
        assert_eq!(literals("\"unix:///x\"; \"y\""), [(1, "unix:///x".into()), (1, "y".into())]);
    }
}
