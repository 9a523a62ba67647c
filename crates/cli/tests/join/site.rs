//! The two machines, the cable, and the programs on them.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use linux::mountinfo::MountTable;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};

use super::program::Program;
use crate::api_rig::{ask, client};
use crate::rig::Scratch;

pub(super) const SERVER: &str = "10.99.0.1:6444";
const API: &str = "127.0.0.1:6443";
/// Long enough for a busy machine; nothing is asserted about it.
const PATIENCE: Duration = Duration::from_secs(240);
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Why there are no such machines here.
fn missing() -> Option<&'static str> {
    let runs = |words: &[&str]| Command::new(words[0]).args(&words[1..]).output().is_ok_and(|out| out.status.success());
    match () {
        () if !runs(&["ip", "-V"]) => Some("`ip` of iproute2 is missing"),
        () if !runs(&["unshare", "--mount", "--net", "true"]) => Some("unshare --mount --net does not work"),
        () if !runs(&["setpriv", "--pdeathsig", "KILL", "nsenter", "--version"]) => {
            Some("setpriv and nsenter of util-linux are needed")
        }
        () if !runs(&[
            "unshare", "--net", "ip", "link", "add", "name", "left", "type", "veth", "peer", "name", "right",
        ]) =>
        {
            Some("the kernel makes no pairs of virtual network devices")
        }
        () => None,
    }
}

/// Runs a test in a thread that sees the network of the server's machine, so that it can ask its API.
pub(super) fn on_site(name: &str, test: impl AsyncFnOnce(Site) + Send + 'static) {
    if let Some(why) = crate::rig::cannot_run(&[linux::fs::FsType::Ext4]).or_else(|| missing().map(str::to_owned)) {
        return crate::rig::skip(name, &why);
    }
    let ran = std::thread::spawn(move || {
        let site = Site::new();
        let network = std::fs::File::open(format!("/proc/{}/ns/net", site.server.keeper.id())).unwrap();
        move_into_link_name_space(std::os::fd::AsFd::as_fd(&network), Some(LinkNameSpaceType::Network)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test(site));
    });
    if let Err(panic) = ran.join() {
        std::panic::resume_unwind(panic);
    }
}

/// A network and a mount namespace. A process that does nothing keeps them, and ends with this or, whatever happens, with
/// the test: it reads from it.
#[derive(Debug)]
pub(super) struct Machine {
    keeper: Child,
    pub(super) data: PathBuf,
}

impl Machine {
    /// What is mounted in it is not seen outside. Other programs' loop devices are not in it: a copy of their mounts would
    /// keep the devices busy for as long as this lives.
    fn new(data: PathBuf) -> Self {
        let script = "while read -r id parent device root point rest; do \
                          case $rest in *' /dev/loop'*) umount -l \"$point\" ;; esac; \
                      done < /proc/self/mountinfo; ip link set lo up; echo made; exec cat";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "--propagation", "private", "sh", "-c", script]);
        let mut keeper = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(keeper.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "made\n", "there are namespaces");
        Self { keeper, data }
    }

    /// A command that runs inside. It dies with the test's thread.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "nsenter"]);
        for kind in ["mnt", "net"] {
            let flag = if kind == "mnt" { "--mount" } else { "--net" };
            command.arg(format!("{flag}=/proc/{}/ns/{kind}", self.keeper.id()));
        }
        command.arg(program).env_remove("KUBECONFIG");
        command
    }

    pub(super) fn orlop(&self, words: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_orlop"));
        command.args(words);
        command
    }

    /// A path inside, for us outside.
    pub(super) fn see(&self, path: &Path) -> PathBuf {
        Path::new(&format!("/proc/{}/root", self.keeper.id())).join(path.strip_prefix("/").unwrap())
    }

    /// Where a pod finds its volume, for us outside.
    pub(super) fn mount_of(&self, pod: &Value, volume: &str) -> PathBuf {
        let uid = pod["metadata"]["uid"].as_str().unwrap();
        self.see(&self.data.join("node/pods").join(uid).join("volumes/kubernetes.io~csi").join(volume).join("mount"))
    }

    fn mounts(&self) -> Vec<PathBuf> {
        let table = std::fs::read(format!("/proc/{}/mountinfo", self.keeper.id())).unwrap();
        let table = MountTable::parse(&table).unwrap();
        table.below(&self.data).map(|mount| mount.mount_point.clone()).collect()
    }

    /// Mounts and files of pods and volumes. While the agent runs, its root is a mount, and not one of these.
    pub(super) fn left(&self) -> Vec<String> {
        let root = self.data.join("node");
        let mounts = self.mounts().into_iter().filter(|point| *point != root);
        let mut left: Vec<String> = mounts.map(|point| format!("mount: {}", point.display())).collect();
        for folder in ["pool/volumes", "pool/.tmp", "pool/.trash", "node/pods"] {
            let entries = std::fs::read_dir(self.data.join(folder)).into_iter().flatten().flatten();
            left.extend(entries.map(|entry| format!("file: {}", entry.path().display())));
        }
        left
    }

    /// What is mounted once nothing runs here any more.
    pub(super) fn assert_empty(&self) {
        assert_eq!(self.mounts(), Vec::<PathBuf>::new(), "mounts are left");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.keeper.kill());
        drop(self.keeper.wait());
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Both machines. Fields are dropped in this order: first the machines with what is mounted in them, then the files.
pub(super) struct Site {
    pub(super) server: Machine,
    pub(super) other: Machine,
    pub(super) scratch: Scratch,
}

