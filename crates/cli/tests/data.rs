//! `orlop backup`, `restore`, `check` and `salvage` on the data of a real server.
//!
//! Help is compared with the files in `tests/golden`; run the test with `UPDATE_GOLDEN=1` to write them anew.

#![allow(clippy::unwrap_used, reason = "a test")]

mod api_rig;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api_rig::{Server, ask, client, revision};
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn orlop(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_orlop")).args(args).env("COLUMNS", "100").output().unwrap()
}

#[track_caller]
fn succeeds(args: &[&str]) -> String {
    let output = orlop(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Fails unless the command ends with code 1 and an error that has all these words.
#[track_caller]
fn refused(args: &[&str], words: &[&str]) -> String {
    let output = orlop(args);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {text}");
    assert!(text.starts_with(&format!("orlop {}: ", args[0])), "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
    text
}

struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn names(&self) -> BTreeSet<String> {
        fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// A server on `data`, with a client.
    async fn server(&self, data: &str) -> (Server, kube::Client) {
        let mut server = Server::spawn(&self.path(data));
        let address = server.address().await;
        // The kubeconfig of the first server is good for all that follow it.
        let first = self.path("kubeconfig");
        if !first.exists() {
            fs::copy(self.path(data).with_extension("kubeconfig"), &first).unwrap();
        }
        (server, client(&first, &address).await)
    }

    /// The data of a server that has stopped.
    async fn stopped(&self, data: &str, names: &[&str]) {
        let (server, client) = self.server(data).await;
        for name in names {
            create(&client, name).await;
        }
        server.stop();
    }
}

async fn create(client: &kube::Client, name: &str) -> u64 {
    let object = json!({"metadata": {"name": name}, "data": {"key": name}});
    let (code, answer) = ask(client, ("POST", MAPS), Some(&object)).await.unwrap();
    assert_eq!(code, 201, "{answer}");
    revision(&answer)
}

async fn maps(client: &kube::Client) -> Value {
    let (code, list) = ask(client, ("GET", MAPS), None).await.unwrap();
    assert_eq!(code, 200, "{list}");
    list
}

fn names(list: &Value) -> BTreeSet<String> {
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn a_running_server_is_saved_at_one_revision_and_comes_back_with_its_keys() {
    let place = Place::new();
    let (server, admin) = place.server("data").await;
    for number in 0..20 {
        create(&admin, &format!("before-{number}")).await;
    }
    let account = json!({"metadata": {"name": "robot"}});
    ask(&admin, ("POST", "/api/v1/namespaces/default/serviceaccounts"), Some(&account)).await.unwrap();
    let tokens = "/api/v1/namespaces/default/serviceaccounts/robot/token";
    let (_, token) = ask(&admin, ("POST", tokens), Some(&json!({"spec": {}}))).await.unwrap();
    let before = maps(&admin).await;

    // Saved while somebody writes, in the order of the numbers.
    let (data, file) = (place.text("data"), place.text("saved"));
    let saving = tokio::task::spawn_blocking(move || succeeds(&["backup", "--data", &data, "--to", &file]));
    let mut during = 0;
    while !saving.is_finished() {
        create(&admin, &format!("during-{during}")).await;
        during += 1;
    }
    let said = saving.await.unwrap();
    assert!(said.contains(&format!("from the running server, process {}", server.pid())), "{said}");
    assert!(said.contains("private keys and Secrets"), "{said}");
    assert_eq!(fs::metadata(place.path("saved")).unwrap().permissions().mode() & 0o777, 0o600);
    server.kill();

    let said = succeeds(&["restore", "--from", &place.text("saved"), "--data", &place.text("again")]);
    assert!(said.contains("7 files of keys"), "{said}");
    assert_eq!(fs::metadata(place.path("again")).unwrap().permissions().mode() & 0o777, 0o700);
    let (server, admin) = place.server("again").await;
    let after = maps(&admin).await;
    assert!(names(&after).is_superset(&names(&before)), "what was there before is there again");
    let count = names(&after).iter().filter(|name| name.starts_with("during")).count();
    let first: BTreeSet<String> = (0..count).map(|number| format!("during-{number}")).collect();
    assert!(names(&after).is_superset(&first), "what was written meanwhile is there up to one moment");
    let kept = after["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == "before-7");
    let old = before["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == "before-7");
    assert_eq!(kept, old, "with its uid and its version");

    let review = json!({"spec": {"token": token["status"]["token"]}});
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let (_, review) = ask(&admin, ("POST", reviews), Some(&review)).await.unwrap();
    assert_eq!(review["status"]["authenticated"], true, "{review}");
    server.stop();
    assert!(!place.names().iter().any(|name| name.starts_with('.')), "{:?}", place.names());
}

/// Between a backup and its restore a volume moves: what the backup says of where it is attached is not brought back.
#[tokio::test]
async fn a_restore_does_not_claim_that_volumes_are_attached() {
    const NODES: &str = "/api/v1/nodes";
    const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
    let place = Place::new();
    let (server, admin) = place.server("data").await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}});
    assert_eq!(ask(&admin, ("POST", NODES), Some(&node)).await.unwrap().0, 201);
    let (_, mut node) = ask(&admin, ("GET", &format!("{NODES}/a")), None).await.unwrap();
    node["status"]["volumesAttached"] = json!([{"name": "v", "devicePath": ""}]);
    node["status"]["volumesInUse"] = json!(["v"]);
    assert_eq!(ask(&admin, ("PUT", &format!("{NODES}/a/status")), Some(&node)).await.unwrap().0, 200);
    let attachment = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": {"name": "at-a", "finalizers": ["example.com/attacher"]},
        "spec": {"attacher": "d.example.com", "nodeName": "a", "source": {"persistentVolumeName": "v"}}});
    assert_eq!(ask(&admin, ("POST", ATTACHMENTS), Some(&attachment)).await.unwrap().0, 201);
    let (_, mut attachment) = ask(&admin, ("GET", &format!("{ATTACHMENTS}/at-a")), None).await.unwrap();
    attachment["status"] = json!({"attached": true, "attachmentMetadata": {"lun": "3"}});
    assert_eq!(ask(&admin, ("PUT", &format!("{ATTACHMENTS}/at-a/status")), Some(&attachment)).await.unwrap().0, 200);
    succeeds(&["backup", "--data", &place.text("data"), "--to", &place.text("saved")]);
    server.stop();

    let said = succeeds(&["restore", "--from", &place.text("saved"), "--data", &place.text("again")]);
    assert!(said.contains("Where volumes are attached is asked again"), "{said}");
    succeeds(&["check", "--data", &place.text("again")]);
    let (server, admin) = place.server("again").await;
    let (_, restored) = ask(&admin, ("GET", &format!("{ATTACHMENTS}/at-a")), None).await.unwrap();
    assert_eq!(restored["status"], json!({"attached": false}), "the driver is asked again");
    assert_eq!(restored["metadata"]["finalizers"], json!(["example.com/attacher"]), "it keeps other nodes out");
    assert!(restored["metadata"]["annotations"]["orlop.dev/restored"].is_string(), "{restored}");
    assert!(revision(&restored) > revision(&attachment), "a client that knows the old one sees the change");
    let (_, restored) = ask(&admin, ("GET", &format!("{NODES}/a")), None).await.unwrap();
    assert_eq!(restored["status"]["volumesInUse"], json!(["v"]), "nothing in use is detached");
    assert!(restored["status"]["volumesAttached"].is_null(), "nothing is mounted before it is asked again");
    assert!(restored["metadata"]["annotations"]["orlop.dev/restored"].is_string(), "{restored}");
    server.stop();
}

/// Lets clients keep one address while servers come and go.
async fn forward(target: Arc<Mutex<String>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let target = target.lock().unwrap().clone();
            tokio::spawn(async move {
                if let Ok(mut server) = TcpStream::connect(target).await {
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                }
            });
        }
    });
    address
}

