//! A secret that a caller hands to the driver is seen nowhere again: not in the log at its loudest, not in an answer, not
//! in the metrics, not on disk (LOCAL-0.28, LOCAL-0.29, WIRE-B.5).

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says why by panicking")]

mod rig;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use csi::v1::*;
use driver_sdk::testing::Clients;
use rig::ask::*;
use rig::call::*;
use rig::{Driver, MIB, NODE, Scratch, run};
use tonic::{Response, Status};

/// Every value begins so: one look finds them all, whole or in part.
const MARK: &str = "s3cr3t-value-";
const TOKENS: &str = csi::TOKEN_KEYS[0];

/// Makes secrets that are all different, and keeps everything that came back.
#[derive(Default)]
struct Witness {
    made: Mutex<usize>,
    heard: Mutex<Vec<String>>,
}

impl Witness {
    fn secret(&self) -> String {
        let mut made = self.made.lock().unwrap();
        *made += 1;
        format!("{MARK}{:04}", *made)
    }

    fn secrets(&self) -> BTreeMap<String, String> {
        [("password".to_owned(), self.secret()), ("plain".to_owned(), self.secret())].into()
    }

    /// A context as kubelet sends it, with a pod's tokens in it.
    fn context(&self) -> BTreeMap<String, String> {
        [(TOKENS.to_owned(), format!("{{\"\":{{\"token\":\"{}\"}}}}", self.secret()))].into()
    }

    /// A mount capability whose flags carry a password.
    fn flagged(&self) -> VolumeCapability {
        let mut capability = mount("ext4");
        if let Some(volume_capability::AccessType::Mount(volume)) = &mut capability.access_type {
            volume.mount_flags = vec![format!("password={}", self.secret())];
        }
        capability
    }

    /// Keeps what a call answered, or how it was refused.
    fn note<T: std::fmt::Debug>(&self, answer: Result<Response<T>, Status>) {
        let _heard: Option<T> = self.hear(answer);
    }

