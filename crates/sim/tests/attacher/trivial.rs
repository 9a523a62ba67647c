//! Drivers that attach nothing: ATTACHER-3.2 and ATTACHER-3.5.

use api::Kind;
use api::keys::annotation;
use control::attacher::Options;
use csi::v1::controller_service_capability::rpc::Type as Rpc;
use serde_json::json;

use crate::driver::NAME;
use crate::stage::{ATTACHMENT, FINALIZER, HANDLE, NODE_ID, Stage, VOLUME, attachment, holds, play, volume};

const NOTHING: &[Rpc] = &[Rpc::CreateDeleteVolume];

/// Rule: ATTACHER-3.5
#[test]
fn every_attachment_of_a_driver_that_attaches_nothing_is_attached_at_once() {
    play(NOTHING, &Options::default(), None, async |stage: Stage| {
        // Neither the volume nor the node has to be there.
        stage.make(&attachment(json!({}))).await;
        stage.moment().await;
        let held = stage.attachment().await;
        assert_eq!(held["status"], json!({"attached": true}));
        assert!(!holds(&held, FINALIZER));
        assert_eq!(stage.journal(), [format!("PATCH volumeattachments/{ATTACHMENT}/status")]);
        stage.detach().await;
        stage.wait().await;
        assert!(!stage.exists(Kind::ATTACHMENT, ATTACHMENT).await);
        assert_eq!(stage.driver.counts(), (0, 0));
    });
}

#[test]
fn what_a_driver_published_before_it_stopped_doing_so_holds_nothing_for_ever() {
    play(NOTHING, &Options::default(), None, async |stage: Stage| {
        stage.make(&volume(json!({"metadata": {"finalizers": [FINALIZER]}}))).await;
        let published = json!({"metadata": {"finalizers": [FINALIZER], "annotations": {
            annotation::NODE_ID.text(): NODE_ID, annotation::PUBLISHED_HANDLE.text(): HANDLE}}});
        stage.make(&attachment(published)).await;
        stage.moment().await;
        stage.detach().await;
        stage.drop::<api::Volume>(VOLUME).await;
        stage.wait().await;
        assert!(!stage.exists(Kind::ATTACHMENT, ATTACHMENT).await, "{NAME} does not know the call: it has nothing");
        assert!(!stage.exists(Kind::VOLUME, VOLUME).await);
    });
}
