//! What a driver method can learn about the call it runs in.

use std::time::Duration;

use tokio::time::Instant;
use tonic::metadata::MetadataMap;

use super::locks::Holder;

/// The part of a caller's patience that is kept back, so that the answer arrives before the caller gives up.
const MARGIN: u32 = 10;
const LONGEST_MARGIN: Duration = Duration::from_millis(100);

#[derive(Clone, Copy)]
pub(crate) struct Current {
    pub(crate) holder: Holder,
    pub(crate) deadline: Option<Instant>,
}

tokio::task_local! {
    pub(crate) static CURRENT: Current;
}

/// When the caller of the running operation stops waiting; `None` when it waits for ever, or outside of a call.
///
/// The operation is not stopped then: its caller gets DEADLINE_EXCEEDED and the work goes on. A driver may use this to
/// choose between finishing soon and leaving a step to the next attempt. Tasks that a driver spawns do not inherit it.
pub fn deadline() -> Option<Instant> {
    CURRENT.try_with(|current| current.deadline).ok().flatten()
}

/// The operation that runs in this task.
pub(crate) fn holder() -> Option<Holder> {
    CURRENT.try_with(|current| current.holder).ok()
}

/// When the answer must be out, from the `grpc-timeout` header. A header that makes no sense is no deadline.
pub(crate) fn deadline_of(metadata: &MetadataMap, now: Instant) -> Option<Instant> {
    let patience = parse_timeout(metadata.get("grpc-timeout")?.to_str().ok()?)?;
    let margin = (patience / MARGIN).min(LONGEST_MARGIN);
    now.checked_add(patience - margin)
}

/// At most eight digits and a unit, as gRPC over HTTP/2 defines it.
fn parse_timeout(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let digits = &text[..text.len() - unit.len_utf8()];
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        'H' => Some(Duration::from_secs(count * 3600)),
        'M' => Some(Duration::from_secs(count * 60)),
        'S' => Some(Duration::from_secs(count)),
        'm' => Some(Duration::from_millis(count)),
        'u' => Some(Duration::from_micros(count)),
        'n' => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_of_the_timeout_header_is_understood() {
        let rows = [
            ("2H", Some(Duration::from_secs(7200))),
            ("3M", Some(Duration::from_secs(180))),
            ("120S", Some(Duration::from_secs(120))),
            ("5m", Some(Duration::from_millis(5))),
            ("5u", Some(Duration::from_micros(5))),
            ("99999999n", Some(Duration::from_nanos(99_999_999))),
            ("", None),
            ("S", None),
            ("123456789S", None),
            ("+5S", None),
            ("5x", None),
            ("5é", None),
        ];
        for (text, want) in rows {
            assert_eq!(parse_timeout(text), want, "{text:?}");
        }
    }

    #[test]
    fn there_is_no_deadline_outside_of_a_call() {
        assert_eq!(deadline(), None);
    }
}
