//! A node among many: the agent keeps what its own pods need, and misses nothing of it.

use api::{Attachment, Claim, Key, Kind, Volume};
use serde_json::json;

use crate::stage::{NODE, Play, Rig, key, play};

fn kept(rig: &Rig) -> (usize, usize, usize) {
    (rig.kept::<Claim>(), rig.kept::<Volume>(), rig.kept::<Attachment>())
}

/// Volumes, claims and attachments that are other nodes' affair.
async fn others(rig: &Rig, count: usize) {
    for number in 0..count {
        let name = format!("other-{number}");
        rig.volume(&name, json!({})).await;
        let spec =
            json!({"attacher": rig.model.name(), "nodeName": "elsewhere", "source": {"persistentVolumeName": name}});
        rig.create(Kind::ATTACHMENT, json!({"metadata": {"name": format!("va-{number}")}, "spec": spec})).await;
    }
}

#[test]
fn an_agent_keeps_only_what_its_pods_need_and_lets_go_of_it() {
    play(Play::attached(), async |rig| {
        others(rig, 40).await;
        assert_eq!(kept(rig), (0, 0, 0), "{NODE} has no pods");
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.attach("v").await;
        rig.until_ready("p").await;
        others_change(rig, 40).await;
        assert_eq!(kept(rig), (1, 1, 1));
        rig.kill().await;
        rig.start();
        rig.until("it knows its pod again", async || kept(rig) == (1, 1, 1)).await;
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        assert_eq!(kept(rig), (0, 0, 0));
    });
}

async fn others_change(rig: &Rig, count: usize) {
    for number in 0..count {
        let labels = json!({"metadata": {"labels": {"seen": "yes"}}});
        rig.patch(Kind::VOLUME, &Key::cluster(&format!("other-{number}")), labels.clone()).await;
        rig.patch(Kind::CLAIM, &key(&format!("other-{number}")), labels).await;
    }
}

#[test]
fn a_claim_that_comes_after_its_pod_wakes_it() {
    play(Play::default(), async |rig| {
        rig.pod("p", &["v"]).await;
        rig.until_said("p", "ClaimMissing").await;
        rig.volume("v", json!({})).await;
        rig.until_ready("p").await;
    });
}

#[test]
fn two_pods_with_one_claim_share_what_is_kept() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.pod("q", &["v"]).await;
        rig.until_ready("p").await;
        rig.until_ready("q").await;
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        assert_eq!(kept(rig), (1, 1, 0));
        rig.delete_pod("q").await;
        rig.until_gone("q").await;
        assert_eq!(kept(rig), (0, 0, 0));
    });
}
