//! What goes over the wire, in which order and with which fields: NODE-10.3, NODE-13.1, NODE-13.2, NODE-18.3.

use api::Kind;
use csi::v1::volume_capability::AccessType;
use lifecycle::attach::attachment_name;
use serde_json::{Value, json};
use sim::faults::{Action, Ask, Fate, Verdict};
use sim::machine::{Event, HostFate};

use crate::driver::Story;
use crate::stage::{NODE, Play, ROOT, Rig, key, play, target};

/// A driver that wants everything: attaching, tokens, secrets.
fn demanding(story: &Story) -> Play {
    let driver = json!({"attachRequired": true, "podInfoOnMount": true, "tokenRequests": [{"audience": "vault"}]});
    let told = story.clone();
    let script = move |ask: &Ask<'_>| -> Verdict {
        let (kind, name) = ask.path.rsplit_once('/').unwrap_or_default();
        let kind = kind.rsplit('/').next().unwrap_or_default();
        // What a pod and a node are told comes at its own time.
        if ask.action != Action::Watch && ask.action != Action::Update && kind != "v1" {
            told.tell(format!("{} {kind}/{name}", ask.method));
        }
        Fate::Answered.into()
    };
    let mut setup = Play { api: Box::new(script), ..Play::with_driver(driver) };
    setup.habits.attach = sim::driver::Attach::Required;
    setup
}

async fn secret(rig: &Rig, name: &str) -> Value {
    let body = json!({"metadata": {"namespace": "default", "name": name}, "stringData": {"from": name}});
    rig.create(Kind::SECRET, body).await;
    json!({"namespace": "default", "name": name})
}

/// A volume with a secret for each call.
async fn with_secrets(rig: &Rig, members: Value) {
    let mut members = members;
    members["csi"] = json!({
        "nodeStageSecretRef": secret(rig, "stage").await,
        "nodePublishSecretRef": secret(rig, "publish").await,
        "nodeExpandSecretRef": secret(rig, "expand").await,
    });
    rig.volume("v", members).await;
}

fn only_reads_and_calls(story: &Story) -> Vec<String> {
    let told = story.take();
    told.into_iter()
        .filter(|line| !line.ends_with("/events") && !line.contains("events/") && !line.starts_with("GET api/"))
        .collect()
}

/// Rules: NODE-10.3, NODE-31.16
#[test]
fn the_first_pod_costs_this_and_the_second_less_and_the_way_back_nothing_but_calls() {
    let story = Story::default();
    play(demanding(&story), async |rig| {
        rig.doorman.tell(&story);
        with_secrets(rig, json!({})).await;
        let attachment = format!("GET volumeattachments/{}", attachment_name(rig.model.name(), "v", NODE));
        rig.pod("a", &["v"]).await;
        rig.until_said("a", "NotAttached").await;
        story.take();
        rig.attach("v").await;
        rig.until_ready("a").await;
        let publish = ["GET persistentvolumes/v", &attachment, "GET secrets/publish", "POST default/token", "publish"];
        let stage = ["GET persistentvolumes/v", "GET nodes/n1", &attachment, "GET secrets/stage", "stage"];
        assert_eq!(only_reads_and_calls(&story), [&stage[..], &publish[..]].concat());
        rig.pod("b", &["v"]).await;
        rig.until_ready("b").await;
        assert_eq!(only_reads_and_calls(&story), publish, "nothing is staged twice; a token is each pod's own");
        assert_eq!(rig.doorman.questions(), 1, "NODE-31.16: capabilities come with the connection");
        rig.delete_pod("a").await;
        rig.until_gone("a").await;
        rig.delete_pod("b").await;
        rig.until_gone("b").await;
        rig.until_clean().await;
        let back: Vec<String> =
            only_reads_and_calls(&story).into_iter().filter(|line| !line.starts_with("DELETE")).collect();
        assert_eq!(back, ["unpublish", "unpublish", "unstage"]);
    });
}

