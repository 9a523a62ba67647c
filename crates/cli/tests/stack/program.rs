//! The program as a process whose log is read, and a user's hands on a cluster.

#![allow(clippy::unwrap_used, reason = "test support")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use linux::mountinfo::{Mount, MountTable};
use serde_json::{Value, json};

use crate::api_rig::{ask, client};

pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
pub(crate) const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const VOLUMES: &str = "/api/v1/persistentvolumes";
pub(crate) const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

pub(crate) fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_orlop"))
}

/// Runs a command to its end.
pub(crate) fn orlop(words: &[&str]) -> Output {
    Command::new(binary()).args(words).output().expect("the binary was just built")
}

/// The same, for one that is to fail: what it said.
#[track_caller]
pub(crate) fn refusal(words: &[&str]) -> String {
    let output = orlop(words);
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[derive(Debug, Default)]
struct Log {
    text: Mutex<(String, bool)>,
    grown: Condvar,
}

/// A process with its log. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    log: Arc<Log>,
}

impl Program {
    pub(crate) fn start(words: &[&str]) -> Self {
        Self::spawn(Command::new(binary()).args(words))
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.env_remove("KUBECONFIG").spawn().expect("the binary was just built");
        let log = Arc::new(Log::default());
        let (kept, stderr) = (Arc::clone(&log), child.stderr.take().expect("it is piped"));
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                kept.text.lock().unwrap().0 += &format!("{line}\n");
                kept.grown.notify_all();
            }
            kept.text.lock().unwrap().1 = true;
            kept.grown.notify_all();
        });
        Self { child, log }
    }

    /// Everything that it has said.
    pub(crate) fn said(&self) -> String {
        self.log.text.lock().unwrap().0.clone()
    }

    /// Waits until it says this; gives the line.
    #[track_caller]
    pub(crate) fn says(&self, words: &str) -> String {
        let found = |text: &str| text.lines().find(|line| line.contains(words)).map(str::to_owned);
        let guard = self.log.text.lock().unwrap();
        let waiting = |(text, ended): &mut (String, bool)| found(text).is_none() && !*ended;
        let (guard, _) = self.log.grown.wait_timeout_while(guard, PATIENCE, waiting).unwrap();
        found(&guard.0).unwrap_or_else(|| panic!("it never said {words:?}:\n{}", guard.0))
    }

    /// The address of its API, once it is ready.
    #[track_caller]
    pub(crate) fn address(&self) -> String {
        let line = self.says("ready address=");
        let address = line.split("address=").nth(1).and_then(|rest| rest.split(' ').next());
        address.unwrap_or_else(|| panic!("{line}")).to_owned()
    }

    /// SIGTERM, and a good end.
    #[track_caller]
    pub(crate) fn stop(mut self) -> String {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is our child");
        let status = self.child.wait().expect("it is our child");
        // Its last words may still be on their way through the pipe.
        let guard = self.log.text.lock().unwrap();
        drop(self.log.grown.wait_timeout_while(guard, PATIENCE, |(_, ended)| !*ended).unwrap());
        assert!(status.success(), "{status}:\n{}", self.said());
        self.said()
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A user's hands on a cluster.
pub(crate) struct User {
    client: kube::Client,
}

impl User {
    pub(crate) async fn of(kubeconfig: &Path, address: &str) -> Self {
        Self { client: client(kubeconfig, address).await }
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        ask(&self.client, ("GET", path), None).await.expect("the server answers")
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) -> Value {
        let (code, answer) = ask(&self.client, ("POST", path), Some(object)).await.expect("the server answers");
        assert_eq!(code, 201, "{answer}");
        answer
    }

    pub(crate) async fn delete(&self, path: &str) {
        let (code, answer) = ask(&self.client, ("DELETE", path), None).await.expect("the server answers");
        assert!(code < 300, "{answer}");
    }

    /// Asks until it holds.
    pub(crate) async fn until(&self, path: &str, holds: impl Fn(u16, &Value) -> bool) -> Value {
        let mut last = Value::Null;
        let asked = async {
            loop {
                let (code, seen) = self.get(path).await;
                if holds(code, &seen) {
                    return seen;
                }
                last = seen;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(seen) => seen,
            Err(_) => panic!("{path} never came so far: {last:#}"),
        }
    }

    pub(crate) async fn gone(&self, path: &str) {
        self.until(path, |code, _| code == 404).await;
    }

    pub(crate) async fn claim(&self, name: &str, class: &str) {
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
                     "resources": {"requests": {"storage": "64Mi"}}}});
        self.create(CLAIMS, &claim).await;
    }

    /// Waits until a claim is bound; gives its volume's name.
    pub(crate) async fn bound(&self, name: &str) -> String {
        let claim = self.until(&format!("{CLAIMS}/{name}"), |_, claim| claim["status"]["phase"] == "Bound").await;
        claim["spec"]["volumeName"].as_str().expect("it is bound").to_owned()
    }

    /// A pod with these claims; gives its uid.
    pub(crate) async fn pod(&self, name: &str, claims: &[&str]) -> String {
        let volumes = claims.iter().map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}));
        let mounts = claims.iter().map(|claim| json!({"name": claim, "mountPath": format!("/{claim}")}));
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
            "containers": [{"name": "main", "image": "none", "volumeMounts": mounts.collect::<Vec<_>>()}],
            "volumes": volumes.collect::<Vec<_>>()}});
        let pod = self.create(PODS, &pod).await;
        pod["metadata"]["uid"].as_str().expect("it has one").to_owned()
    }

    /// Waits until a pod has its volumes.
    pub(crate) async fn mounted(&self, pod: &str) {
        let ready = |condition: &Value| condition["type"] == "orlop.dev/VolumesReady" && condition["status"] == "True";
        let holds = |_, pod: &Value| pod["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(ready));
        self.until(&format!("{PODS}/{pod}"), holds).await;
    }
}

/// What is mounted for a pod of the stack in this directory.
pub(crate) fn mounts_of(data: &Path, uid: &str) -> Vec<Mount> {
    let under = data.canonicalize().expect("it is there").join("node/pods").join(uid);
    MountTable::read().expect("there is a mount table").below(&under).cloned().collect()
}

/// Words of a command line with paths in them.
pub(crate) fn with(flag: &str, path: &Path) -> String {
    format!("{flag}={}", path.display())
}

/// The socket of a driver as a flag.
pub(crate) fn driver_flag(socket: &Path) -> String {
    format!("--driver=unix://{}", socket.display())
}

/// Another driver, as somebody else would run it.
pub(crate) fn other_driver(name: &str, socket: &Path, pool: &Path) -> Program {
    let endpoint = format!("--endpoint=unix://{}", socket.display());
    let node = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
    let words = ["driver", &endpoint, "--driver-name", name, "--node-id", &node, &with("--pool", pool)];
    let driver = Program::start(&words);
    driver.says("serving");
    driver
}
