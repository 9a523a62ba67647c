//! Every point between two writes of binding and releasing (BIND-4.6, CTRL-13): whatever happens to one write,
//! the end is the same.

use serde_json::json;
use sim::faults::{Fate, Refusal};

use crate::rig::{Mishap, claim, play, volume};

fn mishaps(writes: usize) -> Vec<Mishap> {
    let fates = [
        Fate::CrashBefore,
        Fate::CrashAfter,
        Fate::AnswerLost,
        Fate::RequestLost,
        Fate::Refused(Refusal::Conflict),
        Fate::Refused(Refusal::Unavailable { seconds: 3 }),
    ];
    let each = |write| fates.clone().into_iter().map(move |fate| Mishap { write, fate });
    (1..=writes).flat_map(each).collect()
}

/// Rules: BIND-W1, BIND-W2, BIND-W3, BIND-W4, CTRL-I9, CTRL-13.11
#[test]
fn binding_survives_every_mishap_at_each_of_its_writes() {
    // BIND-V1, then BIND-W1 to BIND-W4.
    for mishap in mishaps(5) {
        play(Some(mishap.clone()), async |user| {
            println!("{mishap:?}");
            user.make(&volume("v", "1Gi")).await;
            user.make(&volume("w", "1Gi")).await;
            user.make(&claim("c", "1Gi")).await;
            user.wait().await;
            let held = user.claim("c").await;
            let name = held["spec"]["volumeName"].as_str().expect("it is bound").to_owned();
            user.assert_bound("c", &name, true).await;
            let other = if name == "v" { "w" } else { "v" };
            let spare = user.volume(other).await;
            assert_eq!((&spare["spec"]["claimRef"], &spare["status"]["phase"]), (&json!(null), &json!("Available")));
        });
    }
}

/// Rules: BIND-U8, CTRL-I9
#[test]
fn binding_to_a_named_volume_survives_every_mishap() {
    for mishap in mishaps(5) {
        play(Some(mishap.clone()), async |user| {
            println!("{mishap:?}");
            let mut wish = claim("c", "1Gi");
            wish["spec"]["volumeName"] = json!("v");
            user.make(&wish).await;
            user.make(&volume("v", "1Gi")).await;
            user.wait().await;
            user.assert_bound("c", "v", true).await;
        });
    }
}

/// Rule: BIND-V4
#[test]
fn release_survives_every_mishap() {
    for mut mishap in mishaps(1) {
        // Five writes bind; the sixth releases.
        mishap.write += 5;
        play(Some(mishap.clone()), async |user| {
            println!("{mishap:?}");
            user.make(&volume("v", "1Gi")).await;
            user.make(&claim("c", "1Gi")).await;
            user.wait().await;
            user.drop_claim("c").await;
            user.wait().await;
            assert_eq!(user.volume("v").await["status"]["phase"], "Released");
        });
    }
}

/// Rule: CTRL-14.6
#[test]
fn a_static_volume_that_was_chosen_for_a_claim_that_went_away_is_put_back() {
    // The binder dies after BIND-W1; the claim goes before it is back.
    let mishap = Mishap { write: 2, fate: Fate::CrashAfter };
    play(Some(mishap), async |user| {
        let mut precious = volume("v", "1Gi");
        precious["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
        user.make(&precious).await;
        user.wait().await;
        user.make(&claim("c", "1Gi")).await;
        // It is restarted at once, so the claim must go in the same moment: nothing else runs in between.
        user.drop_claim("c").await;
        user.wait().await;
        let held = user.volume("v").await;
        assert_eq!(
            (&held["spec"]["claimRef"], &held["status"]["phase"]),
            (&json!(null), &json!("Available")),
            "{held:#}"
        );
    });
}

/// Rules: BIND-V9a, BIND-V9b, CTRL-I9
#[test]
fn unbinding_survives_every_mishap() {
    for mut mishap in mishaps(2) {
        mishap.write += 5;
        play(Some(mishap.clone()), async |user| {
            println!("{mishap:?}");
            user.make(&volume("first", "1Gi")).await;
            user.make(&claim("c", "1Gi")).await;
            user.wait().await;
            let held = user.claim("c").await;
            let mut chosen = volume("third", "1Gi");
            chosen["spec"]["claimRef"] = json!({"namespace": "default", "name": "c", "uid": held["metadata"]["uid"]});
            chosen["metadata"]["annotations"] = json!({api::keys::annotation::BOUND_BY_CONTROLLER.0: "yes"});
            user.make(&chosen).await;
            user.wait().await;
            let third = user.volume("third").await;
            assert_eq!((&third["spec"]["claimRef"], &third["status"]["phase"]), (&json!(null), &json!("Available")));
            user.assert_bound("c", "first", true).await;
        });
    }
}

/// Rule: BIND-U5
#[test]
fn asking_a_provisioner_survives_every_mishap() {
    for mishap in mishaps(1) {
        play(Some(mishap.clone()), async |user| {
            println!("{mishap:?}");
            user.make(&crate::rig::class("fast", "driver.example.com")).await;
            let mut wish = claim("c", "1Gi");
            wish["spec"]["storageClassName"] = json!("fast");
            user.make(&wish).await;
            user.wait().await;
            let marks = user.claim("c").await["metadata"]["annotations"].clone();
            assert_eq!(marks[api::keys::annotation::STORAGE_PROVISIONER.0], "driver.example.com");
        });
    }
}

/// Rules: BIND-U3, BIND-U3e
#[test]
fn filling_in_the_default_class_survives_every_mishap() {
    for mishap in mishaps(2) {
        play(Some(mishap.clone()), async |user| {
            println!("{mishap:?}");
            let mut default = crate::rig::class("usual", "driver.example.com");
            let mut wish = claim("c", "1Gi");
            wish["spec"].as_object_mut().expect("it is a map").remove("storageClassName");
            user.make(&wish).await;
            default["metadata"]["annotations"] = json!({api::keys::annotation::DEFAULT_CLASS.0: "true"});
            user.make(&default).await;
            user.wait().await;
            let held = user.claim("c").await;
            assert_eq!(held["spec"]["storageClassName"], "usual");
            let marks = &held["metadata"]["annotations"];
            assert_eq!(marks[api::keys::annotation::STORAGE_PROVISIONER.0], "driver.example.com");
        });
    }
}
