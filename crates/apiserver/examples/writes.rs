//! Measures the write path in processor time, which other work on the machine does not change much: each write of the
//! life of a provisioned claim, sent to the service in process. An example target, not part of the library.
//!
//! `writes [COUNT] [memory|disk|client]`: with `client` the requests come from a `kube::Client`, whose time counts too.

use std::sync::Arc;

use apiserver::auth::User;
use apiserver::http::Service;
use apiserver::sources::{ManualClock, SeededEntropy};
use apiserver::store::{Options, Store, UnixMillis};
use apiserver::{Api, Settings};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use kube::api::{Api as Objects, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// Requests that are under way together, so that writes to disk share their syncs.
const TOGETHER: usize = 16;
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";

/// One sort of write: how the request for the object of a number looks.
struct Sort {
    name: &'static str,
    request: fn(usize) -> (&'static str, String, &'static str, Value),
}

const SORTS: &[Sort] = &[
    Sort { name: "claim create", request: |n| ("POST", CLAIMS.into(), "application/json", claim(n)) },
    Sort { name: "volume create", request: |n| ("POST", VOLUMES.into(), "application/json", volume(n)) },
    Sort {
        name: "volume status merge patch",
        request: |n| ("PATCH", format!("{VOLUMES}/pvc-{n:06}/status"), MERGE, json!({"status": {"phase": "Bound"}})),
    },
    Sort { name: "claim merge patch", request: |n| ("PATCH", format!("{CLAIMS}/claim-{n:06}"), MERGE, bound(n)) },
    Sort {
        name: "claim status merge patch",
        request: |n| ("PATCH", format!("{CLAIMS}/claim-{n:06}/status"), MERGE, bound_status()),
    },
    Sort { name: "event create", request: |n| ("POST", EVENTS.into(), "application/json", event(n)) },
    Sort {
        name: "claim JSON patch",
        request: |n| {
            let patch = json!([{"op": "add", "path": "/metadata/annotations/example.com~1seen", "value": "yes"}]);
            ("PATCH", format!("{CLAIMS}/claim-{n:06}"), JSON_PATCH, patch)
        },
    },
    Sort {
        name: "claim delete (marked)",
        request: |n| ("DELETE", format!("{CLAIMS}/claim-{n:06}"), "application/json", Value::Null),
    },
    Sort {
        name: "claim last finalizer",
        request: |n| {
            let patch = json!({"metadata": {"finalizers": null}});
            ("PATCH", format!("{CLAIMS}/claim-{n:06}"), MERGE, patch)
        },
    },
    Sort {
        name: "event delete",
        request: |n| ("DELETE", format!("{EVENTS}/claim-{n:06}.17a"), "application/json", Value::Null),
    },
];

fn claim(n: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": format!("claim-{n:06}"), "labels": {"app": "web"}},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    })
}

fn volume(n: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {
            "name": format!("pvc-{n:06}"), "finalizers": ["example.com/provisioner"],
            "annotations": {"example.com/provisioned-by": "driver.example.com", "example.com/secret-name": "",
                "example.com/secret-namespace": ""},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "fast",
            "persistentVolumeReclaimPolicy": "Delete", "volumeMode": "Filesystem",
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default",
                "name": format!("claim-{n:06}"), "uid": "0b2d1f6e-5d53-4d0a-9d0c-2f7a5a0c1a11", "resourceVersion": "7",
            },
            "csi": {
                "driver": "driver.example.com", "fsType": "ext4", "volumeHandle": format!("handle-{n:06}"),
                "volumeAttributes": {"example.com/identity": "1700000000000-8081-driver.example.com"},
            },
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "topology.example.com/node", "operator": "In", "values": ["node-1"]},
            ]}]}},
        },
    })
}

fn bound(n: usize) -> Value {
    json!({
        "metadata": {"annotations": {
            "example.com/bind-completed": "yes", "example.com/bound-by-controller": "yes",
            "example.com/storage-provisioner": "driver.example.com",
        }},
        "spec": {"volumeName": format!("pvc-{n:06}")},
    })
}

fn bound_status() -> Value {
    json!({"status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}})
}

fn event(n: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": format!("claim-{n:06}.17a"), "namespace": "default"},
        "involvedObject": {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default",
            "name": format!("claim-{n:06}"), "uid": "0b2d1f6e-5d53-4d0a-9d0c-2f7a5a0c1a11", "resourceVersion": "7",
        },
        "reason": "ProvisioningSucceeded", "type": "Normal", "count": 1,
        "message": format!("Successfully provisioned volume pvc-{n:06}"),
        "source": {"component": "driver.example.com_node-1"},
        "reportingComponent": "driver.example.com_node-1", "reportingInstance": "",
        "firstTimestamp": "2027-01-15T08:00:00Z", "lastTimestamp": "2027-01-15T08:00:00Z", "eventTime": null,
    })
}

