//! What a case costs: memory at its peak, memory left behind, processor time.
//!
//! Memory is counted by the allocator, so the program that uses this must make [`peak_alloc::PeakAlloc`] its global
//! allocator; without it all numbers are zero. Counts are of the whole process: one case at a time.

use std::time::Duration;

use peak_alloc::PeakAlloc;

/// What a case may take whatever its size: a server with some content, and its longest documents.
const BASE_BYTES: usize = 96 << 20;
/// What a case may take for each byte of its input. A list of small things is several copies of a tree of nodes.
const BYTES_PER_BYTE: usize = 256;
/// Processor time that any case may take. Cases take milliseconds; this is for builds without optimisation.
const BASE_TIME: Duration = Duration::from_secs(10);
/// Processor time for each byte of the input.
const TIME_PER_BYTE: Duration = Duration::from_micros(8);

/// What a piece of work took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Used {
    /// Bytes above those in use before.
    pub peak: usize,
    /// Bytes that are in use now and were not before.
    pub left: usize,
    /// Processor time of this thread; none where the kernel does not say.
    pub time: Option<Duration>,
}

/// What a case may take.
#[derive(Debug, Clone, Copy)]
pub struct Allowed {
    pub peak: usize,
    pub time: Duration,
}

impl Allowed {
    pub fn for_input(bytes: usize) -> Self {
        let per_byte = u32::try_from(bytes).unwrap_or(u32::MAX);
        Self { peak: BASE_BYTES + BYTES_PER_BYTE * bytes, time: BASE_TIME + TIME_PER_BYTE * per_byte }
    }
}

/// Runs work and says what it took.
pub fn measure<T>(work: impl FnOnce() -> T) -> (T, Used) {
    let (before, started) = (PeakAlloc.current_usage(), thread_time());
    PeakAlloc.reset_peak_usage();
    let done = work();
    let peak = PeakAlloc.peak_usage().saturating_sub(before);
    let left = PeakAlloc.current_usage().saturating_sub(before);
    let time = started.and_then(|started| thread_time()?.checked_sub(started));
    (done, Used { peak, left, time })
}

/// The processor time that this thread has had, as the scheduler counts it.
pub fn thread_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}
