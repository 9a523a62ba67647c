//! What a run found, for people and for programs.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use super::ledger::{Ledger, Moment};
use super::writes::Writes;

/// The numbers of one run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) claims: usize,
    /// Made by hand; 0 if volumes were provisioned.
    pub(super) volumes: usize,
    pub(super) concurrency: usize,
    pub(super) provisioner: String,
    pub(super) volumes_per_second: Option<f64>,
    /// From sending a claim's creation until it is Bound.
    pub(super) bound: Span,
    /// From sending a claim's deletion until it is gone.
    pub(super) claims_gone: Span,
    /// From sending a claim's deletion until its volume is gone; that of the volume itself, if it was made by hand.
    pub(super) volumes_gone: Span,
    /// By others than the bench; absent if the server does not show its metrics.
    pub(super) bind_writes: Option<Writes>,
    pub(super) delete_writes: Option<Writes>,
}

/// How long one step took for all.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Span {
    pub(super) count: usize,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) seconds: f64,
    pub(super) per_second: f64,
}

impl Span {
    /// From the first request until the last one came so far.
    pub(super) fn of(ledger: &Ledger, moment: Moment, first: Instant, last: Instant) -> Self {
        Self::new(ledger.latencies(moment), last.saturating_duration_since(first))
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

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { claims, volumes, concurrency, provisioner, .. } = self;
        match self.volumes_per_second {
            Some(rate) => writeln!(f, "{claims} claims, {volumes} volumes made by hand ({rate:.0}/s)")?,
            None => writeln!(f, "{claims} claims provisioned by {provisioner}")?,
        }
        writeln!(f, "{concurrency} requests at once\n")?;
        writeln!(f, "{:<14}{:>12}{:>12}{:>12}{:>12}", "", "p50", "p99", "all in", "rate")?;
        for (name, span) in
            [("bound", &self.bound), ("claim gone", &self.claims_gone), ("volume gone", &self.volumes_gone)]
        {
            let Span { p50_ms, p99_ms, seconds, per_second, .. } = span;
            let times = [format!("{p50_ms:.1} ms"), format!("{p99_ms:.1} ms"), format!("{seconds:.2} s")];
            writeln!(
                f,
                "{name:<14}{:>12}{:>12}{:>12}{:>12}",
                times[0],
                times[1],
                times[2],
                format!("{per_second:.0}/s")
            )?;
        }
        for (what, writes) in [("to bind", &self.bind_writes), ("to delete", &self.delete_writes)] {
            match writes {
                Some(writes) => self.print_writes(f, what, writes)?,
                None => writeln!(f, "\nwrites {what}: not known, the server does not show its metrics")?,
            }
        }
        Ok(())
    }
}

impl Report {
    fn print_writes(&self, f: &mut fmt::Formatter<'_>, what: &str, writes: &Writes) -> fmt::Result {
        let each =
            |count: u64| rate(usize::try_from(count).unwrap_or(usize::MAX), Duration::from_secs(1)) / per(self.claims);
        let (total, events, refused) = (each(writes.total()), each(writes.events), each(writes.refused));
        writeln!(f, "\nwrites {what}, per claim: {total:.2}, and {events:.2} events; {refused:.2} were refused")?;
        for (what, count) in &writes.done {
            writeln!(f, "  {:>6.2}  {what}", each(*count))?;
        }
        Ok(())
    }
}

fn per(claims: usize) -> f64 {
    f64::from(u32::try_from(claims).unwrap_or(u32::MAX)).max(1.0)
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
