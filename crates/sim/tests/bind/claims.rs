//! The claim's side (BIND-4.3, CTRL-18.1).

use serde_json::json;

use crate::rig::{claim, class, in_tree, play, volume};

/// Rules: BIND-U2, BIND-V1
#[test]
fn a_claim_gets_the_smallest_volume_that_fits() {
    play(None, async |user| {
        for (name, size) in [("one", "1Gi"), ("two", "2Gi"), ("ten", "10Gi")] {
            user.make(&volume(name, size)).await;
        }
        user.make(&claim("c", "2Gi")).await;
        user.wait().await;
        user.assert_bound("c", "two", true).await;
        let marks = &user.claim("c").await["metadata"]["annotations"];
        assert_eq!(marks[api::keys::annotation::BOUND_BY_CONTROLLER.0], "yes", "its pointer was chosen");
        assert_eq!(user.volume("one").await["status"]["phase"], "Available", "BIND-V1");
    });
}

/// Rules: BIND-4.7.8, CTRL-14.2
#[test]
fn a_volume_that_names_the_claim_wins_and_keeps_its_owners_word() {
    play(None, async |user| {
        user.make(&volume("small", "1Gi")).await;
        let mut reserved = volume("reserved", "5Gi");
        // CTRL-14.2: a larger set of access modes does not make it lose.
        reserved["spec"]["accessModes"] = json!(["ReadWriteOnce", "ReadWriteMany"]);
        reserved["spec"]["claimRef"] = json!({"namespace": "default", "name": "c"});
        user.make(&reserved).await;
        user.make(&claim("c", "1Gi")).await;
        user.wait().await;
        user.assert_bound("c", "reserved", false).await;
    });
}

/// Rule: CTRL-14.3
#[test]
fn a_volume_that_names_the_claim_and_does_not_suit_it_is_said_and_nothing_else_is_given() {
    play(None, async |user| {
        user.make(&volume("free", "5Gi")).await;
        let mut reserved = volume("tiny", "1Gi");
        reserved["spec"]["claimRef"] = json!({"namespace": "default", "name": "c"});
        user.make(&reserved).await;
        user.make(&claim("c", "2Gi")).await;
        user.wait().await;
        assert_eq!(user.claim("c").await["status"]["phase"], "Pending");
        let events = user.events("c").await;
        assert!(
            events.iter().any(|event| event.contains("VolumeMismatch") && event.contains("too small")),
            "{events:?}"
        );
        user.drop_volume("tiny").await;
        user.wait().await;
        user.assert_bound("c", "free", true).await;
    });
}

/// Rules: BIND-U7, BIND-U8
#[test]
fn a_claim_that_names_a_volume_waits_for_it_and_gets_it() {
    play(None, async |user| {
        let mut wish = claim("c", "1Gi");
        wish["spec"]["volumeName"] = json!("v");
        user.make(&wish).await;
        user.wait().await;
        assert_eq!(user.claim("c").await["status"]["phase"], "Pending");
        assert!(user.events("c").await.is_empty(), "BIND-U7 has no event");
        user.make(&volume("v", "1Gi")).await;
        user.wait().await;
        user.assert_bound("c", "v", true).await;
        let marks = &user.claim("c").await["metadata"]["annotations"];
        assert!(marks[api::keys::annotation::BOUND_BY_CONTROLLER.0].is_null(), "the user chose the pointer");
    });
}

/// Rule: BIND-U8x
#[test]
fn a_named_volume_that_does_not_suit_is_refused_with_the_reason() {
    let cases = [
        (json!({"resources": {"requests": {"storage": "9Gi"}}}), "requested PV is too small"),
        (json!({"storageClassName": "other"}), "storageClassName does not match"),
        (json!({"volumeMode": "Block"}), "incompatible volumeMode"),
        (json!({"accessModes": ["ReadWriteMany"]}), "incompatible accessMode"),
    ];
    for (spec, why) in cases {
        play(None, async |user| {
            user.make(&volume("v", "1Gi")).await;
            let mut wish = claim("c", "1Gi");
            wish["spec"]["volumeName"] = json!("v");
            for (field, value) in spec.as_object().expect("it is a map") {
                wish["spec"][field] = value.clone();
            }
            user.make(&wish).await;
            user.wait().await;
            let expected = format!("Warning VolumeMismatch: Cannot bind to requested volume \"v\": {why}");
            assert_eq!(user.events("c").await, [expected]);
            assert_eq!(user.volume("v").await["status"]["phase"], "Available");
        });
    }
}

