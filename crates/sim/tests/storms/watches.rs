//! Every watch fails for an hour.

use sim::faults::{Action, Ask, Refusal};

use crate::all::storm;

/// Pauses grow to half a minute and more; twelve kinds are watched, and each watch may need a list before it.
const MOST_OF_A_KIND: u64 = 300;

fn resumed_watches(ask: &Ask<'_>) -> bool {
    ask.action == Action::Watch && ask.goes_on()
}

fn watches(ask: &Ask<'_>) -> bool {
    ask.action == Action::Watch
}

#[test]
fn watches_and_lists_that_fail_for_an_hour_are_asked_for_rarely() {
    let cases = [
        (Refusal::Gone, resumed_watches as fn(&Ask<'_>) -> bool),
        (Refusal::Gone, watches),
        (Refusal::InternalError, watches),
        (Refusal::BadGateway, watches),
        (Refusal::Garbled, watches),
    ];
    for (refusal, hit) in cases {
        let (asked, _) = storm(refusal, hit);
        let lists = asked.iter().filter(|(line, _)| line.starts_with("GET ") && line.matches('/').count() <= 4);
        for (line, times) in lists {
            assert!(*times <= MOST_OF_A_KIND, "{refusal}: {line} was sent {times} times in an hour");
        }
    }
}