/// Rules: NODE-10.3, NODE-10.2
#[test]
fn every_field_of_the_calls_is_what_the_volume_and_the_pod_say() {
    play(demanding(&Story::default()), async |rig| {
        with_secrets(rig, json!({"mountOptions": ["noatime", "nodev"]})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.attach("v").await;
        rig.until_ready("p").await;
        let (stage, publish) = (rig.doorman.stage(), rig.doorman.publish());
        let staging = rig.staged_directory("v").join("globalmount");
        let mount = target(&uid, "v");
        assert_eq!(stage.volume_id, "v");
        assert_eq!(stage.staging_target_path, staging.to_string_lossy());
        assert_eq!(stage.secrets, [("from".to_owned(), "stage".to_owned())].into());
        assert_eq!(stage.volume_context, [("flavour".to_owned(), "plain".to_owned())].into());
        assert_eq!(stage.publish_context["device"], "/dev/sim/v", "as the attachment says");
        assert_eq!(stage.publish_context, publish.publish_context);
        assert_eq!(stage.volume_capability, publish.volume_capability);
        let capability = stage.volume_capability.expect("a capability");
        assert_eq!(capability.access_mode.map(|mode| mode.mode), Some(1), "NODE-10.2");
        let Some(AccessType::Mount(how)) = capability.access_type else { panic!("it is mounted") };
        assert_eq!((&*how.fs_type, &*how.volume_mount_group), ("ext4", ""));
        assert_eq!(how.mount_flags, ["noatime", "nodev"]);
        assert_eq!((&*publish.volume_id, &*publish.target_path), ("v", &*mount.to_string_lossy()));
        assert_eq!(publish.staging_target_path, stage.staging_target_path);
        assert_eq!(publish.secrets, [("from".to_owned(), "publish".to_owned())].into());
        assert!(!publish.readonly);
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        rig.until_clean().await;
        let (unpublish, unstage) = (rig.doorman.unpublish(), rig.doorman.unstage());
        assert_eq!((&*unpublish.volume_id, &*unpublish.target_path), ("v", &*mount.to_string_lossy()));
        assert_eq!((&*unstage.volume_id, &*unstage.staging_target_path), ("v", &*staging.to_string_lossy()));
    });
}

/// Tells what the agent changes on the machine.
fn telling(story: &Story, what: impl Fn(&Event<'_>) -> HostFate + Send + 'static) -> Play {
    let told = story.clone();
    let script = move |event: &Event<'_>| {
        let fate = what(event);
        if event.changes && fate == HostFate::Done {
            told.tell(format!("{} {}", event.doing, event.path.display()));
        }
        fate
    };
    Play { host: Box::new(script), ..Play::default() }
}

/// Rule: NODE-13.1
#[test]
fn parts_of_a_volume_go_first_then_the_driver_is_asked_then_the_directories_go() {
    let story = Story::default();
    play(telling(&story, |_| HostFate::Done), async |rig| {
        rig.doorman.tell(&story);
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        let part = give_a_part(rig, &uid);
        story.take();
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        rig.until_clean().await;
        let told = story.take();
        let at = |line: &str| told.iter().position(|told| told == line).unwrap_or_else(|| panic!("{line}: {told:?}"));
        let directory = format!("{ROOT}/pods/{uid}/volumes/kubernetes.io~csi/v");
        let order = [
            at(&format!("unmount {part}")),
            at("unpublish"),
            at(&format!("remove the directory {directory}/mount")),
            at(&format!("remove {directory}/vol_data.json")),
            at(&format!("remove the directory {directory}")),
            at("unstage"),
            at(&format!("remove {}", rig.staged_directory("v").join("vol_data.json").display())),
        ];
        assert!(order.is_sorted(), "{told:?}");
    });
}

/// What a container runtime leaves of a subPath. Gives its path.
fn give_a_part(rig: &Rig, uid: &str) -> String {
    let part = format!("{ROOT}/pods/{uid}/volume-subpaths/v/main/0");
    rig.machine.with_kernel(|kernel| {
        kernel.make_directory(part.as_ref(), 0o750).expect("nothing is in its place");
        kernel.bind(&target(uid, "v"), part.as_ref(), node::host::Access::ReadWrite).expect("both are there");
    });
    part
}

/// Rule: NODE-13.1
#[test]
fn a_part_that_cannot_be_unmounted_keeps_the_volume_and_the_driver_is_not_asked() {
    let busy = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let held = busy.clone();
    let refuse = move |event: &Event<'_>| {
        let part = event.doing == "unmount" && event.path.to_string_lossy().contains("volume-subpaths");
        match part && held.load(std::sync::atomic::Ordering::Relaxed) {
            true => HostFate::Refused(rustix::io::Errno::BUSY),
            false => HostFate::Done,
        }
    };
    play(telling(&Story::default(), refuse), async |rig| {
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        give_a_part(rig, &uid);
        rig.delete_pod("p").await;
        rig.until("it is told", async || !rig.events("FailedUnmount").await.is_empty()).await;
        assert!(rig.is_mounted(&uid, "v") && rig.doorman.count("unpublish") == 0);
        assert!(rig.get(Kind::POD, &key("p")).await.is_some(), "the pod stays");
        busy.store(false, std::sync::atomic::Ordering::Relaxed);
        rig.until_gone("p").await;
        rig.until_clean().await;
    });
}