    /// As [`Self::note`], for an answer that is used. `None` is a refusal.
    fn hear<T: std::fmt::Debug>(&self, answer: Result<Response<T>, Status>) -> Option<T> {
        let mut heard = self.heard.lock().unwrap();
        match answer {
            Ok(answer) => {
                heard.push(format!("{answer:?}"));
                Some(answer.into_inner())
            }
            Err(status) => {
                heard.push(format!("{status:?}"));
                None
            }
        }
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The driver at its loudest, with both of its streams in our hands.
fn start(scratch: &Scratch, metrics: SocketAddr, format: &str) -> Driver {
    let socket = scratch.path("csi.sock");
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.args(["driver", "--node-id", NODE, "--log-level", "trace", "--log-format", format]);
    command.arg("--endpoint").arg(&socket).arg("--pool").arg(scratch.path("pool"));
    command.arg("--metrics-address").arg(metrics.to_string());
    command.stdout(File::create(scratch.path("stdout")).unwrap());
    Driver::launch(command, socket).unwrap_or_else(|log| panic!("{log}"))
}

/// Volumes and snapshots: made, asked for, changed and removed, each also in a way that fails.
async fn controller_calls(witness: &Witness, clients: &Clients) -> (String, String) {
    let mut controller = clients.controller.clone();
    let mut made = Vec::new();
    for (name, capability, size) in
        [("v", mount("ext4"), 64), ("raw", block(), 16), ("bad", witness.flagged(), 900 << 20)]
    {
        let request = CreateVolumeRequest {
            secrets: witness.secrets(),
            parameters: map([(&format!("{}pvc/name", driver_local::keys::CALLER_PREFIX), "claim")]),
            ..create_request(name, size * MIB, capability)
        };
        made.extend(witness.hear(controller.create_volume(request).await).and_then(|answer| answer.volume));
    }
    let ids: Vec<String> = made.into_iter().map(|volume| volume.volume_id).collect();
    let [mounted, raw] = &ids[..] else { panic!("two volumes were made, the third is larger than any") };
    for id in [mounted.as_str(), raw, "vol-unknown"] {
        for capability in [mount("ext4"), witness.flagged(), block()] {
            let request = ValidateVolumeCapabilitiesRequest {
                volume_id: id.to_owned(),
                volume_context: witness.context(),
                volume_capabilities: vec![capability.clone()],
                secrets: witness.secrets(),
                ..Default::default()
            };
            witness.note(controller.validate_volume_capabilities(request).await);
        }
        for size in [96, 1 << 40] {
            let range = CapacityRange { required_bytes: i64::try_from(size * MIB).unwrap(), limit_bytes: 0 };
            let request = ControllerExpandVolumeRequest {
                volume_id: id.to_owned(),
                capacity_range: Some(range),
                secrets: witness.secrets(),
                volume_capability: Some(if id == raw { block() } else { witness.flagged() }),
            };
            witness.note(controller.controller_expand_volume(request).await);
        }
        for value in ["256", "much"] {
            let request = ControllerModifyVolumeRequest {
                volume_id: id.to_owned(),
                secrets: witness.secrets(),
                mutable_parameters: map([("readAheadKiB", value)]),
            };
            witness.note(controller.controller_modify_volume(request).await);
        }
        for node in [NODE, "node-unknown"] {
            let request = ControllerPublishVolumeRequest {
                volume_id: id.to_owned(),
                node_id: node.to_owned(),
                volume_capability: Some(if id == raw { block() } else { witness.flagged() }),
                secrets: witness.secrets(),
                volume_context: witness.context(),
                ..Default::default()
            };
            witness.note(controller.controller_publish_volume(request).await);
        }
    }
    (mounted.clone(), raw.clone())
}

/// Staging and publishing, with flags that the filesystem refuses and with good ones.
async fn node_calls(witness: &Witness, clients: &Clients, using: &Use) {
    let mut node = clients.node.clone();
    let flagged = if using.capability == block() { block() } else { witness.flagged() };
    for (id, capability) in
        [(using.id.as_str(), flagged), (&using.id, using.capability.clone()), ("vol-unknown", using.capability.clone())]
    {
        let request = NodeStageVolumeRequest {
            volume_id: id.to_owned(),
            volume_capability: Some(capability.clone()),
            secrets: witness.secrets(),
            volume_context: witness.context(),
            publish_context: witness.context(),
            ..stage_request(using)
        };
        witness.note(node.node_stage_volume(request).await);
        for readonly in [false, true] {
            let request = NodePublishVolumeRequest {
                volume_id: id.to_owned(),
                volume_capability: Some(capability.clone()),
                secrets: witness.secrets(),
                volume_context: witness.context(),
                publish_context: witness.context(),
                readonly,
                ..publish_request(using)
            };
            witness.note(node.node_publish_volume(request).await);
        }
        for path in [&using.target, Path::new("/nowhere")] {
            let request = NodeExpandVolumeRequest {
                volume_id: id.to_owned(),
                volume_path: path.to_str().unwrap().to_owned(),
                secrets: witness.secrets(),
                volume_capability: Some(capability.clone()),
                ..Default::default()
            };
            witness.note(node.node_expand_volume(request).await);
        }
    }
}

/// An inline volume: its attributes come with the pod's tokens.
async fn inline_calls(witness: &Witness, clients: &Clients, scratch: &Scratch) {
    let using = Use::new(scratch, "csi-inline", mount("ext4"));
    for (attributes, capability) in [
        (map([("size", "wrong")]), mount("ext4")),
        (map([("size", "32Mi")]), witness.flagged()),
        (map([("size", "32Mi")]), mount("ext4")),
    ] {
        let mut request = inline_request(&using, attributes);
        request.volume_context.extend(witness.context());
        request.volume_capability = Some(capability);
        request.secrets = witness.secrets();
        witness.note(clients.node.clone().node_publish_volume(request).await);
        let gone = NodeUnpublishVolumeRequest {
            volume_id: using.id.clone(),
            target_path: using.target.to_str().unwrap().to_owned(),
        };
        witness.note(clients.node.clone().node_unpublish_volume(gone).await);
    }
}

async fn snapshot_calls(witness: &Witness, clients: &Clients, id: &str) -> Vec<String> {
    let mut controller = clients.controller.clone();
    let mut ids = Vec::new();
    for (name, source) in [("one", id), ("two", id), ("one", "vol-unknown"), ("three", "vol-unknown")] {
        let request = CreateSnapshotRequest {
            source_volume_id: source.to_owned(),
            name: name.to_owned(),
            secrets: witness.secrets(),
            ..Default::default()
        };
        let made = witness.hear(controller.create_snapshot(request).await);
        ids.extend(made.and_then(|answer| answer.snapshot).map(|snapshot| snapshot.snapshot_id));
    }
    assert_eq!(ids.len(), 2);
    for id in [ids[0].as_str(), "snap-unknown"] {
        let request = GetSnapshotRequest { snapshot_id: id.to_owned(), secrets: witness.secrets() };
        witness.note(controller.get_snapshot(request).await);
        let request = GetMetadataAllocatedRequest {
            snapshot_id: id.to_owned(),
            secrets: witness.secrets(),
            ..Default::default()
        };
        let stream = clients.metadata.clone().get_metadata_allocated(request).await;
        witness.note(stream.map(|answer| answer.map(drop)));
        let request = GetMetadataDeltaRequest {
            base_snapshot_id: id.to_owned(),
            target_snapshot_id: ids[1].clone(),
            starting_offset: 1 << 50,
            secrets: witness.secrets(),
            ..Default::default()
        };
        let stream = clients.metadata.clone().get_metadata_delta(request).await;
        witness.note(stream.map(|answer| answer.map(drop)));
    }
    for token in ["", "wrong token"] {
        let request =
            ListSnapshotsRequest { secrets: witness.secrets(), starting_token: token.to_owned(), ..Default::default() };
        witness.note(controller.list_snapshots(request).await);
    }
    ids
}

async fn group_calls(witness: &Witness, clients: &Clients, id: &str) {
    let mut group = clients.group.clone();
    for source in ["vol-unknown", id] {
        let request = CreateVolumeGroupSnapshotRequest {
            name: "g".to_owned(),
            source_volume_ids: vec![source.to_owned()],
            secrets: witness.secrets(),
            ..Default::default()
        };
        let Some(made) = witness.hear(group.create_volume_group_snapshot(request).await) else { continue };
        let made = made.group_snapshot.unwrap();
        for members in
            [vec!["snap-wrong".to_owned()], made.snapshots.iter().map(|member| member.snapshot_id.clone()).collect()]
        {
            let request = GetVolumeGroupSnapshotRequest {
                group_snapshot_id: made.group_snapshot_id.clone(),
                snapshot_ids: members.clone(),
                secrets: witness.secrets(),
            };
            witness.note(group.get_volume_group_snapshot(request).await);
            let request = DeleteVolumeGroupSnapshotRequest {
                group_snapshot_id: made.group_snapshot_id.clone(),
                snapshot_ids: members,
                secrets: witness.secrets(),
            };
            witness.note(group.delete_volume_group_snapshot(request).await);
        }
    }
}

async fn removal_calls(witness: &Witness, clients: &Clients, snapshots: &[String], uses: &[Use]) {
    let mut controller = clients.controller.clone();
    for id in snapshots.iter().map(String::as_str).chain(["snap-unknown"]) {
        let request = DeleteSnapshotRequest { snapshot_id: id.to_owned(), secrets: witness.secrets() };
        witness.note(controller.delete_snapshot(request).await);
    }
    for using in uses {
        let request = DeleteVolumeRequest { volume_id: using.id.clone(), secrets: witness.secrets() };
        assert!(witness.hear(controller.delete_volume(request).await).is_none(), "it is in use");
        unpublish(clients, using).await.unwrap();
        unstage(clients, using).await.unwrap();
        let request = ControllerUnpublishVolumeRequest {
            volume_id: using.id.clone(),
            node_id: NODE.to_owned(),
            secrets: witness.secrets(),
        };
        witness.hear(controller.controller_unpublish_volume(request).await).expect("it is detached");
        let request = DeleteVolumeRequest { volume_id: using.id.clone(), secrets: witness.secrets() };
        witness.hear(controller.delete_volume(request).await).expect("it is deleted");
    }
}

/// Fails if any file below shows the mark, in its name or in its content.
fn search(dir: &Path) {
    let found = Command::new("grep").args(["-r", "-l", "-a", "-F", MARK]).arg(dir).output().unwrap();
    assert_eq!(found.status.code(), Some(1), "secrets are in {}", String::from_utf8_lossy(&found.stdout));
    let names = rig::world::tool("find", [dir]);
    assert!(names.contains("pool.json") && !names.contains(MARK), "{names}");
}

fn get_metrics(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn no_secret_leaves_the_driver(format: &str) {
    let scratch = Scratch::new();
    scratch.plain_pool();
    let metrics = free_address();
    let mut driver = start(&scratch, metrics, format);
    let witness = Witness::default();
    run(async {
        let clients = driver.clients().await;
        let (mounted, raw) = controller_calls(&witness, &clients).await;
        let uses = [Use::new(&scratch, &mounted, mount("ext4")), Use::new(&scratch, &raw, block())];
        // Attached with a flag in its capability; from here on as it is used.
        for using in &uses {
            detach(&clients, &using.id).await.unwrap();
            attach(&clients, using).await.unwrap();
            node_calls(&witness, &clients, using).await;
            assert!(rig::world::is_mounted(&using.target), "the calls that should succeed did");
        }
        inline_calls(&witness, &clients, &scratch).await;
        let snapshots = snapshot_calls(&witness, &clients, &mounted).await;
        group_calls(&witness, &clients, &mounted).await;
        search(&scratch.path("pool"));
        removal_calls(&witness, &clients, &snapshots, &uses).await;
    });
    let text = get_metrics(metrics);
    assert!(text.contains("csi_plugin_operations_seconds"), "{text}");
    assert!(driver.stop(), "{}", driver.log());
    search(&scratch.path("pool"));

    assert!(*witness.made.lock().unwrap() > 150, "secrets were sent");
    let outputs = [driver.log(), fs::read_to_string(scratch.path("stdout")).unwrap(), text];
    for output in outputs.iter().chain(witness.heard.lock().unwrap().iter()) {
        let line = output.lines().find(|line| line.contains(MARK));
        assert_eq!(line, None, "a secret came out");
    }
    let refusals = witness.heard.lock().unwrap().iter().filter(|text| text.contains(csi::REDACTED)).count();
    assert!(refusals > 0, "some messages had a secret in them, which was taken out");
    let log = driver.log();
    assert!(log.contains("NodeStageVolume") && log.contains("DEBUG"), "the log is at its loudest");
    scratch.assert_clean();
}

/// Rules: WIRE-B.5, LOCAL-0.28, LOCAL-0.29
#[test]
fn no_secret_is_in_a_text_log_an_answer_the_metrics_or_the_pool() {
    needs!(Ext4);
    no_secret_leaves_the_driver("text");
}

/// Rules: WIRE-B.5, LOCAL-0.28, LOCAL-0.29
#[test]
fn no_secret_is_in_a_json_log() {
    needs!(Ext4);
    no_secret_leaves_the_driver("json");
}
