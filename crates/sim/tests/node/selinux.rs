//! Volumes that are mounted with SELinux contexts: NODE-15, NODE-30.15, NODE-31.34, NODE-32.22.

use std::sync::{Arc, Mutex};

use csi::v1::VolumeCapability;
use csi::v1::volume_capability::AccessType;
use lifecycle::node::selinux::Gate;
use serde_json::{Value, json};

use sim::machine::{Event, HostFate};

use crate::metrics::value;
use crate::stage::{Play, ROOT, Rig, play};

/// SELinux is on, the driver can, and this is what the agent was told.
fn with(gate: Gate) -> Play {
    Play { selinux: Some(gate), ..Play::with_driver(json!({"seLinuxMount": true})) }
}

fn one_pod() -> Value {
    json!({"accessModes": ["ReadWriteOncePod"], "mountOptions": ["noatime"]})
}

/// A pod that mounts one claim, with this security context.
async fn pod(rig: &Rig, name: &str, claim: &str, security: Value) -> String {
    let volumes = json!([{"name": claim, "persistentVolumeClaim": {"claimName": claim}}]);
    rig.pod_with(name, volumes, json!({"securityContext": security})).await
}

fn level(level: &str) -> Value {
    json!({"seLinuxOptions": {"type": "process_t", "level": level}})
}

fn flags(capability: Option<VolumeCapability>) -> Vec<String> {
    match capability.expect("a capability").access_type {
        Some(AccessType::Mount(mount)) => mount.mount_flags,
        other => panic!("it is mounted: {other:?}"),
    }
}

fn label(level: &str) -> String {
    format!("system_u:object_r:container_file_t:{level}")
}

/// What the two files say.
fn kept(rig: &Rig, uid: &str, volume: &str) -> [Value; 2] {
    let staged = rig.staged_directory(volume).join("vol_data.json");
    let published = format!("{ROOT}/pods/{uid}/volumes/kubernetes.io~csi/{volume}/vol_data.json");
    [staged.to_string_lossy().into_owned(), published]
        .map(|path| serde_json::from_str::<Value>(&rig.read(&path)).expect("json")["seLinuxMountContext"].clone())
}

/// Rules: NODE-15.7, NODE-2.1
#[test]
fn a_context_reaches_the_driver_twice_and_both_files() {
    play(with(Gate::OnePod), async |rig| {
        rig.volume("v", one_pod()).await;
        let uid = pod(rig, "p", "v", level("s0:c1,c2")).await;
        rig.until_ready("p").await;
        let expected = ["noatime".to_owned(), format!("context=\"{}\"", label("s0:c1,c2"))];
        assert_eq!(flags(rig.doorman.stage().volume_capability), expected);
        assert_eq!(flags(rig.doorman.publish().volume_capability), expected);
        assert_eq!(kept(rig, &uid, "v"), [json!(label("s0:c1,c2")), json!(label("s0:c1,c2"))], "NODE-2.1");
        let plugin = format!("{}/{}", api::keys::plugin::CSI, rig.model.name());
        let labels = [("volume_plugin", &*plugin), ("access_mode", "RWOP")];
        assert_eq!(value(&rig.metrics(), "volume_manager_selinux_volumes_admitted_total", &labels), Some(1.0));
    });
}

/// Rules: NODE-15.2, NODE-15.4, NODE-15.5
#[test]
fn without_selinux_or_a_driver_that_can_nothing_is_added() {
    let recursive = json!({"seLinuxOptions": {"level": "s0:c1"}, "seLinuxChangePolicy": "Recursive"});
    let shared = json!({});
    let cases = [
        (Play { selinux: None, ..with(Gate::All) }, one_pod(), level("s0:c1")),
        (Play { selinux: Some(Gate::All), ..Play::default() }, one_pod(), level("s0:c1")),
        (with(Gate::OnePod), one_pod(), recursive),
        (with(Gate::OnePod), one_pod(), json!({})),
        (with(Gate::OnePod), shared, level("s0:c1")),
    ];
    for (number, (world, volume, security)) in cases.into_iter().enumerate() {
        play(world, async |rig| {
            rig.volume("v", volume).await;
            let uid = pod(rig, "p", "v", security).await;
            rig.until_ready("p").await;
            let all = [flags(rig.doorman.stage().volume_capability), flags(rig.doorman.publish().volume_capability)];
            assert!(all.iter().flatten().all(|flag| !flag.contains("context")), "case {number}: {all:?}");
            assert_eq!(kept(rig, &uid, "v"), [Value::Null, Value::Null], "case {number}");
        });
    }
}

/// Rules: NODE-30.15, NODE-32.22
#[test]
fn a_pod_with_another_context_waits_for_a_full_unstage() {
    play(with(Gate::All), async |rig| {
        rig.volume("v", json!({})).await;
        pod(rig, "a", "v", level("s0:c1")).await;
        rig.until_ready("a").await;
        pod(rig, "same", "v", level("s0:c1")).await;
        rig.until_ready("same").await;
        pod(rig, "b", "v", level("s0:c2")).await;
        rig.until_said("b", "OtherContext").await;
        let said = rig.said("b").await.2;
        assert!(said.contains(&label("s0:c1")) && said.contains(&label("s0:c2")), "{said}");
        assert_eq!(rig.doorman.calls(), ["stage", "publish", "publish"]);
        let plugin = format!("{}/{}", api::keys::plugin::CSI, rig.model.name());
        let labels = [("volume_plugin", &*plugin), ("access_mode", "RWO")];
        let mismatches = value(&rig.metrics(), "volume_manager_selinux_volume_context_mismatch_errors_total", &labels);
        assert_eq!(mismatches, Some(1.0));
        rig.delete_pod("a").await;
        rig.until_gone("a").await;
        rig.until_said("b", "OtherContext").await;
        rig.delete_pod("same").await;
        rig.until_ready("b").await;
        let calls = ["stage", "publish", "publish", "unpublish", "unpublish", "unstage", "stage", "publish"];
        assert_eq!(rig.doorman.calls(), calls);
        let expected = [format!("context=\"{}\"", label("s0:c2"))];
        assert_eq!(flags(rig.doorman.stage().volume_capability), expected);
        assert_eq!(flags(rig.doorman.publish().volume_capability), expected);
        rig.delete_pod("b").await;
        rig.until_gone("b").await;
        rig.until_clean().await;
    });
}

