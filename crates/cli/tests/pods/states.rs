//! What is wrong with a volume or a machine, as `orlop explain`, `orlop tree`, the live page and the driver show it: real
//! programs on a real pool that loses writes, fills up and goes missing, and two machines with one name.
//!
//! The answers are compared with `tests/golden/states`; `UPDATE_GOLDEN=1` writes them anew.

use std::fs::File;
use std::io::Read as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use linux::fs::FsType;
use serde_json::Value;

use super::cluster::{Cluster, Node, PATIENCE, Role};
use super::namespace::{Namespace, mortal};
use super::objects;
use super::program::Program;
use crate::rig::{Scratch, cannot_run, skip};

const MIB: u64 = 1 << 20;

fn run(command: &mut Command) -> (Option<i32>, String) {
    let output = command.env("COLUMNS", "100").env_remove("KUBECONFIG").output().expect("it can be started");
    let (said, warned) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code(), format!("{said}{warned}"))
}

/// `orlop` on the cluster.
fn orlop(cluster: &Cluster, words: &[&str]) -> (Option<i32>, String) {
    run(Command::new(env!("CARGO_BIN_EXE_orlop")).args(words).arg("--kubeconfig").arg(cluster.kubeconfig()))
}

fn json(cluster: &Cluster, words: &[&str]) -> Value {
    let (_, said) = orlop(cluster, &[words, &["-o", "json"]].concat());
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// The link of an explanation that everything before it waits for.
fn root(explained: &Value) -> Value {
    let links = explained["chain"].as_array().expect("a chain is a list");
    links.iter().rev().find(|link| link["standing"] == explained["standing"]).expect("a chain has links").clone()
}

/// An answer with names and times that differ from run to run taken out, compared with its file.
fn golden(name: &str, text: &str, names: &[(String, &str)]) {
    let mut text = text.to_owned();
    for (found, shown) in names {
        text = text.replace(found, shown);
    }
    let even = |word: &str| {
        let bare = word.trim_end_matches([',', ':', '.']);
        let digits = bare.trim_end_matches(['s', 'm', 'h', 'd']);
        let is_age =
            digits.len() + 1 == bare.len() && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if is_age { word.replace(bare, "AGE") } else { word.to_owned() }
    };
    let lines = text.lines().map(|line| line.split(' ').map(even).collect::<Vec<_>>().join(" "));
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/states").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&file, &text).expect("the golden file can be written");
        return;
    }
    let want = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(text, want, "{name}: to accept it, UPDATE_GOLDEN=1 cargo test -p orlop --test pods states");
}

/// A condition of an object, if it has it.
fn condition(object: &Value, kind: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|one| one["type"] == kind).unwrap_or(Value::Null)
}

/// A cluster of one machine with a pod that has a volume, and who looks at it.
struct Stage {
    cluster: Cluster,
    page: Page,
    names: Vec<(String, &'static str)>,
    handle: String,
    volume: String,
}

impl Stage {
    async fn set(prepare: impl Fn(&Scratch, &Node)) -> Self {
        let mut cluster = Cluster::start_on(1, prepare).await;
        cluster.launch_with(Role::Agent(0), &["--volume-stats-agg-period", "200ms"]);
        cluster.launch_with(Role::Sidecar(0), &["--monitor-interval", "200ms"]);
        cluster.create(objects::CLAIMS, &objects::claim("data", &cluster.nodes[0])).await;
        let pod = objects::pod("web", &cluster.nodes[0], &objects::of_claim("data"));
        cluster.create(objects::PODS, &pod).await;
        let ready = async |cluster: &Cluster| {
            let pods = cluster.list(objects::PODS).await;
            pods.iter()
                .filter(|pod| !objects::is_ready(pod))
                .map(|pod| pod["status"].to_string())
                .collect::<Vec<String>>()
        };
        cluster.until("the pod has its volume", ready).await;
        let volume = cluster.list(objects::VOLUMES).await.remove(0);
        let text = |value: &Value| value.as_str().expect("it is text").to_owned();
        let (name, handle) = (text(&volume["metadata"]["name"]), text(&volume["spec"]["csi"]["volumeHandle"]));
        let page = Page::serve(&cluster).await;
        let pool = cluster.nodes[0].pool.canonicalize().expect("it is there");
        let state = std::env::var("ORLOP_STATE_DIR").unwrap_or_default();
        let names = vec![
            (name.clone(), "PV"),
            (handle.clone(), "HANDLE"),
            (pool.display().to_string(), "/POOL"),
            (state, "/STATE"),
        ];
        let names = names.into_iter().filter(|(found, _)| !found.is_empty()).collect();
        Self { cluster, page, names, handle, volume: name }
    }

