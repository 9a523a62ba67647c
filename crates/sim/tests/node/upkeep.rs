//! What operators see, and what must not pile up: NODE-9, NODE-14, NODE-19, NODE-20, NODE-26, NODE-31.6, NODE-31.17,
//! NODE-31.19, NODE-31.29, NODE-31.33.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::{Key, Kind};
use serde_json::{Value, json};
use sim::faults::{Action, Ask, Fate, Verdict};
use sim::machine::{Event, HostFate, HostFates};
use tokio::time::{Instant, sleep};
use tonic::Code;

use crate::driver::Reply;
use crate::stage::{NODE, Play, Rig, key, play, target};

/// Whether a scraper finds a line that begins so.
fn shows(text: &str, line: &str) -> bool {
    text.lines().any(|shown| shown.starts_with(line))
}

/// Rule: NODE-26
#[test]
fn metrics_have_upstreams_names_and_labels() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({})).await;
        rig.volume("d", json!({"volumeMode": "Block"})).await;
        rig.pod("p", &["v"]).await;
        let device = json!({"containers": [{"name": "main", "image": "example/main",
            "volumeDevices": [{"name": "d", "devicePath": "/dev/xvda"}]}]});
        let volumes = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]);
        rig.pod_with("q", volumes, device).await;
        rig.until_ready("p").await;
        rig.until_ready("q").await;
        rig.until("how full it is was asked", async || rig.metrics().contains("kubelet_volume_stats_used_bytes{"))
            .await;
        let text = rig.metrics();
        let plugin = format!("{}:{}", api::keys::plugin::CSI, rig.model.name());
        let operation = |name: &str, status: &str| {
            format!(
                "storage_operation_duration_seconds_count{{volume_plugin=\"{plugin}\",operation_name=\"{name}\",\
                 status=\"{status}\",migrated=\"false\"}}"
            )
        };
        for line in [
            operation("volume_mount", "success"),
            operation("map_volume", "success"),
            format!(
                "volume_operation_total_seconds_count{{plugin_name=\"{plugin}\",operation_name=\"overall_volume_mount\"}} 2"
            ),
            format!("volume_manager_total_volumes{{plugin_name=\"{plugin}\",state=\"desired_state_of_world\"}} 2"),
            format!("volume_manager_total_volumes{{plugin_name=\"{plugin}\",state=\"actual_state_of_world\"}} 2"),
            format!(
                "kubelet_volume_metric_collection_duration_seconds_count{{metric_source=\"{}\"}}",
                rig.model.name()
            ),
            "kubelet_volume_stats_capacity_bytes{namespace=\"default\",persistentvolumeclaim=\"v\"} ".to_owned(),
            "kubelet_volume_stats_available_bytes{namespace=\"default\",persistentvolumeclaim=\"d\"} ".to_owned(),
            "reconstruct_volume_operations_total 0".to_owned(),
            "reconstruct_volume_operations_errors_total 0".to_owned(),
            "force_cleaned_failed_volume_operations_total 0".to_owned(),
            "force_cleaned_failed_volume_operation_errors_total 0".to_owned(),
            "kubelet_orphan_pod_cleaned_volumes 0".to_owned(),
            "kubelet_orphan_pod_cleaned_volumes_errors 0".to_owned(),
        ] {
            assert!(shows(&text, &line), "{line}\n{text}");
        }
        let buckets = text.lines().filter(|line| line.starts_with("storage_operation_duration_seconds_bucket"));
        let ends: Vec<String> = buckets
            .filter(|line| line.contains("\"volume_mount\""))
            .filter_map(|line| Some(line.split("le=\"").nth(1)?.split('"').next()?.to_owned()))
            .collect();
        let expected =
            ["0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "15.0", "25.0", "50.0", "120.0", "300.0", "600.0"];
        assert_eq!(ends[..13], expected);
        let families: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let mut once = families.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), families.len(), "each family is told of once: {families:?}");
    });
}

