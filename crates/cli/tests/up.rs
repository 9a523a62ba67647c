//! `orlop up`: the whole stack in one process, as a new user meets it.

mod api_rig;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use api_rig::{ask, client};
use serde_json::{Value, json};

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A stack as a process. Dropping it kills it.
struct Up {
    child: Child,
    address: String,
    data: std::path::PathBuf,
}

impl Up {
    fn start(data: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_orlop"))
            .args(["up", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary was just built");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines().map_while(Result::ok);
        let mut heard = String::new();
        let address = lines.by_ref().find_map(|line| {
            let address = line.split("ready address=").nth(1)?.split(' ').next().map(str::to_owned);
            heard += &line;
            address
        });
        // Whatever it says later is read, so that it never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        match address {
            Some(address) => Self { child, address, data: data.to_owned() },
            None => panic!("it never became ready: {heard}"),
        }
    }

    fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is our child");
        assert!(self.child.wait().expect("it is our child").success());
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // What the agent mounts outlives it, its own directory as well; a directory that goes must have neither.
        for point in mounts_under(&self.data) {
            let _ = Command::new("umount").arg("--lazy").arg(point).status();
        }
    }
}

/// How many mounts are shown at a path.
fn mounts_at(path: &str) -> usize {
    linux::mountinfo::MountTable::read().expect("there is a mount table").at(Path::new(path)).count()
}

/// What is mounted below a directory, the deepest first.
fn mounts_under(directory: &Path) -> Vec<std::path::PathBuf> {
    let table = linux::mountinfo::MountTable::read().expect("there is a mount table");
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let mut points: Vec<_> = table.below(&directory).map(|mount| mount.mount_point.clone()).collect();
    points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    points
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
    let up = Up::start(&data);
    let kubeconfig = data.join("kubeconfig");
    let api = client(&kubeconfig, &up.address).await;
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    assert_eq!(ask(&api, ("POST", claims), Some(&claim)).await.unwrap().0, 201);
    let bound = claim_until(&api, |claim| claim["status"]["phase"] == "Bound").await;
    assert_eq!(bound["spec"]["storageClassName"], "local");
    let volume = bound["spec"]["volumeName"].as_str().expect("it is bound").to_owned();
    up.stop();

    let up = Up::start(&data);
    let api = client(&kubeconfig, &up.address).await;
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
    let up = Up::start(&data);
    let api = client(&kubeconfig, &up.address).await;
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
        println!("skipped: mounting needs root");
        return;
    }
    let place = tempfile::tempdir().expect("a directory can be made");
    let (data, path) = (place.path().join("data"), place.path().join("mnt"));
    std::fs::create_dir(&path).expect("it can be made");
    let path = path.canonicalize().expect("it was just made");
    let path = path.to_str().expect("it is a plain name");
    let up = Up::start(&data);
    let kubeconfig = data.join("kubeconfig");
    let api = client(&kubeconfig, &up.address).await;
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}}});
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    assert_eq!(ask(&api, ("POST", claims), Some(&claim)).await.unwrap().0, 201);

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
