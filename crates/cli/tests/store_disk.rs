//! The API server on a disk that fills up, becomes read-only or vanishes, on real small filesystems.

#![allow(clippy::unwrap_used, reason = "a test")]

mod api_rig;
mod rig;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use api_rig::{Server, ask, client};
use linux::fs::FsType;
use rig::{MIB, Scratch};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

/// A server whose data is on a small filesystem of its own. Its kubeconfig is elsewhere.
struct Site {
    scratch: Scratch,
    mount: PathBuf,
    data: PathBuf,
}

impl Site {
    fn new() -> Self {
        let scratch = Scratch::new();
        let mount = scratch.pool_on(FsType::Ext4, 64 * MIB);
        let data = scratch.path("data");
        fs::create_dir(mount.join("data")).unwrap();
        std::os::unix::fs::symlink(mount.join("data"), &data).unwrap();
        Self { scratch, mount, data }
    }

    async fn server(&self) -> (Server, kube::Client) {
        let mut server = Server::spawn(&self.data);
        let address = server.address().await;
        (server, client(&self.data.with_extension("kubeconfig"), &address).await)
    }

    /// Fills the filesystem to its last block, as a tenant who was given too much of it.
    fn fill(&self, name: &str) {
        let mut file = File::create(self.mount.join(name)).unwrap();
        for size in [MIB as usize, 4096, 1] {
            let piece = vec![1; size];
            while file.write_all(&piece).and_then(|()| file.sync_data()).is_ok() {}
        }
    }

    fn empty(&self, names: &[&str]) {
        names.iter().for_each(|name| fs::remove_file(self.mount.join(name)).unwrap());
        rustix::fs::syncfs(File::open(&self.mount).unwrap()).unwrap();
    }

    fn unmount(&self) {
        linux::mounts::unmount_all(&self.mount).unwrap();
    }
}

fn map(name: &str, bytes: usize) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": "x".repeat(bytes)}})
}

async fn code(client: &kube::Client, method: &str, path: &str, body: Option<&Value>) -> u16 {
    ask(client, (method, path), body).await.unwrap().0
}

async fn create(client: &kube::Client, name: &str, bytes: usize) -> (u16, Value) {
    ask(client, ("POST", MAPS), Some(&map(name, bytes))).await.unwrap()
}

async fn renew(client: &kube::Client, at: &str) -> u16 {
    let renewed = json!({"spec": {"renewTime": format!("2026-01-01T00:00:{at}.000000Z"), "holderIdentity": "a"}});
    code(client, "PATCH", &format!("{LEASES}/l"), Some(&renewed)).await
}

