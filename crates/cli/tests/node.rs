//! The whole way with real programs: a claim becomes a mounted filesystem below the agent's root, data goes through it, and
//! nothing is left when the pod and the claim are gone.

mod api_rig;
#[path = "registration/program.rs"]
#[allow(dead_code, reason = "the tests of registration use the rest")]
mod program;
mod rig;

use std::path::{Path, PathBuf};
use std::time::Duration;

use api_rig::{ask, client};
use linux::mountinfo::MountTable;
use program::Program;
use rig::Scratch;
use serde_json::{Value, json};

const NODE: &str = "worker-1";
const CLAIM: &str = "/api/v1/namespaces/default/persistentvolumeclaims/data";
const POD: &str = "/api/v1/namespaces/default/pods/writer";

/// The whole stack, a registrar and an agent.
///
/// The programs go before the directory: what one of them still holds cannot be unmounted.
struct Cluster {
    _up: Program,
    _registrar: Program,
    api: kube::Client,
    scratch: Scratch,
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of ours")
}

fn agent(scratch: &Scratch) -> Program {
    let (kubeconfig, root) = (scratch.path("data").join("kubeconfig"), scratch.path("root"));
    Program::orlop(&["node", "--kubeconfig", text(&kubeconfig), "--node-name", NODE, "--root-dir", text(&root)])
}

impl Cluster {
    async fn start() -> Self {
        let scratch = Scratch::new();
        let data = scratch.path("data");
        let mut up = Program::orlop(&["up", "--listen", "127.0.0.1:0", "--data", text(&data)]);
        let address = up.address().await;
        let api = client(&data.join("kubeconfig"), &address).await;
        let socket = data.join("csi.sock");
        let registrar = Program::orlop(&[
            "registrar",
            "--csi-address",
            text(&socket),
            "--kubelet-registration-path",
            text(&socket),
            "--plugin-registration-path",
            text(&scratch.dir("root/plugins_registry")),
        ]);
        Self { _up: up, _registrar: registrar, api, scratch }
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let (code, object) = ask(&self.api, ("GET", path), None).await.expect("the server answers");
        (code == 200).then_some(object)
    }

    async fn create(&self, path: &str, body: Value) -> Value {
        let (code, object) = ask(&self.api, ("POST", path), Some(&body)).await.expect("the server answers");
        assert_eq!(code, 201, "{object}");
        object
    }

    async fn until(&self, what: &str, agent: &Program, done: impl AsyncFn() -> bool) {
        let wait = async {
            while !done().await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(120), wait).await.is_err() {
            let pod = self.get(POD).await.unwrap_or_default();
            panic!("never happened: {what}\n{}\n{}", pod["status"], agent.log());
        }
    }

    /// Mount points below the scratch folder, but for the agent's own root.
    fn mounts(&self) -> Vec<PathBuf> {
        let root = self.scratch.path("root");
        let table = MountTable::read().expect("the mount table can be read");
        let points = table.iter().map(|mount| mount.mount_point.clone());
        // The directories of both agents are mounts themselves; the other agent is that of `orlop up`.
        let own = [root, self.scratch.path("data/node")];
        points.filter(|point| point.starts_with(self.scratch.path("")) && !own.contains(point)).collect()
    }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|one| one["type"] == api::keys::condition::VOLUMES_READY && one["status"] == "True")
}

fn claim() -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}}})
}

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "writer"}, "spec": {
        "nodeName": NODE,
        "securityContext": {"fsGroup": 4321},
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "containers": [{"name": "main", "image": "example/main",
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}})
}

