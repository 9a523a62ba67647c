//! What is wrong with a volume or a machine, as `orlop explain`, `orlop tree`, the live page and the driver show it: real
//! programs on a real pool that loses writes, fills up and goes missing, and two machines with one name.
//!
//! The answers are compared with `tests/golden/states`; `UPDATE_GOLDEN=1` writes them anew.

use std::fs::File;
use std::io::Read as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use lifecycle::health;
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

/// An answer with names, times, free space and widths of columns that differ from run to run taken out, compared with
/// its file.
fn golden(file: &str, text: &str, names: &[(String, &str)]) {
    let mut text = text.to_owned();
    for (found, shown) in names {
        text = text.replace(found, shown);
    }
    let text: String = text.lines().map(|line| format!("{}\n", even_line(line))).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/states").join(file);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).expect("the golden file can be written");
        return;
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, want, "{file}: to accept it, UPDATE_GOLDEN=1 cargo test -p orlop --test pods states");
}

fn even_line(line: &str) -> String {
    let text = line.trim_start_matches(' ');
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        // Two spaces stand for however many separate two columns.
        if !(word.is_empty() && words.last().is_some_and(String::is_empty)) {
            words.push(even_word(word));
        }
    }
    if let Some(at) = words.windows(4).position(|four| four[0] == "has" && four[3].starts_with("left")) {
        words.splice(at + 1..at + 3, ["FREE".to_owned()]);
    }
    format!("{}{}", &line[..line.len() - text.len()], words.join(" "))
}

fn even_word(word: &str) -> String {
    let bare = word.trim_end_matches([',', ':', '.', '"']);
    let digits = bare.trim_end_matches(['s', 'm', 'h', 'd']);
    let is_age =
        digits.len() + 1 == bare.len() && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_age { word.replace(bare, "AGE") } else { word.to_owned() }
}

/// What the page draws of a claim, without the times at which it happened.
fn without_times(drawn: &Value) -> Value {
    match drawn {
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| match name.as_str() {
                "created" | "when" => (name.clone(), Value::from("TIME")),
                _ => (name.clone(), without_times(value)),
            });
            Value::Object(members.collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_times).collect()),
        other => other.clone(),
    }
}

/// A condition of an object, if it has it.
fn condition(object: &Value, kind: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|one| one["type"] == kind).unwrap_or(Value::Null)
}

/// Whether an event of an object of this kind says this state, or that all is well again.
fn has_event(events: &[Value], kind: &str, reason: Option<&str>) -> bool {
    let (event_reason, words) = match reason {
        Some("WritesLost") => (health::ABNORMAL_EVENT, health::WRITES_LOST),
        Some("PoolFull") => (health::ABNORMAL_EVENT, health::POOL_FULL),
        Some("PoolMissing") => (health::ABNORMAL_EVENT, health::POOL_MISSING),
        Some(other) => panic!("{other} has no event"),
        None => (health::NORMAL_EVENT, health::WELL_AGAIN),
    };
    events.iter().any(|event| {
        event["involvedObject"]["kind"] == kind
            && event["reason"] == event_reason
            && event["message"].as_str().is_some_and(|message| message.contains(words))
    })
}

