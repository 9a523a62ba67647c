//! Which pods get volumes, when, and how often that is tried: NODE-5.1 to NODE-5.3, NODE-5.6, NODE-8.1, NODE-8.2,
//! NODE-31.12, NODE-31.13.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::Kind;
use serde_json::json;
use sim::faults::{Action, Ask, Fate, Verdict};
use sim::machine::{Event, HostFate};
use tokio::time::{Instant, sleep};
use tonic::Code;

use crate::driver::Reply;
use crate::stage::{Play, Rig, key, play};

async fn end(rig: &Rig, pod: &str, phase: &str) {
    rig.patch_status(Kind::POD, &key(pod), json!({"phase": phase})).await;
}

/// Rules: NODE-5.2, NODE-5.6
#[test]
fn a_pod_that_has_ended_gets_nothing_and_gives_back_what_it_has() {
    for phase in ["Succeeded", "Failed"] {
        play(Play::default(), async |rig| {
            rig.volume("v", json!({})).await;
            rig.volume("w", json!({})).await;
            let uid = rig.pod("p", &["v"]).await;
            rig.until_ready("p").await;
            end(rig, "p", phase).await;
            rig.until("it gives it back", async || rig.doorman.count("unstage") == 1).await;
            assert!(!rig.is_mounted(&uid, "v") && rig.get(Kind::POD, &key("p")).await.is_some(), "its object stays");
            rig.until_clean().await;
            let calls = rig.doorman.calls();
            // The same before the agent knows its pods: it ended while nobody was there.
            rig.kill().await;
            rig.pod("q", &["w"]).await;
            end(rig, "q", phase).await;
            rig.start();
            sleep(Duration::from_secs(60)).await;
            assert_eq!(rig.doorman.calls(), calls, "{phase}");
        });
    }
}

/// Rules: NODE-5.2, NODE-5.4
#[test]
fn a_pod_without_a_use_for_a_volume_does_not_get_it() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({})).await;
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]);
        rig.pod_with("p", volumes, json!({"containers": [{"name": "main", "image": "example/main"}]})).await;
        rig.until_ready("p").await;
        assert_eq!(rig.doorman.calls(), [] as [&str; 0]);
    });
}

/// Rule: NODE-5.3
#[test]
fn of_a_pods_volumes_those_that_can_be_had_are_mounted() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["missing", "v"]).await;
        rig.until("the one is mounted", async || rig.is_mounted(&uid, "v")).await;
        let (status, reason, message) = rig.said("p").await;
        assert_eq!((&*status, &*reason), ("False", "ClaimMissing"));
        assert!(message.contains("missing: ") && !message.contains("; v: "), "{message}");
        // A claim that comes is noticed without anybody asking for it.
        rig.volume("missing", json!({})).await;
        let began = Instant::now();
        rig.until_ready("p").await;
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    });
}

/// Rule: NODE-5.6
#[test]
fn a_pod_of_the_same_name_is_another_pod() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({})).await;
        let first = rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        rig.end_pod("p").await;
        let second = rig.pod("p", &["v"]).await;
        rig.until("the second has it", async || rig.is_mounted(&second, "v")).await;
        rig.until("the first has not", async || !rig.is_mounted(&first, "v")).await;
        rig.until_ready("p").await;
        assert_eq!(rig.doorman.count("unstage"), 0, "one after the other, on one stage");
    });
}

/// Rule: NODE-8.2
#[test]
fn failures_are_repeated_after_half_a_second_and_then_less_and_less_often() {
    play(Play::default(), async |rig| {
        rig.doorman.always("stage", Reply::Refused(Code::Internal));
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.until("it failed often", async || rig.doorman.count("stage") >= 12).await;
        let times = rig.doorman.times("stage");
        let waits: Vec<f64> = times.windows(2).map(|two| (two[1] - two[0]).as_secs_f64()).collect();
        let expected = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 122.0, 122.0, 122.0];
        for (wait, expected) in waits.iter().zip(expected) {
            // A call takes a moment, too.
            assert!((expected..expected + 1.0).contains(wait), "{waits:?}");
        }
        // Another operation does not wait for this one's failures.
        let began = Instant::now();
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        rig.until_clean().await;
    });
}

/// Rules: NODE-1, NODE-10.4
#[test]
fn a_driver_gets_two_minutes_for_a_call() {
    play(Play::default(), async |rig| {
        rig.doorman.next("stage", Reply::Late(Duration::from_secs(3600)));
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        let times = rig.doorman.times("stage");
        let waited = (times[1] - times[0]).as_secs_f64();
        assert!((120.5..121.5).contains(&waited), "two minutes, and the first backoff: {waited}");
        assert!(rig.events("FailedMount").await[0].contains("no answer within 120s"));
    });
}

/// Rule: NODE-8.1
#[test]
fn one_volume_has_one_operation_at_a_time_and_others_do_not_wait_for_it() {
    play(Play::default(), async |rig| {
        rig.doorman.next("stage", Reply::Late(Duration::from_secs(60)));
        rig.volume("v", json!({"accessModes": ["ReadWriteMany"]})).await;
        rig.volume("w", json!({})).await;
        rig.pod("a", &["v"]).await;
        rig.until("the call is on its way", async || rig.doorman.count("stage") == 1).await;
        rig.pod("b", &["v"]).await;
        rig.pod("c", &["w"]).await;
        let began = Instant::now();
        rig.until_ready("c").await;
        assert!(began.elapsed() < Duration::from_secs(5), "another volume does not wait");
        assert_eq!(rig.doorman.count("stage"), 2, "and the same is not staged for a second pod meanwhile");
        rig.until_ready("a").await;
        rig.until_ready("b").await;
        assert_eq!((rig.doorman.count("stage"), rig.doorman.count("publish")), (2, 3));
    });
}

/// Rules: NODE-31.12, NODE-5.1, NODE-7
#[test]
fn nothing_is_done_while_nothing_happens() {
    let (requests, calls) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (asked, done) = (requests.clone(), calls.clone());
    let api = move |ask: &Ask<'_>| -> Verdict {
        if ask.action != Action::Watch {
            asked.fetch_add(1, Ordering::Relaxed);
        }
        Fate::Answered.into()
    };
    let host = move |event: &Event<'_>| {
        done.fetch_add(usize::from(event.changes), Ordering::Relaxed);
        HostFate::Done
    };
    play(Play { api: Box::new(api), host: Box::new(host), ..Play::attached() }, async |rig| {
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.attach("v").await;
        rig.until_ready("p").await;
        rig.pod("stuck", &["missing"]).await;
        rig.until_said("stuck", "ClaimMissing").await;
        sleep(Duration::from_secs(5)).await;
        let before = (requests.load(Ordering::Relaxed), calls.load(Ordering::Relaxed));
        sleep(Duration::from_secs(600)).await;
        assert_eq!((requests.load(Ordering::Relaxed), calls.load(Ordering::Relaxed)), before, "NODE-5.1, NODE-7");
    });
}

/// Rule: NODE-31.13
#[test]
fn the_node_says_at_once_that_it_uses_a_volume_and_the_attachment_is_watched() {
    play(Play::attached(), async |rig| {
        rig.volume("v", json!({})).await;
        sleep(Duration::from_secs(5)).await;
        let began = Instant::now();
        rig.pod("p", &["v"]).await;
        rig.attach("v").await;
        rig.until_ready("p").await;
        assert!(began.elapsed() < Duration::from_secs(2), "no tick of ten seconds: {:?}", began.elapsed());
    });
}
