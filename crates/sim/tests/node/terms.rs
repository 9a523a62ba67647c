//! On which terms: groups, tokens, republishing, growth, access modes (NODE-10.2, NODE-11, NODE-14, NODE-16, NODE-18).

use std::time::Duration;

use api::keys::context;
use api::{Key, Kind};
use csi::v1::node_service_capability::rpc::Type as NodeRpc;
use csi::v1::volume_capability::AccessType;
use serde_json::json;
use tokio::time::sleep;
use tonic::Code;

use crate::driver::Reply;
use crate::stage::{Play, key, play, target};

/// Rule: NODE-32.15
#[test]
fn the_access_mode_says_how_many_may_write_where_the_driver_knows() {
    let modes = [
        ("ReadWriteOnce", false, 1),
        ("ReadWriteOnce", true, 7),
        ("ReadWriteOncePod", false, 1),
        ("ReadWriteOncePod", true, 6),
        ("ReadWriteMany", true, 5),
    ];
    for (mode, multi, wire) in modes {
        let mut setup = Play::default();
        if multi {
            setup.habits.node.insert(NodeRpc::SingleNodeMultiWriter);
        }
        play(setup, async |rig| {
            rig.volume("v", json!({"accessModes": [mode]})).await;
            rig.pod("p", &["v"]).await;
            rig.until_ready("p").await;
            let capability = rig.doorman.publish().volume_capability.unwrap();
            assert_eq!(capability.access_mode.unwrap().mode, wire, "{mode} {multi}");
        });
    }
}

/// Rule: NODE-32.17
#[test]
fn a_group_gets_the_files_from_the_agent_or_from_the_driver() {
    for by_driver in [false, true] {
        let mut setup = Play::default();
        if by_driver {
            setup.habits.node.insert(NodeRpc::VolumeMountGroup);
        }
        play(setup, async |rig| {
            rig.volume("v", json!({})).await;
            let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]);
            let uid = rig.pod_with("p", volumes, json!({"securityContext": {"fsGroup": 4000}})).await;
            rig.until_ready("p").await;
            let Some(AccessType::Mount(mount)) = rig.doorman.publish().volume_capability.unwrap().access_type else {
                panic!("it is mounted")
            };
            assert_eq!(mount.volume_mount_group, if by_driver { "4000" } else { "" });
            let owned = rig.owner(&target(&uid, "v"));
            assert_eq!(owned == Some(4000), !by_driver, "{owned:?}");
        });
    }
}

/// Rules: NODE-32.13, NODE-32.14, NODE-31.18
#[test]
fn pods_and_tokens_are_told_where_the_driver_wants_them() {
    for in_secrets in [false, true] {
        let driver = json!({"podInfoOnMount": true, "tokenRequests": [{"audience": "vault", "expirationSeconds": 3600}],
                            "requiresRepublish": true, "serviceAccountTokenInSecrets": in_secrets});
        play(Play::with_driver(driver), async |rig| {
            rig.volume("v", json!({})).await;
            rig.pod("p", &["v"]).await;
            rig.until_ready("p").await;
            let request = rig.doorman.publish();
            let name = context::TOKENS;
            let (told, secrets) = (request.volume_context.get(name), request.secrets.get(name));
            assert_eq!((told.is_some(), secrets.is_some()), (!in_secrets, in_secrets));
            let tokens: serde_json::Value = serde_json::from_str(told.or(secrets).unwrap()).unwrap();
            assert!(tokens["vault"]["token"].as_str().is_some_and(|token| token.len() > 20));
            assert_eq!(request.volume_context[context::EPHEMERAL], "false");
            assert_eq!(request.volume_context[context::SERVICE_ACCOUNT], "default");
            assert!(!rig.doorman.stage().volume_context.contains_key(context::POD_NAME), "NODE-31.18");
        });
    }
}

