//! Text in columns, for people: what `orlop tree`, `orlop top` and `orlop orphans` print.
//!
//! # Invariants
//! 1. A column in which no row has anything is not printed.
//! 2. Nothing that others wrote reaches a terminal as a control character; colours are ours alone.
//! 3. Whoever reads without a terminal gets every row on one line, whatever its length.

#[cfg(test)]
pub(crate) mod tests;
mod wrap;

use std::fmt::Write as _;

pub(crate) use wrap::{Lines, wrap};

use crate::decision::Standing;

/// Whether there are colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    Plain,
    Colours,
}

/// How a text is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// With the columns that few need.
    pub wide: bool,
    pub paint: Paint,
    /// How many letters go on a line, where that is known: on a terminal.
    pub width: Option<usize>,
}

impl Look {
    /// For whoever is no person at a terminal.
    pub const PLAIN: Self = Self { wide: false, paint: Paint::Plain, width: None };
    pub const WIDE: Self = Self { wide: true, ..Self::PLAIN };
}

/// How a cell looks where there are colours. Nothing is said by colour alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tone {
    #[default]
    Plain,
    Heading,
    /// Less important than the rest.
    Quiet,
    Good,
    Moving,
    Waiting,
    Bad,
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Heading => "1",
            Self::Quiet => "2",
            Self::Good => "32",
            Self::Moving => "36",
            Self::Waiting => "33",
            Self::Bad => "31",
        }
    }
}

impl From<Standing> for Tone {
    fn from(standing: Standing) -> Self {
        match standing {
            Standing::Settled => Self::Quiet,
            Standing::Moving => Self::Moving,
            Standing::Waiting => Self::Waiting,
            Standing::Stuck => Self::Bad,
        }
    }
}

impl Paint {
    /// A text in its tone.
    pub fn text(self, text: &str, tone: Tone) -> String {
        match (self, tone.code()) {
            (Self::Plain, _) | (_, "") => text.to_owned(),
            (Self::Colours, _) if text.is_empty() => String::new(),
            (Self::Colours, code) => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
        }
    }
}

/// What stands in a row and a column.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub const EMPTY: Self = Self { text: String::new(), tone: Tone::Plain };

    pub fn new(text: impl Into<String>, tone: Tone) -> Self {
        let text: String = text.into();
        let text = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        Self { text, tone }
    }

    pub fn of(text: Option<impl Into<String>>) -> Self {
        text.map(|text| Self::new(text, Tone::Plain)).unwrap_or_default()
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::new(text, Tone::Plain)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::new(text, Tone::Plain)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
    /// Sentences, in the last column: on a terminal they are broken where the line ends.
    Prose,
}

/// When a column is printed, if anything stands in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    Always,
    /// Only with `-o wide`.
    Wide,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    pub title: &'static str,
    pub align: Align,
    pub shown: Shown,
}

impl Column {
    pub const fn left(title: &'static str) -> Self {
        Self { title, align: Align::Left, shown: Shown::Always }
    }

    pub const fn right(title: &'static str) -> Self {
        Self { title, align: Align::Right, shown: Shown::Always }
    }

    pub const fn prose(title: &'static str) -> Self {
        Self { title, align: Align::Prose, shown: Shown::Always }
    }

    pub const fn wide(title: &'static str) -> Self {
        Self { title, align: Align::Left, shown: Shown::Wide }
    }
}

/// Rows under titles.
#[derive(Debug, Clone)]
pub struct Table<const N: usize> {
    columns: [Column; N],
    rows: Vec<[Cell; N]>,
}

impl<const N: usize> Table<N> {
    pub fn new(columns: [Column; N]) -> Self {
        Self { columns, rows: Vec::new() }
    }