/// Rule: NODE-21
#[test]
fn a_context_survives_the_agent() {
    play(with(Gate::All), async |rig| {
        rig.volume("v", json!({})).await;
        let first = pod(rig, "a", "v", level("s0:c1")).await;
        rig.until_ready("a").await;
        rig.kill().await;
        pod(rig, "b", "v", level("s0:c2")).await;
        rig.start();
        rig.until_said("b", "OtherContext").await;
        assert!(rig.is_mounted(&first, "v") && rig.doorman.count("unpublish") == 0, "what works is not touched");
        rig.delete_pod("a").await;
        rig.until_ready("b").await;
        assert_eq!(rig.doorman.calls(), ["stage", "publish", "unpublish", "unstage", "stage", "publish"]);
    });
}

/// Rule: NODE-15.3
#[test]
fn containers_that_want_different_contexts_do_not_get_the_volume() {
    play(with(Gate::OnePod), async |rig| {
        rig.volume("v", one_pod()).await;
        let mounts = json!([{"name": "v", "mountPath": "/v"}]);
        let own = json!({"seLinuxOptions": {"level": "s0:c2"}});
        let containers = json!([
            {"name": "one", "image": "example/one", "volumeMounts": mounts},
            {"name": "two", "image": "example/two", "volumeMounts": mounts, "securityContext": own},
        ]);
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]);
        let members = json!({"containers": containers, "securityContext": level("s0:c1")});
        rig.pod_with("p", volumes, members).await;
        rig.until_said("p", "BadContext").await;
        let said = rig.said("p").await.2;
        assert!(said.contains(&label("s0:c1")) && said.contains(&label("s0:c2")), "{said}");
        assert_eq!(rig.doorman.calls(), [] as [&str; 0]);
        let labels = [("access_mode", "RWOP")];
        let errors = value(&rig.metrics(), "volume_manager_selinux_pod_context_mismatch_errors_total", &labels);
        assert_eq!(errors, Some(1.0), "counted once, however often the pod is looked at");
        rig.until("it is told", async || !rig.events("FailedMount").await.is_empty()).await;
    });
}

/// Rule: NODE-31.34
#[test]
fn a_context_without_a_level_is_refused_and_said() {
    play(with(Gate::OnePod), async |rig| {
        rig.volume("v", one_pod()).await;
        pod(rig, "p", "v", json!({"seLinuxOptions": {"user": "staff_u"}})).await;
        rig.until_ready("p").await;
        assert_eq!(flags(rig.doorman.stage().volume_capability), ["noatime"]);
        rig.until("it is told", async || !rig.events("SELinuxContextNotUsed").await.is_empty()).await;
        let told = rig.events("SELinuxContextNotUsed").await;
        assert!(told.iter().all(|message| message.contains("level")), "{told:?}");
        let labels = [("access_mode", "RWOP")];
        let warnings = value(&rig.metrics(), "volume_manager_selinux_container_warnings_total", &labels);
        assert_eq!(warnings, Some(1.0));
    });
}

/// Rule: NODE-15.3
#[test]
fn two_names_of_one_claim_cannot_have_two_contexts() {
    play(with(Gate::OnePod), async |rig| {
        rig.volume("v", one_pod()).await;
        let volume = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": "v"}});
        let container = |name: &str, level: &str| {
            json!({"name": name, "image": "example/main", "securityContext": {"seLinuxOptions": {"level": level}},
                   "volumeMounts": [{"name": name, "mountPath": "/v"}]})
        };
        let containers = json!([container("one", "s0:c1"), container("two", "s0:c2")]);
        rig.pod_with("p", json!([volume("one"), volume("two")]), json!({"containers": containers})).await;
        rig.until_said("p", "BadContext").await;
    });
}

/// Rule: NODE-2
#[test]
fn containers_may_reach_drivers_and_a_machine_that_refuses_that_stops_nobody() {
    let labelled = Arc::new(Mutex::new(Vec::new()));
    let script = {
        let labelled = labelled.clone();
        move |event: &Event<'_>| {
            if event.doing != "give an SELinux context to" {
                return HostFate::Done;
            }
            labelled.lock().expect("nobody panics with it").push(event.path.to_owned());
            HostFate::Refused(rustix::io::Errno::OPNOTSUPP)
        }
    };
    play(Play { host: Box::new(script), ..with(Gate::OnePod) }, async |rig| {
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        let labelled = labelled.lock().expect("nobody panics with it").clone();
        let paths: Vec<_> = labelled.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        assert_eq!(paths, [format!("{ROOT}/plugins"), format!("{ROOT}/plugins_registry")]);
    });
}