fn orlop(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_orlop")).args(args).output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test]
async fn on_a_full_disk_growth_is_refused_the_rest_goes_on_and_all_is_well_when_there_is_space() {
    needs!(Ext4);
    let site = Site::new();
    let (server, admin) = site.server().await;
    for name in ["a", "b", "c"] {
        assert_eq!(create(&admin, name, 1_000).await.0, 201);
    }
    let kept = json!({"metadata": {"name": "kept", "finalizers": ["example.com/x"]}});
    assert_eq!(code(&admin, "POST", MAPS, Some(&kept)).await, 201);
    assert_eq!(code(&admin, "POST", LEASES, Some(&json!({"metadata": {"name": "l"}}))).await, 201);
    assert_eq!(renew(&admin, "00").await, 200);

    site.fill("tenant");
    let (refused, status) = create(&admin, "d", 1_000).await;
    assert_eq!((refused, status["reason"].as_str()), (507, Some("InsufficientStorage")), "{status}");
    assert!(status["message"].as_str().unwrap().contains("disk of the server's data is full"), "{status}");
    // The tenant takes what the server has given up, too.
    site.fill("tenant-again");
    for second in 10..40 {
        assert_eq!(renew(&admin, &second.to_string()).await, 200, "a lease is renewed on a full disk");
    }
    assert_eq!(code(&admin, "DELETE", &format!("{MAPS}/a"), None).await, 200);
    assert_eq!(code(&admin, "DELETE", &format!("{MAPS}/kept"), None).await, 200, "a mark of deletion is let through");
    let smaller = json!({"data": {"a": "x"}});
    assert_eq!(code(&admin, "PATCH", &format!("{MAPS}/b"), Some(&smaller)).await, 200);
    let larger = json!({"data": {"a": "x".repeat(5_000)}});
    assert_eq!(code(&admin, "PATCH", &format!("{MAPS}/c"), Some(&larger)).await, 507);

    server.kill();
    let (server, admin) = site.server().await;
    assert_eq!(renew(&admin, "41").await, 200, "a server starts on a full disk");
    assert_eq!(create(&admin, "d", 1_000).await.0, 507);
    let (_, list) = ask(&admin, ("GET", MAPS), None).await.unwrap();
    let names: Vec<_> = list["items"].as_array().unwrap().iter().map(|map| &map["metadata"]["name"]).collect();
    assert_eq!(names, ["b", "c", "kept"]);

    site.empty(&["tenant", "tenant-again"]);
    assert_eq!(create(&admin, "d", 1_000).await.0, 201, "it recovers by itself");
    assert!(site.data.join("store/reserve").exists());
    server.stop();
    let said = orlop(&["check", "--data", site.data.to_str().unwrap()]);
    assert!(said.status.success(), "{}", text(&said));
}

/// Creates objects until one is refused for want of space. Gives their names.
async fn create_until_full(client: &kube::Client, prefix: &str, bytes: usize) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        let name = format!("{prefix}{}", names.len());
        let (code, status) = create(client, &name, bytes).await;
        match code {
            201 => names.push(name),
            507 => return names,
            _ => panic!("{status}"),
        }
        assert!(names.len() * bytes < 64 * MIB as usize, "the disk has 64 MiB");
    }
}

/// Waits until the store has dropped its history, which makes room, and takes writes that grow again.
async fn until_accepted(client: &kube::Client, name: &str, bytes: usize) {
    // The store looks at its space once a second.
    for _ in 0..MOST_TRIES {
        let (code, status) = create(client, name, bytes).await;
        match code {
            201 => return,
            507 => assert_eq!(renew(client, "50").await, 200, "a lease is renewed meanwhile"),
            _ => panic!("{status}"),
        }
    }
    panic!("writes that grow are still refused");
}

/// Far more requests than a few seconds have room for.
const MOST_TRIES: usize = 10_000;

/// Fills the disk with objects of the store, empties it and fills it again: the first time the store still has its reserve.
async fn fills_its_own_disk(bytes: usize) {
    let site = Site::new();
    let (mut server, mut admin) = site.server().await;
    assert_eq!(code(&admin, "POST", LEASES, Some(&json!({"metadata": {"name": "l"}}))).await, 201);
    for round in ["first", "second", "third"] {
        let names = create_until_full(&admin, round, bytes).await;
        assert!(!names.is_empty(), "{round}: nothing is accepted");
        for second in 10..59 {
            assert_eq!(renew(&admin, &second.to_string()).await, 200, "a lease is renewed on a full disk");
        }
        for path in ["/livez", "/readyz"] {
            let asked = http::Request::get(path).body(Vec::new()).unwrap();
            assert_eq!(admin.request_text(asked).await.unwrap(), "ok", "{path}");
        }
        if round == "first" {
            server.kill();
            (server, admin) = site.server().await;
            assert_eq!(renew(&admin, "59").await, 200, "a server starts on a disk that it filled");
        }
        for name in names {
            let deleted = ask(&admin, ("DELETE", &format!("{MAPS}/{name}")), None).await.unwrap();
            assert_eq!(deleted.0, 200, "{round}: {name}: {}", deleted.1);
        }
        until_accepted(&admin, round, bytes).await;
    }
    server.stop();
    let said = orlop(&["check", "--data", site.data.to_str().unwrap()]);
    assert!(said.status.success(), "{}", text(&said));
}

#[tokio::test]
async fn a_store_that_fills_its_disk_with_large_objects_can_be_emptied_and_used_again() {
    needs!(Ext4);
    fills_its_own_disk(900_000).await;
}

