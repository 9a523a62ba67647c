//! The configuration file of `orlop up` as people meet it.
//!
//! Each file in `tests/golden/config` is checked, and what `orlop config check` says is compared with the `.txt` beside it;
//! `UPDATE_GOLDEN=1` writes these anew.

mod api_rig;
#[allow(dead_code, reason = "a part of it is used here")]
#[path = "stack/program.rs"]
mod program;
mod rig;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use program::{CLASSES, Program, User, binary};
use rig::Scratch;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/config")
}

fn config(directory: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.arg("config").args(words).current_dir(directory).output().expect("the binary was just built")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_wrong_file_is_answered_with_all_that_is_wrong_in_it_and_where() {
    let directory = golden();
    let mut names: Vec<String> = fs::read_dir(&directory)
        .expect("it is there")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_suffix(".yaml").map(str::to_owned))
        .collect();
    names.sort();
    assert!(names.len() > 30, "{names:?}");
    let mut differences = Vec::new();
    for name in &names {
        let answer = config(&directory, &["check", &format!("{name}.yaml")]);
        let code = if name == "good" { 0 } else { 1 };
        assert_eq!(answer.status.code(), Some(code), "{name}: {answer:?}");
        assert!(answer.stderr.is_empty(), "{name}: {answer:?}");
        let (file, said) = (directory.join(format!("{name}.txt")), text(&answer.stdout));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&file, &said).expect("the golden file can be written");
        } else if fs::read_to_string(&file).unwrap_or_default() != said {
            differences.push(format!("{name}:\n{said}"));
        }
    }
    assert!(differences.is_empty(), "differs from tests/golden/config:\n{}", differences.join("\n"));
}

/// The flags that help shows.
fn flags() -> BTreeSet<String> {
    let help = Command::new(binary()).args(["up", "--help"]).output().expect("the binary was just built");
    let help = text(&help.stdout);
    let named = help.lines().filter_map(|line| {
        let line = line.trim_start();
        let line = line.strip_prefix("-h, ").unwrap_or(line);
        line.strip_prefix("--")?.split([' ', '=', '[']).next().map(str::to_owned)
    });
    named.collect()
}

#[test]
fn every_flag_of_up_is_a_key_of_the_file_but_those_that_are_about_one_call() {
    let shown = config(Path::new("/"), &["show"]);
    assert!(shown.status.success(), "{shown:?}");
    let keys: BTreeSet<String> = text(&shown.stdout)
        .lines()
        .filter(|line| !line.starts_with("# "))
        .filter_map(|line| line.trim_start_matches('#').split(':').next().map(str::to_owned))
        .collect();
    let mut flags = flags();
    for flag in ["config", "print-systemd", "help"] {
        assert!(flags.remove(flag), "{flag}: {flags:?}");
    }
    assert_eq!(keys, flags);

    // Every key is taken with a value that its flag takes: the defaults, and these where there is none.
    let scratch = Scratch::new();
    let file = scratch.path("all.yaml");
    let whole = text(&shown.stdout)
        .replace("#data: DIR", "data: /d")
        .replace("#serve-machines: ADDRESS", "serve-machines: 10.0.0.1:6444")
        .replace("#http-endpoint: ADDRESS", "http-endpoint: 127.0.0.1:9810")
        .replace("#driver: ENDPOINT", "driver: unix:///run/a.sock")
        // Told, and not set: what runs follows from the cluster and from who runs it.
        .replace("#parts: [controllers, ", "parts: [controllers, ");
    let embedded: String =
        whole.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    fs::write(&file, &embedded).expect("it can be written");
    let checked = config(Path::new("/"), &["check", &file.to_string_lossy()]);
    assert!(checked.status.success(), "{}{embedded}", text(&checked.stdout));
    let count = embedded.lines().count();
    assert!(text(&checked.stdout).contains(&format!("no problems, {count} settings")), "{checked:?}");
    fs::write(&file, "kubeconfig: k\ncontext: c\n").expect("it can be written");
    let checked = config(Path::new("/"), &["check", &file.to_string_lossy()]);
    assert!(text(&checked.stdout).contains("no problems, 2 settings"), "{checked:?}");
    let unset: Vec<&str> = whole.lines().filter(|line| line.starts_with('#') && !line.starts_with("# ")).collect();
    assert_eq!(unset.len(), 2, "kubeconfig and context were tried by themselves: {unset:?}");
}

#[test]
fn what_is_shown_is_a_file_that_says_the_same() {
    let scratch = Scratch::new();
    let (file, again) = (scratch.path("a.yaml"), scratch.path("b.yaml"));
    fs::write(&file, "data: here/data\nclass: \"5\"\npage: off\nkubeconfig: k\n").expect("it can be written");
    let first = config(Path::new("/"), &["show", &file.to_string_lossy()]);
    assert!(first.status.success(), "{first:?}");
    let said = text(&first.stdout);
    let data = scratch.path("here/data");
    assert!(said.contains(&format!("\ndata: {}\n", data.display())), "paths are relative to the file: {said}");
    assert!(said.contains("\n#parts: [sidecars, node, page]\n"), "the default follows from the cluster: {said}");
    assert!(said.contains("\nlog-level: info\n") && said.contains("\nclass: \"5\"\n"), "{said}");
    assert!(said.contains("\n#listen: "), "what would be refused with the rest is no setting: {said}");
    fs::write(&again, &said).expect("it can be written");
    let second = config(Path::new("/"), &["show", &again.to_string_lossy()]);
    assert_eq!(text(&second.stdout), said, "{second:?}");
}

#[tokio::test]
async fn a_flag_wins_over_the_file_and_a_wrong_file_starts_nothing() {
    let scratch = Scratch::new();
    let file = scratch.path("orlop.yaml");
    let good = "data: data\nlisten: 127.0.0.1:0\npage: off\nclass: of-the-file\n";
    fs::write(&file, good).expect("it can be written");
    let flag = format!("--config={}", file.display());
    let up = Program::start(&["up", &flag, "--class=of-the-flag"]);
    let user = User::of(&scratch.path("data/kubeconfig"), &up.address()).await;
    assert_eq!(user.get(&format!("{CLASSES}/of-the-flag")).await.0, 200);
    assert_eq!(user.get(&format!("{CLASSES}/of-the-file")).await.0, 404);
    up.stop();

    fs::write(&file, good.replace("data: data", "data: other").replace("page: off", "pages: off")).expect("it can be");
    let said = program::refusal(&["up", &flag]);
    assert!(said.contains("nothing is started") && said.contains("orlop.yaml:3: unknown key \"pages\""), "{said}");
    assert!(!scratch.path("other").exists());
    fs::write(&file, "class: fast\n").expect("it can be written");
    let said = program::refusal(&["up", &flag]);
    assert!(said.contains("no directory: give --data DIR"), "{said}");
    let said = program::refusal(&["up", "--config=/no/such/file.yaml"]);
    assert!(said.contains("there is no configuration file /no/such/file.yaml"), "{said}");
}
