//! The closing table of a bench: our numbers beside the goals and beside the peer's numbers.

use super::numbers::{Goal, Unit};
use crate::report::Table;

/// One line of the table.
pub(super) struct Row<N> {
    pub(super) what: &'static str,
    pub(super) unit: Unit,
    pub(super) goal: Goal,
    pub(super) value: fn(&N) -> Option<f64>,
}

/// Two sets of numbers from one run.
pub(super) struct Comparison<'a, N> {
    pub(super) rows: &'a [Row<N>],
    pub(super) ours: &'a N,
    pub(super) theirs: Option<&'a N>,
    /// How the table names the peer.
    pub(super) peer: &'static str,
}

impl<N> Comparison<'_, N> {
    fn text(&self) -> String {
        let mut table = Table::new(&["measure", "orlop", "goal", "met", self.peer, "ratio"]);
        for row in self.rows {
            let Row { what, unit, goal, value } = row;
            let show = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| unit.show(value));
            let verdict = match goal.is_met(value(self.ours), self.ratio(row)) {
                _ if matches!(goal, Goal::Open) => "",
                Some(true) => "yes",
                Some(false) => "NO",
                None => "?",
            };
            let ratio = self.ratio(row).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.1}x"));
            let (mine, other) = (show(value(self.ours)), show(self.theirs.and_then(value)));
            table.row(&[(*what).to_owned(), mine, goal.show(*unit), verdict.to_owned(), other, ratio]);
        }
        table.text()
    }

    /// Prints the table under what it was measured on, and which goals were missed; with `enforce` those are an error.
    pub(super) fn close(&self, machine: &str, enforce: bool) -> anyhow::Result<()> {
        println!("\n{machine}\n\n{}", self.text());
        let missed = self.missed();
        match missed[..] {
            [] => Ok(()),
            _ if enforce => anyhow::bail!("goals missed: {}", missed.join("; ")),
            _ => {
                println!("\ngoals missed: {}", missed.join("; "));
                Ok(())
            }
        }
    }

    /// Goals that were missed or could not be judged.
    fn missed(&self) -> Vec<&'static str> {
        let missed = |row: &&Row<N>| row.goal.is_met((row.value)(self.ours), self.ratio(row)) != Some(true);
        self.rows.iter().filter(missed).map(|row| row.what).collect()
    }

    /// How many times better we are, whichever way the number counts.
    fn ratio(&self, row: &Row<N>) -> Option<f64> {
        let (mine, other) = ((row.value)(self.ours)?, (row.value)(self.theirs?)?);
        Some(match row.unit {
            Unit::PerSecond => mine / other,
            Unit::Milliseconds | Unit::Microseconds | Unit::Megabytes | Unit::Percent | Unit::Each => other / mine,
        })
    }
}