/// Rule: NODE-26
#[test]
fn what_is_gone_is_not_counted_any_more_and_failures_are_counted_as_such() {
    play(Play::default(), async |rig| {
        rig.doorman.next("publish", Reply::Refused(Code::Internal));
        rig.doorman.next("unpublish", Reply::Refused(Code::Internal));
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        rig.until("it is measured", async || rig.metrics().contains("kubelet_volume_stats_used_bytes{")).await;
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        rig.until_clean().await;
        rig.until("it is not measured any more", async || !rig.metrics().contains("kubelet_volume_stats_used_bytes{"))
            .await;
        let text = rig.metrics();
        assert!(!text.contains("volume_manager_total_volumes{"), "{text}");
        for operation in ["volume_mount", "volume_unmount"] {
            let failed = format!("operation_name=\"{operation}\",status=\"fail-unknown\"");
            assert!(text.lines().any(|line| line.contains("_count{") && line.contains(&failed)), "{operation}: {text}");
        }
        assert!(text.contains("operation_name=\"unmount_device\",status=\"success\""));
    });
}

/// Rules: NODE-31.6, NODE-10.1.8
#[test]
fn a_driver_that_does_not_stage_gets_no_directory_for_it() {
    let mut setup = Play::default();
    setup.habits.staging = sim::driver::Staging::Not;
    play(setup, async |rig| {
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        assert!(rig.doorman.publish().staging_target_path.is_empty());
        assert!(!rig.exists(&rig.staged_directory("v").display().to_string()), "NODE-10.1.8");
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        rig.until_clean().await;
        assert_eq!(rig.doorman.calls(), ["publish", "unpublish"]);
    });
}

/// Rule: NODE-31.17
#[test]
fn a_volume_that_could_do_more_is_asked_for_as_its_claim_says() {
    for (asked, wire) in [("ReadWriteOnce", 1), ("ReadWriteMany", 5)] {
        play(Play::default(), async |rig| {
            rig.volume("v", json!({"accessModes": [asked]})).await;
            let all = json!({"spec": {"accessModes": ["ReadWriteOnce", "ReadWriteMany"]}});
            rig.patch(Kind::VOLUME, &Key::cluster("v"), all).await;
            rig.pod("p", &["v"]).await;
            rig.until_ready("p").await;
            for capability in [rig.doorman.stage().volume_capability, rig.doorman.publish().volume_capability] {
                assert_eq!(capability.and_then(|capability| capability.access_mode).map(|mode| mode.mode), Some(wire));
            }
        });
    }
}

async fn grow(rig: &Rig, size: &str) {
    rig.patch(Kind::VOLUME, &Key::cluster("v"), json!({"spec": {"capacity": {"storage": size}}})).await;
    let status =
        json!({"allocatedResources": {"storage": size}, "allocatedResourceStatuses": {"storage": "NodeResizePending"}});
    rig.patch_status(Kind::CLAIM, &key("v"), status).await;
}

/// Rule: NODE-31.29
#[test]
fn a_size_that_failed_says_nothing_about_the_next_one() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        let resize = async || {
            let claim = rig.get(Kind::CLAIM, &key("v")).await.expect("the claim is there");
            claim["status"]["allocatedResourceStatuses"]["storage"].as_str().unwrap_or_default().to_owned()
        };
        rig.doorman.next("expand", Reply::Refused(Code::OutOfRange));
        grow(rig, "100Gi").await;
        rig.until("it will never do", async || resize().await == "NodeResizeInfeasible").await;
        // The user asks for less; a driver that has no time now is not taken for one that refuses.
        rig.doorman.next("expand", Reply::Refused(Code::PermissionDenied));
        grow(rig, "3Gi").await;
        rig.until("it was asked for the other size", async || rig.doorman.count("expand") == 2).await;
        assert_eq!(rig.doorman.expand().capacity_range.map(|range| range.required_bytes), Some(3 << 30));
        rig.until("it has grown", async || resize().await.is_empty()).await;
        assert_eq!(rig.doorman.count("expand"), 3);
    });
}

/// Rules: NODE-31.33, NODE-16
#[test]
fn a_refresh_that_fails_in_any_way_leaves_the_content_as_it_was() {
    for reply in [Reply::Refused(Code::InvalidArgument), Reply::Refused(Code::DeadlineExceeded), Reply::Lie] {
        play(Play::with_driver(json!({"requiresRepublish": true})), async |rig| {
            rig.volume("v", json!({})).await;
            let uid = rig.pod("p", &["v"]).await;
            rig.until_ready("p").await;
            let content = target(&uid, "v").join("token");
            rig.machine.with_kernel(|kernel| kernel.write(&content, b"old", 0o600)).unwrap();
            rig.doorman.always("publish", reply);
            sleep(Duration::from_secs(600)).await;
            assert!(rig.doorman.count("publish") > 2, "{reply:?}: it was tried");
            let held = rig.machine.with_kernel(|kernel| kernel.read(&content)).unwrap();
            assert_eq!(held.as_deref(), Some(&b"old"[..]), "{reply:?}: NODE-16");
            assert_eq!((rig.said("p").await.0.as_str(), rig.doorman.count("unpublish")), ("True", 0), "{reply:?}");
        });
    }
}

