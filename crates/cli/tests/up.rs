//! `orlop up`: the whole stack in one process, as a new user meets it.

mod api_rig;
mod stack_rig;

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use api_rig::{ask, client};
use rustix::process::Signal;
use serde_json::{Value, json};
use stack_rig::{SmallDisk, Up, is_root, mounts_under, skip};

/// How many mounts are shown at a path.
fn mounts_at(path: &str) -> usize {
    linux::mountinfo::MountTable::read().expect("there is a mount table").at(Path::new(path)).count()
}

const CLAIM: &str = "/api/v1/namespaces/default/persistentvolumeclaims/data";

/// Follows the claim until what is said of it is true; a watch of the server, so nothing is polled.
async fn claim_until(client: &kube::Client, done: impl Fn(&Value) -> bool) -> Value {
    use kube::api::{Api, DynamicObject, WatchEvent, WatchParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use tokio_stream::StreamExt as _;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "PersistentVolumeClaim"));
    let claims: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
    let events = claims.watch(&WatchParams::default().fields("metadata.name=data"), "0").await;
    let mut events = std::pin::pin!(events.expect("claims can be watched"));
    while let Some(event) = events.next().await {
        let seen = match event.expect("the watch holds") {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => serde_json::to_value(object),
            WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(error) => panic!("{error:?}"),
        };
        let seen = seen.expect("an object is JSON");
        if done(&seen) {
            return seen;
        }
    }
    panic!("the watch ended")
}

/// Asks until there is nothing: a watch that begins too late would show nothing of it.
async fn until_gone(client: &kube::Client, path: &str) {
    let gone = async {
        while ask(client, ("GET", path), None).await.is_ok_and(|(code, _)| code != 404) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), gone).await.expect("it goes");
}

#[tokio::test]
async fn a_claim_of_the_default_class_is_bound_outlives_a_restart_and_goes_without_a_trace() {
    let place = tempfile::tempdir().expect("a directory can be made");
    let data = place.path().join("data");
    let mut up = Up::start(&data, &[]);
    let kubeconfig = data.join("kubeconfig");
    let api = client(&kubeconfig, &up.address().await).await;
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    assert_eq!(ask(&api, ("POST", claims), Some(&claim)).await.unwrap().0, 201);
    let bound = claim_until(&api, |claim| claim["status"]["phase"] == "Bound").await;
    assert_eq!(bound["spec"]["storageClassName"], "local");
    let volume = bound["spec"]["volumeName"].as_str().expect("it is bound").to_owned();
    let mode = std::fs::metadata(&data).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "keys and volumes are in it");
    up.stop();

    let mut up = Up::start(&data, &[]);
    let api = client(&kubeconfig, &up.address().await).await;
    let (code, held) = ask(&api, ("GET", CLAIM), None).await.unwrap();
    assert_eq!((code, &held["status"]["phase"]), (200, &json!("Bound")));
    let path = format!("/api/v1/persistentvolumes/{volume}");
    let (_, stored) = ask(&api, ("GET", &path), None).await.unwrap();
    let handle = stored["spec"]["csi"]["volumeHandle"].as_str().expect("it has a handle").to_owned();
    let object = data.join("pool/volumes").join(&handle);
    assert!(object.exists(), "{object:?}");
    assert_eq!(ask(&api, ("DELETE", CLAIM), None).await.unwrap().0, 200);
    until_gone(&api, CLAIM).await;
    // The stack ends only when what it has begun is done or can be done by the next one.
    up.stop();
    let mut up = Up::start(&data, &[]);
    let api = client(&kubeconfig, &up.address().await).await;
    until_gone(&api, &path).await;
    assert!(!object.exists(), "{object:?}");
    up.stop();
}

#[test]
fn an_address_that_others_can_reach_is_refused_before_anything_is_made() {
    let place = tempfile::tempdir().expect("a directory can be made");
    let data = place.path().join("data");
    let output = Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(["up", "--listen", "0.0.0.0:0", "--data"])
        .arg(&data)
        .output()
        .expect("the binary was just built");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("only loopback addresses"));
    assert!(!data.exists());
}

