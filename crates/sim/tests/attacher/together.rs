//! The attacher in one process with the attach/detach controller: a new attachment carries from the start what the
//! attacher would write on it, and everything else is as between processes (ATTACHER-3.4, ATTACHER-3.6; ATTACH-6.8,
//! CTRL-13.30 to CTRL-13.45).

use std::time::Duration;

use api::keys::annotation;
use api::{Kind, Pod};
use control::attacher::Options;
use lifecycle::attach::{attachment_name, unique_name};
use serde_json::{Value, json};
use sim::faults::{self, Refusal};
use tokio::time::{sleep, timeout};

use crate::driver::NAME;
use crate::stage::{
    Company, FINALIZER, HANDLE, Mishap, NODE, NODE_ID, PUBLISHES, Stage, VOLUME, holds, node, play_beside,
    recorded_node, secret, volume, with_secret,
};

fn together<T: Send, F: Future<Output = T>>(mishap: Option<Mishap>, scenario: impl FnOnce(Stage) -> F + Send) -> T {
    play_beside(Company::Controller, (PUBLISHES, &Options::default()), mishap, scenario)
}

fn name() -> String {
    attachment_name(NAME, HANDLE, NODE)
}

/// A claim that is bound to the usual volume, and the usual node, which leaves attaching to the controller.
async fn set(stage: &Stage, more: Value) {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                      "storageClassName": "", "volumeName": VOLUME});
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": spec,
                       "metadata": {"namespace": "default", "name": "claim"}});
    let claim = stage.make(&claim).await;
    let reference = json!({"namespace": "default", "name": "claim", "uid": claim["metadata"]["uid"]});
    let mut volume = volume(more);
    volume["spec"]["claimRef"] = reference;
    stage.make(&volume).await;
    stage.change(Kind::CLAIM, "claim", json!({"status": {"phase": "Bound"}})).await;
    stage.make(&node(&[(NAME, NODE_ID)])).await;
    let annotations = json!({annotation::MANAGED_ATTACH.text(): "true"});
    let metadata = json!({"name": NODE, "annotations": annotations});
    stage.make(&json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata})).await;
    let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-01T00:00:00Z"}]);
    stage.change(Kind::NODE, NODE, json!({"status": {"conditions": ready}})).await;
}

async fn pod(stage: &Stage) {
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}]);
    let containers = json!([{"name": "main", "image": "example/main"}]);
    let spec = json!({"nodeName": NODE, "containers": containers, "volumes": volumes,
                      "terminationGracePeriodSeconds": 0});
    let metadata = json!({"namespace": "default", "name": "pod"});
    stage.make(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})).await;
}

async fn until(what: &str, done: impl AsyncFn() -> bool) {
    let wait = async {
        while !done().await {
            sleep(Duration::from_millis(100)).await;
        }
    };
    assert!(timeout(Duration::from_secs(900), wait).await.is_ok(), "never happened: {what}");
}

async fn is_told(stage: &Stage) -> bool {
    let node = stage.get(Kind::NODE, NODE).await.expect("it is there");
    node["status"]["volumesAttached"] == json!([{"name": unique_name(NAME, HANDLE), "devicePath": ""}])
}

/// A pod comes and goes. Gives the writes and calls that its volume took.
async fn whole_life(stage: Stage) -> Vec<String> {
    set(&stage, json!({})).await;
    pod(&stage).await;
    until("the node is told", async || is_told(&stage).await).await;
    assert!(stage.driver.has(HANDLE, NODE_ID));
    let held = stage.get(Kind::ATTACHMENT, &name()).await.expect("it is there");
    assert!(holds(&held, FINALIZER) && recorded_node(&held) == Some(NODE_ID), "{held}");
    assert_eq!(held["metadata"]["annotations"][annotation::PUBLISHED_HANDLE.text()], HANDLE);
    assert!(holds(&stage.get(Kind::VOLUME, VOLUME).await.unwrap_or_default(), FINALIZER));
    stage.drop::<Pod>("pod").await;
    let gone = async || stage.get(Kind::ATTACHMENT, &name()).await.is_none();
    until("the attachment is gone", gone).await;
    assert!(!stage.driver.has(HANDLE, NODE_ID), "{:?}", stage.journal());
    assert!(!is_told(&stage).await);
    stage.journal()
}

