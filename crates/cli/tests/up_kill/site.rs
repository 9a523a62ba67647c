//! One data directory that many runs of `orlop up` have after another, and requests that outlive each of them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use linux::mountinfo::MountTable;
use node::layout::{Layout, Name};
use serde_json::Value;
use tokio::sync::watch;

use super::objects::{self, ATTACHMENTS, CLAIMS, PODS, VOLUMES};
use super::program::Program;
use crate::api_rig::{ask, client};
use crate::rig::Scratch;
use crate::rig::left::{entries, loops_on};

/// Long enough for a busy machine; nothing is asserted about it.
pub(super) const PATIENCE: Duration = Duration::from_secs(240);
const ASK_AGAIN: Duration = Duration::from_millis(20);
const READY: &str = "ready address=";

/// The directory, and who answers for it now.
pub(super) struct Site {
    api: watch::Sender<Option<kube::Client>>,
    /// Things that users were told are done.
    pub(super) acknowledged: watch::Sender<u64>,
    /// Records that are on disk in files that stay open.
    pub(super) written: watch::Sender<u64>,
    pub(super) data: PathBuf,
    // Goes last, with all mounts and devices in it.
    _scratch: Scratch,
}

impl Site {
    pub(super) fn new() -> Self {
        let scratch = Scratch::new();
        let data = scratch.dir("data");
        let (acknowledged, written) = (watch::Sender::new(0), watch::Sender::new(0));
        Self { api: watch::Sender::new(None), acknowledged, written, data, _scratch: scratch }
    }

    /// A new process, which may not answer yet.
    pub(super) fn launch(&self, listen: &str) -> Program {
        Program::orlop(&["up", "--listen", listen, "--data", self.data.to_str().expect("a path of ours")])
    }

    /// Waits until it says that it is ready; from then on requests go to it. Gives its address.
    pub(super) async fn enter(&self, up: &mut Program) -> String {
        up.says(READY, 1).await;
        let log = up.log();
        let address = log.split(READY).nth(1).and_then(|rest| rest.split(' ').next()).expect("it was just said");
        let api = client(&self.kubeconfig(), address).await;
        self.api.send_replace(Some(api));
        address.to_owned()
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.data.join("kubeconfig")
    }

    pub(super) fn layout(&self) -> Layout {
        Layout::new(self.data.join("node")).expect("a path of ours")
    }

    /// Where the agent mounts a pod's volume.
    pub(super) fn target(&self, pod_uid: &str, volume: &str) -> PathBuf {
        let name = |text: &str| Name::new(text).expect("an object has it");
        self.layout().pod(&name(pod_uid)).csi(&name(volume)).mount()
    }

    /// One more thing is done.
    pub(super) fn count(&self) {
        self.acknowledged.send_modify(|count| *count += 1);
    }

    /// A request, again and again while nobody answers.
    pub(super) async fn say(&self, what: (&str, &str), body: Option<&Value>) -> (u16, Value) {
        let mut api = self.api.subscribe();
        let answered = async {
            loop {
                let current = api.borrow_and_update().clone();
                if let Some(current) = current
                    && let Ok((code, answer)) = ask(&current, what, body).await
                    && code < 500
                    && code != 429
                {
                    return (code, answer);
                }
                // A new run is asked at once.
                drop(tokio::time::timeout(ASK_AGAIN, api.changed()).await);
            }
        };
        match tokio::time::timeout(PATIENCE, answered).await {
            Ok(answer) => answer,
            Err(_) => panic!("nobody answers {what:?}"),
        }
    }

    pub(super) async fn list(&self, path: &str) -> Vec<Value> {
        let (code, list) = self.say(("GET", path), None).await;
        assert_eq!(code, 200, "{list}");
        list["items"].as_array().expect("a list has items").clone()
    }

    pub(super) async fn get(&self, path: &str, name: &str) -> Value {
        let (code, object) = self.say(("GET", &format!("{path}/{name}")), None).await;
        assert_eq!(code, 200, "{path}/{name}: {object}");
        object
    }