/// Rule: NODE-14
#[tokio::test]
async fn a_pod_gets_its_ext4_volume_writes_to_it_survives_its_agent_and_leaves_nothing() {
    needs!(Ext4);
    let cluster = Cluster::start().await;
    let first = agent(&cluster.scratch);
    cluster.create("/api/v1/namespaces/default/persistentvolumeclaims", claim()).await;
    let made = cluster.create("/api/v1/namespaces/default/pods", pod()).await;
    cluster
        .until("the pod's volumes are ready", &first, async || cluster.get(POD).await.is_some_and(|pod| is_ready(&pod)))
        .await;

    let uid = made["metadata"]["uid"].as_str().expect("a uid");
    let volume =
        cluster.get(CLAIM).await.expect("it is there")["spec"]["volumeName"].as_str().expect("bound").to_owned();
    let volumes = cluster.scratch.path("root").join("pods").join(uid).join("volumes/kubernetes.io~csi");
    let mount = volumes.join(&volume).join("mount");
    let table = MountTable::read().expect("the mount table can be read");
    let shown = table.iter().find(|entry| entry.mount_point == mount).expect("it is mounted");
    assert_eq!(shown.fs_type, "ext4");
    std::fs::write(mount.join("hello"), "through the pod").expect("data can be written");
    let group = rustix::fs::stat(&mount).expect("it is there").st_gid;
    assert_eq!(group, 4321, "NODE-14: the pod's group owns it");

    // An agent that dies changes nothing, and the next one touches nothing.
    first.kill();
    let second = agent(&cluster.scratch);
    let deleted = ask(&cluster.api, ("DELETE", POD), None).await.expect("the server answers");
    assert_eq!(deleted.0, 200);
    cluster.until("the pod goes", &second, async || cluster.get(POD).await.is_none()).await;
    assert_eq!(cluster.mounts(), [] as [PathBuf; 0], "\n{}", second.log());
    assert!(!cluster.scratch.path("root").join("pods").join(uid).exists());

    let deleted = ask(&cluster.api, ("DELETE", CLAIM), None).await.expect("the server answers");
    assert_eq!(deleted.0, 200);
    let volume = format!("/api/v1/persistentvolumes/{volume}");
    cluster.until("the volume goes", &second, async || cluster.get(&volume).await.is_none()).await;
    let attachments = "/apis/storage.k8s.io/v1/volumeattachments";
    cluster
        .until("no attachment is left", &second, async || {
            cluster.get(attachments).await.is_some_and(|list| list["items"].as_array().is_some_and(Vec::is_empty))
        })
        .await;
    let pool = cluster.scratch.path("data").join("pool/volumes");
    let left: Vec<_> = std::fs::read_dir(pool).expect("the pool is there").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A loop device of its own, which goes with the test.
struct Disk(linux::loopdev::LoopDevice, linux::loopdev::BackingFile);

impl Disk {
    fn new(path: &Path) -> Self {
        use linux::loopdev::{Attach, BackingFile, attach};
        let image = std::fs::File::options().read(true).write(true).create_new(true).open(path).expect("a new file");
        image.set_len(16 << 20).expect("it can be made larger");
        let how = Attach { read_only: false, autoclear: false, direct_io: false, block_size: 512 };
        let backing = BackingFile::of(&image).expect("it is there");
        Self(attach(&image, how).expect("a free loop device").device, backing)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = linux::loopdev::detach_and_wait(&self.0, self.1, Duration::from_secs(5));
    }
}

#[derive(Clone, Copy)]
enum As {
    Device,
    /// With this filesystem.
    Directory(&'static str),
}

fn local_volume(device: &Path, shape: As) -> [Value; 3] {
    let (mode, fs_type, uses) = match shape {
        As::Device => ("Block", None, json!({"volumeDevices": [{"name": "data", "devicePath": "/dev/xvda"}]})),
        As::Directory(fs) => {
            ("Filesystem", Some(fs), json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]}))
        }
    };
    let mut container = json!({"name": "main", "image": "example/main"});
    container.as_object_mut().expect("an object").extend(uses.as_object().expect("an object").clone());
    let modes = json!(["ReadWriteOnce"]);
    let here = json!({"required": {"nodeSelectorTerms": [{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": [NODE]}]}]}});
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"}, "spec": {
        "capacity": {"storage": "16Mi"}, "accessModes": modes, "volumeMode": mode, "storageClassName": "",
        "persistentVolumeReclaimPolicy": "Retain", "local": {"path": device, "fsType": fs_type}, "nodeAffinity": here}});
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": modes, "volumeMode": mode, "storageClassName": "", "volumeName": "disk",
                 "resources": {"requests": {"storage": "16Mi"}}}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "writer"}, "spec": {
        "nodeName": NODE,
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "containers": [container]}});
    [volume, claim, pod]
}

