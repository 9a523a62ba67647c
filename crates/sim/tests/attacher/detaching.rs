//! Attachments are taken back, whatever has gone before them: ATTACHER-3.7 and ATTACHER-3.8.

use api::Kind;
use api::keys::annotation;
use control::attacher::Options;
use serde_json::json;
use tonic::Code;

use crate::driver::{Fate, NAME};
use crate::stage::{
    ATTACHMENT, FINALIZER, HANDLE, LISTS, NODE, NODE_ID, PUBLISHES, Stage, VOLUME, attachment, holds, node, play,
    secret, volume, with_secret,
};

/// Nothing of a secret but its name.
#[derive(Debug, Clone, serde::Deserialize)]
struct Secret {
    metadata: api::Meta,
}

impl api::Object for Secret {
    const KIND: Kind = Kind::SECRET;

    fn meta(&self) -> &api::Meta {
        &self.metadata
    }
}

fn fair<T: Send, F: Future<Output = T>>(scenario: impl FnOnce(Stage) -> F + Send) -> T {
    play(PUBLISHES, &Options::default(), None, scenario)
}

async fn attached(stage: &Stage) {
    stage.set().await;
    stage.moment().await;
    assert!(stage.is_attached().await);
    stage.driver.with().journal.clear();
}

async fn gone(stage: &Stage) -> bool {
    !stage.exists(Kind::ATTACHMENT, ATTACHMENT).await && !stage.driver.has(HANDLE, NODE_ID)
}

/// Rules: ATTACHER-3.7.4, ATTACHER-3.7.5, SIDECAR-14.5.10
#[test]
fn the_driver_is_asked_before_the_finalizer_falls() {
    fair(async |stage: Stage| {
        attached(&stage).await;
        stage.detach().await;
        stage.moment().await;
        assert!(gone(&stage).await);
        let expected =
            [format!("ControllerUnpublishVolume {HANDLE} {NODE_ID}"), format!("PATCH volumeattachments/{ATTACHMENT}")];
        assert_eq!(stage.journal(), expected, "the status of what is gone is not written");
    });
}

/// Rules: ATTACHER-3.7.3, SIDECAR-14.5.10
#[test]
fn a_node_that_is_gone_is_still_detached_from() {
    fair(async |stage: Stage| {
        attached(&stage).await;
        stage.drop::<api::CsiNode>(NODE).await;
        stage.detach().await;
        stage.moment().await;
        assert!(gone(&stage).await);
    });
}

/// Rule: ATTACHER-3.7.3
#[test]
fn a_node_on_which_the_driver_is_no_longer_registered_is_still_detached_from() {
    fair(async |stage: Stage| {
        attached(&stage).await;
        stage.change(Kind::CSI_NODE, NODE, json!({"spec": {"drivers": []}})).await;
        stage.detach().await;
        stage.moment().await;
        assert!(gone(&stage).await);
    });
}

/// Rules: SIDECAR-A5, SIDECAR-13.15
#[test]
fn where_it_was_published_counts_not_what_the_node_is_called_now() {
    fair(async |stage: Stage| {
        attached(&stage).await;
        stage.rename_node("new-id").await;
        stage.detach().await;
        stage.moment().await;
        assert!(gone(&stage).await);
        assert_eq!(stage.driver.with().unpublishes[0].node_id, NODE_ID);
    });
}

/// Rule: SIDECAR-A7
#[test]
fn a_volume_whose_object_is_gone_is_still_detached() {
    fair(async |stage: Stage| {
        attached(&stage).await;
        stage.drop::<api::Volume>(VOLUME).await;
        stage.change(Kind::VOLUME, VOLUME, json!({"metadata": {"finalizers": null}})).await;
        assert!(!stage.exists(Kind::VOLUME, VOLUME).await);
        stage.detach().await;
        stage.moment().await;
        assert!(gone(&stage).await);
    });
}

