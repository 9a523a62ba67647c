//! A whole life of an attachment, interrupted at every write and at every call (SIDECAR-A1 to SIDECAR-A3, CTRL-13.32,
//! CTRL-13.33, CTRL-13.35).

use api::Kind;
use control::attacher::Options;
use serde_json::json;
use sim::faults::{self, Refusal};

use crate::driver;
use crate::stage::{
    ATTACHMENT, FINALIZER, HANDLE, Mishap, NODE_ID, PUBLISHES, Stage, VOLUME, holds, play, secret, volume, with_secret,
};
use crate::stage::{attachment, node};

/// An attachment comes, is carried out, and goes with its volume. Gives how many writes and calls that took.
async fn whole_life(stage: Stage) -> (usize, usize) {
    stage.make(&secret(json!({"user": "me"}))).await;
    stage.make(&volume(with_secret())).await;
    stage.make(&node(&[(crate::driver::NAME, NODE_ID)])).await;
    stage.make(&attachment(json!({"metadata": {"finalizers": ["example.com/theirs"]}}))).await;
    stage.wait().await;
    assert!(stage.is_attached().await, "{:?}", stage.journal());
    assert!(stage.driver.has(HANDLE, NODE_ID));
    let held = stage.attachment().await;
    assert_eq!(held["status"], json!({"attached": true, "attachmentMetadata": {"lun": "3"}}));
    assert!(holds(&held, FINALIZER) && holds(&held, "example.com/theirs"));

    stage.detach().await;
    stage.drop::<api::Volume>(VOLUME).await;
    stage.wait().await;
    assert!(!stage.driver.has(HANDLE, NODE_ID), "{:?}", stage.journal());
    let held = stage.attachment().await;
    assert!(!holds(&held, FINALIZER) && holds(&held, "example.com/theirs"), "{held}");
    assert!(stage.exists(Kind::VOLUME, VOLUME).await, "an attachment names it");
    stage.change(Kind::ATTACHMENT, ATTACHMENT, json!({"metadata": {"finalizers": null}})).await;
    stage.wait().await;
    assert!(!stage.exists(Kind::ATTACHMENT, ATTACHMENT).await && !stage.exists(Kind::VOLUME, VOLUME).await);
    assert!(stage.driver.with().publishes.iter().all(|request| request.secrets["user"] == "me"));
    let journal = stage.journal();
    let calls = journal.iter().filter(|line| line.starts_with("Controller")).count();
    (journal.len() - calls, calls)
}

/// Rules: SIDECAR-A1, SIDECAR-A2, SIDECAR-A3, CTRL-13.32, CTRL-13.35
#[test]
fn every_mishap_at_every_write_of_an_attachments_life_leaves_nothing_attached() {
    let (writes, _) = play(PUBLISHES, &Options::default(), None, whole_life);
    println!("{writes} writes");
    let fates = [
        faults::Fate::CrashBefore,
        faults::Fate::CrashAfter,
        faults::Fate::AnswerLost,
        faults::Fate::RequestLost,
        faults::Fate::Refused(Refusal::Conflict),
        faults::Fate::Refused(Refusal::Unavailable { seconds: 1 }),
    ];
    for write in 1..=writes {
        for fate in fates.clone() {
            let mishap = Mishap::Write(write, fate);
            println!("{mishap:?}");
            play(PUBLISHES, &Options::default(), Some(mishap), whole_life);
        }
    }
}

/// Rules: SIDECAR-A2, SIDECAR-A3, CTRL-13.33
#[test]
fn every_mishap_at_every_call_of_an_attachments_life_leaves_nothing_attached() {
    let (_, calls) = play(PUBLISHES, &Options::default(), None, whole_life);
    assert_eq!(calls, 2);
    let fates = [
        driver::Fate::CrashBefore,
        driver::Fate::CrashAfter,
        driver::Fate::AnswerLost,
        driver::Fate::RequestLost,
        driver::Fate::Fails(tonic::Code::Aborted),
        driver::Fate::DoneBut(tonic::Code::Internal),
    ];
    for call in 1..=calls {
        for fate in fates {
            let mishap = Mishap::Call(call, fate);
            println!("{mishap:?}");
            play(PUBLISHES, &Options::default(), Some(mishap), whole_life);
        }
    }
}
