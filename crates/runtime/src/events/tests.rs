//! What is written, counted, combined and dropped.

use serde_json::Value;

use super::*;
use crate::fake::{Fake, Fault, Thing, thing};
use crate::stop::Stopper;
use crate::time::VirtualClock;

const EVENTS: &str = "/api/v1/namespaces/n/events";

struct Scene {
    fake: Fake,
    recorder: Recorder,
    writer: Writer,
    metrics: Metrics,
}

impl Scene {
    fn new() -> Scene {
        let clock = Arc::new(VirtualClock::starting_at("2026-01-01T00:00:00.7Z".parse().unwrap()));
        let metrics = Metrics::new(&*clock);
        let entropy = Entropy::seeded(4);
        let (recorder, writer) = channel("persistentvolume-controller", "host", clock, &metrics, &entropy);
        Scene { fake: Fake::new(), recorder, writer, metrics }
    }

    /// Writes what `play` records, and gives the events that are in the cluster then.
    async fn run(self, play: impl AsyncFnOnce(&Recorder)) -> (Vec<Value>, Fake, Metrics) {
        let Scene { fake, recorder, writer, metrics } = self;
        let client = fake.client();
        let (stopper, stop) = Stopper::new();
        let playing = async {
            play(&recorder).await;
            stopper.stop();
        };
        tokio::join!(writer.run(&client, &stop), playing);
        let events = fake.under(EVENTS);
        (events, fake, metrics)
    }
}

fn subject() -> Thing {
    thing("claim", "uid-1", 42, "red")
}

#[tokio::test(start_paused = true)]
async fn an_event_has_upstreams_fields() {
    let (events, ..) = Scene::new()
        .run(async |recorder| recorder.record(&subject(), Severity::Warning, "FailedBinding", "nothing fits"))
        .await;
    let [event] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(
        event["involvedObject"],
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "n",
        "name": "claim", "uid": "uid-1", "resourceVersion": "42"})
    );
    let name = event["metadata"]["name"].as_str().unwrap();
    let hex = name.strip_prefix("claim.").unwrap();
    assert!(hex.len() == 16 && hex.chars().all(|c| c.is_ascii_hexdigit()), "{name}");
    for (field, want) in [
        ("type", json!("Warning")),
        ("reason", json!("FailedBinding")),
        ("message", json!("nothing fits")),
        ("source", json!({"component": "persistentvolume-controller"})),
        ("reportingComponent", json!("persistentvolume-controller")),
        ("firstTimestamp", json!("2026-01-01T00:00:00Z")),
        ("count", json!(1)),
    ] {
        assert_eq!(event[field], want, "{field}");
    }
}

#[tokio::test(start_paused = true)]
async fn repetitions_are_counted_on_one_event() {
    let (events, ..) = Scene::new()
        .run(async |recorder| {
            for _ in 0..5 {
                recorder.record(&subject(), Severity::Normal, "Waiting", "for the first consumer");
                sleep(Duration::from_secs(10)).await;
            }
        })
        .await;
    let [event] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((&event["count"], &event["lastTimestamp"]), (&json!(5), &json!("2026-01-01T00:00:40Z")));
}

#[tokio::test(start_paused = true)]
async fn repetitions_during_a_request_cost_one_more_request() {
    let (events, fake, _) = Scene::new()
        .run(async |recorder| {
            for _ in 0..20 {
                recorder.record(&subject(), Severity::Normal, "Waiting", "still");
            }
        })
        .await;
    assert_eq!((events.len(), &events[0]["count"]), (1, &json!(20)));
    assert!(fake.log().iter().filter(|asked| !asked.starts_with("GET")).count() <= 3, "{:?}", fake.log());
}

#[tokio::test(start_paused = true)]
async fn beyond_the_burst_events_about_one_object_are_dropped_and_counted() {
    let (events, _, metrics) = Scene::new()
        .run(async |recorder| {
            for _ in 0..40 {
                recorder.record(&subject(), Severity::Normal, "Waiting", "still");
            }
            recorder.record(&thing("other", "uid-2", 1, "red"), Severity::Normal, "Waiting", "still");
        })
        .await;
    assert_eq!(events.iter().map(|event| event["count"].as_u64().unwrap()).collect::<Vec<_>>(), [25, 1]);
    let line = r#"orlop_events_dropped_total{name="too many about one object"} 15"#;
    assert!(metrics.encode().contains(line), "{}", metrics.encode());
}

#[tokio::test(start_paused = true)]
async fn events_that_differ_only_in_words_become_one() {
    let (events, ..) = Scene::new()
        .run(async |recorder| {
            for attempt in 0..15 {
                let message = format!("attempt {attempt:02} failed");
                recorder.record(&subject(), Severity::Warning, "ProvisioningFailed", &message);
                sleep(Duration::from_secs(1)).await;
            }
        })
        .await;
    assert_eq!(events.len(), 10);
    let combined: Vec<_> = events.iter().filter(|event| event["count"] == 6).collect();
    assert_eq!(combined[0]["message"], "(combined from similar events): attempt 14 failed");
}

#[tokio::test(start_paused = true)]
async fn an_expired_event_is_made_again_and_a_lost_answer_makes_no_second_one() {
    let scene = Scene::new();
    scene.fake.fault("POST", Fault::LostAfter);
    let fake = scene.fake.clone();
    let (events, ..) = scene
        .run(async |recorder| {
            recorder.record(&subject(), Severity::Normal, "Waiting", "still");
            sleep(Duration::from_secs(30)).await;
            fake.fault("PATCH", Fault::Refused(404, json!({"status": "Failure", "reason": "NotFound"}), None));
            recorder.record(&subject(), Severity::Normal, "Waiting", "still");
        })
        .await;
    assert_eq!(events.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_never_waits() {
    let scene = Scene::new();
    for number in 0..WAITING + 7 {
        scene.recorder.record(&thing(&format!("t{number}"), "u", 1, "x"), Severity::Normal, "R", "m");
    }
    let line = r#"orlop_events_dropped_total{name="queue full"} 7"#;
    assert!(scene.metrics.encode().contains(line));
}

#[test]
fn a_long_message_is_cut_at_a_character() {
    let message = "ä".repeat(600);
    assert_eq!(cut(&message).len(), 1024);
    assert_eq!(cut("short"), "short");
}

/// A controller that asks the server before it says the same again.
#[tokio::test(start_paused = true)]
async fn a_reason_is_told_once_although_a_look_at_the_server_comes_between() {
    use lifecycle::release::volume::Because;
    let claim = api::Key::namespaced("n", "c");
    let (events, ..) = Scene::new()
        .run(async |recorder| {
            let notices = crate::Notices::new(recorder.clone());
            for _ in 0..5 {
                notices.tell(&subject(), &Because::CacheMayLag { claim: claim.clone() });
                notices.tell(&subject(), &Because::NoRecycler);
                sleep(Duration::from_secs(10)).await;
            }
            notices.tell(&subject(), &Because::Unclaimed);
            notices.tell(&subject(), &Because::NoRecycler);
            sleep(Duration::from_secs(10)).await;
        })
        .await;
    let [event] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(event["count"], json!(2), "once, and once more after all was well");
}