/// Rule: SIDECAR-A7
#[test]
fn a_volume_that_was_made_again_under_the_same_name_does_not_change_what_is_taken_back() {
    fair(async |stage: Stage| {
        attached(&stage).await;
        stage.drop::<api::Volume>(VOLUME).await;
        stage.change(Kind::VOLUME, VOLUME, json!({"metadata": {"finalizers": null}})).await;
        stage.make(&volume(json!({"spec": {"csi": {"volumeHandle": "another"}}}))).await;
        stage.detach().await;
        stage.moment().await;
        assert!(gone(&stage).await);
    });
}

/// Rule: ATTACHER-3.7.1
#[test]
fn an_attachment_of_upstreams_attacher_is_taken_back_with_the_volumes_help() {
    fair(async |stage: Stage| {
        stage.make(&node(&[(NAME, "new-id")])).await;
        // As upstream leaves it: finalizer and node id, and nothing about the volume.
        let theirs =
            json!({"metadata": {"finalizers": [FINALIZER], "annotations": {annotation::NODE_ID.text(): NODE_ID}}});
        stage.make(&attachment(theirs)).await;
        stage.driver.with().published.insert((HANDLE.to_owned(), NODE_ID.to_owned()));
        stage.detach().await;
        stage.moment().await;
        let held = stage.attachment().await;
        let error = held["status"]["detachError"]["message"].as_str().unwrap_or_default();
        assert!(error.contains(VOLUME) && error.contains(FINALIZER), "{held}");
        assert!(holds(&held, FINALIZER), "nobody knows what is published, so that nothing is forgotten");
        stage.wait().await;
        stage.make(&volume(json!({}))).await;
        stage.moment().await;
        assert!(gone(&stage).await, "the volume's coming wakes the attachment");
    });
}

/// Rule: SIDECAR-A7
#[test]
fn an_attachment_of_upstreams_attacher_whose_volume_is_gone_is_found_by_its_name() {
    play(LISTS, &Options { max_entries: 1, ..Options::default() }, None, async |stage: Stage| {
        let name = lifecycle::attach::attachment_name(NAME, HANDLE, NODE);
        let theirs = json!({"metadata": {"name": name, "finalizers": [FINALIZER],
            "annotations": {annotation::NODE_ID.text(): NODE_ID}}, "status": {"attached": true}});
        for handle in ["a", HANDLE, "z"] {
            stage.driver.with().published.insert((handle.to_owned(), NODE_ID.to_owned()));
        }
        stage.make(&attachment(theirs)).await;
        stage.drop::<api::Attachment>(&name).await;
        stage.wait().await;
        assert!(!stage.driver.has(HANDLE, NODE_ID) && !stage.exists(Kind::ATTACHMENT, &name).await);
        assert!(stage.driver.has("a", NODE_ID) && stage.driver.has("z", NODE_ID));
    });
}

/// Rule: SIDECAR-13.16
#[test]
fn a_secret_that_is_gone_does_not_keep_a_volume_on_its_node() {
    fair(async |stage: Stage| {
        stage.make(&secret(json!({"user": "me"}))).await;
        stage.make(&volume(with_secret())).await;
        stage.make(&node(&[(NAME, NODE_ID)])).await;
        stage.make(&attachment(json!({}))).await;
        stage.moment().await;
        assert!(stage.is_attached().await);
        stage.drop::<Secret>("keys").await;
        stage.detach().await;
        stage.moment().await;
        assert!(gone(&stage).await);
        assert!(stage.driver.with().unpublishes[0].secrets.is_empty(), "the driver decides whether it needs it");
    });
}

/// Rules: SIDECAR-1.9, ATTACHER-3.7.2
#[test]
fn a_secret_is_read_for_each_call() {
    fair(async |stage: Stage| {
        stage.make(&secret(json!({"user": "me"}))).await;
        stage.make(&volume(with_secret())).await;
        stage.make(&node(&[(NAME, NODE_ID)])).await;
        stage.make(&attachment(json!({}))).await;
        stage.moment().await;
        stage.change(Kind::SECRET, "keys", json!({"data": {"user": "bWUy"}})).await;
        stage.detach().await;
        stage.moment().await;
        assert!(gone(&stage).await);
        let values = stage.driver.with().unpublishes[0].secrets.clone();
        assert_eq!(values, [("user".to_owned(), "me2".to_owned())].into());
    });
}