/// Times of events are whole seconds: that all is well again is later than the trouble only in a later second.
fn lasts_two_seconds(cluster: &Cluster) -> bool {
    let evidence = root(&json(cluster, &["explain", "pvc/data"]))["evidence"].to_string();
    evidence.contains(", for ") && ![", for 0s", ", for 1s"].iter().any(|age| evidence.contains(age))
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
        let attachment = text(&cluster.list(objects::ATTACHMENTS).await.remove(0)["metadata"]["name"]);
        let page = Page::serve(&cluster).await;
        let pool = cluster.nodes[0].pool.canonicalize().expect("it is there");
        let state = std::env::var("ORLOP_STATE_DIR").unwrap_or_else(|_| "/var/lib/orlop-driver".to_owned());
        let names = vec![
            (name.clone(), "PV"),
            (handle.clone(), "HANDLE"),
            (attachment, "ATTACHMENT"),
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
            let events = cluster.list("/api/v1/events").await;
            let told = ["PersistentVolumeClaim", "Pod"].iter().all(|kind| has_event(&events, kind, reason));
            let lasting = reason.is_none() || lasts_two_seconds(cluster);
            match right && told && lasting && mounted["status"] == "True" {
                true => Vec::new(),
                false => vec![format!("{claimed} {mounted} events: {told}, two seconds old: {lasting}")],
            }
        };
        self.cluster.until(&format!("claim and pod say {reason:?}"), said).await;
    }

    /// Claim, volume, pod, tree and page say the same, each as in its file: `NAME.txt` has the explanation.
    async fn agree(&self, code: &str, name: &str) -> Value {
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
        let drawn = self.page.draws("claim/default/data", explained["sentence"].as_str().expect("it is text")).await;
        golden(&format!("{name}_page.txt"), &format!("{:#}", without_times(&drawn)), &self.names);
        let (exit, text) = orlop(cluster, &["explain", "pvc/data"]);
        assert_eq!(exit, Some(1), "{text}");
        golden(&format!("{name}.txt"), &text, &self.names);
        let (exit, text) = orlop(cluster, &["tree"]);
        assert_eq!(exit, Some(1), "{text}");
        golden(&format!("{name}_tree.txt"), &text, &self.names);
        explained
    }

    /// The volume's condition as the driver itself says it, as in its file.
    fn driver_agrees(&self, words: &str, name: &str) {
        let said = self.driver_says();
        assert!(said.contains(words), "{said}");
        golden(&format!("{name}_driver.txt"), &said, &self.names);
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

    /// Reads what happens until this item is drawn with this sentence and with all that it is made of, and gives it.
    async fn draws(&self, id: &'static str, sentence: &str) -> Value {
        let (address, token, wanted) = (self.address.clone(), self.token.clone(), sentence.to_owned());
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
                let text = String::from_utf8_lossy(&seen);
                let puts = text.lines().filter_map(|line| line.strip_prefix("data: ["));
                let items = puts.filter_map(|list| serde_json::from_str::<Vec<Value>>(&format!("[{list}")).ok());
                let newest = items.flatten().rfind(|item| item["id"] == id);
                let is_complete = |item: &Value| {
                    item["why"]["sentence"] == wanted && item["why"]["unseen"].as_array().is_some_and(Vec::is_empty)
                };
                if let Some(item) = newest.filter(is_complete) {
                    return item;
                }
            }
        });
        reading.await.unwrap_or_else(|error| panic!("the page does not say {sentence:?}: {error}"))
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
    stage.driver_agrees("writes were lost: ", "lost_writes");
    let explained = stage.agree("writes_lost", "lost_writes").await;
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
    stage.driver_agrees("pool full: ", "pool_full");
    stage.agree("pool_full", "pool_full").await;
    std::fs::remove_file(filler).expect("it is there");
    stage.until(None).await;

    // A pool whose disk is not there.
    let over: [&std::ffi::OsStr; 4] = ["-t".as_ref(), "tmpfs".as_ref(), "none".as_ref(), pool.as_os_str()];
    stage.cluster.nodes[0].namespace.run("mount", &over, &[]);
    stage.until(Some("PoolMissing")).await;
    stage.driver_agrees("pool missing: ", "pool_missing");
    stage.agree("pool_missing", "pool_missing").await;
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
    // The driver cannot know that its machine was cloned. In the place of its condition stands the event of the Node.
    golden("cloned_machine_event.txt", &message, &stage.names);
    stage.agree("node_name_in_use", "cloned_machine").await;
    // The machine that holds the name goes on.
    let pod = stage.cluster.list(objects::PODS).await.remove(0);
    assert!(objects::is_ready(&pod), "{pod:#}");
    agent.kill();
}
