//! News for a node is collected into few writes of its status, and nothing that has to be written first waits for it
//! (ATTACH-6.7, CTRL-14.43).

use std::time::Duration;

use api::{Key, Kind};
use control::attach::Options;
use serde_json::json;
use sim::faults::Fair;
use tokio::time::Instant;

use crate::played::unique;
use crate::rig::{Rig, at_every_request, play};

/// Longer than any wait in these tests: who waits for it is noticed.
const WINDOW: Duration = Duration::from_secs(600);

fn patient(scenario: impl AsyncFnOnce(&Rig) + Send) {
    play(Options { node_status_window: WINDOW, ..Options::default() }, Fair, scenario);
}

fn told_by(rig: &Rig) -> usize {
    rig.writes("PATCH /api/v1/nodes/a/status")
}

#[test]
fn a_volume_that_comes_alone_is_told_at_once() {
    patient(async |rig: &Rig| {
        rig.node("a").await;
        rig.volume("one", "ReadWriteOnce").await;
        let began = Instant::now();
        rig.pod("p", "a", &["one"]).await;
        rig.until_mounted("a", "one").await;
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    });
}

#[test]
fn volumes_that_come_together_are_told_together_and_with_the_last_one_at_once() {
    patient(async |rig: &Rig| {
        rig.node("a").await;
        rig.played.storage().orders.slow.insert("one3".to_owned());
        for name in ["one1", "one2", "one3"] {
            rig.volume(name, "ReadWriteOnce").await;
        }
        rig.pod("p", "a", &["one1", "one2", "one3"]).await;
        rig.quiet(30).await;
        assert_eq!((rig.told("a").await, told_by(rig)), (Vec::new(), 0), "a third one is on its way");
        rig.played.storage().orders.slow.clear();
        rig.until_mounted("a", "one1").await;
        assert_eq!((rig.told("a").await.len(), told_by(rig)), (3, 1));
    });
}

#[test]
fn nobody_waits_longer_than_the_window_for_a_volume_that_does_not_come() {
    patient(async |rig: &Rig| {
        rig.node("a").await;
        rig.played.storage().orders.slow.insert("one2".to_owned());
        for name in ["one1", "one2"] {
            rig.volume(name, "ReadWriteOnce").await;
            rig.pod(name, "a", &[name]).await;
        }
        rig.quiet(590).await;
        assert_eq!(rig.told("a").await, Vec::<String>::new());
        rig.quiet(20).await;
        assert_eq!(rig.told("a").await, [unique("one1")]);
    });
}

#[test]
fn an_attacher_that_says_why_not_holds_up_nobody() {
    patient(async |rig: &Rig| {
        rig.node("a").await;
        rig.played.storage().orders.slow.insert("one2".to_owned());
        for name in ["one1", "one2"] {
            rig.volume(name, "ReadWriteOnce").await;
            rig.pod(name, "a", &[name]).await;
        }
        rig.quiet(10).await;
        let status = json!({"attachError": {"message": "no slot", "time": "2027-01-01T00:00:00Z"}});
        let name = lifecycle::attach::attachment_name(crate::played::DRIVER, "one2", "a");
        rig.patch_status(Kind::ATTACHMENT, &Key::cluster(&name), status).await;
        rig.quiet(5).await;
        assert_eq!(rig.told("a").await, [unique("one1")]);
    });
}

/// Rule: CTRL-13.31
#[test]
fn a_detach_does_not_wait_for_the_window_and_its_write_tells_the_rest() {
    patient(async |rig: &Rig| {
        rig.node("a").await;
        for name in ["one1", "one2", "one3"] {
            rig.volume(name, "ReadWriteOnce").await;
        }
        rig.pod("p1", "a", &["one1"]).await;
        rig.until_mounted("a", "one1").await;
        rig.played.storage().orders.slow.insert("one3".to_owned());
        rig.pod("p2", "a", &["one2"]).await;
        rig.pod("p3", "a", &["one3"]).await;
        rig.quiet(10).await;
        assert_eq!(rig.told("a").await, [unique("one1")], "the second waits for the third");
        let (began, written) = (Instant::now(), told_by(rig));
        rig.end_pod("p1").await;
        rig.until_detached("one1", "a").await;
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert_eq!((rig.told("a").await, told_by(rig)), (vec![unique("one2")], written + 1));
    });
}

#[test]
fn a_pod_that_ends_within_the_window_is_detached_and_its_node_never_told() {
    patient(async |rig: &Rig| {
        rig.node("a").await;
        rig.played.storage().orders.slow.insert("one2".to_owned());
        for name in ["one1", "one2"] {
            rig.volume(name, "ReadWriteOnce").await;
            rig.pod(name, "a", &[name]).await;
        }
        rig.quiet(10).await;
        rig.end_pod("one1").await;
        rig.until_detached("one1", "a").await;
        rig.quiet(10).await;
        assert_eq!(told_by(rig), 0);
        rig.played.storage().orders.slow.clear();
        rig.until_mounted("a", "one2").await;
        assert_eq!(rig.told("a").await, [unique("one2")]);
    });
}

/// Rule: CTRL-13.35
#[test]
fn a_controller_that_ends_within_the_window_leaves_the_news_to_the_next_one() {
    patient(async |rig: &Rig| {
        rig.node("a").await;
        rig.played.storage().orders.slow.insert("one2".to_owned());
        for name in ["one1", "one2"] {
            rig.volume(name, "ReadWriteOnce").await;
            rig.pod(name, "a", &[name]).await;
        }
        rig.quiet(10).await;
        rig.end().await;
        rig.played.storage().orders.slow.clear();
        rig.quiet(10).await;
        assert_eq!(rig.told("a").await, Vec::<String>::new());
        rig.begin();
        rig.until_mounted("a", "one1").await;
        rig.until_mounted("a", "one2").await;
        assert_eq!(told_by(rig), 1, "both with one write");
    });
}

/// Rules: CTRL-13.31, CTRL-13.35, CTRL-13.36
#[test]
fn volumes_that_come_and_go_together_survive_every_fault() {
    at_every_request(async |rig: &Rig| {
        rig.node("a").await;
        let names = ["one1", "one2", "one3"];
        for name in names {
            rig.volume(name, "ReadWriteOnce").await;
        }
        rig.pod("p", "a", &["one1", "one2"]).await;
        rig.pod("q", "a", &["one3"]).await;
        for name in names {
            rig.until_mounted("a", name).await;
        }
        // One leaves while another one comes.
        rig.end_pod("q").await;
        rig.volume("one4", "ReadWriteOnce").await;
        rig.pod("r", "a", &["one4"]).await;
        rig.until_detached("one3", "a").await;
        rig.until_mounted("a", "one4").await;
        rig.end_pod("p").await;
        rig.end_pod("r").await;
        for name in ["one1", "one2", "one4"] {
            rig.until_detached(name, "a").await;
        }
        assert_eq!(rig.told("a").await, Vec::<String>::new());
    });
}
