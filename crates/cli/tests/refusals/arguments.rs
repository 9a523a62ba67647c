//! The command line and the configuration file of `orlop driver`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::rig::Scratch;

/// Help wraps to the width of the terminal and shows the environment, so both are fixed.
fn orlop(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.arg("driver").args(args).env("COLUMNS", "100").env_remove("CSI_ENDPOINT");
    command.output().expect("the binary was just built")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Fails unless the driver ends with code 1 and one line that has all these words.
#[track_caller]
fn refused(args: &[&str], words: &[&str]) {
    let output = orlop(args);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let errors: Vec<&str> = text.lines().filter(|line| line.starts_with("orlop driver: ")).collect();
    assert_eq!((errors.len(), text.lines().count()), (1, 1), "one line: {text}");
    for word in words {
        assert!(errors[0].contains(word), "{word:?} is not in: {text}");
    }
}

const ENDPOINT: &str = "--endpoint=unix:///nowhere/csi.sock";

#[test]
fn the_help_of_driver_reads_as_agreed() {
    let output = orlop(&["--help"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let got = String::from_utf8_lossy(&output.stdout).into_owned();
    let file: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/driver_help.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&file, &got).expect("the golden file can be written");
        return;
    }
    let want = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        got == want,
        "help differs from tests/golden/driver_help.txt; to accept it, run with UPDATE_GOLDEN=1. Now:\n{got}"
    );
}

#[test]
fn an_unknown_flag_is_a_usage_error_with_a_hint() {
    for (args, word) in [
        (vec!["--ednpoint", "x"], "--endpoint"),
        (vec!["--mode", "both"], "controller"),
        (vec!["--attach-limit", "0"], "--attach-limit"),
        (vec!["--attach-limit", "3", "--no-attach"], "cannot be used with"),
        (vec!["--metrics-address", "localhost"], "--metrics-address"),
        (vec!["stray"], "stray"),
    ] {
        let output = orlop(&args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(word), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn a_missing_setting_is_named_with_an_example() {
    refused(&[], &["no endpoint given", "--endpoint unix:///run/orlop/csi.sock"]);
    refused(&[ENDPOINT], &["no node id given", "--node-id $(hostname)"]);
    refused(&[ENDPOINT, "--node-id=n"], &["no pool given", "--pool"]);
}

#[test]
fn a_wrong_value_is_named_with_what_would_be_right() {
    let scratch = Scratch::new();
    let pool = format!("--pool={}", scratch.path("pool").display());
    let all = |more: &[&str]| -> Vec<String> {
        [ENDPOINT, "--node-id=n", &pool].into_iter().chain(more.iter().copied()).map(str::to_owned).collect()
    };
    let cases: [(&[&str], &[&str]); 8] = [
        (&["--reserve=lots"], &["--reserve \"lots\"", "Ki, Mi, Gi"]),
        (&["--max-volume-size=10gb"], &["--max-volume-size \"10gb\"", "Gi"]),
        (&["--default-fs=ntfs"], &["ntfs", "ext4, xfs, btrfs"]),
        (&["--overcommit=0.5"], &["overcommit", "at least 1.0"]),
        (&["--socket-mode=rw"], &["--socket-mode \"rw\"", "0600"]),
        (&["--metrics-address=0.0.0.0:9810"], &["not a loopback address"]),
        (&["--driver-name=-bad-"], &["--driver-name"]),
        (&["--pool=other="], &["names no directory"]),
    ];
    for (more, words) in cases {
        let args = all(more);
        refused(&args.iter().map(String::as_str).collect::<Vec<_>>(), words);
    }
    assert!(!scratch.path("pool").exists(), "a refused start makes no pool");
    let long = format!("--node-id={}", "n".repeat(64));
    for node in ["--node-id=a b", "--node-id=-n", "--node-id=", &long] {
        refused(&[ENDPOINT, node, &pool], &["node id", "1 to 63"]);
    }
    refused(&["--endpoint=http://x", "--node-id=n", &pool], &["http", "unix:///path"]);
}

#[test]
fn faults_of_several_settings_are_told_together() {
    refused(&[ENDPOINT, "--node-id=a b", "--overcommit=0"], &["no pool given", "node id", "overcommit"]);
}

#[test]
fn a_configuration_file_is_checked_like_flags_and_a_flag_wins() {
    let scratch = Scratch::new();
    let file = scratch.path("driver.toml");
    let config = format!("--config={}", file.display());
    refused(&[&config], &["driver.toml", "No such file"]);
    let cases = [
        ("node-id = \"n\"\n", "unknown field `node-id`"),
        ("node_id = 5\n", "invalid type"),
        ("mode = \"both\"\n", "unknown variant `both`"),
        ("pools = [\n", "driver.toml"),
    ];
    for (text, words) in cases {
        fs::write(&file, text).unwrap();
        let output = orlop(&[&config]);
        let shown = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{shown}");
        assert!(
            shown.starts_with("orlop driver: ") && shown.contains(words) && shown.contains("driver.toml"),
            "{shown}"
        );
    }
    let pool = scratch.path("pool");
    fs::write(&file, format!("endpoints = [\"unix:///nowhere/csi.sock\"]\nnode_id = \"a b\"\npools = [{pool:?}]\n"))
        .unwrap();
    refused(&[&config], &["node id \"a b\""]);
    refused(&[&config, "--node-id=also bad"], &["node id \"also bad\""]);
}
