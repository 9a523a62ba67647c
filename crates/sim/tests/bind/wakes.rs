//! Who wakes whom: nothing waits for a resync (CTRL-14.1), and nobody is woken in vain.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::rig::{claim, play, volume};

/// Far less than the resync.
const SOON: Duration = Duration::from_secs(2);

/// Rule: CTRL-14.1
#[test]
fn a_volume_that_becomes_available_is_given_away_at_once() {
    play(None, async |user| {
        user.make(&claim("c", "1Gi")).await;
        user.wait().await;
        let start = Instant::now();
        user.make(&volume("v", "1Gi")).await;
        tokio::time::sleep(SOON).await;
        user.assert_bound("c", "v", true).await;
        assert!(start.elapsed() <= SOON);
    });
}

#[test]
fn a_volume_that_its_first_candidate_does_not_take_goes_to_the_next() {
    play(None, async |user| {
        // The first in order cannot have it: another volume is reserved for it and does not suit.
        let mut tiny = volume("tiny", "1Gi");
        tiny["spec"]["claimRef"] = json!({"namespace": "default", "name": "a"});
        user.make(&tiny).await;
        user.make(&claim("a", "5Gi")).await;
        user.make(&claim("b", "2Gi")).await;
        user.wait().await;
        user.make(&volume("v", "5Gi")).await;
        tokio::time::sleep(SOON).await;
        user.assert_bound("b", "v", true).await;
    });
}

/// Rule: CTRL-13.1
#[test]
fn hundreds_of_claims_and_volumes_find_each_other_with_four_writes_each() {
    const MANY: usize = 300;
    play(None, async |user| {
        for number in 0..MANY {
            user.make(&claim(&format!("c{number}"), "1Gi")).await;
        }
        for number in 0..MANY {
            user.make(&volume(&format!("v{number}"), "1Gi")).await;
        }
        user.wait().await;
        for number in 0..MANY {
            assert_eq!(user.claim(&format!("c{number}")).await["status"]["phase"], "Bound");
        }
        // One more per volume: a new one has to become available first (BIND-V1).
        assert_eq!(user.writes().len(), 5 * MANY);
    });
}

#[test]
fn volumes_that_are_there_first_are_shared_without_a_conflict() {
    const MANY: usize = 200;
    play(None, async |user| {
        for number in 0..MANY {
            user.make(&volume(&format!("v{number}"), "1Gi")).await;
        }
        user.wait().await;
        for number in 0..MANY {
            user.make(&claim(&format!("c{number}"), "1Gi")).await;
        }
        user.wait().await;
        assert_eq!(user.writes().len(), 5 * MANY, "a conflict would cost a write");
    });
}

/// Rule: CTRL-14.1
#[test]
fn a_volume_freed_by_a_user_wakes_who_waits() {
    play(None, async |user| {
        user.make(&volume("v", "1Gi")).await;
        user.make(&claim("first", "1Gi")).await;
        user.wait().await;
        user.make(&claim("second", "1Gi")).await;
        user.drop_claim("first").await;
        user.wait().await;
        user.change_volume("v", json!({"spec": {"claimRef": null}})).await;
        tokio::time::sleep(SOON).await;
        user.assert_bound("second", "v", true).await;
    });
}

/// Upstream's claim would find out at its next resync.
/// Rule: CTRL-14.1
#[test]
fn a_volume_freed_by_a_user_wakes_who_named_it() {
    play(None, async |user| {
        user.make(&volume("v", "1Gi")).await;
        user.make(&claim("first", "1Gi")).await;
        user.wait().await;
        let mut wish = claim("second", "1Gi");
        wish["spec"]["volumeName"] = json!("v");
        user.make(&wish).await;
        user.wait().await;
        assert_eq!(user.claim("second").await["status"]["phase"], "Pending");
        user.drop_claim("first").await;
        user.wait().await;
        user.change_volume("v", json!({"spec": {"claimRef": null}})).await;
        tokio::time::sleep(SOON).await;
        user.assert_bound("second", "v", true).await;
    });
}