/// A machine on which it takes minutes to change owners.
#[derive(Default)]
struct Large {
    walks: bool,
}

impl HostFates for Large {
    fn call(&mut self, event: &Event<'_>) -> HostFate {
        self.walks = event.doing == "give to a group";
        HostFate::Done
    }

    fn takes(&mut self) -> Duration {
        if self.walks { Duration::from_secs(600) } else { Duration::ZERO }
    }
}

async fn group_pod(rig: &Rig) -> String {
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]);
    rig.pod_with("p", volumes, json!({"securityContext": {"fsGroup": 4000}})).await
}

/// Rules: NODE-14, NODE-26
#[test]
fn a_long_change_of_owners_is_told_after_half_a_minute() {
    play(Play { host: Box::new(Large::default()), ..Play::default() }, async |rig| {
        rig.volume("v", json!({})).await;
        let uid = group_pod(rig).await;
        rig.until("it is published", async || rig.is_mounted(&uid, "v")).await;
        let began = Instant::now();
        rig.until("it is told", async || !rig.events("VolumePermissionChangeInProgress").await.is_empty()).await;
        assert!((29..33).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
        assert_eq!(rig.said("p").await.0, "False", "the pod does not start meanwhile");
        rig.until_ready("p").await;
        assert!(began.elapsed() >= Duration::from_secs(600));
    });
}

/// Rule: NODE-31.19
#[test]
fn a_change_of_owners_ends_with_its_pod() {
    play(Play { host: Box::new(Large::default()), ..Play::default() }, async |rig| {
        rig.volume("v", json!({})).await;
        let uid = group_pod(rig).await;
        rig.until("it is published", async || rig.is_mounted(&uid, "v")).await;
        sleep(Duration::from_secs(10)).await;
        let began = Instant::now();
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        rig.until_clean().await;
    });
}

/// Rule: NODE-19
#[test]
fn a_driver_is_asked_how_full_and_how_well_a_volume_is_where_the_pod_sees_it() {
    let mut setup = Play::default();
    setup.habits.node.insert(csi::v1::node_service_capability::rpc::Type::VolumeCondition);
    play(setup, async |rig| {
        rig.doorman.ails(Some("a disk is missing"));
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        rig.until("it is told", async || !rig.events("VolumeConditionAbnormal").await.is_empty()).await;
        assert!(rig.events("VolumeConditionAbnormal").await[0].contains("a disk is missing"));
        let asked = rig.doorman.stats().pop().expect("it was asked");
        assert_eq!((&*asked.volume_id, &*asked.volume_path), ("v", &*target(&uid, "v").to_string_lossy()));
        assert!(asked.staging_target_path.is_empty());
        let abnormal = |value: u8| {
            format!(
                "kubelet_volume_stats_health_status_abnormal{{namespace=\"default\",persistentvolumeclaim=\"v\"}} {value}"
            )
        };
        assert!(shows(&rig.metrics(), &abnormal(1)), "{}", rig.metrics());
        let times = rig.doorman.stats().len();
        sleep(Duration::from_secs(600)).await;
        let asked = rig.doorman.stats().len() - times;
        assert!((5..=10).contains(&asked), "once in one to two minutes: {asked} in ten");
        rig.doorman.ails(None);
        rig.until("it is well again", async || shows(&rig.metrics(), &abnormal(0))).await;
    });
}

/// Rule: NODE-20
#[test]
fn what_somebody_takes_off_the_nodes_list_is_put_back() {
    play(Play::attached(), async |rig| {
        rig.volume("v", json!({})).await;
        rig.volume("w", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.attach("v").await;
        rig.until_ready("p").await;
        rig.pod("q", &["w"]).await;
        rig.until_said("q", "NotAttached").await;
        let node = Key::cluster(NODE);
        let in_use = async || {
            let node = rig.get(Kind::NODE, &node).await.expect("the node is there");
            node["status"]["volumesInUse"].as_array().cloned().unwrap_or_default()
        };
        let before = in_use().await;
        let name = |volume: &str| Value::from(lifecycle::attach::unique_name(rig.model.name(), volume));
        assert_eq!(before, [name("v"), name("w")], "what is wanted and what is there, sorted");
        rig.patch_status(Kind::NODE, &node, json!({"volumesInUse": []})).await;
        rig.until("it is back", async || in_use().await == before).await;
    });
}

/// Rule: NODE-20
#[test]
fn a_node_that_is_made_anew_learns_what_is_in_use() {
    play(Play::attached(), async |rig| {
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.attach("v").await;
        rig.until_ready("p").await;
        rig.delete_node().await;
        rig.create(Kind::NODE, json!({"metadata": {"name": NODE}})).await;
        let name = Value::from(lifecycle::attach::unique_name(rig.model.name(), "v"));
        rig.until("it is listed", async || {
            let node = rig.get(Kind::NODE, &Key::cluster(NODE)).await.expect("the node is there");
            node["status"]["volumesInUse"] == json!([name])
        })
        .await;
        assert!(rig.is_mounted(&uid, "v") && rig.doorman.count("unpublish") == 0);
    });
}

/// Rule: NODE-9
#[test]
fn mount_options_where_nothing_is_mounted_are_refused() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({})).await;
        let claim = rig.get(Kind::CLAIM, &key("v")).await.expect("the claim is there");
        let mut volume = rig.take_volume("v").await;
        volume["spec"]["csi"] = Value::Null;
        volume["spec"]["hostPath"] = json!({"path": "/srv", "type": "DirectoryOrCreate"});
        volume["spec"]["mountOptions"] = json!(["noatime"]);
        volume["spec"]["claimRef"]["uid"] = claim["metadata"]["uid"].clone();
        rig.create(Kind::VOLUME, volume).await;
        rig.patch_status(Kind::VOLUME, &Key::cluster("v"), json!({"phase": "Bound"})).await;
        rig.pod("p", &["v"]).await;
        rig.until_said("p", "Failed").await;
        assert!(rig.said("p").await.2.contains("noatime"));
        rig.patch(Kind::VOLUME, &Key::cluster("v"), json!({"spec": {"mountOptions": null}})).await;
        rig.until_ready("p").await;
    });
}

