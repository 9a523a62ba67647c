//! An `orlop up` as a process, and a user's hands on it.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::api_rig::{ask, client};

pub(crate) const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
pub(crate) const VOLUMES: &str = "/api/v1/persistentvolumes";
pub(crate) const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

const PATIENCE: Duration = Duration::from_secs(60);

/// What a command printed and how it ended.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: Option<i32>,
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr))
    }
}

/// Runs the program. Help wraps to the width of the terminal, so that is fixed.
pub(crate) fn orlop(words: &[&str]) -> Answer {
    run(Command::new(env!("CARGO_BIN_EXE_orlop")).args(words))
}

pub(crate) fn run(command: &mut Command) -> Answer {
    let command = command.env("COLUMNS", "100").env_remove("KUBECONFIG").stdin(Stdio::null());
    let output = command.output().expect("the program can be started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Answer { stdout: text(&output.stdout), stderr: text(&output.stderr), code: output.status.code() }
}

/// A stack. Dropping it kills it and what it left mounted.
pub(crate) struct Site {
    child: Child,
    pub(crate) data: PathBuf,
    kubeconfig: String,
    client: kube::Client,
    _place: tempfile::TempDir,
}

impl Site {
    pub(crate) async fn up() -> Self {
        let place = tempfile::tempdir().expect("a directory can be made");
        let data = place.path().join("data");
        let mut child = Command::new(env!("CARGO_BIN_EXE_orlop"))
            .args(["up", "--listen", "127.0.0.1:0", "--data"])
            .arg(&data)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("the binary was just built");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines().map_while(Result::ok);
        let address = lines.by_ref().find_map(|line| {
            let address = line.split("ready address=").nth(1)?;
            address.split(' ').next().map(str::to_owned)
        });
        // Whatever it says later is read, so that it never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        let address = address.expect("it becomes ready");
        let client = client(&data.join("kubeconfig"), &address).await;
        let kubeconfig = data.join("kubeconfig").to_string_lossy().into_owned();
        Self { child, data, kubeconfig, client, _place: place }
    }

    pub(crate) fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// The program, on this cluster.
    pub(crate) fn orlop(&self, words: &[&str]) -> Answer {
        orlop(&[words, &["--kubeconfig", self.kubeconfig()]].concat())
    }

    pub(crate) async fn say(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        ask(&self.client, (method, path), body).await.expect("the server answers")
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) {
        let (code, answer) = self.say("POST", path, Some(object)).await;
        assert_eq!(code, 201, "{answer}");
    }

    /// Asks until it holds.
    pub(crate) async fn until(&self, path: &str, holds: impl Fn(u16, &Value) -> bool) -> Value {
        let asked = async {
            loop {
                let (code, seen) = self.say("GET", path, None).await;
                if holds(code, &seen) {
                    return seen;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_| panic!("{path} never came so far"))
    }

    /// A claim that is bound; gives its volume.
    pub(crate) async fn bound(&self, name: &str, class: &str) -> String {
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
                     "resources": {"requests": {"storage": "64Mi"}}}});
        self.create(CLAIMS, &claim).await;
        let claim = self.until(&format!("{CLAIMS}/{name}"), |_, claim| claim["status"]["phase"] == "Bound").await;
        claim["spec"]["volumeName"].as_str().expect("it is bound").to_owned()
    }

    /// The driver's own client.
    pub(crate) fn csi(&self, words: &[&str]) -> Answer {
        let socket = format!("unix://{}", self.data.join("csi.sock").display());
        orlop(&[&["csi", "--endpoint", &socket], words].concat())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for point in mounts_under(&self.data) {
            let _ = Command::new("umount").arg("--lazy").arg(point).status();
        }
        crate::rig::detach_loops(&self.data.join("pool"));
    }
}

/// What is mounted below a directory, the deepest first.
fn mounts_under(directory: &Path) -> Vec<PathBuf> {
    let table = linux::mountinfo::MountTable::read().expect("there is a mount table");
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let mut points: Vec<_> = table.below(&directory).map(|mount| mount.mount_point.clone()).collect();
    points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    points
}
