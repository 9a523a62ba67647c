//! A histogram of durations: counters that are added to without a lock.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Durations by upper bounds in seconds. Each is counted in its own bucket only; printing adds them up.
#[derive(Debug)]
pub(crate) struct Histogram {
    bounds: &'static [f64],
    /// One more than bounds: the last takes what is above all of them.
    buckets: Box<[AtomicU64]>,
    nanos: AtomicU64,
}

impl Histogram {
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, buckets, nanos: AtomicU64::new(0) }
    }

    pub(crate) fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let index = self.bounds.partition_point(|bound| *bound < seconds);
        self.buckets[index].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Prints it with these labels, which are empty or end in a comma.
    pub(crate) fn print(&self, name: &str, labels: &str, out: &mut String) {
        let mut total = 0;
        let bounds = self.bounds.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        for (bound, bucket) in bounds.zip(&*self.buckets) {
            total += bucket.load(Ordering::Relaxed);
            let _ = writeln!(out, "{name}_bucket{{{labels}le=\"{bound}\"}} {total}");
        }
        let labels = match labels.trim_end_matches(',') {
            "" => String::new(),
            labels => format!("{{{labels}}}"),
        };
        let seconds = Duration::from_nanos(self.nanos.load(Ordering::Relaxed)).as_secs_f64();
        let _ = writeln!(out, "{name}_sum{labels} {seconds}\n{name}_count{labels} {total}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_its_bucket_and_all_above() {
        let histogram = Histogram::new(&[0.5, 1.0]);
        for millis in [500, 700, 3000] {
            histogram.observe(Duration::from_millis(millis));
        }
        let mut out = String::new();
        histogram.print("x", "a=\"b\",", &mut out);
        let expected = "x_bucket{a=\"b\",le=\"0.5\"} 1\nx_bucket{a=\"b\",le=\"1\"} 2\nx_bucket{a=\"b\",le=\"+Inf\"} 3\n\
                        x_sum{a=\"b\"} 4.2\nx_count{a=\"b\"} 3\n";
        assert_eq!(out, expected);
    }
}