/// Rule: BIND-U10
#[test]
fn a_volume_of_somebody_else_is_not_taken() {
    play(None, async |user| {
        user.make(&volume("v", "1Gi")).await;
        user.make(&claim("first", "1Gi")).await;
        user.wait().await;
        let mut wish = claim("second", "1Gi");
        wish["spec"]["volumeName"] = json!("v");
        user.make(&wish).await;
        user.wait().await;
        let events = user.events("second").await;
        assert_eq!(events, ["Warning FailedBinding: volume \"v\" already bound to a different claim."]);
        user.assert_bound("first", "v", true).await;
    });
}

/// Rule: BIND-U6
#[test]
fn a_claim_without_a_class_and_without_a_volume_is_told_so() {
    play(None, async |user| {
        user.make(&claim("c", "1Gi")).await;
        user.wait().await;
        let text = "Normal FailedBinding: no persistent volumes available for this claim and no storage class is set";
        assert_eq!(user.events("c").await, [text]);
    });
}

/// Rules: BIND-U5, BIND-P4, CTRL-14.11
#[test]
fn an_external_provisioner_is_asked_by_both_annotations() {
    play(None, async |user| {
        user.make(&class("fast", "driver.example.com")).await;
        let mut wish = claim("c", "1Gi");
        wish["spec"]["storageClassName"] = json!("fast");
        user.make(&wish).await;
        user.wait().await;
        let marks = user.claim("c").await["metadata"]["annotations"].clone();
        assert_eq!(marks[api::keys::annotation::STORAGE_PROVISIONER.0], "driver.example.com");
        assert_eq!(marks[api::keys::annotation::BETA_STORAGE_PROVISIONER.0], "driver.example.com");
        let events = user.events("c").await;
        assert!(events[0].starts_with("Normal ExternalProvisioning: Waiting for a volume to be created"), "{events:?}");
        assert_eq!(events.len(), 1, "CTRL-14.11: told once");
    });
}

/// Rule: BIND-P2
#[test]
fn a_migrated_plugin_is_asked_as_its_csi_driver() {
    play(None, async |user| {
        user.make(&class("old", &in_tree("aws-ebs"))).await;
        let mut wish = claim("c", "1Gi");
        wish["spec"]["storageClassName"] = json!("old");
        user.make(&wish).await;
        user.wait().await;
        let marks = user.claim("c").await["metadata"]["annotations"].clone();
        assert_eq!(marks[api::keys::annotation::STORAGE_PROVISIONER.0], "ebs.csi.aws.com");
    });
}

/// Rules: BIND-P1, BIND-P5
#[test]
fn a_class_that_nobody_serves_is_an_event_and_not_a_loop() {
    play(None, async |user| {
        user.make(&class("none", api::keys::provisioner::NONE)).await;
        for (name, class) in [("c", "none"), ("d", "missing")] {
            let mut wish = claim(name, "1Gi");
            wish["spec"]["storageClassName"] = json!(class);
            user.make(&wish).await;
        }
        user.wait().await;
        for (name, text) in [("c", "ProvisioningFailed"), ("d", "\"missing\" not found")] {
            let events = user.events(name).await;
            assert!(events.len() == 1 && events[0].contains(text), "{events:?}");
        }
        assert!(user.writes().is_empty(), "{:?}", user.writes());
    });
}