/// Rules: NODE-32.12, NODE-16, NODE-30.12
#[test]
fn a_volume_is_published_again_from_time_to_time_and_a_failure_takes_nothing_away() {
    play(Play::with_driver(json!({"requiresRepublish": true})), async |rig| {
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        sleep(Duration::from_secs(600)).await;
        let times = rig.doorman.count("publish");
        assert!((6..=11).contains(&times), "NODE-16: {times} in ten minutes");
        rig.doorman.always("publish", Reply::Refused(Code::InvalidArgument));
        sleep(Duration::from_secs(600)).await;
        assert!(rig.is_mounted(&uid, "v") && rig.said("p").await.0 == "True", "NODE-30.12");
        assert!(!rig.events("FailedMount").await.is_empty());
        rig.doorman.open();
        rig.kill().await;
        rig.start();
        let before = rig.doorman.count("publish");
        sleep(Duration::from_secs(300)).await;
        assert!(rig.doorman.count("publish") > before, "also after a restart");
        assert_eq!(rig.doorman.count("stage"), 1);
    });
}

async fn grow(rig: &crate::stage::Rig, size: &str) {
    let resized = json!({"spec": {"capacity": {"storage": size}}});
    rig.patch(Kind::VOLUME, &Key::cluster("v"), resized).await;
    let status =
        json!({"allocatedResources": {"storage": size}, "allocatedResourceStatuses": {"storage": "NodeResizePending"}});
    rig.patch_status(Kind::CLAIM, &key("v"), status).await;
}

/// Rule: NODE-32.18
#[test]
fn a_filesystem_grows_while_it_is_used() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({"csi": {"nodeExpandSecretRef": null}})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        grow(rig, "3Gi").await;
        rig.until("the claim is larger", async || {
            let claim = rig.get(Kind::CLAIM, &key("v")).await.unwrap();
            claim["status"]["capacity"]["storage"] == "3Gi" && claim["status"]["allocatedResourceStatuses"].is_null()
        })
        .await;
        let request = rig.doorman.expand();
        assert_eq!(request.volume_path, target(&uid, "v").to_string_lossy());
        assert_eq!(request.capacity_range.unwrap().required_bytes, 3 << 30);
        assert_eq!(rig.doorman.count("expand"), 1);
        assert_eq!(rig.events("FileSystemResizeSuccessful").await.len(), 2, "on pod and claim");
        sleep(Duration::from_secs(300)).await;
        assert_eq!(rig.doorman.count("expand"), 1);
    });
}

/// Rule: NODE-32.18
#[test]
fn a_driver_that_will_not_grow_what_is_in_use_is_asked_once() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        rig.doorman.always("expand", Reply::Refused(Code::FailedPrecondition));
        grow(rig, "3Gi").await;
        rig.until("it was asked", async || rig.doorman.count("expand") > 0).await;
        sleep(Duration::from_secs(600)).await;
        assert_eq!(rig.doorman.count("expand"), 1);
        assert_eq!(rig.said("p").await.0, "True", "it does not keep the pod from its volume");
    });
}

/// Rule: NODE-31.3
#[test]
fn a_size_that_will_never_do_is_said_in_the_claim_and_a_timeout_is_not() {
    for (code, verdict) in [(Code::InvalidArgument, Some("NodeResizeInfeasible")), (Code::DeadlineExceeded, None)] {
        play(Play::default(), async |rig| {
            rig.volume("v", json!({})).await;
            rig.pod("p", &["v"]).await;
            rig.until_ready("p").await;
            rig.doorman.always("expand", Reply::Refused(code));
            grow(rig, "3Gi").await;
            rig.until("it was asked", async || rig.doorman.count("expand") > 0).await;
            sleep(Duration::from_secs(60)).await;
            let claim = rig.get(Kind::CLAIM, &key("v")).await.unwrap();
            let said = &claim["status"]["allocatedResourceStatuses"]["storage"];
            assert_eq!(said, verdict.unwrap_or("NodeResizeInProgress"), "{code:?}");
            let conditions = claim["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let failed = conditions.iter().any(|condition| condition["type"] == "NodeResizeError");
            assert_eq!(failed, verdict.is_some(), "{code:?}: {conditions:?}");
            rig.doorman.open();
        });
    }
}