/// Rules: NODE-17, NODE-24, NODE-17.1.8
#[tokio::test]
async fn a_local_device_reaches_a_pod_survives_the_agent_and_is_let_go_of() {
    needs!();
    let cluster = Cluster::start().await;
    let disk = Disk::new(&cluster.scratch.path("disk.img"));
    let first = agent(&cluster.scratch);
    let [volume, claim, pod] = local_volume(&disk.0.path, As::Device);
    cluster.create("/api/v1/persistentvolumes", volume).await;
    cluster.create("/api/v1/namespaces/default/persistentvolumeclaims", claim).await;
    let made = cluster.create("/api/v1/namespaces/default/pods", pod).await;
    let ready = async || cluster.get(POD).await.is_some_and(|pod| is_ready(&pod));
    cluster.until("the pod has its device", &first, ready).await;

    let (uid, root) = (made["metadata"]["uid"].as_str().expect("a uid"), cluster.scratch.path("root"));
    let link = root.join("pods").join(uid).join("volumeDevices/kubernetes.io~local-volume/disk");
    assert_eq!(std::fs::read_link(&link).expect("the link is there"), disk.0.path);
    let bound = root.join("plugins/kubernetes.io~local-volume/volumeDevices/disk").join(uid);
    assert!(cluster.mounts().contains(&bound), "{:?}", cluster.mounts());
    let held = || linux::loopdev::opened_as(&bound).expect("loop devices can be listed").len();
    assert_eq!(held(), 1, "NODE-17.1.8: a loop device holds it");

    first.kill();
    let second = agent(&cluster.scratch);
    let deleted = ask(&cluster.api, ("DELETE", POD), None).await.expect("the server answers");
    assert_eq!(deleted.0, 200);
    cluster.until("the pod goes", &second, async || cluster.get(POD).await.is_none()).await;
    assert_eq!((cluster.mounts(), held()), (Vec::new(), 0), "\n{}", second.log());
    assert!(!bound.exists() && !link.is_symlink());
    let map = bound.parent().expect("a directory").to_owned();
    cluster.until("the map directory goes", &second, async || !map.exists()).await;
}

/// Rules: NODE-26, NODE-29.5
#[tokio::test]
async fn another_filesystem_than_was_said_is_told_to_the_volume() {
    needs!(Ext4);
    let cluster = Cluster::start().await;
    let disk = Disk::new(&cluster.scratch.path("disk.img"));
    let made = std::process::Command::new("mkfs.ext4").arg("-q").arg(&disk.0.path).status().expect("it is installed");
    assert!(made.success());
    let agent = agent(&cluster.scratch);
    let [volume, claim, pod] = local_volume(&disk.0.path, As::Directory("xfs"));
    cluster.create("/api/v1/persistentvolumes", volume).await;
    cluster.create("/api/v1/namespaces/default/persistentvolumeclaims", claim).await;
    cluster.create("/api/v1/namespaces/default/pods", pod).await;
    let told = async |reason: &str, kind: &str| {
        let events = cluster.get("/api/v1/events").await.unwrap_or_default();
        let events = events["items"].as_array().cloned().unwrap_or_default();
        events.iter().any(|event| {
            let message = event["message"].as_str().unwrap_or_default();
            event["reason"] == reason && event["involvedObject"]["kind"] == kind && message.contains("there is ext4")
        })
    };
    let volume = async || told("FailedMountOnFilesystemMismatch", "PersistentVolume").await;
    cluster.until("the volume is told", &agent, volume).await;
    cluster.until("the pod is told", &agent, async || told("FailedMount", "Pod").await).await;
    let deleted = ask(&cluster.api, ("DELETE", POD), None).await.expect("the server answers");
    assert_eq!(deleted.0, 200);
    cluster.until("the pod goes", &agent, async || cluster.get(POD).await.is_none()).await;
    assert_eq!(cluster.mounts(), [] as [PathBuf; 0]);
}

/// Help wraps to the width of the terminal, which is fixed for it.
#[test]
fn help_is_as_it_was_reviewed() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_orlop"));
    let output = command.args(["node", "--help"]).env("COLUMNS", "100").output().expect("the binary was just built");
    assert!(output.status.success());
    let got = String::from_utf8_lossy(&output.stdout).into_owned();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/node_help.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&file, &got).expect("the golden file can be written");
    }
    let want = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        got == want,
        "help differs from tests/golden/node_help.txt; to accept it, set UPDATE_GOLDEN=1. Now:\n{got}"
    );
}
