//! `orlop tree`, `top` and `orphans` on a real `orlop up`, and what shells want: completions, manual pages, kubectl's plugin.
//!
//! The wording is compared in `lifecycle` (`tree`, `top`, `orphans`); here it is what a live cluster and a live driver show,
//! and the exit codes. Help is compared with `tests/golden`; `UPDATE_GOLDEN=1` writes it anew.

mod api_rig;
mod rig;
#[path = "reading/site.rs"]
mod site;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use driver_local::record::{self, CopyIntent, SourceStamp};
use serde_json::{Value, json};

use site::{CLAIMS, CLASSES, Site, VOLUMES, orlop, run};

fn class(name: &str, reclaim: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": "local.csi.orlop.dev", "reclaimPolicy": reclaim, "volumeBindingMode": "Immediate"})
}

#[tokio::test]
async fn a_tree_has_claims_with_their_volumes_and_the_reasons_that_explain_gives() {
    let site = Site::up().await;
    let volume = site.bound("data", "local").await;
    let settled = site.orlop(&["tree"]);
    assert_eq!(settled.code, Some(0), "{settled:?}");
    let lines: Vec<&str> = settled.stdout.lines().collect();
    assert!(
        lines[0].starts_with("NAME ") && lines[1].starts_with("pvc/data ") && lines[1].contains("Bound"),
        "{lines:?}"
    );
    assert!(lines[2].starts_with(&format!("└─ pv/{volume} ")), "{lines:?}");
    assert!(!settled.stdout.contains('\u{1b}'), "no colours but on a terminal");
    let wide = site.orlop(&["tree", "data", "-o", "wide"]);
    assert!(wide.stdout.contains("CLASS") && wide.stdout.contains("local.csi.orlop.dev"), "{wide:?}");

    let stuck = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "stuck"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": {"requests": {"storage": "1Gi"}}}});
    site.create(CLAIMS, &stuck).await;
    let tree = site.orlop(&["tree", "-o", "json"]);
    assert_eq!(tree.code, Some(1), "{tree:?}");
    let tree = tree.json();
    let explained = site.orlop(&["explain", "pvc/stuck", "-o", "json"]).json();
    let reason = &tree["claims"][1]["reason"];
    assert_eq!((&tree["claims"][1]["name"], &reason["reason"]), (&json!("stuck"), &json!("class_missing")), "{tree:#}");
    assert_eq!(reason["sentence"], explained["chain"][0]["sentence"]);
    let yaml = site.orlop(&["tree", "stuck", "-o", "yaml"]);
    assert!(yaml.stdout.contains("\nform: 1\n") && yaml.stdout.contains("reason: \"class_missing\""), "{yaml:?}");

    let elsewhere = site.orlop(&["tree", "-n", "kube-system"]);
    assert!(elsewhere.code == Some(0) && elsewhere.stdout.contains("-A shows all namespaces"), "{elsewhere:?}");
    let everywhere = site.orlop(&["tree", "-A"]);
    assert!(everywhere.stdout.starts_with("NAMESPACE ") && everywhere.stdout.contains("default  "), "{everywhere:?}");
    let nobody = site.orlop(&["tree", "nobody"]);
    assert_eq!(nobody.code, Some(2));
    assert!(
        nobody.stderr.contains("there is no PersistentVolumeClaim \"nobody\" in namespace \"default\""),
        "{nobody:?}"
    );
}