/// The known trap of restoring below running clients: they know newer versions than the server does.
#[tokio::test]
async fn a_kube_client_that_saw_later_versions_lists_again_after_a_restore() {
    let place = Place::new();
    let mut server = Server::spawn(&place.path("data"));
    let target = Arc::new(Mutex::new(server.address().await));
    let address = forward(Arc::clone(&target)).await;
    let admin = client(&place.path("data.kubeconfig"), &address).await;
    create(&admin, "old").await;
    succeeds(&["backup", "--data", &place.text("data"), "--to", &place.text("saved")]);

    let api = kube::Api::<ConfigMap>::namespaced(admin.clone(), "default");
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
    let mut known = BTreeSet::new();
    follow(&mut events, &mut known, &set(&["old"])).await;
    let seen = create(&admin, "lost").await;
    follow(&mut events, &mut known, &set(&["old", "lost"])).await;
    server.kill();

    succeeds(&["restore", "--from", &place.text("saved"), "--data", &place.text("again")]);
    let mut server = Server::spawn(&place.path("again"));
    *target.lock().unwrap() = server.address().await;
    follow(&mut events, &mut known, &set(&["old"])).await;
    let client = client(&place.path("data.kubeconfig"), &address).await;
    let (code, gone) =
        ask(&client, ("GET", &format!("{MAPS}?watch=1&resourceVersion={seen}&timeoutSeconds=1")), None).await.unwrap();
    assert_eq!((code, &gone["object"]["code"]), (200, &json!(410)), "{gone}");
    let next = create(&client, "new").await;
    assert!(next > seen && revision(&maps(&client).await) > seen);
    follow(&mut events, &mut known, &set(&["old", "new"])).await;
    server.stop();
}

