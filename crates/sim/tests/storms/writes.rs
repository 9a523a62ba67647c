//! Every write fails for an hour.

use sim::faults::{Action, Ask, Refusal};

use crate::all::{Asked, storm};

/// An hour of a queue's backoff is about twenty passes, each with at most three writes to one object. Some objects are written to
/// by two controllers, and events bring a pass forward now and then.
const MOST_WRITES: u64 = 150;
/// Reads after failed writes, events, and lists in the background.
const MOST_REQUESTS: u64 = 3000;

fn writes(ask: &Ask<'_>) -> bool {
    matches!(ask.action, Action::Create | Action::Update | Action::Delete) && !ask.path.contains("/events")
}

fn volumes_made(ask: &Ask<'_>) -> bool {
    ask.action == Action::Create && ask.path.ends_with("/persistentvolumes")
}

fn check(asked: &Asked, refusal: Refusal) {
    let total: u64 = asked.values().sum();
    assert!(total < MOST_REQUESTS, "{refusal}: {total} requests in an hour: {asked:#?}");
    let is_write = |line: &str| !line.starts_with("GET ") && !line.contains("/events");
    for (line, times) in asked.iter().filter(|(line, _)| is_write(line)) {
        assert!(*times <= MOST_WRITES, "{refusal}: {line} was sent {times} times in an hour");
    }
}

#[test]
fn no_controller_repeats_a_write_that_fails_for_an_hour_without_pauses_or_in_silence() {
    for refusal in [Refusal::InternalError, Refusal::BadGateway, Refusal::Conflict, Refusal::Garbled] {
        let (asked, events) = storm(refusal, writes);
        check(&asked, refusal);
        let told = |name: &str, reason: &str| {
            let start = format!("{name} {reason}: ");
            assert!(events.iter().any(|event| event.starts_with(&start)), "{refusal}: {start}: {events:#?}");
        };
        told("static", "WriteFailed");
        told("late", "WriteFailed");
        told("dynamic", "ProvisioningFailed");
        told("attached", "FailedAttachVolume");
        told("scratch", "FailedBinding");
    }
}

#[test]
fn a_volume_that_cannot_be_stored_for_an_hour_is_told_on_its_claim() {
    for refusal in [Refusal::InternalError, Refusal::BadGateway, Refusal::Conflict, Refusal::Garbled] {
        let (asked, events) = storm(refusal, volumes_made);
        check(&asked, refusal);
        let told = |event: &&String| event.starts_with("dynamic ProvisioningFailed: ") && event.contains("storing the");
        assert!(events.iter().any(|event| told(&event)), "{refusal}: {events:#?}");
    }
}