    /// Waits until the claim's condition and the pod's say so, or until they say that all is well.
    async fn until(&mut self, reason: Option<&str>) {
        let said = async |cluster: &Cluster| {
            let (claim, pod) =
                (cluster.list(objects::CLAIMS).await.remove(0), cluster.list(objects::PODS).await.remove(0));
            let claimed = condition(&claim, api::keys::condition::VOLUME_ABNORMAL);
            let mounted = condition(&pod, api::keys::condition::VOLUMES_READY);
            let right = match reason {
                Some(reason) => {
                    claimed["status"] == "True" && claimed["reason"] == reason && mounted["reason"] == "VolumeAbnormal"
                }
                None => claimed["status"] != "True" && mounted["reason"] == "Mounted",
            };
            if right && mounted["status"] == "True" { Vec::new() } else { vec![format!("{claimed} {mounted}")] }
        };
        self.cluster.until(&format!("claim and pod say {reason:?}"), said).await;
    }

    /// Claim, volume, pod, tree and page say the same, and what the claim's answer is.
    async fn agree(&self, code: &str, file: &str) -> Value {
        let cluster = &self.cluster;
        let explained = json(cluster, &["explain", "pvc/data"]);
        let told = root(&explained);
        assert_eq!(told["reason"], code, "{explained:#}");
        for what in [format!("pv/{}", self.volume), "pod/web".to_owned()] {
            let other = json(cluster, &["explain", &what]);
            assert_eq!(root(&other)["sentence"], told["sentence"], "{what}: {other:#}");
        }
        let tree = json(cluster, &["tree"]);
        let marked = &tree["claims"][0]["reason"];
        assert_eq!((&marked["reason"], &marked["sentence"]), (&told["reason"], &told["sentence"]), "{tree:#}");
        self.page.says(explained["sentence"].as_str().expect("it is text")).await;
        let (exit, text) = orlop(cluster, &["explain", "pvc/data"]);
        assert_eq!(exit, Some(1), "{text}");
        let (exit, tree) = orlop(cluster, &["tree"]);
        assert_eq!(exit, Some(1), "{tree}");
        golden(file, &text, &self.names);
        explained
    }

    /// What the driver itself answers.
    fn driver_says(&self) -> String {
        let endpoint = format!("unix://{}", self.cluster.nodes[0].socket.display());
        run(Command::new(env!("CARGO_BIN_EXE_orlop")).args(["csi", "--endpoint", &endpoint, "get", &self.handle])).1
    }
}

/// The live page as a program.
struct Page {
    _program: Program,
    address: String,
    token: String,
}

impl Page {
    async fn serve(cluster: &Cluster) -> Self {
        let (token, log) = (cluster.scratch.path("page-token"), cluster.scratch.path("page.log"));
        let mut command = mortal(env!("CARGO_BIN_EXE_orlop"));
        command.args(["page", "--listen", "127.0.0.1:0", "--kubeconfig"]).arg(cluster.kubeconfig());
        command.arg("--token-file").arg(&token);
        let program = Program::launch(&cluster.scratch.path(""), "page", command);
        let found = async {
            loop {
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                let address = said.lines().find_map(|line| line.split("page=").nth(1)).map(|rest| {
                    rest.split_whitespace().next().unwrap_or_default().trim_start_matches("http://").to_owned()
                });
                match address {
                    Some(address) => return address.trim_end_matches('/').to_owned(),
                    None => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
                }
            }
        };
        let address = tokio::time::timeout(PATIENCE, found).await.expect("it says where it answers");
        let token = std::fs::read_to_string(token).expect("it was made").trim().to_owned();
        Self { _program: program, address, token }
    }