/// Takes events until what they lead to is `wanted`.
async fn follow<S>(events: &mut S, known: &mut BTreeSet<String>, wanted: &BTreeSet<String>)
where
    S: futures_util::Stream<Item = Result<watcher::Event<ConfigMap>, watcher::Error>> + Unpin,
{
    let mut listing = BTreeSet::new();
    let name = |map: ConfigMap| map.metadata.name.unwrap_or_default();
    let arrive = async {
        while known != wanted {
            match events.next().await.unwrap() {
                Ok(watcher::Event::Init) => listing.clear(),
                Ok(watcher::Event::InitApply(map)) => drop(listing.insert(name(map))),
                Ok(watcher::Event::InitDone) => *known = listing.clone(),
                Ok(watcher::Event::Apply(map)) => drop(known.insert(name(map))),
                Ok(watcher::Event::Delete(map)) => drop(known.remove(&name(map))),
                // The server is away for a moment, or history was cut: the watcher tries again.
                Err(_) => {}
            }
        }
    };
    let arrived = tokio::time::timeout(Duration::from_secs(60), arrive).await;
    assert!(arrived.is_ok(), "the client does not arrive at {wanted:?}");
}

#[tokio::test]
async fn a_backup_replaces_nothing_unless_it_is_told_to() {
    let place = Place::new();
    place.stopped("data", &["a"]).await;
    let args = ["backup", "--data", &place.text("data"), "--to", &place.text("saved")];
    let said = succeeds(&args);
    assert!(said.contains("of a server that is not running"), "{said}");
    let first = fs::read(place.path("saved")).unwrap();
    refused(&args, &["exists", "--force"]);
    fs::write(place.path("saved"), "something else").unwrap();
    succeeds(&[&args[..], &["--force"]].concat());
    assert_eq!(fs::read(place.path("saved")).unwrap(), first, "the same state gives the same file");
    refused(
        &["backup", "--data", &place.text("nowhere"), "--to", &place.text("x")],
        &["there is no such directory", "--data"],
    );
    assert!(!place.path("nowhere").exists() && !place.path("x").exists());
}

#[tokio::test]
async fn a_restore_overwrites_nothing_and_names_the_server_that_runs_there() {
    let place = Place::new();
    let (server, _) = place.server("data").await;
    succeeds(&["backup", "--data", &place.text("data"), "--to", &place.text("saved")]);
    let onto = |data: &str| [place.text("saved"), place.text(data)];
    let [from, data] = onto("data");
    let pid = format!("process {}", server.pid());
    refused(&["restore", "--from", &from, "--data", &data], &["a server is running there", &pid]);
    refused(&["check", "--data", &data], &[&pid]);
    refused(&["salvage", "--data", &data, "--to", &place.text("other")], &[&pid]);
    server.stop();
    refused(&["restore", "--from", &from, "--data", &data], &["is not empty"]);
    fs::create_dir(place.path("empty")).unwrap();
    let [from, empty] = onto("empty");
    succeeds(&["restore", "--from", &from, "--data", &empty]);
    assert!(!place.path("other").exists());
}