impl Site {
    fn new() -> Self {
        let scratch = Scratch::new();
        let machine = |name: &str| Machine::new(scratch.dir(name));
        let (server, other) = (machine("server"), machine("other"));
        let ids = [&server, &other].map(|machine| machine.keeper.id().to_string());
        let pair = [
            "link", "add", "name", "cable", "netns", &ids[0], "type", "veth", "peer", "name", "cable", "netns", &ids[1],
        ];
        run(Command::new("ip").args(pair));
        for (machine, address) in [(&server, "10.99.0.1/24"), (&other, "10.99.0.2/24")] {
            run(machine.command("ip").args(["addr", "add", address, "dev", "cable"]));
            run(machine.command("ip").args(["link", "set", "cable", "up"]));
        }
        Self { server, other, scratch }
    }

    /// Pulls the cable, or puts it back.
    pub(super) fn cable(&self, state: &str) {
        run(self.server.command("ip").args(["link", "set", "cable", state]));
    }

    /// A third machine with a cable of its own to the server, named `name` at that end.
    pub(super) fn third(&self, name: &str) -> Machine {
        let machine = Machine::new(self.scratch.dir(name));
        let ids = [&self.server, &machine].map(|machine| machine.keeper.id().to_string());
        let pair =
            ["link", "add", "name", name, "netns", &ids[0], "type", "veth", "peer", "name", "cable", "netns", &ids[1]];
        run(Command::new("ip").args(pair));
        for (machine, address, device) in [(&self.server, "10.99.1.1/24", name), (&machine, "10.99.1.2/24", "cable")] {
            run(machine.command("ip").args(["addr", "add", address, "dev", device]));
            run(machine.command("ip").args(["link", "set", device, "up"]));
        }
        run(machine.command("ip").args(["route", "add", "10.99.0.1/32", "via", "10.99.1.1"]));
        machine
    }

    /// `orlop up`, once it is ready, and a client for its API.
    pub(super) async fn up(&self) -> (Program, kube::Client) {
        self.up_with(&[]).await
    }

    pub(super) async fn up_with(&self, words: &[&str]) -> (Program, kube::Client) {
        let mut command =
            self.server.orlop(&["up", "--listen", API, "--page", "off", "--serve-machines", SERVER, "--data"]);
        command.arg(&self.server.data).args(words);
        let (program, _) = self.start("up", command, "ready address=").await;
        (program, client(&self.server.data.join("kubeconfig"), API).await)
    }