    /// Reads what happens until this sentence comes.
    async fn says(&self, sentence: &str) {
        let escaped = Value::from(sentence).to_string();
        let wanted = escaped.trim_matches('"').to_owned();
        let (address, token) = (self.address.clone(), self.token.clone());
        let reading = tokio::task::spawn_blocking(move || {
            use std::io::Write as _;
            let mut stream = TcpStream::connect(&address).expect("it listens");
            stream.set_read_timeout(Some(PATIENCE)).expect("it can be set");
            let request = format!("GET /events HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n");
            stream.write_all(request.as_bytes()).expect("it reads");
            let (mut seen, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
            loop {
                let length = stream.read(&mut buffer).expect("it goes on");
                assert!(length > 0, "it ended: {}", String::from_utf8_lossy(&seen));
                seen.extend_from_slice(&buffer[..length]);
                if String::from_utf8_lossy(&seen).contains(&wanted) {
                    return;
                }
            }
        });
        reading.await.unwrap_or_else(|error| panic!("the page does not say {sentence:?}: {error}"));
    }
}

/// A disk of this machine alone, as its pool.
fn with_disk(scratch: &Scratch, node: &Node) {
    let image = scratch.path("disk.img");
    File::create(&image).and_then(|file| file.set_len(512 * MIB)).expect("a file can be made");
    let made = run(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image));
    assert_eq!(made.0, Some(0), "{}", made.1);
    node.namespace.run("mount", &["-o".as_ref(), "loop".as_ref(), image.as_os_str(), node.pool.as_os_str()], &[]);
}

/// Takes space of the pool's filesystem until this much is left.
fn leave_free(pool: &Path, left: u64) -> PathBuf {
    let path = pool.join("lost+found/filler");
    let file = File::create(&path).expect("a file can be made");
    let stat = rustix::fs::statvfs(pool).expect("it is mounted");
    let more = (stat.f_bavail * stat.f_frsize).saturating_sub(left);
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, more).expect("there is room");
    path
}