#[tokio::test]
async fn a_file_that_is_not_a_good_backup_is_refused_with_the_reason() {
    let place = Place::new();
    place.stopped("data", &["a", "b"]).await;
    succeeds(&["backup", "--data", &place.text("data"), "--to", &place.text("saved")]);
    let good = fs::read(place.path("saved")).unwrap();
    let mut newer = good.clone();
    newer[8] = 9;
    let mut changed = good.clone();
    let middle = good.len() / 2;
    changed[middle] ^= 1;
    let rows: [(&str, &[u8], &str); 4] = [
        ("newer", &newer, "format 9"),
        ("changed", &changed, "is damaged near byte"),
        ("cut", &good[..middle], "is cut off at byte"),
        ("foreign", b"just a text", "not a backup"),
    ];
    for (name, bytes, word) in rows {
        fs::write(place.path(name), bytes).unwrap();
        refused(&["restore", "--from", &place.text(name), "--data", &place.text("again")], &[word, name]);
        assert!(!place.path("again").exists());
    }
    refused(&["restore", "--from", &place.text("none"), "--data", &place.text("again")], &["--from", "none"]);
    assert!(!place.names().iter().any(|name| name.starts_with('.')), "{:?}", place.names());
}

/// The command that an error tells to run, word for word.
fn command_in(text: &str, start: &str) -> Vec<String> {
    let line = text.lines().map(str::trim).find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{text}"));
    line.split(' ').skip(1).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_damaged_store_says_what_is_damaged_and_the_command_to_come_back() {
    let place = Place::new();
    place.stopped("data", &["good", "unlucky"]).await;
    let data = place.text("data");
    let said = succeeds(&["check", "--data", &data]);
    assert!(said.contains("no damage") && said.contains("objects at revision"), "{said}");

    let database = place.path("data/store/store.db");
    let mut bytes = fs::read(&database).unwrap();
    let at = bytes.windows(16).position(|window| window.starts_with(b"\"key\":\"unlucky\"")).unwrap();
    bytes[at + 8] = b'U';
    fs::write(&database, bytes).unwrap();
    let words = ["is damaged", "table log, row", "its checksum is wrong", "orlop salvage --data"];
    let said = refused(&["check", "--data", &data], &words);
    refused(&["backup", "--data", &data, "--to", &place.text("saved")], &words);
    refused(&["api", "--data", &data, "--listen", "127.0.0.1:0"], &words);

    let command = command_in(&said, "orlop salvage");
    let said = succeeds(&command.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(said.contains("table log, row"), "{said}");
    let (server, admin) = place.server("data-new").await;
    assert_eq!(names(&maps(&admin).await), set(&["good"]), "the damaged one had no older version");
    server.stop();
    refused(&["check", "--data", &data], &words);
}

#[tokio::test]
async fn a_running_server_is_saved_also_when_somebody_removed_its_lock() {
    let place = Place::new();
    let (server, admin) = place.server("data").await;
    create(&admin, "one").await;
    fs::remove_file(place.path("data/store/lock")).unwrap();
    let said = succeeds(&["backup", "--data", &place.text("data"), "--to", &place.text("saved")]);
    assert!(said.contains("from the running server"), "{said}");
    refused(&["check", "--data", &place.text("data")], &["in use"]);
    refused(&["api", "--data", &place.text("data"), "--listen", "127.0.0.1:0"], &["in use"]);
    create(&admin, "two").await;
    server.stop();
}

fn check_golden(name: &str, args: &[&str]) {
    let got = succeeds(args);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        return fs::write(&file, &got).unwrap();
    }
    let want = fs::read_to_string(&file).unwrap_or_default();
    assert!(got == want, "help differs from tests/golden/{name}; to accept it, set UPDATE_GOLDEN=1. Now:\n{got}");
}

#[test]
fn the_help_of_each_command_reads_as_agreed() {
    for command in ["backup", "restore", "check", "salvage"] {
        check_golden(&format!("{command}_help.txt"), &[command, "--help"]);
    }
}