/// `orlop mount` and `orlop umount`, as a user types them.
fn orlop(kubeconfig: &Path, words: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(words)
        .env("KUBECONFIG", kubeconfig)
        .output()
        .expect("the binary was just built");
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    (output.status.success(), said)
}

#[tokio::test]
async fn a_machine_mounts_a_claim_like_a_pod_keeps_it_from_going_and_gives_it_back() {
    if !is_root() {
        return skip("mounting needs root");
    }
    let place = tempfile::tempdir().expect("a directory can be made");
    let (data, path) = (place.path().join("data"), place.path().join("mnt"));
    std::fs::create_dir(&path).expect("it can be made");
    let path = path.canonicalize().expect("it was just made");
    let path = path.to_str().expect("it is a plain name");
    let mut up = Up::start(&data, &[]);
    let kubeconfig = data.join("kubeconfig");
    let api = client(&kubeconfig, &up.address().await).await;
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}}});
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    assert_eq!(ask(&api, ("POST", claims), Some(&claim)).await.unwrap().0, 201);
    // `orlop mount` refuses to mount for a node that does not exist, and the agent makes its Node after the API is ready.
    while ask(&api, ("GET", "/api/v1/nodes"), None).await.unwrap().1["items"].as_array().is_none_or(Vec::is_empty) {}

    let (done, said) = orlop(&kubeconfig, &["mount", "default/data", path]);
    assert!(done, "{said}");
    assert_eq!(mounts_at(path), 1, "{said}");
    std::fs::write(Path::new(path).join("file"), "kept").expect("it can be written");
    let (done, said) = orlop(&kubeconfig, &["mount", "data", path]);
    assert!(done, "a second time finds what the first one did: {said}");
    assert_eq!(mounts_at(path), 1);
    let (done, said) = orlop(&kubeconfig, &["mount", "data", path, "--read-only"]);
    assert!(!done && said.contains("with other options"), "{said}");
    let (_, said) = orlop(&kubeconfig, &["explain", "pvc/data"]);
    assert!(!said.contains("Fix:"), "nothing is wrong: {said}");

    assert_eq!(ask(&api, ("DELETE", CLAIM), None).await.unwrap().0, 200);
    let (code, kept) = ask(&api, ("GET", CLAIM), None).await.unwrap();
    assert!(code == 200 && !kept["metadata"]["deletionTimestamp"].is_null(), "the machine protects it as a pod does");
    let (_, said) = orlop(&kubeconfig, &["explain", "pvc/data"]);
    assert!(said.contains(&format!("orlop umount {path}")), "who holds it is a machine, not a pod: {said}");
    assert_eq!(std::fs::read_to_string(Path::new(path).join("file")).expect("it can be read"), "kept");

    // What somebody else mounts over it is not ours to take away.
    let over = Command::new("mount").args(["-t", "tmpfs", "somebody-elses", path]).status();
    assert!(over.expect("mount runs").success());
    let (done, said) = orlop(&kubeconfig, &["umount", path]);
    let layers = mounts_at(path);
    assert!(Command::new("umount").arg(path).status().expect("umount runs").success());
    assert!(!done && said.contains("mounted over by somebody-elses (tmpfs); unmount it first"), "{said}");
    assert_eq!(layers, 2, "both are still there");

    let (done, said) = orlop(&kubeconfig, &["umount", path]);
    assert!(done, "{said}");
    assert_eq!(mounts_at(path), 0);
    until_gone(&api, CLAIM).await;
    let (done, said) = orlop(&kubeconfig, &["umount", path]);
    assert!(!done && said.contains("nothing was mounted"), "{said}");
    up.stop();
    assert!(mounts_under(place.path()).is_empty(), "a stack that ends leaves no mount of its own");
}

#[test]
fn mounting_what_is_not_there_says_what_is_missing() {
    let nowhere = Path::new("/nowhere/kubeconfig");
    let (done, said) = orlop(nowhere, &["mount", "data", "/"]);
    assert!(!done && said.contains("mount"), "{said}");
    let (done, said) = orlop(nowhere, &["mount", "data", "/no/such/place/at/all"]);
    assert!(!done && said.contains("does not exist"), "{said}");
    let (done, said) = orlop(nowhere, &["mount", "data", "/tmp/x y", "--print-systemd"]);
    assert!(!done && said.contains("cannot stand in a systemd unit"), "{said}");
}