/// Rule: ATTACHER-3.7.6
#[test]
fn every_refusal_is_recorded_and_the_call_repeated() {
    for code in [Code::Internal, Code::NotFound, Code::InvalidArgument, Code::Unavailable, Code::Unimplemented] {
        fair(async |stage: Stage| {
            attached(&stage).await;
            stage.driver.with().script.push_back(Some(Fate::Fails(code)));
            stage.detach().await;
            stage.moment().await;
            let held = stage.attachment().await;
            assert!(holds(&held, FINALIZER), "{code:?}: {held}");
            let error = &held["status"]["detachError"];
            assert!(error["message"].as_str().is_some_and(|said| said.contains("as the test says")), "{error}");
            assert_eq!((&error["errorCode"], &held["status"]["attached"]), (&json!(code as i32), &json!(true)));
            stage.wait().await;
            assert!(gone(&stage).await, "{code:?}");
        });
    }
}

/// Rules: SIDECAR-1.8, SIDECAR-A2
#[test]
fn an_attachment_that_is_deleted_while_attaching_is_in_doubt_is_taken_back() {
    let fates = [Fate::DoneBut(Code::DeadlineExceeded), Fate::DoneBut(Code::ResourceExhausted), Fate::AnswerLost];
    for fate in fates {
        fair(async |stage: Stage| {
            stage.driver.with().script.push_back(Some(fate));
            stage.make(&volume(json!({}))).await;
            stage.make(&node(&[(NAME, NODE_ID)])).await;
            stage.make(&attachment(json!({}))).await;
            stage.moment().await;
            assert!(stage.driver.has(HANDLE, NODE_ID), "{fate:?}");
            // Deleted while the call is under way, or while it waits for its next attempt.
            stage.detach().await;
            stage.wait().await;
            assert!(gone(&stage).await, "{fate:?}");
            assert!(stage.driver.counts().1 >= 1);
        });
    }
}

/// Rule: ATTACHER-3.8
#[test]
fn a_volume_stays_until_its_last_attachment_is_gone() {
    fair(async |stage: Stage| {
        attached(&stage).await;
        stage.driver.with().always = Some(Fate::Fails(Code::Internal));
        stage.drop::<api::Volume>(VOLUME).await;
        stage.detach().await;
        stage.wait().await;
        let held = stage.get(Kind::VOLUME, VOLUME).await.expect("it is attached");
        assert!(holds(&held, FINALIZER));
        stage.driver.with().always = None;
        stage.wait().await;
        assert!(gone(&stage).await && !stage.exists(Kind::VOLUME, VOLUME).await);
    });
}

/// Rules: ATTACHER-3.8, SIDECAR-A1
#[test]
fn a_volume_that_lives_keeps_the_finalizer() {
    fair(async |stage: Stage| {
        attached(&stage).await;
        stage.detach().await;
        stage.wait().await;
        assert!(holds(&stage.get(Kind::VOLUME, VOLUME).await.unwrap_or_default(), FINALIZER));
        stage.drop::<api::Volume>(VOLUME).await;
        stage.moment().await;
        assert!(!stage.exists(Kind::VOLUME, VOLUME).await, "nothing attaches it, so that nothing holds it");
    });
}

#[test]
fn a_driver_that_is_away_is_waited_for_before_anything_is_forgotten() {
    fair(async |stage: Stage| {
        attached(&stage).await;
        stage.driver.show(false);
        stage.detach().await;
        stage.wait().await;
        assert!(holds(&stage.attachment().await, FINALIZER) && stage.driver.has(HANDLE, NODE_ID));
        stage.driver.show(true);
        stage.wait().await;
        assert!(gone(&stage).await);
    });
}
