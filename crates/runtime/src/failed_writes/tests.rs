//! Writes that fail for an hour, on paused time.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::client::Patch;
use crate::context::Context;
use crate::entropy::Entropy;
use crate::fake::{Fake, Fault, Thing};
use crate::handoff::Handoff;
use crate::metrics::Metrics;
use crate::queue::{self, Backoff, Queue, Verdict};
use crate::stop::Stopper;
use crate::time::{Clock, VirtualClock};
use crate::{Caches, Object as _, events};

#[tokio::test(start_paused = true)]
async fn a_pass_looks_again_twice_per_object_and_knows_how_its_last_write_ended() {
    let (key, other) = (Key::namespaced("n", "a"), Key::namespaced("n", "b"));
    let failed = || Err::<(), _>(Error::Conflict { message: "changed".to_owned() });
    let (looks, unsettled) = in_pass(async {
        note_write(&failed());
        let looks: Vec<bool> = (0..4).map(|_| may_look_again(Kind::CLAIM, &key)).collect();
        assert!(may_look_again(Kind::CLAIM, &other), "each object counts for itself");
        looks
    })
    .await;
    assert_eq!(looks, [true, true, false, false]);
    assert_eq!(unsettled.as_deref(), Some("conflict: changed"));
    let ((), unsettled) = in_pass(async {
        note_write(&failed());
        note_write(&Ok(()));
    })
    .await;
    assert_eq!(unsettled, None);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_once_per_change_and_again_after_a_while() {
    let (told, uid) = (ToldFailures::default(), Uid::from("u"));
    assert!(told.is_news(&uid, "no") && !told.is_news(&uid, "no") && told.is_news(&uid, "never"));
    tokio::time::advance(TELL_AGAIN).await;
    assert!(told.is_news(&uid, "never"));
    told.settled(&uid);
    assert!(told.is_news(&uid, "never"));
}

/// A controller that paints every thing blue, as the controllers of this program write: it looks, writes, reads the truth after
/// a write that failed, and looks again.
async fn paint(context: &Context, key: Key) -> Verdict {
    for _ in 0..16 {
        let Some(thing) = context.cache::<Thing>().get(&key).filter(|thing| thing.colour != "blue") else {
            return Verdict::Done;
        };
        let patch = Patch::Merge(json!({"metadata": {"uid": thing.meta().uid.as_str()}, "colour": "blue"}));
        let Err(error) = context.patch::<Thing>(&key, &patch).await else { continue };
        if let Err(error) = context.reconsider::<Thing>(&key, error).await {
            return Verdict::Failed(error.to_string());
        }
    }
    Verdict::Again(Duration::ZERO)
}

/// The requests that this controller makes in an hour of this fault at its writes, and the events about the thing.
async fn an_hour_of(fault: Fault) -> (Vec<String>, Vec<serde_json::Value>) {
    let fake = Fake::new();
    fake.put("a", "red");
    fake.fault_for_ever("PATCH /api/v1/namespaces/n/persistentvolumeclaims/", fault);
    let (client, entropy) = (fake.client(), Entropy::seeded(1));
    let clock: Arc<dyn Clock> = Arc::new(VirtualClock::starting_at(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
    let metrics = Metrics::new(&*clock);
    let (recorder, writer) = events::channel("painter", "host", clock.clone(), &metrics, &entropy);
    let caches = Caches::new(&client, &entropy);
    let handoff = Handoff::default();
    let context = Context { client: client.clone(), caches, recorder, metrics, entropy, clock, handoff };
    let things = context.cache::<Thing>();
    let queue = Queue::new("paint", Backoff::default(), &context.metrics, &context.entropy);
    let keys = queue.clone();
    let _painting = things.subscribe(move |change| keys.add(change.key().clone()));
    let (stopper, stop) = Stopper::new();
    let hour = async {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        stopper.stop();
    };
    let caches = context.caches.clone();
    let work = queue::run(&queue, 1, &stop, |key| paint(&context, key));
    tokio::join!(work, caches.run(&stop), writer.run(&client, &stop), hour);
    (fake.log(), fake.under("/api/v1/namespaces/n/events"))
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_for_an_hour_is_repeated_with_growing_pauses_and_told_on_its_object() {
    let conflict = json!({"kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict", "message": "no"});
    let invalid = json!({"kind": "Status", "status": "Failure", "code": 422, "reason": "Invalid", "message": "no"});
    let faults = [
        ("500", Fault::Said(500, "{\"status\":\"Failure\",\"message\":\"etcdserver: request is too large\"}")),
        ("502", Fault::Said(502, "<html>bad gateway</html>")),
        ("409", Fault::Refused(409, conflict, None)),
        ("422", Fault::Refused(422, invalid, None)),
        ("413", Fault::Said(413, "too large")),
        ("unreadable", Fault::Said(200, "<html>welcome</html>")),
    ];
    for (name, fault) in faults {
        let (log, told) = an_hour_of(fault).await;
        let writes = log.iter().filter(|line| line.starts_with("PATCH") && !line.contains("/events/")).count();
        // Twenty passes of an hour's backoff, each with at most three writes.
        assert!((15..=75).contains(&writes), "{name}: {writes} writes in an hour");
        assert!(log.len() < 250, "{name}: {} requests in an hour", log.len());
        let [event] = &told[..] else { panic!("{name}: not one event: {told:#?}") };
        assert_eq!((&event["reason"], &event["type"]), (&json!(WRITE_FAILED), &json!("Warning")), "{name}");
        assert_eq!(event["involvedObject"]["name"], "a", "{name}");
        let message = event["message"].as_str().unwrap_or_default();
        assert!(message.starts_with("Writing it fails and is repeated with growing pauses: "), "{name}: {message}");
        assert!(event["count"].as_u64().is_some_and(|count| count <= 13), "{name}: {event:#}");
    }
}
