//! Series of measurements and what is said about them.

use std::time::Duration;

/// Times in the order they were taken.
#[derive(Debug, Default)]
pub(super) struct Series(Vec<Duration>);

impl Series {
    pub(super) fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    pub(super) fn median(&self) -> Option<Duration> {
        self.percentile(50)
    }

    /// The smallest time that at least this share of all times does not exceed.
    pub(super) fn percentile(&self, percent: usize) -> Option<Duration> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100);
        sorted.get(rank.max(1) - 1).copied()
    }
}

/// A unit, and how a value of it reads.
#[derive(Debug, Clone, Copy)]
pub(super) enum Unit {
    Milliseconds,
    Microseconds,
    PerSecond,
    Megabytes,
    /// Of one processor.
    Percent,
    /// A plain number of which less is better, such as requests per claim.
    Each,
}

impl Unit {
    pub(super) fn show(self, value: f64) -> String {
        match self {
            Self::Milliseconds => format!("{value:.2} ms"),
            Self::Microseconds => format!("{value:.0} us"),
            Self::PerSecond => format!("{value:.0}/s"),
            Self::Megabytes => format!("{value:.1} MB"),
            Self::Percent => format!("{value:.2} %"),
            Self::Each => format!("{value:.2}"),
        }
    }
}

/// What the project asks of a number.
#[derive(Debug, Clone, Copy)]
pub(super) enum Goal {
    AtMost(f64),
    AtLeast(f64),
    /// This many times better than the peer in the same run.
    TimesPeer(f64),
    /// Measured for information.
    Open,
}

impl Goal {
    pub(super) fn show(self, unit: Unit) -> String {
        match self {
            Self::AtMost(limit) => format!("<= {}", unit.show(limit)),
            Self::AtLeast(limit) => format!(">= {}", unit.show(limit)),
            Self::TimesPeer(times) => format!(">= {times}x"),
            Self::Open => "-".to_owned(),
        }
    }

    /// `None` if there is no number to judge by. `ratio` is how many times better than the peer's the value is.
    pub(super) fn is_met(self, value: Option<f64>, ratio: Option<f64>) -> Option<bool> {
        match self {
            Self::AtMost(limit) => value.map(|value| value <= limit),
            Self::AtLeast(limit) => value.map(|value| value >= limit),
            Self::TimesPeer(times) => ratio.map(|ratio| ratio >= times),
            Self::Open => Some(true),
        }
    }
}

/// The middle of the values that there are.
pub(super) fn middle(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let mut values: Vec<f64> = values.flatten().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

pub(super) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

pub(super) fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let mut series = Series::default();
        (1..=100).rev().for_each(|number| series.push(Duration::from_micros(number)));
        assert_eq!(series.median(), Some(Duration::from_micros(50)));
        assert_eq!(series.percentile(99), Some(Duration::from_micros(99)));
        assert_eq!(Series::default().median(), None);
    }

    #[test]
    fn a_goal_is_met_at_its_limit() {
        let met = |goal: Goal, value: f64| goal.is_met(Some(value), None);
        assert_eq!([5.0, 5.1].map(|value| met(Goal::AtMost(5.0), value)), [Some(true), Some(false)]);
        assert_eq!([500.0, 499.0].map(|value| met(Goal::AtLeast(500.0), value)), [Some(true), Some(false)]);
        assert_eq!(Goal::TimesPeer(10.0).is_met(Some(1.0), Some(10.0)), Some(true));
        assert_eq!(Goal::TimesPeer(10.0).is_met(Some(1.0), None), None, "without a peer nobody knows");
    }
}
