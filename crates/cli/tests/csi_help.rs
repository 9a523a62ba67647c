//! The command line of `orlop csi` as people meet it: help, usage errors, and a driver that is not there.
//!
//! Help is compared with the files in `tests/golden`; run the test with `UPDATE_GOLDEN=1` to write them anew.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Help wraps to the width of the terminal and shows the environment, so both are fixed.
fn orlop(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(args)
        .env("COLUMNS", "100")
        .env_remove("CSI_ENDPOINT")
        .output()
        .expect("the binary was just built")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn check_golden(name: &str, args: &[&str]) {
    let output = orlop(args);
    assert!(output.status.success(), "{}", stderr(&output));
    let got = String::from_utf8_lossy(&output.stdout).into_owned();
    let file: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&file, &got).expect("the golden file can be written");
        return;
    }
    let want = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        got == want,
        "help differs from tests/golden/{name} (- golden, + now):\n{}\nTo accept it: UPDATE_GOLDEN=1 cargo test -p orlop --test csi_help",
        diff(&want, &got)
    );
}

/// The lines between the first and the last difference: enough to see what changed in a help text.
fn diff(want: &str, got: &str) -> String {
    let (want, got): (Vec<&str>, Vec<&str>) = (want.lines().collect(), got.lines().collect());
    let same_start = want.iter().zip(&got).take_while(|(a, b)| a == b).count();
    let (want, got) = (&want[same_start..], &got[same_start..]);
    let same_end = want.iter().rev().zip(got.iter().rev()).take_while(|(a, b)| a == b).count();
    let removed = want[..want.len() - same_end].iter().map(|line| format!("-{line}\n"));
    let added = got[..got.len() - same_end].iter().map(|line| format!("+{line}\n"));
    removed.chain(added).collect()
}

#[test]
fn the_help_of_csi_reads_as_agreed() {
    check_golden("csi_help.txt", &["csi", "--help"]);
}

#[test]
fn the_help_of_create_reads_as_agreed() {
    check_golden("csi_create_help.txt", &["csi", "create", "--help"]);
}

#[test]
fn the_help_of_publish_reads_as_agreed() {
    check_golden("csi_publish_help.txt", &["csi", "publish", "--help"]);
}

#[test]
fn the_help_of_metadata_delta_reads_as_agreed() {
    check_golden("csi_metadata_delta_help.txt", &["csi", "metadata", "delta", "--help"]);
}

#[test]
fn a_wrong_command_line_exits_with_2_and_names_the_flag() {
    let rows: [(&[&str], &str); 11] = [
        (&["create", "v", "--param", "novalue"], "--param <K=V>"),
        (&["create", "v", "--param", "a=1", "--param", "a=2", "--endpoint", "/missing.sock"], "twice with --param"),
        (&["create", "v", "--topology", "a=1,b"], "--topology <K=V,K=V>"),
        (&["create", "v", "--size", "1.5Gi"], "1Gi, 500Mi or 10G"),
        (&["create", "v", "--size", "1Gi", "--size", "2Gi"], "--size <SIZE>"),
        (&["create", "v", "--fs", "ext4", "--block"], "--block"),
        (&["create", "v", "--from-snapshot", "s", "--from-volume", "w"], "--from-volume"),
        (&["create", "v", "--mode", "rwo"], "snsw"),
        (&["publish", "v", "--target", "/t", "--staging", "/s", "--ephemeral"], "--ephemeral"),
        (&["list", "--max", "-1"], "--max"),
        (&["--timeout", "10", "probe"], "--timeout <TIME>"),
    ];
    for (args, want) in rows {
        let output = orlop(&[&["csi"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(want), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn without_an_endpoint_the_error_says_how_to_give_one() {
    let output = orlop(&["csi", "probe"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("give --endpoint or set CSI_ENDPOINT"), "{}", stderr(&output));
}

#[test]
fn a_missing_socket_exits_with_3() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("csi.sock");
    let output = orlop(&["csi", "--endpoint", socket.to_str().unwrap(), "probe"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).starts_with("orlop csi: cannot connect: no socket at "), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1);
}

#[test]
fn a_socket_nobody_listens_on_exits_with_3() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("csi.sock");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let output = orlop(&["csi", "--endpoint", socket.to_str().unwrap(), "probe"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("nobody listens on unix://"), "{}", stderr(&output));
}
