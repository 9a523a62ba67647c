//! Sections with their times, and tables, the same for every task.

use std::time::{Duration, Instant};

/// How a section ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    Passed,
    Failed(String),
    /// Not run, and why. A task decides for itself whether that is a failure.
    Skipped(String),
}

/// The sections of one task, in the order they ran.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: Vec<(String, Duration, Ending)>,
}

impl Report {
    /// Prints the heading of a section and starts its clock.
    pub(crate) fn begin(name: &str) -> Section {
        println!("\n=== {name}");
        Section { name: name.to_owned(), started: Instant::now() }
    }

    pub(crate) fn end(&mut self, section: Section, ending: Ending) {
        let took = section.started.elapsed();
        println!("--- {}: {} in {}", section.name, word(&ending), seconds(took));
        self.rows.push((section.name, took, ending));
    }

    /// Runs one section that can only pass or fail.
    pub(crate) fn section(&mut self, name: &str, work: impl FnOnce() -> anyhow::Result<()>) {
        let section = Self::begin(name);
        self.end(section, Ending::from(work()));
    }

    /// Prints the closing table. An error names the sections that failed.
    pub(crate) fn close(self, title: &str) -> anyhow::Result<()> {
        let mut table = Table::new(&[title, "time", "result"]);
        for (name, took, ending) in &self.rows {
            let result = match ending {
                Ending::Passed => "passed".to_owned(),
                Ending::Failed(why) => format!("FAILED: {}", why.lines().next().unwrap_or_default()),
                Ending::Skipped(why) => format!("skipped: {why}"),
            };
            table.row(&[name.clone(), seconds(*took), result]);
        }
        println!("\n{}", table.text());
        let failed: Vec<&str> =
            self.rows.iter().filter(|row| matches!(row.2, Ending::Failed(_))).map(|row| row.0.as_str()).collect();
        if failed.is_empty() { Ok(()) } else { anyhow::bail!("failed: {}", failed.join(", ")) }
    }
}

impl From<anyhow::Result<()>> for Ending {
    fn from(result: anyhow::Result<()>) -> Self {
        match result {
            Ok(()) => Self::Passed,
            Err(error) => {
                println!("{error:#}");
                Self::Failed(format!("{error:#}"))
            }
        }
    }
}

/// A section that runs.
#[derive(Debug)]
pub(crate) struct Section {
    name: String,
    started: Instant,
}

fn word(ending: &Ending) -> &'static str {
    match ending {
        Ending::Passed => "passed",
        Ending::Failed(_) => "FAILED",
        Ending::Skipped(_) => "skipped",
    }
}

pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// A markdown table whose columns line up in plain text too.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heads: &[&str]) -> Self {
        Self { rows: vec![heads.iter().map(ToString::to_string).collect()] }
    }

    pub(crate) fn row(&mut self, cells: &[String]) {
        self.rows.push(cells.to_vec());
    }

    pub(crate) fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
        let mut lines = Vec::new();
        for (at, row) in self.rows.iter().enumerate() {
            let pad = |(column, width): (usize, &usize)| {
                format!("{:<width$}", row.get(column).map_or("", String::as_str), width = *width)
            };
            lines.push(line(widths.iter().enumerate().map(pad).collect()));
            if at == 0 {
                lines.push(line(widths.iter().map(|width| "-".repeat(*width)).collect()));
            }
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_lines_up() {
        let mut table = Table::new(&["run", "time"]);
        table.row(&["mount".into(), "1.0 s".into()]);
        assert_eq!(table.text(), "| run   | time  |\n| ----- | ----- |\n| mount | 1.0 s |");
    }

    #[test]
    fn a_report_fails_with_the_names_of_what_failed() {
        let mut report = Report::default();
        report.section("good", || Ok(()));
        report.section("bad", || anyhow::bail!("no"));
        assert_eq!(report.close("step").unwrap_err().to_string(), "failed: bad");
    }
}
