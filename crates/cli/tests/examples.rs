//! What the docs show works: the manifests of `examples` on a real `orlop up`, their roles with each program as a process of
//! its own, and the commands in blocks that are marked `sh run`.

mod api_rig;
mod stack_rig;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use stack_rig::{Up, has, is_root, mounts_under, skip};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository is there")
}

/// Why the examples cannot run here.
fn hindrance() -> Option<&'static str> {
    match (has("kubectl"), is_root()) {
        (false, _) => Some("the examples need kubectl"),
        (true, false) => Some("the examples mount, which needs root"),
        (true, true) => None,
    }
}

fn run(mut command: Command, input: &str) -> Output {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program was found");
    child.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

/// Runs kubectl, which must succeed; gives what it prints.
fn kubectl(kubeconfig: &Path, words: &[&str], input: &str) -> String {
    let mut command = Command::new("kubectl");
    command.args(words).env("KUBECONFIG", kubeconfig);
    let output = run(command, input);
    let [said, warned] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(output.status.success(), "kubectl {words:?}: {said}{warned}");
    said
}

/// A manifest with what its comment says to replace.
fn manifest(name: &str, node: &str, directory: &Path) -> String {
    let text = std::fs::read_to_string(root().join("examples").join(name)).expect("the example is there");
    text.replace("NODE_NAME", node).replace("/srv/example", &directory.display().to_string())
}

/// Applies a manifest, waits until its pods have their volumes, deletes it, and waits until nothing is left.
fn live_through(kubeconfig: &Path, name: &str, text: &str) {
    println!("{name}");
    kubectl(kubeconfig, &["apply", "-f", "-"], text);
    kubectl(kubeconfig, &["wait", "--for=condition=orlop.dev/VolumesReady", "pod", "--all", "--timeout=120s"], "");
    kubectl(kubeconfig, &["delete", "--wait", "--timeout=120s", "-f", "-"], text);
    for kind in ["volumeattachments", "persistentvolumeclaims", "persistentvolumes"] {
        if !kubectl(kubeconfig, &["get", kind, "-o", "name"], "").is_empty() {
            kubectl(kubeconfig, &["wait", "--for=delete", kind, "--all", "--timeout=120s"], "");
        }
    }
}

fn names() -> Vec<String> {
    let entries = std::fs::read_dir(root().join("examples")).expect("the examples are there").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".yaml")).collect();
    names.sort();
    assert!(names.len() >= 8, "{names:?}");
    names
}

#[tokio::test]
async fn every_example_gets_its_volumes_and_leaves_nothing() {
    if let Some(why) = hindrance() {
        return skip(why);
    }
    let place = tempfile::tempdir().expect("a directory can be made");
    let data = place.path().join("data");
    let mut up = Up::start(&data, &[]);
    up.address().await;
    let kubeconfig = up.kubeconfig();
    let node = kubectl(&kubeconfig, &["get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"], "");
    for name in names() {
        let text = manifest(&name, &node, place.path());
        if text.contains("fsType: xfs") && !has("mkfs.xfs") {
            skip("an example needs mkfs.xfs");
            continue;
        }
        live_through(&kubeconfig, &name, &text);
    }
    up.stop();
    assert!(mounts_under(place.path()).is_empty(), "{:?}", mounts_under(place.path()));
}

/// Blocks of a page that begin with ```sh run.
fn blocks(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = page.lines();
    while lines.by_ref().any(|line| line.trim() == "```sh run") {
        found.push(lines.by_ref().take_while(|line| line.trim() != "```").map(|line| format!("{line}\n")).collect());
    }
    found
}

#[tokio::test]
async fn commands_that_the_docs_mark_as_runnable_run() {
    if !has("kubectl") {
        return skip("the commands in the docs need kubectl");
    }
    let place = tempfile::tempdir().expect("a directory can be made");
    let mut up = Up::start(&place.path().join("orlop"), &[]);
    up.address().await;
    let program = Path::new(env!("CARGO_BIN_EXE_orlop"));
    let mut path = vec![program.parent().expect("it is in a directory").to_owned()];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let mut count = 0;
    for entry in std::fs::read_dir(root().join("docs")).expect("there are docs").flatten() {
        let Ok(page) = std::fs::read_to_string(entry.path()) else { continue };
        for block in blocks(&page) {
            let mut shell = Command::new("sh");
            shell.arg("-eu").current_dir(place.path()).env("KUBECONFIG", up.kubeconfig());
            shell.env("PATH", std::env::join_paths(&path).expect("a path has no colon"));
            let output = run(shell, &block);
            let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat();
            assert!(output.status.success(), "{:?}:\n{block}\n{said}", entry.file_name());
            count += 1;
        }
    }
    assert!(count >= 3, "{count}");
    up.stop();
}