#[tokio::test]
async fn a_store_that_fills_its_disk_with_small_objects_can_be_emptied_and_used_again() {
    needs!(Ext4);
    fills_its_own_disk(100_000).await;
}

#[tokio::test]
async fn a_filesystem_that_becomes_read_only_ends_the_server_and_loses_nothing() {
    needs!(Ext4);
    let site = Site::new();
    let (server, admin) = site.server().await;
    assert_eq!(create(&admin, "before", 10).await.0, 201);
    // What the kernel does by itself when it finds its filesystem damaged.
    let aborted = Command::new("mount").args(["-o", "remount,abort"]).arg(&site.mount).output().unwrap();
    assert!(aborted.status.success(), "{}", text(&aborted));
    let (refused, status) = create(&admin, "after", 10).await;
    assert_eq!(refused, 500, "{status}");
    assert!(status["message"].as_str().unwrap().contains("the store takes no more writes"), "{status}");
    let (success, log) = server.ended().await;
    assert!(!success && log.contains("it can be started again once its disk takes writes"), "{log}");

    site.unmount();
    site.scratch.mount_pool(FsType::Ext4);
    let (server, admin) = site.server().await;
    assert_eq!(code(&admin, "GET", &format!("{MAPS}/before"), None).await, 200);
    assert_eq!(code(&admin, "GET", &format!("{MAPS}/after"), None).await, 404, "it was refused");
    server.kill();

    // Read-only from the start, with writes that are in the write-ahead file only.
    remount_read_only(&site.mount);
    let data = site.data.to_str().unwrap();
    let said = orlop(&["check", "--data", data]);
    assert!(said.status.success() && text(&said).contains("no damage"), "{}", text(&said));
    let refused = orlop(&["api", "--listen", "127.0.0.1:0", "--data", data]);
    assert!(!refused.status.success(), "{}", text(&refused));
    assert!(text(&refused).contains("name a directory that can be written"), "{}", text(&refused));
}

fn remount_read_only(mount: &Path) {
    let remounted = Command::new("mount").args(["-o", "remount,ro"]).arg(mount).output().unwrap();
    assert!(remounted.status.success(), "{}", text(&remounted));
}

#[tokio::test]
async fn a_store_that_was_stopped_is_whole_on_a_read_only_mount() {
    needs!(Ext4);
    let site = Site::new();
    let (server, admin) = site.server().await;
    assert_eq!(create(&admin, "one", 10).await.0, 201);
    server.stop();
    remount_read_only(&site.mount);
    let (data, saved) = (site.data.to_str().unwrap(), site.scratch.path("saved"));
    let said = orlop(&["check", "--data", data]);
    assert!(said.status.success() && text(&said).contains("no damage"), "{}", text(&said));
    let said = orlop(&["backup", "--data", data, "--to", saved.to_str().unwrap()]);
    assert!(said.status.success(), "{}", text(&said));
}

#[tokio::test]
async fn a_data_directory_that_vanishes_ends_the_server_before_it_acknowledges_anything_more() {
    let place = tempfile::tempdir().unwrap();
    let (data, moved) = (place.path().join("data"), place.path().join("moved"));
    let mut server = Server::spawn(&data);
    let address = server.address().await;
    let admin = client(&data.with_extension("kubeconfig"), &address).await;
    assert_eq!(create(&admin, "before", 10).await.0, 201);
    fs::rename(&data, &moved).unwrap();
    let (refused, status) = create(&admin, "after", 10).await;
    assert_eq!(refused, 500, "{status}");
    assert!(status["message"].as_str().unwrap().contains("looking for the database where it was opened"), "{status}");
    let (success, log) = server.ended().await;
    assert!(!success && log.contains("takes no more writes"), "{log}");
    fs::rename(&moved, &data).unwrap();
    let mut server = Server::spawn(&data);
    let address = server.address().await;
    let admin = client(&data.with_extension("kubeconfig"), &address).await;
    assert_eq!(code(&admin, "GET", &format!("{MAPS}/before"), None).await, 200);
    assert_eq!(code(&admin, "GET", &format!("{MAPS}/after"), None).await, 404);
    server.stop();
}