/// Rule: NODE-18.1
#[test]
fn an_error_that_goes_on_does_not_change_the_claim_nor_bring_the_next_attempt_forward() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        rig.doorman.always("expand", Reply::Refused(Code::PermissionDenied));
        grow(rig, "3Gi").await;
        let claim = async || rig.get(Kind::CLAIM, &key("v")).await.expect("the claim is there");
        rig.until("it is said", async || claim().await["status"]["conditions"].is_array()).await;
        sleep(Duration::from_secs(10)).await;
        let (said, asked) = (claim().await, rig.doorman.count("expand"));
        sleep(Duration::from_secs(600)).await;
        assert_eq!(claim().await["metadata"]["resourceVersion"], said["metadata"]["resourceVersion"]);
        let tries = rig.doorman.count("expand") - asked;
        assert!((4..=10).contains(&tries), "half a second, doubled up to two minutes: {tries}");
    });
}

/// Rule: NODE-31.22
#[test]
fn a_volume_that_cannot_be_unstaged_is_looked_for_once_among_all_volumes() {
    let lists = Arc::new(AtomicUsize::new(0));
    let counted = lists.clone();
    let script = move |ask: &Ask<'_>| -> Verdict {
        if ask.action == Action::Read && ask.path.ends_with("/persistentvolumes") && ask.query.contains("limit=100") {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        Fate::Answered.into()
    };
    play(Play { api: Box::new(script), ..Play::default() }, async |rig| {
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        rig.doorman.always("unstage", Reply::Refused(Code::Internal));
        rig.delete_pod("p").await;
        rig.until("it was asked often", async || rig.doorman.count("unstage") > 6).await;
        assert_eq!(rig.events("FailedUnmount").await.len(), 1, "the administrator is told");
        assert_eq!(lists.load(Ordering::Relaxed), 1);
        rig.doorman.open();
        rig.until_clean().await;
    });
}