/// Rule: NODE-13.1
#[test]
fn directories_are_removed_when_they_are_empty_and_only_then() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        let stray = format!("{ROOT}/pods/{uid}/volumes/kubernetes.io~csi/v/precious");
        rig.machine.with_kernel(|kernel| kernel.write(stray.as_ref(), b"data", 0o600)).unwrap();
        rig.delete_pod("p").await;
        rig.until("it is told", async || !rig.events("FailedUnmount").await.is_empty()).await;
        assert!(rig.exists(&stray), "nothing that is not the agent's is removed");
        rig.machine.with_kernel(|kernel| kernel.remove_file(stray.as_ref())).unwrap();
        rig.until_gone("p").await;
        rig.until_clean().await;
    });
}

async fn grow(rig: &Rig, name: &str) {
    rig.patch(Kind::VOLUME, &api::Key::cluster(name), json!({"spec": {"capacity": {"storage": "3Gi"}}})).await;
    let status = json!({"allocatedResources": {"storage": "3Gi"}, "allocatedResourceStatuses": {"storage": "NodeResizePending"}});
    rig.patch_status(Kind::CLAIM, &key(name), status).await;
}

async fn until_grown(rig: &Rig, name: &str) {
    rig.until("the claim is larger", async || {
        let claim = rig.get(Kind::CLAIM, &key(name)).await.expect("the claim is there");
        claim["status"]["capacity"]["storage"] == "3Gi"
    })
    .await;
}

/// Rule: NODE-18.3
#[test]
fn growing_names_the_path_the_stage_the_size_the_mode_and_the_secret() {
    play(Play::default(), async |rig| {
        with_secrets(rig, json!({"mountOptions": ["noatime"], "accessModes": ["ReadWriteMany"]})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        grow(rig, "v").await;
        until_grown(rig, "v").await;
        let request = rig.doorman.expand();
        assert_eq!((&*request.volume_id, &*request.volume_path), ("v", &*target(&uid, "v").to_string_lossy()));
        assert_eq!(request.staging_target_path, rig.doorman.stage().staging_target_path);
        let range = request.capacity_range.expect("a size");
        assert_eq!((range.required_bytes, range.limit_bytes), (3 << 30, 0));
        assert_eq!(request.secrets, [("from".to_owned(), "expand".to_owned())].into());
        let capability = request.volume_capability.expect("a capability");
        assert_eq!(capability.access_mode.map(|mode| mode.mode), Some(5));
        let Some(AccessType::Mount(how)) = capability.access_type else { panic!("it is mounted") };
        assert_eq!((&*how.fs_type, &how.mount_flags[..]), ("ext4", &["noatime".to_owned()][..]));
    });
}

/// Rule: NODE-18
#[test]
fn a_filesystem_that_may_not_be_written_to_is_not_grown_and_its_users_are_told() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({})).await;
        grow(rig, "v").await;
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "v", "readOnly": true}}]);
        rig.pod_with("p", volumes, json!({})).await;
        rig.until_ready("p").await;
        rig.until("pod and claim are told", async || rig.events("FileSystemResizeFailed").await.len() == 2).await;
        assert_eq!(rig.doorman.count("expand"), 0);
        assert!(rig.doorman.publish().readonly);
    });
}
