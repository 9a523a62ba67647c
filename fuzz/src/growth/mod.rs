//! Growth: whether the work of a request grows faster than the request.
//!
//! Every list, map and text of every served type is grown to some size and to four times that size, and sent in every way
//! an object can be written. What is counted is deterministic: allocations and their bytes, by the allocator. Comparisons
//! that allocate nothing are seen only in processor time, which is a coarse second measure with a wide margin.
//!
//! The program that uses this must make [`stats_alloc::INSTRUMENTED_SYSTEM`] its global allocator. Counts are of the whole
//! process: one case at a time.

mod places;
mod requests;

use std::fmt;
use std::time::Duration;

use stats_alloc::INSTRUMENTED_SYSTEM;

use crate::case::Step;
use crate::http::{Answer, Session};
use crate::meter::thread_time;

pub use places::{Filling, Place, all_places};
pub use requests::{GrowingRequest, Way, samples, special_cases};

/// A request of four times the size may take this many times the bytes and allocations. Four is proportional; the rest
/// is for logarithms and for tables that double.
const MOST_TIMES: usize = 6;
/// Bytes that any request may take besides: answers have a bounded part that is empty for a small request.
const FREE_BYTES: usize = 24 << 20;
const FREE_ALLOCATIONS: usize = 60_000;
/// Bytes that one byte of a request may take: a tree of small nodes, several copies of it, and their owners.
const BYTES_PER_BYTE: usize = 1_500;
/// Processor time is judged only where it is long enough to be measured, and only by this factor.
const LEAST_TIME: Duration = Duration::from_millis(50);
const MOST_TIMES_AS_LONG: u32 = 12;

/// What a request took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    pub size: usize,
    pub bytes: usize,
    pub allocations: usize,
    pub time: Duration,
    pub code: u16,
}

/// What grows faster than its request.
#[derive(Debug, Clone)]
pub struct Excess {
    pub case: String,
    pub what: &'static str,
    pub small: Cost,
    pub large: Cost,
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, what, small, large } = self;
        write!(
            f,
            "{case}: {what} grow faster than the request: {} bytes sent, {} bytes in {} allocations and {:?} ({}); {} \
             bytes sent, {} bytes in {} allocations and {:?} ({})",
            small.size,
            small.bytes,
            small.allocations,
            small.time,
            small.code,
            large.size,
            large.bytes,
            large.allocations,
            large.time,
            large.code
        )
    }
}

/// Sends a request and says what it took.
pub fn cost(session: &Session, step: &Step) -> Cost {
    let size = step.uri.len() + step.body().len();
    let (before, started) = (INSTRUMENTED_SYSTEM.stats(), thread_time());
    let answer = session.send(step);
    let after = INSTRUMENTED_SYSTEM.stats();
    let time = started.and_then(|started| thread_time()?.checked_sub(started)).unwrap_or_default();
    let allocations = |stats: &stats_alloc::Stats| stats.allocations + stats.reallocations;
    Cost {
        size,
        bytes: after.bytes_allocated - before.bytes_allocated,
        allocations: allocations(&after) - allocations(&before),
        time,
        code: answer.map_or(0, |answer| answer.code),
    }
}

/// Sends a request in two sizes and compares. `request` makes it; the second size is four times the first.
pub fn compare(session: &Session, case: &str, count: usize, request: &dyn Fn(usize) -> Step) -> Option<Excess> {
    // The first request of a kind fills caches.
    session.send(&request(2));
    let small = cost(session, &request(count));
    let mut large = cost(session, &request(4 * count));
    // A quiet moment counts: the machine may be busy with something else.
    for _ in 0..2 {
        if is_slow(small, large) {
            let again = cost(session, &request(4 * count));
            large.time = large.time.min(again.time);
        }
    }
    let what = excess(small, large)?;
    Some(Excess { case: case.to_owned(), what, small, large })
}

fn is_slow(small: Cost, large: Cost) -> bool {
    large.time > LEAST_TIME && large.time > MOST_TIMES_AS_LONG * small.time.max(Duration::from_millis(1))
}

fn excess(small: Cost, large: Cost) -> Option<&'static str> {
    let times = |small: usize, large: usize, free: usize| large > free && large > MOST_TIMES * small;
    if large.bytes > FREE_BYTES + BYTES_PER_BYTE * large.size {
        Some("bytes for each byte")
    } else if times(small.bytes, large.bytes, FREE_BYTES) {
        Some("bytes")
    } else if times(small.allocations, large.allocations, FREE_ALLOCATIONS) {
        Some("allocations")
    } else if is_slow(small, large) {
        Some("processor time")
    } else {
        None
    }
}

/// How much is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Entries of the small request.
    pub count: usize,
    /// Every place of every type, or only those near the root of an object.
    pub depth: usize,
    pub ways: &'static [Way],
    /// Of the places that are left, one of so many.
    pub stride: usize,
}

impl Plan {
    pub const ALL: Self = Self { count: 3_000, depth: usize::MAX, ways: Way::ALL, stride: 1 };
}

/// A server with one object of every kind.
pub fn populated() -> Session {
    let session = Session::new();
    let answers = samples().map(|(kind, step)| (kind, session.send(&step)));
    // Some are there already.
    let is_there = |answer: &Option<Answer>| answer.as_ref().is_some_and(|answer| matches!(answer.code, 201 | 409));
    let refused: Vec<_> = answers.filter(|(_, answer)| !is_there(answer)).collect();
    assert!(refused.is_empty(), "samples are refused: {refused:#?}");
    session
}

/// Tries everything that a plan says, and tells each case that grows too fast. The answer is how many were tried.
pub fn run(plan: Plan, found: &mut dyn FnMut(Excess)) -> usize {
    let session = populated();
    let mut tried = 0;
    let places = all_places().into_iter().filter(|place| place.depth() <= plan.depth).enumerate();
    for (_, place) in places.filter(|(number, _)| number % plan.stride == 0) {
        for filling in Filling::ALL {
            for way in plan.ways.iter().filter(|way| way.fits(&place)) {
                let case = format!("{place} {filling:?} {way:?}");
                tried += 1;
                let request = |count: usize| way.request(&place, filling, count);
                if let Some(excess) = compare(&session, &case, plan.count, &request) {
                    found(excess);
                }
            }
        }
    }
    for (name, request) in special_cases() {
        tried += 1;
        if let Some(excess) = compare(&session, name, plan.count, &request) {
            found(excess);
        }
    }
    tried
}