/// Rules: BIND-U4, BIND-4.7.9
#[test]
fn with_delayed_binding_the_scheduler_chooses() {
    play(None, async |user| {
        let mut late = class("late", "driver.example.com");
        late["volumeBindingMode"] = json!("WaitForFirstConsumer");
        user.make(&late).await;
        let mut free = volume("v", "1Gi");
        free["spec"]["storageClassName"] = json!("late");
        user.make(&free).await;
        let mut wish = claim("c", "1Gi");
        wish["spec"]["storageClassName"] = json!("late");
        user.make(&wish).await;
        user.wait().await;
        let first = "Normal WaitForFirstConsumer: waiting for first consumer to be created before binding";
        assert_eq!(user.events("c").await, [first]);
        let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]);
        let containers = json!([{"name": "main", "image": "none"}]);
        user.make(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default", "name": "p"},
            "spec": {"volumes": volumes, "containers": containers}}))
            .await;
        user.wait().await;
        let then = "Normal WaitForPodScheduled: waiting for pod p to be scheduled";
        assert!(user.events("c").await.contains(&then.to_owned()), "{:?}", user.events("c").await);
        assert_eq!(user.volume("v").await["spec"]["claimRef"], json!(null), "BIND-4.7.9");
        // Once the scheduler has reserved it, the binder binds.
        user.change_volume("v", json!({"spec": {"claimRef": {"namespace": "default", "name": "c"}}})).await;
        user.wait().await;
        user.assert_bound("c", "v", false).await;
    });
}

/// Rules: BIND-4.8, BIND-U3
#[test]
fn the_default_class_comes_late_and_is_filled_in() {
    play(None, async |user| {
        let mut wish = claim("c", "1Gi");
        wish["spec"].as_object_mut().expect("it is a map").remove("storageClassName");
        user.make(&wish).await;
        user.wait().await;
        let mut default = class("usual", "driver.example.com");
        default["metadata"]["annotations"] = json!({api::keys::annotation::DEFAULT_CLASS.0: "true"});
        user.make(&default).await;
        user.wait().await;
        let held = user.claim("c").await;
        assert_eq!(held["spec"]["storageClassName"], "usual");
        assert_eq!(held["metadata"]["annotations"][api::keys::annotation::STORAGE_PROVISIONER.0], "driver.example.com");
    });
}

/// Rules: BIND-B2, BIND-B3, CTRL-14.15
#[test]
fn a_claim_whose_volume_is_gone_is_lost_until_it_comes_back() {
    play(None, async |user| {
        user.make(&volume("v", "1Gi")).await;
        user.make(&claim("c", "1Gi")).await;
        user.wait().await;
        user.drop_volume("v").await;
        user.wait().await;
        let held = user.claim("c").await;
        assert_eq!((&held["status"]["phase"], &held["status"]["capacity"]), (&json!("Lost"), &json!(null)));
        let events = user.events("c").await;
        let lost = "Warning ClaimLost: Bound claim has lost its PersistentVolume. Data on the volume is lost!";
        assert_eq!(events.last().map(String::as_str), Some(lost));
        user.make(&volume("v", "1Gi")).await;
        user.wait().await;
        user.assert_bound("c", "v", true).await;
    });
}

/// Rule: BIND-B5
#[test]
fn a_claim_whose_volume_belongs_to_another_uid_is_misbound() {
    play(None, async |user| {
        user.make(&volume("v", "1Gi")).await;
        user.make(&claim("c", "1Gi")).await;
        user.wait().await;
        user.change_volume("v", json!({"spec": {"claimRef": {"uid": "somebody-else"}}})).await;
        user.wait().await;
        assert_eq!(user.claim("c").await["status"]["phase"], "Lost");
        let events = user.events("c").await;
        assert!(events.iter().any(|event| event.contains("ClaimMisbound")), "{events:?}");
    });
}

/// Rule: CTRL-14.5
#[test]
fn a_claim_that_is_being_deleted_gets_nothing_new() {
    play(None, async |user| {
        let mut wish = claim("c", "1Gi");
        wish["metadata"]["finalizers"] = json!(["example.com/held"]);
        user.make(&wish).await;
        user.wait().await;
        user.drop_claim_gently("c").await;
        user.make(&volume("v", "1Gi")).await;
        user.wait().await;
        assert_eq!(user.volume("v").await["spec"]["claimRef"], json!(null));
    });
}
