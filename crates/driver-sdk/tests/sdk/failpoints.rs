//! Failpoints in processes of their own, because what they do is end one.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};

use driver_sdk::failpoint;

/// Set for the process that a test starts.
const CHILD: &str = "ORLOP_TEST_FAILPOINT_CHILD";

/// Not a test by itself: what the tests below run in another process.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    for _ in 0..3 {
        failpoint!("child.first");
        failpoint::hit("child.second");
    }
}

fn run(variables: &[(&str, &str)]) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "failpoints::child"]).env(CHILD, "1").envs(variables.iter().copied());
    command.output().unwrap().status
}

#[test]
fn a_process_dies_at_the_named_hit() {
    assert!(run(&[]).success());
    assert!(run(&[("ORLOP_FAILPOINT", "child.other")]).success());
    assert_eq!(run(&[("ORLOP_FAILPOINT", "child.second")]).signal(), Some(9));
    assert_eq!(run(&[("ORLOP_FAILPOINT", "child.first:3")]).signal(), Some(9));
    assert!(run(&[("ORLOP_FAILPOINT", "child.first:4")]).success());
}

#[test]
fn every_name_is_logged_once_per_process() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("hits");
    let variable = ("ORLOP_FAILPOINT_LOG", log.to_str().unwrap());
    assert!(run(&[variable]).success());
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "child.first\nchild.second\n");
    assert_eq!(run(&[variable, ("ORLOP_FAILPOINT", "child.first")]).signal(), Some(9));
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "child.first\nchild.second\nchild.first\n");
}