#[tokio::test]
async fn lost_writes_a_full_pool_and_a_missing_pool_are_explained_everywhere() {
    if let Some(why) = cannot_run(&[FsType::Ext4]) {
        return skip("lost_writes_a_full_pool_and_a_missing_pool_are_explained_everywhere", &why);
    }
    let mut stage = Stage::set(with_disk).await;
    assert_eq!(orlop(&stage.cluster, &["explain", "pvc/data"]).0, Some(0));
    let node = &stage.cluster.nodes[0];
    let (pool, seen) = (node.pool.clone(), node.namespace.see(&node.pool));

    // Lost writes, until an operator accepts them with the command that the answer gives.
    let mark = driver_local::loss::LossRecord {
        first_ms: 0,
        last_ms: 0,
        count: 1,
        doing: "writing the filesystem to its device".to_owned(),
        error: "no space left on device".to_owned(),
        copied_from: None,
        told: None,
    };
    let sealed = driver_local::record::seal(&mark).expect("it can be written");
    std::fs::write(seen.join("volumes").join(&stage.handle).join("loss.json"), sealed).expect("the pool is there");
    stage.until(Some("WritesLost")).await;
    assert!(stage.driver_says().contains("writes were lost: "), "{}", stage.driver_says());
    let explained = stage.agree("writes_lost", "lost_writes.txt").await;
    let fix = explained["fix"].as_array().expect("it is a list").iter().filter_map(Value::as_str);
    let command = fix.filter_map(|advice| advice.split_once(": orlop ")).map(|(_, words)| words).next();
    let words: Vec<&str> = command.expect("there is a command").split(' ').collect();
    let accepted = run(stage.cluster.nodes[0].namespace.command(env!("CARGO_BIN_EXE_orlop")).args(&words));
    assert_eq!(accepted.0, Some(0), "{}", accepted.1);
    stage.until(None).await;
    assert_eq!(orlop(&stage.cluster, &["explain", "pod/web"]).0, Some(0));

    // A pool at its floor.
    let filler = leave_free(&seen, 12 * MIB);
    stage.until(Some("PoolFull")).await;
    assert!(stage.driver_says().contains("pool full: "), "{}", stage.driver_says());
    let claim = stage.cluster.list(objects::CLAIMS).await.remove(0);
    let said = condition(&claim, api::keys::condition::VOLUME_ABNORMAL)["message"].to_string();
    let free = said.split(" has ").nth(1).and_then(|rest| rest.split(" left").next()).unwrap_or_default().to_owned();
    assert!(!free.is_empty(), "{said}");
    stage.names.push((free, "FREE"));
    stage.agree("pool_full", "pool_full.txt").await;
    std::fs::remove_file(filler).expect("it is there");
    stage.until(None).await;

    // A pool whose disk is not there.
    let over: [&std::ffi::OsStr; 4] = ["-t".as_ref(), "tmpfs".as_ref(), "none".as_ref(), pool.as_os_str()];
    stage.cluster.nodes[0].namespace.run("mount", &over, &[]);
    stage.until(Some("PoolMissing")).await;
    assert!(stage.driver_says().contains("pool missing: "), "{}", stage.driver_says());
    stage.agree("pool_missing", "pool_missing.txt").await;
    stage.cluster.nodes[0].namespace.run("umount", &[pool.as_os_str()], &[]);
    stage.until(None).await;

    stage.cluster.delete(&format!("{}/web", objects::PODS)).await;
    stage.cluster.delete(&format!("{}/data", objects::CLAIMS)).await;
    stage
        .cluster
        .until("the volume is gone", async |cluster| {
            cluster
                .list(objects::VOLUMES)
                .await
                .iter()
                .map(|volume| volume["metadata"]["name"].to_string())
                .collect::<Vec<String>>()
        })
        .await;
}

#[tokio::test]
async fn a_cloned_machine_is_explained_everywhere() {
    if let Some(why) = cannot_run(&[]) {
        return skip("a_cloned_machine_is_explained_everywhere", &why);
    }
    let mut stage = Stage::set(|_, _| {}).await;
    let scratch = &stage.cluster.scratch;
    // A machine of its own is told by its boot id and machine id.
    let (clone, root_dir, id) = (Namespace::new(), scratch.dir("clone"), scratch.path("id"));
    std::fs::write(&id, "0123456789abcdef0123456789abcdef\n").expect("a file can be made");
    clone.run("mount", &["--bind".as_ref(), id.as_os_str(), "/proc/sys/kernel/random/boot_id".as_ref()], &[]);
    let mut command = clone.command(env!("CARGO_BIN_EXE_orlop"));
    command.args(["node", "--node-name", &stage.cluster.nodes[0].name, "--root-dir"]).arg(&root_dir);
    command.arg("--kubeconfig").arg(stage.cluster.kubeconfig());
    let mut agent = Program::launch(&scratch.path(""), "clone", command);
    let told = async |cluster: &Cluster| {
        let events = cluster.list("/api/v1/events").await;
        match events.iter().any(|event| event["reason"] == "NodeNameInUse") {
            true => Vec::new(),
            false => vec!["no agent has said that its name is used".to_owned()],
        }
    };
    stage.cluster.until("the clone refuses", told).await;
    let event = stage.cluster.list("/api/v1/events").await.into_iter().find(|event| event["reason"] == "NodeNameInUse");
    let message = event.expect("it is there")["message"].as_str().unwrap_or_default().to_owned();
    let holder = message.split_whitespace().find(|word| word.starts_with("orlop/")).expect("it names the holder");
    stage.names.push((holder.to_owned(), "HOLDER"));
    stage.agree("node_name_in_use", "cloned_machine.txt").await;
    // The machine that holds the name goes on.
    let pod = stage.cluster.list(objects::PODS).await.remove(0);
    assert!(objects::is_ready(&pod), "{pod:#}");
    agent.kill();
}
