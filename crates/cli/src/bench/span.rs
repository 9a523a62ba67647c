//! How long one step took for all of its kind.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

/// Times of one step, and how many of it were done per second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Span {
    pub(super) count: usize,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) seconds: f64,
    pub(super) per_second: f64,
}

impl Span {
    /// Times of each, from the first request until the last one came so far.
    pub(super) fn between(times: Vec<Duration>, first: Instant, last: Instant) -> Self {
        Self::new(times, last.saturating_duration_since(first))
    }

    fn new(mut times: Vec<Duration>, whole: Duration) -> Self {
        times.sort_unstable();
        let [p50_ms, p99_ms] = [50, 99].map(|percent| percentile(&times, percent).as_secs_f64() * 1e3);
        let per_second = rate(times.len(), whole);
        Self { count: times.len(), p50_ms, p99_ms, seconds: whole.as_secs_f64(), per_second }
    }
}

/// The smallest time that at least this share of all does not exceed.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

/// So many in that time, per second.
pub(super) fn rate(count: usize, whole: Duration) -> f64 {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    f64::from(count) / whole.as_secs_f64().max(f64::EPSILON)
}

/// Spans with their names, one to a line, under a heading.
pub(super) fn print(f: &mut fmt::Formatter<'_>, spans: &[(&str, &Span)]) -> fmt::Result {
    let width = spans.iter().map(|(name, _)| name.len() + 2).max().unwrap_or_default().max(14);
    writeln!(f, "{:<width$}{:>12}{:>12}{:>12}{:>12}", "", "p50", "p99", "all in", "rate")?;
    for (name, Span { p50_ms, p99_ms, seconds, per_second, .. }) in spans {
        let times = [format!("{p50_ms:.1} ms"), format!("{p99_ms:.1} ms"), format!("{seconds:.2} s")];
        let rate = format!("{per_second:.0}/s");
        writeln!(f, "{name:<width$}{:>12}{:>12}{:>12}{rate:>12}", times[0], times[1], times[2])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let times = (1..=200).rev().map(Duration::from_millis).collect();
        let span = Span::new(times, Duration::from_secs(4));
        assert_eq!((span.p50_ms, span.p99_ms, span.per_second), (100.0, 198.0, 50.0));
        assert_eq!(Span::new(Vec::new(), Duration::ZERO).p99_ms, 0.0);
    }
}
