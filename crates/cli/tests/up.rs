//! `orlop demo` and `orlop up`: the whole stack in one process, as a new user meets it.

mod api_rig;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use api_rig::{ask, client};
use serde_json::{Value, json};

#[test]
fn the_demonstration_takes_a_claim_to_a_volume_and_leaves_nothing() {
    let place = tempfile::tempdir().expect("a directory can be made");
    let output = Command::new(env!("CARGO_BIN_EXE_orlop"))
        .arg("demo")
        .env("TMPDIR", place.path())
        .output()
        .expect("the binary was just built");
    let (said, warned) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{warned}");
    let stages = ["claim default/data is made", "is stored", "claim default/data is Bound", "it is made of", "is gone"];
    let mut rest = &*said;
    for stage in stages.into_iter().chain(["nothing of it is left"]) {
        let Some((_, after)) = rest.split_once(stage) else { panic!("{stage:?} is missing or too early in\n{said}") };
        rest = after;
    }
    assert_eq!(warned, "", "a demonstration has nothing to warn of");
    let left: Vec<_> = std::fs::read_dir(place.path()).expect("it is there").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A stack as a process. Dropping it kills it.
struct Up {
    child: Child,
    address: String,
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
            Some(address) => Self { child, address },
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
    }
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