#[tokio::test]
async fn a_mounted_volume_is_shown_down_to_its_pod_and_top_counts_its_place() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: mounting needs root");
        return;
    }
    let site = Site::up().await;
    site.bound("data", "local").await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {
        "containers": [{"name": "main", "image": "none", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}});
    site.create("/api/v1/namespaces/default/pods", &pod).await;
    let ready = |_: u16, pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array();
        let ready = |one: &Value| one["type"] == api::keys::condition::VOLUMES_READY && one["status"] == "True";
        conditions.is_some_and(|conditions| conditions.iter().any(ready))
    };
    let pod = site.until("/api/v1/namespaces/default/pods/web", ready).await;
    let node = pod["spec"]["nodeName"].as_str().expect("it has a node").to_owned();

    let tree = site.orlop(&["tree", "-o", "json"]).json();
    let attachment = &tree["claims"][0]["below"][0]["below"][0];
    assert_eq!(
        (&attachment["kind"], &attachment["state"]),
        (&json!("VolumeAttachment"), &json!("attached")),
        "{tree:#}"
    );
    let web = &attachment["below"][0];
    assert_eq!(
        (&web["name"], &web["state"], &web["node"]),
        (&json!("web"), &json!("mounted"), &json!(node)),
        "{tree:#}"
    );

    let top = site.orlop(&["top", "-o", "json"]);
    assert_eq!(top.code, Some(0), "{top:?}");
    let top = top.json();
    let places = &top["places"][0];
    assert_eq!((&places["node"], &places["taken"]), (&json!(node), &json!(1)), "{top:#}");
    let queues = top["queues"].as_array().expect("it is a list");
    assert!(queues.len() > 3, "the process' own queues are behind the API's metrics: {top:#}");
    let text = site.orlop(&["top"]);
    assert!(text.stdout.contains("ATTACHED") && text.stdout.contains("Not reachable:"), "{text:?}");

    // Nothing of it is left on the machine.
    assert_eq!(site.say("DELETE", "/api/v1/namespaces/default/pods/web", None).await.0, 200);
    assert_eq!(site.say("DELETE", &format!("{CLAIMS}/data"), None).await.0, 200);
    let gone = |_: u16, list: &Value| list["items"].as_array().is_some_and(Vec::is_empty);
    site.until(VOLUMES, gone).await;
}

const COPY: &str = "vol-aaaaaaaaaaaaaaaaaaaaaaaaaa";

/// As a driver leaves it that ends while it copies.
fn leave_an_unfinished_copy(pool: &Path) {
    let dir = pool.join(".tmp").join(COPY);
    std::fs::create_dir(&dir).expect("the pool has such a directory");
    let stamp = SourceStamp { inode: 1, size: 1, modified_ns: 1, changed_ns: 1 };
    let intent = CopyIntent { request: "vol-gone".to_owned(), stamp, copied: 4096, created_ms: 1 };
    std::fs::write(dir.join("copy.json"), record::seal(&intent).expect("it can be written"))
        .expect("it can be written");
}