/// Programs beside each other. Dropping this ends them and takes away what they mounted.
struct Parts(Vec<Child>, PathBuf);

impl Parts {
    fn start(&mut self, args: &[&str]) {
        let log = std::fs::File::create(self.1.join(format!("{}.log", args[0]))).expect("a log can be written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
        self.0
            .push(command.args(args).stderr(log).env_remove("KUBECONFIG").spawn().expect("the binary was just built"));
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        for child in self.0.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
        for point in mounts_under(&self.1) {
            let _ = Command::new("umount").arg("--lazy").arg(point).status();
        }
    }
}

/// A kubeconfig for the service account that a role of `examples/rbac` is bound to.
fn as_account(admin: &Path, name: &str, file: &Path) -> String {
    let token = kubectl(admin, &["--namespace=kube-system", "create", "token", &format!("orlop-{name}")], "");
    let minified = kubectl(admin, &["config", "view", "--raw", "--minify", "-o", "json"], "");
    let mut config: serde_json::Value = serde_json::from_str(&minified).expect("it is JSON");
    config["users"][0]["user"] = serde_json::json!({"token": token.trim()});
    std::fs::write(file, config.to_string()).expect("it can be written");
    file.display().to_string()
}

/// Rights that only some volumes or flags need: pods that empty volumes with the policy Recycle, and --enable-capacity.
const NEEDED_NOW_AND_THEN: [(&str, &str, &str); 7] = [
    ("controllers", "create", "pods"),
    ("controllers", "delete", "pods"),
    ("sidecar", "list", "csistoragecapacities.storage.k8s.io"),
    ("sidecar", "watch", "csistoragecapacities.storage.k8s.io"),
    ("sidecar", "create", "csistoragecapacities.storage.k8s.io"),
    ("sidecar", "patch", "csistoragecapacities.storage.k8s.io"),
    ("sidecar", "delete", "csistoragecapacities.storage.k8s.io"),
];

#[test]
fn no_page_tells_to_detach_the_loop_devices_of_everybody() {
    for entry in std::fs::read_dir(root().join("docs")).expect("there are docs").flatten() {
        let Ok(page) = std::fs::read_to_string(entry.path()) else { continue };
        for command in ["losetup -D", "losetup --detach-all"] {
            assert!(!page.contains(command), "{:?} has {command}", entry.file_name());
        }
    }
}

#[tokio::test]
async fn the_roles_of_the_examples_are_enough_for_each_program_alone() {
    if let Some(why) = hindrance() {
        return skip(why);
    }
    let place = tempfile::tempdir().expect("a directory can be made");
    let data = place.path().join("api");
    let mut api = api_rig::Server::spawn(&data);
    api.address().await;
    let admin = data.with_extension("kubeconfig");
    kubectl(&admin, &["apply", "-f", &root().join("examples/rbac").display().to_string()], "");
    for (name, verb, resource) in NEEDED_NOW_AND_THEN {
        let account = format!("--as=system:serviceaccount:kube-system:orlop-{name}");
        kubectl(&admin, &["auth", "can-i", verb, resource, "--all-namespaces", &account], "");
    }
    let account = |name: &str| as_account(&admin, name, &place.path().join(format!("{name}.kubeconfig")));
    let path = |name: &str| place.path().join(name).display().to_string();
    let (socket, pool, agent) = (path("csi.sock"), path("pool"), path("agent"));
    let lease = ["--leader-election", "--leader-election-namespace=kube-system"];
    let mut parts = Parts(Vec::new(), place.path().to_owned());
    parts.start(&["driver", "--endpoint", &format!("unix://{socket}"), "--node-id", "worker", "--pool", &pool]);
    parts.start(&["node", "--kubeconfig", &account("node"), "--node-name", "worker", "--root-dir", &agent]);
    let plugins = format!("{agent}/plugins_registry");
    let offered = ["--kubelet-registration-path", &socket, "--plugin-registration-path", &plugins];
    parts.start(&[&["registrar", "--csi-address", &socket], &offered[..]].concat());
    for name in ["controllers", "scheduler"] {
        parts.start(&[&[name, "--kubeconfig", &account(name)], &lease[..]].concat());
    }
    let sidecar = ["sidecar", "--csi-address", &socket, "--kubeconfig", &account("sidecar")];
    parts.start(&[&sidecar[..], &lease[..]].concat());
    let class = serde_json::json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": "local", "annotations": {api::keys::annotation::DEFAULT_CLASS.0: "true"}},
        "provisioner": "local.csi.orlop.dev"});
    kubectl(&admin, &["apply", "-f", "-"], &class.to_string());
    for name in ["claim-and-pod.yaml", "generic-ephemeral.yaml", "block.yaml"] {
        live_through(&admin, name, &manifest(name, "worker", place.path()));
    }
}
