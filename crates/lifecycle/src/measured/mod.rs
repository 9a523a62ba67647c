//! What processes measure of themselves: the text form of Prometheus, read as far as storage needs it.
//!
//! A line that cannot be read is left out: numbers of others are shown, and nothing is decided by them.

mod queues;
#[cfg(test)]
mod tests;
mod usage;

pub use queues::{Queue, queues};
pub use usage::{Usage, Usages};

/// One number: its name, its labels, its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub name: Box<str>,
    pub labels: Vec<(Box<str>, Box<str>)>,
    pub value: f64,
}

impl Sample {
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(key, _)| **key == *name).map(|(_, value)| &**value)
    }

    /// The value as a count; one that is none is not.
    pub fn count(&self) -> Option<u64> {
        // Beyond 2^53 a floating number is no exact count any more, and below zero it is none.
        let fits = self.value.is_finite() && (0.0..=18_446_744_073_709_549_568.0).contains(&self.value);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range was checked")]
        fits.then_some(self.value as u64)
    }
}

/// Reads all samples whose name begins with one of these.
pub fn read(text: &str, beginnings: &[&str]) -> Vec<Sample> {
    let wanted = |line: &&str| beginnings.iter().any(|beginning| line.starts_with(beginning));
    text.lines().map(str::trim_start).filter(wanted).filter_map(sample).collect()
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' ', '\t'])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    let value = rest.split_whitespace().next()?;
    // Rust reads NaN and infinities in Prometheus' spelling, too.
    Some(Sample { name: name.into(), labels, value: value.parse().ok()? })
}

type Labels = Vec<(Box<str>, Box<str>)>;

/// Labels up to the closing brace, and what follows it.
fn labels(mut rest: &str) -> Option<(Labels, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (key, after) = rest.split_once("=\"")?;
        let (value, after) = quoted(after)?;
        labels.push((key.trim().into(), value.into()));
        rest = after;
    }
}

/// A quoted text with its escapes undone, and what follows the closing quote.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match letters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}
