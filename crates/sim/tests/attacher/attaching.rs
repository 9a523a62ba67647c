//! Attachments are carried out: ATTACHER-3.3, ATTACHER-3.4 and ATTACHER-3.6 as a driver, a user and the API see them.

use api::Kind;
use api::keys::annotation;
use control::attacher::Options;
use csi::v1::controller_service_capability::rpc::Type as Rpc;
use csi::v1::volume_capability::AccessType;
use csi::v1::volume_capability::access_mode::Mode;
use serde_json::json;
use tonic::Code;

use crate::driver::{Fate, NAME};
use crate::stage::{
    ATTACHMENT, FINALIZER, HANDLE, LISTS, NODE, NODE_ID, PUBLISHES, Stage, VOLUME, attachment, holds, node, play,
    recorded_node, secret, volume, with_secret,
};

fn fair<T: Send, F: Future<Output = T>>(rpcs: &[Rpc], scenario: impl FnOnce(Stage) -> F + Send) -> T {
    play(rpcs, &Options::default(), None, scenario)
}

/// Rules: ATTACHER-3.6, SIDECAR-14.5.9, ATTACHER-3.4, ATTACHER-3.2
#[test]
fn intent_is_stored_before_the_call_and_the_outcome_after_it() {
    fair(PUBLISHES, async |stage: Stage| {
        stage.set().await;
        stage.moment().await;
        let expected = [
            format!("PATCH persistentvolumes/{VOLUME}"),
            format!("PATCH volumeattachments/{ATTACHMENT}"),
            format!("ControllerPublishVolume {HANDLE} {NODE_ID}"),
            format!("PATCH volumeattachments/{ATTACHMENT}/status"),
        ];
        assert_eq!(stage.journal(), expected);
        let attachment = stage.attachment().await;
        assert_eq!(attachment["status"], json!({"attached": true, "attachmentMetadata": {"lun": "3"}}));
        // ATTACHER-3.4
        assert!(holds(&attachment, FINALIZER) && recorded_node(&attachment) == Some(NODE_ID));
        assert!(holds(&stage.get(Kind::VOLUME, VOLUME).await.unwrap_or_default(), FINALIZER));
        assert!(stage.driver.has(HANDLE, NODE_ID));
        // ATTACHER-3.2: nothing of what happens is an event.
        assert_eq!(stage.events().await, 0);
    });
}

/// Rules: ATTACHER-3.6.5, ATTACHER-3.6.6, ATTACHER-3.6.7, ATTACHER-3.6.10
#[test]
fn the_driver_is_told_what_the_volume_says() {
    fair(PUBLISHES, async |stage: Stage| {
        let more = json!({"spec": {"mountOptions": ["noatime"], "csi": {"fsType": "xfs", "readOnly": true,
            "volumeAttributes": {"tier": "gold"},
            "controllerPublishSecretRef": {"name": "keys", "namespace": "default"}}}});
        stage.make(&secret(json!({"user": "me"}))).await;
        stage.make(&volume(more)).await;
        stage.make(&node(&[("other.example.com", "x"), (NAME, NODE_ID)])).await;
        stage.make(&attachment(json!({}))).await;
        stage.moment().await;
        let request = stage.driver.with().publishes.remove(0);
        assert_eq!((request.volume_id.as_str(), request.node_id.as_str(), request.readonly), (HANDLE, NODE_ID, true));
        assert_eq!(request.volume_context, [("tier".to_owned(), "gold".to_owned())].into());
        assert_eq!(request.secrets, [("user".to_owned(), "me".to_owned())].into());
        let capability = request.volume_capability.expect("a capability is always sent");
        assert_eq!(capability.access_mode.map(|access| access.mode()), Some(Mode::SingleNodeWriter));
        let Some(AccessType::Mount(mount)) = capability.access_type else { panic!("it is a filesystem") };
        assert_eq!((mount.fs_type.as_str(), mount.mount_flags), ("xfs", vec!["noatime".to_owned()]));
    });
}

/// Rules: SIDECAR-1.6, ATTACHER-3.2
#[test]
fn what_the_driver_cannot_do_is_not_asked_of_it() {
    let options = Options { default_fstype: "ext4".to_owned(), ..Options::default() };
    play(LISTS, &options, None, async |stage: Stage| {
        stage.make(&volume(json!({"spec": {"csi": {"readOnly": true}}}))).await;
        stage.make(&node(&[(NAME, NODE_ID)])).await;
        stage.make(&attachment(json!({}))).await;
        stage.moment().await;
        let request = stage.driver.with().publishes.remove(0);
        assert!(!request.readonly, "the driver has no PUBLISH_READONLY");
        let capability = request.volume_capability.expect("a capability is always sent");
        assert_eq!(capability.access_mode.map(|access| access.mode()), Some(Mode::SingleNodeMultiWriter));
        let Some(AccessType::Mount(mount)) = capability.access_type else { panic!("it is a filesystem") };
        assert_eq!(mount.fs_type, "ext4");
    });
}