    pub fn push(&mut self, row: [Cell; N]) {
        self.rows.push(row);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn render(&self, look: Look) -> String {
        let filled = |index: usize| self.rows.iter().any(|row| !row[index].text.is_empty());
        let shown = |column: &Column| look.wide || column.shown == Shown::Always;
        let indices: Vec<usize> = (0..N).filter(|index| shown(&self.columns[*index]) && filled(*index)).collect();
        let widths: Vec<usize> = indices.iter().map(|index| self.width(*index)).collect();
        let prose = self.prose(&indices, &widths, look);
        let titles = self.columns.map(|column| Cell::new(column.title, Tone::Heading));
        let mut text = String::new();
        for row in std::iter::once(&titles).chain(&self.rows) {
            let mut line = String::new();
            for (position, (&index, &width)) in indices.iter().zip(&widths).enumerate() {
                let last = position + 1 == indices.len();
                // Nothing stands to the right of the last column, so that a long text there makes no blanks elsewhere.
                let padded = !last || self.columns[index].align == Align::Right;
                if last && let Some(room) = prose {
                    room.write(&mut line, &row[index], look.paint);
                    continue;
                }
                self.cell(&mut line, (&row[index], index), if padded { width } else { 0 }, look.paint);
                if !last {
                    line.push_str("  ");
                }
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }

    /// Where the sentences of the last column go, if there is a line's end to mind and they would run over it.
    fn prose(&self, indices: &[usize], widths: &[usize], look: Look) -> Option<Prose> {
        let (last, width) = (*indices.last()?, look.width?);
        let start: usize = widths.iter().rev().skip(1).map(|width| width + 2).sum();
        let over = start + widths.last()? > width;
        (self.columns[last].align == Align::Prose && over).then_some(Prose { start, width })
    }

    fn width(&self, index: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[index].text.chars().count());
        cells.max().unwrap_or(0).max(self.columns[index].title.len())
    }

    /// Blanks stand outside of the colours, so that padding counts letters only.
    fn cell(&self, line: &mut String, (cell, index): (&Cell, usize), width: usize, paint: Paint) {
        let blanks = " ".repeat(width.saturating_sub(cell.text.chars().count()));
        let text = paint.text(&cell.text, cell.tone);
        match self.columns[index].align {
            Align::Left | Align::Prose => line.extend([&*text, &*blanks]),
            Align::Right => line.extend([&*blanks, &*text]),
        }
    }
}

/// Less room than this for sentences, and they go below their row.
const NARROW: usize = 36;
/// How far such sentences are set in, beyond where their row begins, and at most.
const BELOW: usize = 4;
const DEEPEST: usize = 24;

/// Room for sentences.
#[derive(Debug, Clone, Copy)]
struct Prose {
    start: usize,
    width: usize,
}

impl Prose {
    /// Writes a sentence behind a row, or below it.
    fn write(self, line: &mut String, cell: &Cell, paint: Paint) {
        let beside = self.width >= self.start + NARROW;
        let begins = line.chars().take_while(|letter| " │├└─".contains(*letter)).count();
        let indent = if beside { self.start } else { (begins + BELOW).min(DEEPEST) };
        let lines = wrap(&cell.text, self.width.saturating_sub(indent));
        // A title stands beside the others in any case.
        let below = !beside && cell.tone != Tone::Heading;
        for (number, text) in lines.iter().enumerate() {
            if below || number > 0 {
                let trimmed = line.trim_end().len();
                line.truncate(trimmed);
                let _ = write!(line, "\n{:indent$}", "");
            }
            line.push_str(&paint.text(text, cell.tone));
        }
    }
}

/// How long ago: the largest unit that is at least two, as explanations have it.
pub fn age(seconds: i64) -> String {
    crate::explain::Age(seconds).to_string()
}

/// An amount for a narrow column: three digits and a unit.
pub fn bytes(amount: u64) -> String {
    const UNITS: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if amount < 1024 {
        return amount.to_string();
    }
    // Tenths of a unit, rounded; a whole number is written without its zero.
    let power = usize::try_from(amount.ilog2() / 10).unwrap_or(1).clamp(1, UNITS.len());
    let unit = 1u128 << (10 * power);
    let tenths = (u128::from(amount) * 10 + unit / 2) / unit;
    match tenths {
        tenths if tenths % 10 == 0 || tenths >= 1000 => format!("{}{}", (tenths + 5) / 10, UNITS[power - 1]),
        tenths => format!("{}.{}{}", tenths / 10, tenths % 10, UNITS[power - 1]),
    }
}

/// A share of a whole in percent, rounded up so that the first byte shows; nothing of nothing has no share.
pub fn percent(part: u64, whole: u64) -> Option<u64> {
    let share = (u128::from(part) * 100).div_ceil(u128::from(whole).max(1));
    (whole > 0).then(|| u64::try_from(share).unwrap_or(u64::MAX))
}
