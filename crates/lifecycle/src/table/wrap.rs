//! Breaks sentences where a terminal's line ends.

use std::fmt::Write as _;

use super::{Paint, Tone};

/// A text in lines of at most `width` letters, broken at blanks. A word that is longer has a line of its own.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Lines that are set in, each broken where the terminal's line ends.
#[derive(Debug)]
pub(crate) struct Lines {
    pub(crate) text: String,
    pub(crate) paint: Paint,
    pub(crate) width: Option<usize>,
}

impl Lines {
    /// Adds a text behind `mark`; what does not fit goes below its beginning.
    pub(crate) fn add(&mut self, indent: usize, mark: &str, text: &str, tone: Tone) {
        let inner = indent + mark.chars().count();
        let lines = match self.width {
            Some(width) => wrap(text, width.saturating_sub(inner)),
            None => vec![text.to_owned()],
        };
        for (number, line) in lines.iter().enumerate() {
            let blanks = if number == 0 { indent } else { inner };
            let mark = if number == 0 { mark } else { "" };
            let _ = writeln!(self.text, "{:blanks$}{mark}{}", "", self.paint.text(line, tone));
        }
    }

    pub(crate) fn blank(&mut self) {
        self.text.push('\n');
    }
}