/// Rule: ATTACH-6.8
#[test]
fn a_volume_is_attached_with_four_writes_and_detached_with_three() {
    let journal = together(None, whole_life);
    let attachment = format!("volumeattachments/{}", name());
    let expected = [
        "POST volumeattachments".to_owned(),
        format!("PATCH persistentvolumes/{VOLUME}"),
        format!("ControllerPublishVolume {HANDLE} {NODE_ID}"),
        format!("PATCH {attachment}/status"),
        format!("PATCH nodes/{NODE}/status"),
        format!("PATCH nodes/{NODE}/status"),
        format!("DELETE {attachment}"),
        format!("ControllerUnpublishVolume {HANDLE} {NODE_ID}"),
        format!("PATCH {attachment}"),
    ];
    assert_eq!(journal, expected);
}

/// Rules: CTRL-13.35, CTRL-13.36, CTRL-13.39
#[test]
fn every_mishap_at_every_write_ends_with_nothing_attached() {
    let writes = together(None, whole_life).iter().filter(|line| !line.starts_with("Controller")).count();
    let fates = [
        faults::Fate::CrashBefore,
        faults::Fate::CrashAfter,
        faults::Fate::AnswerLost,
        faults::Fate::RequestLost,
        faults::Fate::Refused(Refusal::Conflict),
        faults::Fate::Refused(Refusal::Unavailable { seconds: 1 }),
    ];
    for write in 1..=writes {
        for fate in fates.clone() {
            let mishap = Mishap::Write(write, fate);
            println!("{mishap:?}");
            together(Some(mishap), whole_life);
        }
    }
}

/// Rule: ATTACHER-3.7.2
#[test]
fn the_secret_is_noted_from_the_start_too() {
    together(None, async |stage: Stage| {
        stage.make(&secret(json!({"user": "me"}))).await;
        set(&stage, with_secret()).await;
        pod(&stage).await;
        until("the node is told", async || is_told(&stage).await).await;
        let patched = format!("PATCH volumeattachments/{}", name());
        assert!(!stage.journal().contains(&patched), "{:?}", stage.journal());
        stage.drop::<Pod>("pod").await;
        until("it is detached", async || !stage.driver.has(HANDLE, NODE_ID)).await;
        assert_eq!(stage.driver.with().unpublishes[0].secrets["user"], "me");
    });
}

/// Rule: CTRL-13.32
#[test]
fn an_attachment_that_is_noted_and_never_published_goes_all_the_same() {
    together(None, async |stage: Stage| {
        stage.driver.with().always = Some(crate::driver::Fate::Fails(tonic::Code::ResourceExhausted));
        set(&stage, json!({})).await;
        pod(&stage).await;
        let failed = async || {
            let held = stage.get(Kind::ATTACHMENT, &name()).await.unwrap_or_default();
            held["status"]["attachError"]["errorCode"] == 8
        };
        until("the driver has no slot", failed).await;
        stage.driver.with().always = None;
        stage.drop::<Pod>("pod").await;
        until("it is gone", async || stage.get(Kind::ATTACHMENT, &name()).await.is_none()).await;
    });
}

/// Rule: ATTACHER-3.6.8
#[test]
fn a_node_without_the_driver_gets_a_bare_attachment() {
    together(None, async |stage: Stage| {
        set(&stage, json!({})).await;
        stage.change(Kind::CSI_NODE, NODE, json!({"spec": {"drivers": []}})).await;
        stage.moment().await;
        pod(&stage).await;
        stage.moment().await;
        let held = stage.get(Kind::ATTACHMENT, &name()).await.expect("it is there");
        assert!(!holds(&held, FINALIZER) && recorded_node(&held).is_none(), "nothing holds what cannot be: {held}");
        stage.change(Kind::CSI_NODE, NODE, json!({"spec": node(&[(NAME, NODE_ID)])["spec"]})).await;
        until("the node is told", async || is_told(&stage).await).await;
    });
}