/// What a store lies on, and who asks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Setting {
    Memory,
    Disk,
    Client,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().map_or(5_000, |text| text.parse().expect("the first argument is a number"));
    let settings = match arguments.next().as_deref() {
        Some("memory") => vec![Setting::Memory],
        Some("disk") => vec![Setting::Disk],
        Some("client") => vec![Setting::Client],
        Some(other) => panic!("{other:?} is none of memory, disk and client"),
        None => vec![Setting::Memory, Setting::Disk, Setting::Client],
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime can be built");
    for setting in settings {
        runtime.block_on(measure(setting, count));
    }
}

async fn measure(setting: Setting, count: usize) {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let (clock, entropy) = (ManualClock::at(UnixMillis(1_800_000_000_000)), SeededEntropy::new(7));
    let mut settings = Settings::in_memory(Arc::new(clock), Arc::new(entropy)).expect("a signer can be made");
    if setting == Setting::Disk {
        settings.store = Store::open(directory.path(), Options::default()).expect("a new store opens");
    }
    let api = Api::start(settings).await.expect("an empty store can be filled");
    let service = api.service().as_user(User::loopback());
    send(&service, ("POST", "/apis/storage.k8s.io/v1/storageclasses".into(), "application/json", class())).await;
    match setting {
        Setting::Memory => println!("in process, store in memory, {count} writes of each sort:"),
        Setting::Disk => println!("in process, store on disk, {TOGETHER} at a time, {count} writes of each sort:"),
        Setting::Client => return client(kube::Client::new(service, "default"), count).await,
    }
    for sort in SORTS {
        let bodies: Vec<_> = (0..count).map(sort.request).collect();
        let before = processor_nanos();
        if setting == Setting::Memory {
            for request in bodies {
                send(&service, request).await;
            }
        } else {
            together(&service, bodies).await;
        }
        report(sort.name, before, count);
    }
    let before = processor_nanos();
    table(&service).await;
    report("list of volumes as a Table, per row", before, count);
}

fn class() -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"},
        "provisioner": "driver.example.com"})
}

async fn send(service: &Service, (method, path, kind, body): (&str, String, &str, Value)) {
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let request = Request::builder().method(method).uri(format!("{path}?fieldManager=bench"));
    let request = request.header("content-type", kind).header("accept", "application/json");
    let request = request.header("user-agent", "bench/1.0").body(Full::new(body)).expect("a good request");
    let answer = service.clone().oneshot(request).await.expect("the service always answers");
    let (code, body) = (answer.status(), answer.into_body().collect().await.expect("answers end").to_bytes());
    assert!(code.is_success(), "{method} {path}: {code} {body:?}");
}

async fn together(service: &Service, requests: Vec<(&'static str, String, &'static str, Value)>) {
    let queue = Arc::new(std::sync::Mutex::new(requests));
    let senders: Vec<_> = (0..TOGETHER)
        .map(|_| {
            let (queue, service) = (Arc::clone(&queue), service.clone());
            tokio::spawn(async move {
                loop {
                    let next = queue.lock().expect("nobody panics").pop();
                    let Some(request) = next else { return };
                    send(&service, request).await;
                }
            })
        })
        .collect();
    for sender in senders {
        sender.await.expect("senders end");
    }
}

async fn table(service: &Service) {
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let request = Request::builder().uri(VOLUMES).header("accept", accept).body(Full::new(Bytes::new()));
    let answer = service.clone().oneshot(request.expect("a good request")).await.expect("the service always answers");
    answer.into_body().collect().await.expect("answers end");
}

/// The same through `kube`, as the controllers send it.
async fn client(client: kube::Client, count: usize) {
    println!("kube::Client in process, store in memory, {count} writes of each sort:");
    let kind = |kind: &str, plural: &str| kube::api::ApiResource {
        group: String::new(),
        version: "v1".into(),
        api_version: "v1".into(),
        kind: kind.into(),
        plural: plural.into(),
    };
    let claims: Objects<DynamicObject> =
        Objects::namespaced_with(client, "default", &kind("PersistentVolumeClaim", "persistentvolumeclaims"));
    let (post, patch) = (PostParams::default(), PatchParams::default());
    let before = processor_nanos();
    for n in 0..count {
        let object = serde_json::from_value(claim(n)).expect("a claim is an object");
        claims.create(&post, &object).await.expect("the claim is good");
    }
    report("claim create", before, count);
    let before = processor_nanos();
    for n in 0..count {
        let name = format!("claim-{n:06}");
        claims.patch(&name, &patch, &Patch::Merge(bound(n))).await.expect("the patch is good");
    }
    report("claim merge patch", before, count);
    let before = processor_nanos();
    for n in 0..count {
        let name = format!("claim-{n:06}");
        claims.patch_status(&name, &patch, &Patch::Merge(bound_status())).await.expect("the patch is good");
    }
    report("claim status merge patch", before, count);
    let before = processor_nanos();
    claims.list(&ListParams::default()).await.expect("claims can be listed");
    report("list of claims, per claim", before, count);
}

/// Processor time of all threads of this process.
fn processor_nanos() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the kernel shows the threads of a process");
    let texts = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok());
    texts.filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok()).sum()
}

fn report(name: &str, before: u64, count: usize) {
    let spent = processor_nanos() - before;
    println!("  {name:36} {:8.1} us", spent as f64 / 1000.0 / count as f64);
}