#[tokio::test]
async fn a_volume_that_nobody_knows_is_found_and_deleted_only_when_told_twice() {
    let site = Site::up().await;
    let data = site.data.to_string_lossy().into_owned();
    let orphans = |words: &[&str]| orlop(&[&["orphans", "--data", &data], words].concat());
    site.create(CLASSES, &class("kept", "Retain")).await;
    let kept = site.bound("data", "kept").await;
    let agreed = orphans(&[]);
    assert_eq!(agreed.code, Some(0), "{agreed:?}");
    assert!(agreed.stdout.contains("has 1 volume and 0 snapshots; the cluster knows them all"), "{agreed:?}");

    leave_an_unfinished_copy(&site.data.join("pool"));
    let hidden = orphans(&[]);
    assert!(hidden.stdout.contains("Hidden in the pool; no list of the driver shows it:"), "{hidden:?}");
    assert!(hidden.stdout.contains(&format!("{COPY}: an unfinished copy of vol-gone, 4 KiB copied")), "{hidden:?}");
    let listed = orphans(&["-o", "json"]).json();
    assert!(listed["leftovers"][0]["path"].as_str().is_some_and(|path| path.ends_with(COPY)), "{listed:#}");

    // Released, and nobody's any more: its object still names the volume.
    assert_eq!(site.say("DELETE", &format!("{CLAIMS}/data"), None).await.0, 200);
    site.until(&format!("{VOLUMES}/{kept}"), |_, volume| volume["status"]["phase"] == "Released").await;
    let made = site.csi(&["create", "stray", "--size", "64Mi", "-o", "json"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let found = orphans(&["-o", "json"]);
    assert_eq!(found.code, Some(1), "{found:?}");
    let found = found.json();
    let strays = found["orphans"].as_array().expect("it is a list");
    assert_eq!((strays.len(), &strays[0]["deletable"]), (1, &json!(true)), "{found:#}");
    let handle = strays[0]["handle"].as_str().expect("it has a handle").to_owned();

    let asked = orphans(&["--delete"]);
    assert!(asked.code == Some(1) && asked.stdout.contains("Nothing was deleted: add --yes"), "{asked:?}");
    let other = orphans(&["--delete", "--yes", "--only", "another", "--settle", "0s"]);
    assert!(other.code == Some(1) && !other.stdout.contains("is deleted"), "{other:?}");
    let deleted = orphans(&["--delete", "--yes", "--settle", "0s"]);
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    assert!(deleted.stdout.contains(&format!("volume {handle} is deleted")), "{deleted:?}");
    let left = site.csi(&["list", "-o", "json"]);
    assert!(!left.stdout.contains(&handle) && left.stdout.len() > 20, "the retained one is still there: {left:?}");
}

#[tokio::test]
async fn what_an_open_intent_may_mean_is_kept_and_a_volume_that_is_gone_is_told() {
    let site = Site::up().await;
    let data = site.data.to_string_lossy().into_owned();
    let orphans = |words: &[&str]| orlop(&[&["orphans", "--data", &data, "-o", "json"], words].concat());
    assert_eq!(site.csi(&["create", "stray", "--size", "64Mi"]).code, Some(0));
    let entry = json!({"form": 1, "namespace": "shop", "claim": "c", "class": "x", "volume": "pvc-u", "plan": {}});
    let label = api::keys::label::INTENTS.text();
    let journal = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "journal", "labels": {label: "somebody.example.com"}}, "data": {"u": entry.to_string()}});
    site.create("/api/v1/namespaces/default/configmaps", &journal).await;
    let kept = orphans(&["--delete", "--yes", "--settle", "0s"]);
    let found = kept.json();
    assert_eq!((kept.code, &found["orphans"][0]["deletable"]), (Some(1), &json!(false)), "{found:#}");
    let said = found["orphans"][0]["keep"].to_string();
    assert!(said.contains("pvc-u") && said.contains("shop/c"), "{said}");
    assert_eq!(found["deletions"], json!([]));
    let tree = site.orlop(&["tree", "-A", "-o", "json"]).json();
    let intent = &tree["loose"][0];
    assert_eq!((&intent["kind"], &intent["name"]), (&json!("Intent"), &json!("pvc-u")), "{tree:#}");

    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "hollow"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "persistentVolumeReclaimPolicy": "Retain",
        "csi": {"driver": "local.csi.orlop.dev", "volumeHandle": "never-was"}}});
    site.create(VOLUMES, &volume).await;
    let gone = orphans(&[]).json();
    assert_eq!(gone["gone"][0]["object"], "hollow", "{gone:#}");
    let nobody = orlop(&["orphans", "--csi-address", "/nowhere/csi.sock", "--kubeconfig", site.kubeconfig()]);
    assert!(nobody.code == Some(2) && nobody.stderr.contains("no driver answers at"), "{nobody:?}");
}