    /// A program with its log in the scratch folder, once it has said this.
    pub(super) async fn start(&self, name: &str, command: Command, says: &str) -> (Program, String) {
        let folder = self.scratch.path("");
        let log = folder.join(format!("{name}.log"));
        drop(std::fs::remove_file(&log));
        let mut program = Program::launch(&folder, name, command);
        let what = format!("{name} says {says:?}");
        let said = until(&what, async || {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            assert!(program.ended().is_none() || text.contains(says), "{name} ended: {text}");
            text.lines().find(|line| line.contains(says)).map(str::to_owned)
        })
        .await;
        (program, said)
    }

    /// `orlop token` on the server. Gives what it prints.
    pub(super) fn token(&self, words: &[&str]) -> String {
        let mut command = self.server.orlop(&[&["token"], words].concat());
        let output = command.arg("--data").arg(&self.server.data).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// `orlop node` on the other machine.
    pub(super) fn node(&self, data: &str, words: &[&str]) -> Command {
        let mut command = self.other.orlop(&[&["node"], words].concat());
        command.arg("--data").arg(self.scratch.path(data));
        command
    }

    /// Runs `orlop node` on the other machine to its end. Gives what it says.
    pub(super) fn refused(&self, data: &str, words: &[&str]) -> String {
        let Output { status, stderr, .. } = self.node(data, words).output().unwrap();
        let said = String::from_utf8_lossy(&stderr).into_owned();
        assert!(!status.success(), "it was let in: {said}");
        said
    }
}

/// Asks until there is an answer.
pub(super) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    };
    match tokio::time::timeout(PATIENCE, asking).await {
        Ok(answer) => answer,
        Err(_) => panic!("never seen: {what}"),
    }
}

/// A request that succeeds.
pub(super) async fn say(api: &kube::Client, request: (&str, &str), body: Option<&Value>) -> Value {
    let (code, answer) = ask(api, request, body).await.unwrap();
    assert!((200..300).contains(&code), "{request:?}: {code} {answer}");
    answer
}

/// The object at this path, if there is one.
pub(super) async fn get(api: &kube::Client, path: &str) -> Option<Value> {
    let (code, answer) = ask(api, ("GET", path), None).await.unwrap();
    match code {
        200 => Some(answer),
        404 => None,
        _ => panic!("{path}: {code} {answer}"),
    }
}

pub(super) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(super) const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

/// Makes a claim, and a pod with it that may run on one node only.
pub(super) async fn make(api: &kube::Client, name: &str, node: &str) {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}}});
    say(api, ("POST", CLAIMS), Some(&claim)).await;
    make_pod(api, name, (name, node)).await;
}

/// Makes a pod with a claim that exists.
pub(super) async fn make_pod(api: &kube::Client, name: &str, (claim, node): (&str, &str)) {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "nodeSelector": {api::keys::label::HOSTNAME.text(): node},
        "automountServiceAccountToken": false,
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
        "containers": [{"name": "main", "image": "example/main",
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}});
    say(api, ("POST", PODS), Some(&pod)).await;
}

/// Waits until a pod has its volume. Gives the pod, and the name of the volume.
pub(super) async fn ready(api: &kube::Client, name: &str) -> (Value, String) {
    let what = format!("the pod {name} has its volume");
    let pod = until(&what, async || {
        let pod = get(api, &format!("{PODS}/{name}")).await?;
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is = |one: &Value| one["type"] == api::keys::condition::VOLUMES_READY && one["status"] == "True";
        conditions.iter().any(is).then_some(pod)
    })
    .await;
    let claim = pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"].as_str().unwrap();
    let claim = get(api, &format!("{CLAIMS}/{claim}")).await.unwrap();
    (pod, claim["spec"]["volumeName"].as_str().unwrap().to_owned())
}

pub(super) async fn delete(api: &kube::Client, path: &str) {
    say(api, ("DELETE", path), None).await;
}

pub(super) async fn gone(api: &kube::Client, path: &str) {
    until(&format!("{path} is gone"), async || get(api, path).await.is_none().then_some(())).await;
}
