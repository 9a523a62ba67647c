//! The volume's side (BIND-4.4, BIND-4.10).

use serde_json::json;

use crate::rig::{claim, in_tree, play, volume};

/// Rules: BIND-V4, BIND-4.13.2, CTRL-13.13, CTRL-18.2
#[test]
fn a_volume_whose_claim_is_gone_is_released_and_kept() {
    play(None, async |user| {
        user.make(&volume("v", "1Gi")).await;
        user.make(&claim("c", "1Gi")).await;
        user.wait().await;
        user.drop_claim("c").await;
        user.wait().await;
        assert_eq!(user.volume("v").await["status"]["phase"], "Released");
        // A claim of the same name is not the one that had it.
        user.make(&claim("c", "1Gi")).await;
        user.wait().await;
        assert_eq!(user.volume("v").await["status"]["phase"], "Released");
        assert_eq!(user.claim("c").await["status"]["phase"], "Pending");
        // Taking the reference off gives the volume back to everybody.
        user.change_volume("v", json!({"spec": {"claimRef": null}})).await;
        user.wait().await;
        user.assert_bound("c", "v", true).await;
    });
}

/// Rule: BIND-V2
#[test]
fn a_reserved_volume_is_available_until_its_claim_comes() {
    play(None, async |user| {
        let mut reserved = volume("v", "1Gi");
        reserved["spec"]["claimRef"] = json!({"namespace": "default", "name": "c"});
        user.make(&reserved).await;
        user.make(&claim("other", "1Gi")).await;
        user.wait().await;
        assert_eq!(user.volume("v").await["status"]["phase"], "Available");
        assert_eq!(user.claim("other").await["status"]["phase"], "Pending");
        user.make(&claim("c", "1Gi")).await;
        user.wait().await;
        user.assert_bound("c", "v", false).await;
    });
}

/// Rules: BIND-4.10, CTRL-14.16
#[test]
fn a_volume_nobody_can_delete_has_failed_and_says_why() {
    play(None, async |user| {
        let mut local = volume("v", "1Gi");
        local["spec"] = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "persistentVolumeReclaimPolicy": "Delete", "local": {"path": "/none"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "zone", "operator": "Exists"}]}]}}});
        user.make(&local).await;
        user.make(&claim("c", "1Gi")).await;
        user.wait().await;
        user.drop_claim("c").await;
        user.wait().await;
        assert_eq!(user.volume("v").await["status"]["phase"], "Failed");
        let events = user.events("v").await;
        assert!(events.iter().any(|event| event.contains("VolumeFailedDelete")), "{events:?}");
    });
}

/// Rules: BIND-V9a, BIND-V9b
#[test]
fn a_volume_whose_claim_took_another_is_given_back() {
    play(None, async |user| {
        user.make(&volume("first", "1Gi")).await;
        user.make(&claim("c", "1Gi")).await;
        user.wait().await;
        let held = user.claim("c").await;
        let reference = json!({"namespace": "default", "name": "c", "uid": held["metadata"]["uid"]});
        let mut reserved = volume("second", "1Gi");
        reserved["spec"]["claimRef"] = reference.clone();
        user.make(&reserved).await;
        let mut chosen = volume("third", "1Gi");
        chosen["spec"]["claimRef"] = reference;
        chosen["metadata"]["annotations"] = json!({api::keys::annotation::BOUND_BY_CONTROLLER.0: "yes"});
        user.make(&chosen).await;
        user.wait().await;
        let second = user.volume("second").await;
        assert_eq!(
            (&second["spec"]["claimRef"]["name"], &second["spec"]["claimRef"]["uid"]),
            (&json!("c"), &json!(null))
        );
        assert_eq!(user.volume("third").await["spec"]["claimRef"], json!(null), "BIND-V9a");
        for name in ["second", "third"] {
            assert_eq!(user.volume(name).await["status"]["phase"], "Available");
        }
        user.assert_bound("c", "first", true).await;
    });
}

/// Rules: BIND-V8, CTRL-13.10
#[test]
fn a_provisioned_volume_whose_claim_took_another_is_released() {
    play(None, async |user| {
        user.make(&volume("first", "1Gi")).await;
        user.make(&claim("c", "1Gi")).await;
        user.wait().await;
        let held = user.claim("c").await;
        let mut extra = volume("extra", "1Gi");
        extra["spec"]["claimRef"] = json!({"namespace": "default", "name": "c", "uid": held["metadata"]["uid"]});
        extra["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
        extra["metadata"]["annotations"] = json!({api::keys::annotation::PROVISIONED_BY.0: "static.example.com"});
        user.make(&extra).await;
        user.wait().await;
        assert_eq!(user.volume("extra").await["status"]["phase"], "Released");
    });
}

/// Rules: BIND-4.11, BIND-V0
#[test]
fn annotation_and_finalizers_follow_the_provisioner() {
    play(None, async |user| {
        let mut migrated = volume("old", "1Gi");
        migrated["metadata"] = json!({"name": "old",
            "annotations": {api::keys::annotation::PROVISIONED_BY.0: in_tree("aws-ebs")},
            "finalizers": [api::keys::finalizer::PV_CONTROLLER.0, "example.com/kept"]});
        user.make(&migrated).await;
        let mut in_tree = volume("in-tree", "1Gi");
        in_tree["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
        in_tree["metadata"] = json!({"name": "in-tree",
            "annotations": {api::keys::annotation::PROVISIONED_BY.0: api::keys::provisioner::HOST_PATH},
            "finalizers": [api::keys::finalizer::EXTERNAL_PROVISIONER.0]});
        user.make(&in_tree).await;
        user.wait().await;
        let old = user.volume("old").await;
        assert_eq!(old["metadata"]["annotations"][api::keys::annotation::MIGRATED_TO.0], "ebs.csi.aws.com");
        let finalizers = old["metadata"]["finalizers"].to_string();
        assert!(finalizers.contains("example.com/kept") && !finalizers.contains("pv-controller"), "{finalizers}");
        let finalizers = user.volume("in-tree").await["metadata"]["finalizers"].to_string();
        assert!(finalizers.contains("pv-controller") && !finalizers.contains("external-provisioner"), "{finalizers}");
    });
}