    /// Makes an object and gives it. It may be there already, by an answer that was lost.
    pub(super) async fn create(&self, path: &str, body: &Value) -> Value {
        let (code, answer) = self.say(("POST", path), Some(body)).await;
        let made = match code {
            201 => answer,
            409 => self.get(path, objects::name(body)).await,
            _ => panic!("{code} {answer}"),
        };
        self.count();
        made
    }

    /// Deletes an object. It may be gone already.
    pub(super) async fn delete(&self, path: &str, name: &str) {
        let (code, answer) = self.say(("DELETE", &format!("{path}/{name}")), None).await;
        assert!(matches!(code, 200 | 202 | 404), "{answer}");
        self.count();
    }

    /// Asks for an object until it is so.
    pub(super) async fn until(&self, path: &str, name: &str, so: impl Fn(&Value) -> bool) -> Value {
        let found = async {
            loop {
                let object = self.get(path, name).await;
                if so(&object) {
                    return object;
                }
                tokio::time::sleep(ASK_AGAIN).await;
            }
        };
        match tokio::time::timeout(PATIENCE, found).await {
            Ok(object) => object,
            Err(_) => panic!("{path}/{name} did not become what it should\n{}", self.account().await),
        }
    }

    /// Waits until no object, mount, device or file of a volume is there.
    pub(super) async fn until_empty(&self) {
        let empty = async {
            while !self.left().await.is_empty() {
                tokio::time::sleep(ASK_AGAIN).await;
            }
        };
        if tokio::time::timeout(PATIENCE, empty).await.is_err() {
            panic!("left after {PATIENCE:?}:\n{}\n{}", self.left().await.join("\n"), self.account().await);
        }
    }

    /// Everything in the API and on the machine that goes with the last claim.
    pub(super) async fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        for path in [PODS, CLAIMS, VOLUMES, ATTACHMENTS] {
            left.extend(self.list(path).await.iter().map(|object| format!("{path}: {}", objects::name(object))));
        }
        let (layout, pool) = (self.layout(), self.data.join("pool"));
        let folders = [layout.pods(), pool.join("volumes"), pool.join(".tmp"), pool.join(".trash")];
        let staged = entries(&layout.csi()).into_iter().filter(|path| path.is_dir());
        for folder in folders.into_iter().chain(staged) {
            left.extend(entries(&folder).iter().map(|path| format!("file: {}", path.display())));
        }
        // The agent keeps its root as a mount, as a kubelet's is one.
        let mounts = mounts_below(&self.data).into_iter().filter(|point| point != layout.root());
        left.extend(mounts.map(|point| format!("mount: {}", point.display())));
        left.extend(loops_on(&self.data).into_iter().map(|(device, file)| format!("{device} on {file}")));
        left
    }

    /// Who waits for what.
    async fn account(&self) -> String {
        let mut told = Vec::new();
        for path in [PODS, CLAIMS, VOLUMES, ATTACHMENTS] {
            for object in self.list(path).await {
                told.push(format!("{path}: {} {}", object["metadata"], object["status"]));
            }
        }
        for pod in self.list(PODS).await {
            let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
            command.args(["explain", &format!("pod/{}", objects::name(&pod)), "--kubeconfig"]).arg(self.kubeconfig());
            told.push(String::from_utf8_lossy(&command.output().expect("it was just built").stdout).into_owned());
        }
        for event in self.list("/api/v1/events").await {
            told.push(format!("event {}: {}", event["reason"], event["message"]));
        }
        told.join("\n")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // A failed test leaves mounts: first they go, then the devices below them, then the directory.
        let mut points = mounts_below(&self.data);
        points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
        for point in points {
            drop(linux::mounts::unmount_all(&point));
        }
        crate::rig::detach_loops(&self.data.join("pool"));
    }
}

/// Points of mounts below a directory, as this process sees them.
pub(super) fn mounts_below(directory: &Path) -> Vec<PathBuf> {
    let table = MountTable::read().expect("there is a mount table");
    table.below(directory).map(|mount| mount.mount_point.clone()).collect()
}