#[test]
fn a_wrong_command_line_exits_with_2_and_says_what_is_understood() {
    for (words, said) in [
        (&["tree", "-o", "xml"][..], "possible values: text, wide, json, yaml"),
        (&["tree", "pod/web"], "write NAME or pvc/NAME"),
        (&["tree", "-n", "a", "-A"], "cannot be used with"),
        (&["top", "--metrics", "unix:///x"], "http://HOST:PORT"),
        (&["top", "--kubeconfig", "/nowhere/config"], "/nowhere/config"),
        (&["orphans"], "--csi-address"),
        (&["orphans", "--csi-address", "/x", "--yes"], "--delete"),
        (&["orphans", "--data", "/nowhere/data"], "/nowhere/data"),
        (&["completion", "tcsh"], "possible values: bash, elvish, fish, powershell, zsh"),
        (&["man"], "--dir"),
    ] {
        let words: Vec<&str> = match words[0] {
            "tree" => [words, &["--kubeconfig", "/nowhere/config"]].concat(),
            _ => words.to_vec(),
        };
        let answer = orlop(&words);
        assert_eq!(answer.code, Some(2), "{words:?}: {}", answer.stderr);
        assert!(answer.stderr.contains(said), "{words:?}: {}", answer.stderr);
    }
}

#[test]
fn a_shell_gets_its_completions_and_they_are_well_formed() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = orlop(&["completion", shell]);
        assert!(script.code == Some(0) && script.stdout.contains("orphans"), "{shell}: {}", script.stderr);
        if shell == "bash" {
            let file = tempfile::NamedTempFile::new().expect("a file can be made");
            std::fs::write(file.path(), &script.stdout).expect("it can be written");
            // A real shell completes a real word.
            let line =
                "source \"$0\"; COMP_WORDS=(orlop orph); COMP_CWORD=1; _orlop orlop orph orlop; echo ${COMPREPLY[@]}";
            let answer = run(Command::new("bash").args(["-c", line]).arg(file.path()));
            assert_eq!(answer.stdout.trim(), "orphans", "{answer:?}");
        }
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let place = tempfile::tempdir().expect("a directory can be made");
    let folder = place.path().join("man1");
    let answer = orlop(&["man", "--dir", folder.to_str().expect("it is a plain name")]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    for page in ["orlop.1", "orlop-tree.1", "orlop-top.1", "orlop-orphans.1", "orlop-explain.1", "orlop-csi-create.1"] {
        let text = std::fs::read_to_string(folder.join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"), "{page}: {text}");
    }
    assert!(!folder.join("orlop-freeze-guard.1").exists(), "what help hides has no page");
}

#[tokio::test]
async fn kubectl_runs_it_as_a_plugin() {
    let found = run(Command::new("sh").args(["-c", "command -v kubectl"]));
    if found.code != Some(0) {
        println!("skipped: there is no kubectl");
        return;
    }
    let site = Site::up().await;
    site.bound("data", "local").await;
    let place = tempfile::tempdir().expect("a directory can be made");
    symlink(env!("CARGO_BIN_EXE_orlop"), place.path().join("kubectl-orlop")).expect("a link can be made");
    let path = format!("{}:{}", place.path().display(), std::env::var("PATH").unwrap_or_default());
    let kubectl = |words: &[&str]| {
        let mut command = Command::new(found.stdout.trim());
        run(command.arg("orlop").args(words).env("PATH", &path).env("HOME", place.path()))
    };
    let help = kubectl(&["tree", "--help"]);
    assert!(help.stdout.contains("Usage: kubectl orlop tree"), "{help:?}");
    assert!(help.stdout.contains("\n  kubectl orlop tree\n"), "{help:?}");
    let wrong = kubectl(&["tree", "-o", "xml"]);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("possible values"), "{wrong:?}");
    let tree = kubectl(&["tree", "--kubeconfig", site.kubeconfig()]);
    assert!(tree.code == Some(0) && tree.stdout.contains("pvc/data"), "{tree:?}");
}

#[test]
fn the_help_of_the_reading_commands_reads_as_agreed() {
    for command in ["tree", "top", "orphans", "completion", "man"] {
        let answer = orlop(&[command, "--help"]);
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{command}_help.txt"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&file, &answer.stdout).expect("the golden file can be written");
            continue;
        }
        let golden = std::fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(answer.stdout, golden, "to accept it: UPDATE_GOLDEN=1 cargo test -p orlop --test reading help");
    }
}
