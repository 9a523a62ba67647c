//! The real kubectl against the real `orlop api`: every command of the transcripts in `tests/golden/kubectl` is run, and
//! what it prints is compared with what the transcript says.
//!
//! `UPDATE_GOLDEN=1` writes the transcripts anew. `ORLOP_KUBECTL` names the kubectl to use; without it the newest one with
//! a version in its name beside the one on the path is taken. `ORLOP_KUBECTL_CONFIG` names the kubeconfig of another
//! server, such as a kube-apiserver, to run the same commands there; `ORLOP_KUBECTL_CONTROLLERS` says that it has its
//! controllers with it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "these are tests")]

#[path = "kubectl/plain.rs"]
mod plain;
#[path = "kubectl/program.rs"]
mod program;
#[path = "kubectl/stage.rs"]
mod stage;
#[path = "kubectl/transcript.rs"]
mod transcript;

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use plain::Plain;
use stage::Stage;
use transcript::{Needs, Transcript};

/// A server that is not ours is shared by all transcripts, which then take turns.
static TURN: Mutex<()> = Mutex::new(());

fn play(topic: &str) {
    let _turn = stage::foreign().map(|_| TURN.lock().unwrap_or_else(PoisonError::into_inner));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/kubectl").join(format!("{topic}.md"));
    let want = Transcript::parse(&std::fs::read_to_string(&file).expect("the transcript can be read"));
    let stage = match Stage::set(want.needs()) {
        Ok(stage) => stage,
        Err(why) => return skip(topic, &why),
    };
    let mut plain = Plain::new(stage.folder());
    let version = stage.version();
    let mut got = want.clone();
    for step in got.steps() {
        let output = stage.run(step.command());
        step.said(&version, output.shown(&mut plain));
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&file, got.to_string()).expect("the transcript can be written");
        return;
    }
    let differences = want.differences(&got, &version);
    let (count, text) = (differences.len(), differences.join("\n"));
    assert!(
        count == 0,
        "{count} commands of {} say something else with kubectl {version} (- transcript, + now):\n{text}\n\
         To accept it: UPDATE_GOLDEN=1 cargo test -p orlop --test kubectl",
        file.display(),
    );
}

fn skip(topic: &str, why: &str) {
    use std::io::Write as _;
    println!("skipped: {why}");
    if let Some(log) = std::env::var_os("ORLOP_SKIP_LOG") {
        let file = std::fs::File::options().append(true).create(true).open(log);
        drop(file.and_then(|mut file| writeln!(file, "kubectl {topic}: {why}")));
    }
}

/// Everything that is secret in a folder of keys: the lines of the private ones, without their frames.
fn secret_lines(folder: &Path) -> Vec<String> {
    let keys =
        std::fs::read_dir(folder).expect("the folder is there").map(|entry| entry.expect("it is readable").path());
    keys.filter(|file| file.extension().is_some_and(|end| end == "key"))
        .flat_map(|file| {
            let text = std::fs::read_to_string(file).expect("a key is text");
            text.lines().filter(|line| !line.starts_with("-----")).map(str::to_owned).collect::<Vec<_>>()
        })
        .collect()
}

/// Neither tokens nor keys nor secrets reach the log, however much is logged, and the files that hold them are for
/// their owner alone.
#[test]
fn nothing_secret_is_logged_and_keys_are_private() {
    use std::os::unix::fs::PermissionsExt as _;
    if stage::foreign().is_some() {
        return skip("secrets", "it is about orlop api only");
    }
    let mut stage = match Stage::set(Needs::Orlop) {
        Ok(stage) => stage,
        Err(why) => return skip("secrets", &why),
    };
    let token = stage.run("kubectl create serviceaccount robot > /dev/null; kubectl create token robot".into());
    let token = token.stdout().trim().to_owned();
    assert_eq!(token.split('.').count(), 3, "{token}");
    let script = format!(
        "kubectl create secret generic s --from-literal=word=unspeakable; kubectl get secret s -o yaml
         kubectl config set-credentials robot --token={token}; kubectl --user=robot get pvc
         kubectl config set-credentials wrong --token={token}wrong; kubectl --user=wrong get pvc
         kubectl --as=ann get pvc -w --request-timeout=1s"
    );
    stage.run(script);
    let pki = stage.folder().join("data/pki");
    let files = std::fs::read_dir(&pki).expect("the keys are there").map(|entry| entry.expect("it is readable").path());
    for file in files.chain([stage.folder().join("home/.kube/config")]) {
        let mode = std::fs::metadata(&file).expect("it is there").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", file.display());
    }
    let mut secrets = secret_lines(&pki);
    secrets.extend(["unspeakable".into(), "dW5zcGVha2FibGU=".into(), token.clone()]);
    secrets.extend(token.split('.').skip(1).map(str::to_owned));
    let log = stage.log();
    assert!(log.contains("DEBUG"), "the log is as talkative as it can be");
    assert!(log.contains("a credential was refused"), "the requests have left their marks");
    for secret in secrets {
        assert!(!log.contains(&secret), "a secret of {} letters is in the log", secret.len());
    }
}

#[test]
fn get_shows_objects_in_every_form() {
    play("get");
}

#[test]
fn describe_tells_a_person_what_there_is() {
    play("describe");
}

#[test]
fn create_makes_objects_from_files_and_from_flags() {
    play("create");
}

#[test]
fn apply_merges_on_the_client_and_on_the_server() {
    play("apply");
}

#[test]
fn edit_patch_label_and_replace_change_objects() {
    play("change");
}

#[test]
fn delete_and_wait_follow_finalizers_and_grace() {
    play("delete");
}

#[test]
fn owners_and_namespaces_take_their_content_along() {
    play("owners");
}

#[test]
fn explain_and_discovery_know_every_kind() {
    play("explain");
}

#[test]
fn auth_says_who_may_do_what() {
    play("auth");
}

#[test]
fn events_are_listed_in_both_views() {
    play("events");
}

#[test]
fn storage_kinds_are_defaulted_printed_and_refused() {
    play("storage");
}

#[test]
fn what_differs_from_a_cluster_is_said_clearly() {
    play("differences");
}