/// Rule: ATTACHER-3.6.4
#[test]
fn an_inline_volume_is_attached_as_the_attachment_describes_it() {
    fair(PUBLISHES, async |stage: Stage| {
        stage.make(&node(&[(NAME, NODE_ID)])).await;
        let inline = json!({"accessModes": ["ReadWriteOnce"], "csi": {"driver": NAME, "volumeHandle": "inline-1"}});
        let source = json!({"spec": {"source": {"persistentVolumeName": null, "inlineVolumeSpec": inline}}});
        stage.make(&attachment(source)).await;
        stage.moment().await;
        assert!(stage.is_attached().await && stage.driver.has("inline-1", NODE_ID));
        stage.detach().await;
        stage.moment().await;
        assert!(!stage.driver.has("inline-1", NODE_ID) && !stage.exists(Kind::ATTACHMENT, ATTACHMENT).await);
    });
}

/// Makes an attachment that cannot be carried out, and checks that it says so and can be deleted freely (ATTACHER-3.6).
async fn hopeless(stage: &Stage, words: &str) {
    stage.make(&attachment(json!({}))).await;
    stage.moment().await;
    let held = stage.attachment().await;
    let error = held["status"]["attachError"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(error.contains(words), "{error:?} says nothing of {words:?}");
    assert_eq!((&held["status"]["attached"], holds(&held, FINALIZER)), (&json!(false), false));
    assert!(held["status"]["attachError"].get("errorCode").is_none(), "nobody was called");
    assert_eq!(stage.driver.counts(), (0, 0));
}

/// Rule: ATTACHER-3.6.2
#[test]
fn an_attachment_without_its_volume_says_so_and_goes_on_when_it_comes() {
    fair(PUBLISHES, async |stage: Stage| {
        stage.make(&node(&[(NAME, NODE_ID)])).await;
        hopeless(&stage, VOLUME).await;
        stage.wait().await;
        stage.make(&volume(json!({}))).await;
        stage.moment().await;
        assert!(stage.is_attached().await, "the volume's coming wakes the attachment");
        assert_eq!(stage.attach_error().await, "");
    });
}

/// Rules: ATTACHER-3.6.2, SIDECAR-P15
#[test]
fn a_volume_on_its_way_out_is_not_attached() {
    fair(PUBLISHES, async |stage: Stage| {
        stage.make(&node(&[(NAME, NODE_ID)])).await;
        stage.make(&volume(json!({"metadata": {"finalizers": ["example.com/mine"]}}))).await;
        stage.drop::<api::Volume>(VOLUME).await;
        hopeless(&stage, "deletion").await;
        assert!(!holds(&stage.get(Kind::VOLUME, VOLUME).await.unwrap_or_default(), FINALIZER));
        stage.detach().await;
        assert!(!stage.exists(Kind::ATTACHMENT, ATTACHMENT).await, "nothing holds it");
    });
}

/// Rule: ATTACHER-3.6.8
#[test]
fn a_node_without_the_driver_is_waited_for() {
    fair(PUBLISHES, async |stage: Stage| {
        stage.make(&volume(json!({}))).await;
        hopeless(&stage, NODE).await;
        stage.make(&node(&[("other.example.com", "x")])).await;
        stage.moment().await;
        let error = stage.attach_error().await;
        assert!(error.contains(NAME), "{error:?}");
        stage.wait().await;
        let drivers = node(&[(NAME, NODE_ID)])["spec"].clone();
        stage.change(Kind::CSI_NODE, NODE, json!({"spec": drivers})).await;
        stage.moment().await;
        assert!(stage.is_attached().await, "the driver's registration wakes the attachment");
    });
}

/// Rule: ATTACHER-3.6.7
#[test]
fn a_missing_secret_is_said_and_waited_for() {
    fair(PUBLISHES, async |stage: Stage| {
        stage.make(&volume(with_secret())).await;
        stage.make(&node(&[(NAME, NODE_ID)])).await;
        hopeless(&stage, "default/keys").await;
        stage.make(&secret(json!({"user": "me"}))).await;
        stage.wait().await;
        assert!(stage.is_attached().await);
        let values = stage.driver.with().publishes[0].secrets.clone();
        assert_eq!(values, [("user".to_owned(), "me".to_owned())].into());
    });
}

/// Rule: SIDECAR-1.6
#[test]
fn access_modes_that_no_capability_covers_are_refused() {
    fair(PUBLISHES, async |stage: Stage| {
        stage.make(&node(&[(NAME, NODE_ID)])).await;
        stage.make(&volume(json!({"spec": {"accessModes": ["ReadWriteOnce", "ReadOnlyMany"]}}))).await;
        hopeless(&stage, "ReadOnlyMany").await;
    });
}

/// Rule: ATTACHER-3.6.4
#[test]
fn a_volume_of_another_driver_is_not_given_to_this_one() {
    fair(PUBLISHES, async |stage: Stage| {
        stage.make(&node(&[(NAME, NODE_ID)])).await;
        stage.make(&volume(json!({"spec": {"csi": {"driver": "other.example.com"}}}))).await;
        hopeless(&stage, "other.example.com").await;
    });
}

/// Rule: ATTACHER-3.3
#[test]
fn the_attachments_of_other_drivers_are_left_alone() {
    fair(PUBLISHES, async |stage: Stage| {
        stage.make(&volume(json!({}))).await;
        stage.make(&node(&[(NAME, NODE_ID)])).await;
        stage.make(&attachment(json!({"spec": {"attacher": "other.example.com"}}))).await;
        stage.wait().await;
        assert_eq!(stage.journal(), Vec::<String>::new());
    });
}

/// Rules: SIDECAR-1.8, ATTACHER-3.6
#[test]
fn every_code_is_recorded_and_the_call_repeated() {
    let codes = [
        Code::Cancelled,
        Code::Unknown,
        Code::InvalidArgument,
        Code::DeadlineExceeded,
        Code::NotFound,
        Code::AlreadyExists,
        Code::PermissionDenied,
        Code::ResourceExhausted,
        Code::FailedPrecondition,
        Code::Aborted,
        Code::OutOfRange,
        Code::Unimplemented,
        Code::Internal,
        Code::Unavailable,
        Code::DataLoss,
        Code::Unauthenticated,
    ];
    fair(PUBLISHES, async |stage: Stage| {
        stage.make(&volume(json!({}))).await;
        stage.make(&node(&[(NAME, NODE_ID)])).await;
        for (fails, code) in codes.iter().flat_map(|code| [(Fate::Fails(*code), code), (Fate::DoneBut(*code), code)]) {
            stage.driver.with().script.push_back(Some(fails));
            stage.make(&attachment(json!({}))).await;
            stage.moment().await;
            let error = stage.attachment().await["status"]["attachError"].clone();
            assert_eq!(error["errorCode"], json!(*code as i32), "{fails:?}: {error}");
            assert!(error["message"].as_str().is_some_and(|said| said.contains("as the test says")), "{error}");
            assert!(error["time"].is_string(), "{error}");
            stage.wait().await;
            assert!(stage.is_attached().await, "{fails:?}");
            assert_eq!(stage.attach_error().await, "", "success takes the error away");
            stage.detach().await;
            stage.wait().await;
            assert!(!stage.driver.has(HANDLE, NODE_ID) && !stage.exists(Kind::ATTACHMENT, ATTACHMENT).await);
        }
    });
}

/// Rules: ATTACHER-3.3, SIDECAR-14.5.11, SIDECAR-13.33
#[test]
fn what_is_said_about_a_failure_does_not_defeat_its_backoff() {
    fair(PUBLISHES, async |stage: Stage| {
        stage.driver.with().always = Some(Fate::Fails(Code::Internal));
        stage.set().await;
        stage.moment().await;
        assert_eq!(stage.driver.counts(), (1, 0), "the record and the error are ours, and wake nobody");
        tokio::time::sleep(std::time::Duration::from_secs(60)).await;
        // After 1, 2, 4, 8, 16 and 32 seconds, a fifth of each left to chance.
        let (publishes, _) = stage.driver.counts();
        assert!((5..=8).contains(&publishes), "{publishes} calls in a minute");
        let status = |line: &&String| line.ends_with("/status");
        assert_eq!(stage.journal().iter().filter(status).count(), 1, "the same sentence is not written again");
    });
}

#[test]
fn a_sentence_too_long_for_the_api_is_cut_and_a_secret_in_it_is_taken_out() {
    fair(PUBLISHES, async |stage: Stage| {
        stage.driver.with().always = Some(Fate::Fails(Code::Internal));
        stage.driver.with().sentence = format!("login with hunter2 failed {}", "ä".repeat(2000));
        stage.make(&secret(json!({"password": "hunter2"}))).await;
        stage.make(&volume(with_secret())).await;
        stage.make(&node(&[(NAME, NODE_ID)])).await;
        stage.make(&attachment(json!({}))).await;
        stage.moment().await;
        let error = stage.attach_error().await;
        assert!(error.len() > 1000 && error.len() <= 1024, "{} bytes", error.len());
        assert!(error.contains("login with *** failed") && !error.contains("hunter2"), "{error}");
        let object = stage.attachment().await.to_string();
        assert!(object.contains("default/keys") && !object.contains("hunter2"), "names, never values: {object}");
    });
}

/// Rules: ATTACHER-3.6.11, SIDECAR-A3
#[test]
fn what_the_driver_says_last_replaces_what_it_said_before() {
    fair(LISTS, async |stage: Stage| {
        stage.set().await;
        stage.moment().await;
        {
            let mut state = stage.driver.with();
            state.context = [("path".to_owned(), "b".to_owned())].into();
            state.published.clear();
        }
        stage.wait().await;
        let status = stage.attachment().await["status"].clone();
        assert_eq!(status, json!({"attached": true, "attachmentMetadata": {"path": "b"}}));
    });
}

/// Rules: SIDECAR-A6, SIDECAR-13.23, ATTACHER-3.7.5
#[test]
fn the_finalizers_of_others_stay() {
    fair(PUBLISHES, async |stage: Stage| {
        let theirs = json!({"metadata": {"finalizers": ["example.com/theirs"]}});
        stage.make(&volume(theirs.clone())).await;
        stage.make(&node(&[(NAME, NODE_ID)])).await;
        stage.make(&attachment(theirs)).await;
        stage.moment().await;
        for object in [stage.attachment().await, stage.get(Kind::VOLUME, VOLUME).await.unwrap_or_default()] {
            assert!(holds(&object, "example.com/theirs") && holds(&object, FINALIZER), "{object}");
        }
        stage.detach().await;
        stage.moment().await;
        let held = stage.attachment().await;
        assert!(holds(&held, "example.com/theirs") && !holds(&held, FINALIZER), "{held}");
        // ATTACHER-3.7.5: it is still there, so that its status says what became of it.
        assert_eq!(held["status"], json!({"attached": false}));
    });
}

/// Rule: SIDECAR-A5
#[test]
fn a_node_that_came_back_with_another_id_is_not_left_attached_under_the_old_one() {
    fair(PUBLISHES, async |stage: Stage| {
        stage.driver.with().script.push_back(Some(Fate::DoneBut(Code::Internal)));
        stage.set().await;
        stage.moment().await;
        assert!(stage.driver.has(HANDLE, NODE_ID));
        stage.rename_node("new-id").await;
        stage.wait().await;
        assert!(stage.is_attached().await && stage.driver.has(HANDLE, "new-id"));
        assert!(!stage.driver.has(HANDLE, NODE_ID), "{:?}", stage.journal());
        assert_eq!(recorded_node(&stage.attachment().await), Some("new-id"));
    });
}

/// Rules: SIDECAR-13.36, SIDECAR-X1
#[test]
fn a_driver_that_is_away_is_waited_for_and_nothing_is_said_against_the_attachment() {
    fair(PUBLISHES, async |stage: Stage| {
        stage.moment().await;
        stage.driver.show(false);
        stage.set().await;
        stage.wait().await;
        assert_eq!(stage.attachment().await["status"], json!({"attached": false}));
        let before = tokio::time::Instant::now();
        stage.driver.show(true);
        while !stage.is_attached().await {
            stage.moment().await;
        }
        assert!(before.elapsed().as_secs() < 10, "{:?}", before.elapsed());
        assert_eq!(stage.attachment().await["metadata"]["annotations"][annotation::PUBLISHED_HANDLE.text()], HANDLE);
    });
}

/// Rule: SIDECAR-1.5
#[test]
fn calls_and_queues_are_counted_under_upstreams_names() {
    fair(PUBLISHES, async |stage: Stage| {
        stage.driver.with().script.push_back(Some(Fate::Fails(Code::Aborted)));
        stage.set().await;
        stage.wait().await;
        stage.detach().await;
        stage.wait().await;
        let text = stage.metrics.lock().expect("nobody panicked").as_ref().expect("a process lives").encode();
        let has = |words: &[&str]| text.lines().any(|line| words.iter().all(|word| line.contains(word)));
        for (method, code) in [
            ("ControllerPublishVolume", "OK"),
            ("ControllerPublishVolume", "Aborted"),
            ("ControllerUnpublishVolume", "OK"),
        ] {
            let method = format!("method_name=\"/csi.v1.Controller/{method}\"");
            let code = format!("grpc_status_code=\"{code}\"");
            let driver = format!("driver_name=\"{NAME}\"");
            assert!(has(&["csi_sidecar_operations_seconds_count", &driver, &method, &code]), "{method} {code}: {text}");
        }
        for queue in ["csi-attacher-va", "csi-attacher-pv"] {
            assert!(has(&["workqueue_depth", &format!("name=\"{queue}\"")]), "{queue}: {text}");
        }
    });
}
