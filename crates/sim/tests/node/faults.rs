//! A crash or a fault at every request to the server and at every call to the machine (NODE-30, NODE-31).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;
use sim::faults::{EVERY_FATE, Once};
use sim::machine::{Event, HostFate};
use tonic::Code;

use crate::devices::{blocks, device_pod, until_no_device};
use crate::driver::Reply;
use crate::stage::{Play, Rig, play};

/// A pod comes, another one with it, both go: nothing is left.
async fn come_and_go(rig: &Rig) {
    rig.volume("v", json!({})).await;
    let first = rig.pod("a", &["v"]).await;
    rig.attach("v").await;
    rig.until_ready("a").await;
    let second = rig.pod("b", &["v"]).await;
    rig.until_ready("b").await;
    assert!(rig.is_mounted(&first, "v") && rig.is_mounted(&second, "v"));
    rig.delete_pod("a").await;
    rig.until_gone("a").await;
    assert!(rig.is_mounted(&second, "v"), "a running pod's mount never disappears");
    rig.delete_pod("b").await;
    rig.until_gone("b").await;
    rig.until_clean().await;
}

/// Rule: NODE-30
#[test]
fn a_fault_at_any_request_leaves_nothing_behind() {
    Once::at_every_request(&EVERY_FATE, |once| play(Play { api: Box::new(once), ..Play::attached() }, come_and_go));
}

/// The same with a device.
async fn a_device_comes_and_goes(rig: &Rig) {
    rig.volume("v", json!({"volumeMode": "Block"})).await;
    let uid = device_pod(rig, "a").await;
    rig.attach("v").await;
    rig.until_ready("a").await;
    assert!(rig.mounts().contains(&format!("{}/v/dev/{uid}", blocks()).into()));
    rig.delete_pod("a").await;
    rig.until_gone("a").await;
    until_no_device(rig).await;
}

fn with_host(at: u64, fate: HostFate, seen: &Arc<AtomicU64>) -> Play {
    let seen = seen.clone();
    let script = move |event: &Event<'_>| {
        if !event.changes {
            return HostFate::Done;
        }
        match seen.fetch_add(1, Ordering::Relaxed) + 1 == at {
            true => fate,
            false => HostFate::Done,
        }
    };
    Play { host: Box::new(script), ..Play::attached() }
}

/// Rule: NODE-30
#[test]
fn a_fault_at_any_change_of_the_machine_leaves_nothing_behind() {
    at_any_change(come_and_go);
}

/// Rules: NODE-30.9, NODE-17
#[test]
fn a_fault_at_any_change_for_a_device_leaves_nothing_behind() {
    at_any_change(a_device_comes_and_goes);
}

fn at_any_change(scenario: impl AsyncFn(&Rig) + Send + Sync) {
    let seen = Arc::new(AtomicU64::new(0));
    play(with_host(0, HostFate::Done, &seen), &scenario);
    let changes = seen.load(Ordering::Relaxed);
    assert!(changes > 20, "the agent changes something");
    let fates = [
        HostFate::CrashBefore,
        HostFate::CrashAfter,
        HostFate::Refused(rustix::io::Errno::IO),
        HostFate::Hung,
        HostFate::HungAndDone,
    ];
    for at in 1..=changes {
        for fate in fates {
            println!("change {at} of {changes}: {fate:?}");
            play(with_host(at, fate, &Arc::default()), &scenario);
        }
    }
}

/// Rule: NODE-30.10
#[test]
fn a_bad_answer_of_the_driver_to_any_call_leaves_nothing_behind() {
    let replies = [
        Reply::Refused(Code::Internal),
        Reply::Refused(Code::Aborted),
        Reply::Refused(Code::FailedPrecondition),
        Reply::Done(Code::Unavailable),
        Reply::Done(Code::DeadlineExceeded),
        Reply::Done(Code::Internal),
        Reply::Lie,
    ];
    for method in ["publish", "unpublish", "stage", "unstage"] {
        for reply in replies {
            // A driver that says it staged and did not is found out when it publishes, and no agent can know before.
            println!("{method}: {reply:?}");
            if (method, matches!(reply, Reply::Lie)) == ("stage", true) {
                continue;
            }
            play(Play::attached(), async |rig| {
                rig.doorman.next(method, reply);
                come_and_go(rig).await;
            });
        }
    }
}