#[tokio::test]
async fn it_starts_and_ends_well_when_nobody_reads_what_it_prints() {
    let place = tempfile::tempdir().expect("a directory can be made");
    let (reader, writer) = std::io::pipe().expect("a pipe can be made");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.stdout(writer);
    // The address of the page is what it prints.
    let mut up = Up::spawn(command, &place.path().join("data"), &["--page", "127.0.0.1:0"]);
    up.address().await;
    up.stop();
}

/// A program that becomes `orlop` with signals as a terminal has them, also if these tests were started by `nohup`.
fn as_by_a_terminal() -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_orlop")]);
    command
}

/// A program that becomes `orlop` with signals as `nohup` leaves them.
fn as_by_nohup() -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_orlop")]);
    shell
}

#[tokio::test]
async fn a_terminal_that_goes_ends_it_in_order_unless_it_was_started_to_outlive_that() {
    let place = tempfile::tempdir().expect("a directory can be made");
    let data = place.path().join("data");
    let mut up = Up::spawn(as_by_a_terminal(), &data, &[]);
    up.address().await;
    up.signal(Signal::HUP);
    let (code, said) = up.ended().await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("stopped") && mounts_under(place.path()).is_empty(), "{said}");

    let mut up = Up::spawn(as_by_nohup(), &data, &[]);
    let api = client(&data.join("kubeconfig"), &up.address().await).await;
    up.signal(Signal::HUP);
    assert_eq!(ask(&api, ("GET", "/version"), None).await.map(|(code, _)| code), Ok(200));
    up.stop();
}

#[tokio::test]
async fn what_cannot_be_had_is_told_before_anything_is_made() {
    let place = tempfile::tempdir().expect("a directory can be made");
    let (data, taken) =
        (place.path().join("data"), std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free"));
    let address = taken.local_addr().expect("it has one").to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(["up", "--listen", "127.0.0.1:0", "--page", &address, "--data"])
        .arg(&data)
        .output()
        .expect("the binary was just built");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(&format!("--page {address}: the port is taken")), "{said}");
    assert!(!data.exists());
}

#[tokio::test]
async fn a_directory_of_somebody_else_is_told_with_its_owner() {
    const NOBODY: u32 = 65_534;
    if !is_root() {
        return skip("only root can start a program as somebody else");
    }
    let place = tempfile::tempdir().expect("a directory can be made");
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.args(["up", "--listen", "127.0.0.1:0", "--data"]).arg(place.path()).uid(NOBODY).gid(NOBODY);
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return skip(&format!("the other user cannot start the program: {error}")),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("belongs to user 0 and is closed to user 65534: run this as that user"), "{said}");
}

#[tokio::test]
async fn on_a_full_disk_it_refuses_growth_and_goes_on_once_there_is_room() {
    let Some(disk) = SmallDisk::new(16) else { return skip("a small filesystem cannot be mounted") };
    let data = disk.path().join("data");
    let mut up = Up::start(&data, &[]);
    let kubeconfig = data.join("kubeconfig");
    let api = client(&kubeconfig, &up.address().await).await;
    let note = |name: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {"text": "x".repeat(100_000)}})
    };
    let notes = "/api/v1/namespaces/default/configmaps";
    assert_eq!(ask(&api, ("POST", notes), Some(&note("before"))).await.unwrap().0, 201);
    let everything = disk.fill();
    let (code, refused) = ask(&api, ("POST", notes), Some(&note("after"))).await.unwrap();
    assert_eq!((code, &refused["reason"]), (507, &json!("InsufficientStorage")), "{refused}");
    assert_eq!(ask(&api, ("GET", &format!("{notes}/before")), None).await.unwrap().0, 200);

    std::fs::remove_file(everything).expect("it is there");
    while ask(&api, ("POST", notes), Some(&note("after"))).await.unwrap().0 != 201 {}
    assert_eq!(ask(&api, ("GET", &format!("{notes}/after")), None).await.unwrap().0, 200);
    up.stop();
}
