//! The command lines of `orlop registrar` and `orlop livenessprobe` as people meet them.
//!
//! Help is compared with the files in `tests/golden`; run the test with `UPDATE_GOLDEN=1` to write them anew.

use std::path::Path;
use std::process::{Command, Output};

/// Help wraps to the width of the terminal, and the environment decides what is missing, so both are fixed.
fn orlop(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.args(args).env("COLUMNS", "100").env_remove("KUBECONFIG").env_remove("NODE_NAME");
    command.output().expect("the binary was just built")
}

fn golden(command: &str) {
    let output = orlop(&[command, "--help"]);
    assert!(output.status.success());
    let got = String::from_utf8_lossy(&output.stdout).into_owned();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{command}_help.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&file, &got).expect("the golden file can be written");
        return;
    }
    let want = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(got == want, "help differs from {}; to accept it, set UPDATE_GOLDEN=1. Now:\n{got}", file.display());
}

#[test]
fn the_help_of_registrar_reads_as_agreed() {
    golden("registrar");
}

#[test]
fn the_help_of_livenessprobe_reads_as_agreed() {
    golden("livenessprobe");
}

#[track_caller]
fn refused(args: &[&str], words: &str) {
    let output = orlop(args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
    assert!(said.starts_with(&format!("orlop {}: ", args[0])) && said.contains(words), "{args:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// Rules: NODE-27.1, NODE-27.2
#[test]
fn what_cannot_work_is_said_in_one_line() {
    let path = "--kubelet-registration-path=/host/csi.sock";
    refused(&["registrar"], "--kubelet-registration-path");
    refused(&["registrar", "--mode=kubelet-registration-probe"], "--kubelet-registration-path");
    refused(&["registrar", path, "--http-endpoint=:1", "--health-port=2"], "--health-port");
    refused(&["registrar", path, "--timeout=0s"], "--timeout");
    refused(&["registrar", path, "--mode=other"], "--mode");
    refused(&["registrar", path, "--startup-taint=d/starting"], "$NODE_NAME");
    refused(&["registrar", path, "--startup-taint=d/starting:NoExecute"], "key of a taint");
    refused(&["registrar", path, "--logging-format=xml"], "--logging-format");
    refused(&["registrar", path, "--http-endpoint=nonsense"], "HOST:PORT");
}

/// Rule: NODE-27.1
#[test]
fn every_flag_of_the_original_is_accepted() {
    let flags = [
        "--csi-address=unix:///run/none.sock",
        "--kubelet-registration-path=/host/csi.sock",
        "--plugin-registration-path=/registration",
        "--timeout=1s",
        "--connection-timeout=0",
        "--http-endpoint=",
        "--health-port=0",
        "--enable-pprof",
        "--automaxprocs",
        "--v=5",
        "--vmodule=a=1",
        "--logging-format=json",
        "--log-flush-frequency=5s",
        "--log-text-split-stream",
        "--log-json-split-stream=false",
        "--log-text-info-buffer-size=0",
        "--log-json-info-buffer-size=0",
        "--mode=kubelet-registration-probe",
    ];
    let output = orlop(&[&["registrar"], &flags[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let version = orlop(&["registrar", "--version"]);
    assert!(version.status.success() && String::from_utf8_lossy(&version.stdout).contains(env!("CARGO_PKG_VERSION")));
}

/// Rules: NODE-28.1, NODE-28.2
#[test]
fn conflicts_are_refused_and_every_flag_of_the_original_is_accepted() {
    refused(&["livenessprobe", "--http-endpoint=:1", "--health-port=9809"], "--health-port");
    refused(&["livenessprobe", "--http-endpoint=:1", "--metrics-address=:2"], "--metrics-address");
    refused(&["livenessprobe", "--probe-timeout=0s"], "--probe-timeout");
    refused(&["livenessprobe", "--metrics-path=metrics"], "--metrics-path");
    // Accepted, and then refused for its address alone: 9808 said aloud is the default (NODE-28.2).
    let all = [
        "livenessprobe",
        "--csi-address=/run/none.sock",
        "--probe-timeout=3s",
        "--health-port=9808",
        "--metrics-path=/m",
        "--automaxprocs=true",
        "--v=5",
        "--http-endpoint=nonsense",
    ];
    refused(&all, "HOST:PORT");
}

#[test]
fn the_sidecar_refuses_a_taint_without_a_node() {
    refused(&["sidecar", "--startup-taint=d/starting"], "$NODE_NAME");
    refused(&["sidecar", "--probe-timeout=0s"], "--probe-timeout");
}
