//! Aligned text: labelled fields, tables, sizes. Strings of a driver are made safe for a terminal here.

const UNITS: [(&str, i64); 6] =
    [("EiB", 1 << 60), ("PiB", 1 << 50), ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Bytes for the eye and exactly: `1.5 GiB (1610612736 bytes)`.
pub(in crate::csi) fn size(bytes: i64) -> String {
    match UNITS.iter().find(|(_, factor)| bytes >= *factor) {
        None => format!("{bytes} bytes"),
        Some((unit, factor)) => format!("{} {unit} ({bytes} bytes)", tenths(bytes, *factor)),
    }
}

/// For capacities, where CSI says that zero means unknown.
pub(super) fn capacity(bytes: i64) -> String {
    if bytes == 0 { "unknown".to_owned() } else { size(bytes) }
}

/// Cut, not rounded: a volume is never shown larger than it is.
fn tenths(bytes: i64, factor: i64) -> String {
    let (whole, rest) = (bytes / factor, bytes % factor);
    // The rest is below 2^60, so ten times it needs more than an i64.
    match i128::from(rest) * 10 / i128::from(factor) {
        0 => whole.to_string(),
        tenth => format!("{whole}.{tenth}"),
    }
}

pub(super) fn yes_no(fact: bool) -> &'static str {
    if fact { "yes" } else { "no" }
}

/// Control characters are escaped: names may hold line breaks, and a driver must not steer the terminal.
pub(in crate::csi) fn clean(text: &str) -> String {
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// `Label  value` lines with the values in one column; a field without a value is shown as `-`.
#[derive(Default)]
pub(super) struct Fields(Vec<(&'static str, Vec<String>)>);

impl Fields {
    pub(super) fn one(self, label: &'static str, value: impl Into<String>) -> Self {
        self.many(label, vec![value.into()])
    }

    /// One value per line, the label only on the first.
    pub(super) fn many(mut self, label: &'static str, values: Vec<String>) -> Self {
        self.0.push((label, values));
        self
    }

    /// Leaves the field out when there is nothing to say.
    pub(super) fn some(self, label: &'static str, value: Option<String>) -> Self {
        match value {
            Some(value) => self.one(label, value),
            None => self,
        }
    }

    /// Leaves the field out when the list is empty.
    pub(super) fn any(self, label: &'static str, values: Vec<String>) -> Self {
        if values.is_empty() { self } else { self.many(label, values) }
    }

    pub(super) fn text(self) -> String {
        let width = self.0.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
        let mut text = String::new();
        for (label, values) in self.0 {
            let values = if values.iter().all(String::is_empty) { vec!["-".to_owned()] } else { values };
            for (index, value) in values.iter().enumerate() {
                let label = if index == 0 { label } else { "" };
                text.push_str(&format!("{label:width$}  {}\n", clean(value)));
            }
        }
        text
    }
}

/// Rows under a header; the last column is not padded, and an empty cell is shown as `-`.
pub(super) fn table<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) -> String {
    let mut cells = vec![header.map(str::to_owned)];
    let cell = |text: String| if text.is_empty() { "-".to_owned() } else { clean(&text) };
    cells.extend(rows.into_iter().map(|row| row.map(cell)));
    let mut widths = [0; N];
    for row in &cells {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; N]| {
        let padded = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
    };
    cells.iter().map(line).collect()
}
