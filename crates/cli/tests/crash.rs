//! The driver dies by SIGKILL at every failpoint of every mutating call (LOCAL-G): a repeat of the call
//! ends where an undisturbed call ends, the opposite call leaves nothing, and data is as it was.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test, with its support in other functions")]

mod rig;

#[path = "crash/drill.rs"]
mod drill;
#[path = "crash/orphan.rs"]
mod orphan;
#[path = "crash/picture.rs"]
mod picture;
#[path = "crash/scenarios.rs"]
mod scenarios;
#[path = "crash/step.rs"]
mod step;

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use drill::{NOW, Scenario, drill};

/// Runs only scenarios whose name contains this text.
const ONLY: &str = "ORLOP_CRASH_ONLY";

/// Most of the time of a scenario is spent waiting for disks and processes.
const WORKERS: usize = 4;

/// Rules: LOCAL-G.3, LOCAL-I2, LOCAL-I3, LOCAL-I7
#[test]
fn a_kill_at_any_failpoint_is_mended_by_the_repeat_and_by_the_opposite_call() {
    needs!(Ext4, Xfs, Btrfs);
    let only = std::env::var(ONLY).ok();
    let chosen: Vec<Scenario> = scenarios::all();
    let chosen = chosen.into_iter().filter(|scenario| only.as_ref().is_none_or(|only| scenario.name.contains(only)));
    let todo = Mutex::new(chosen.collect::<Vec<_>>().into_iter());
    let (passed, failures) = (Mutex::new(BTreeSet::new()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(scenario) = next(&todo) {
                    match attempt(&scenario) {
                        Ok(hits) => passed.lock().unwrap().extend(hits),
                        Err(failure) => failures.lock().unwrap().push(failure),
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} scenarios failed:\n{}", failures.len(), failures.join("\n---\n"));
    if only.is_none() {
        let missed: Vec<String> = failpoints_in_source().difference(&passed.into_inner().unwrap()).cloned().collect();
        assert!(missed.is_empty(), "no scenario passes these failpoints: {missed:?}");
    }
}

fn next(todo: &Mutex<std::vec::IntoIter<Scenario>>) -> Option<Scenario> {
    todo.lock().unwrap().next()
}

/// Runs one scenario; a failure says where it was.
fn attempt(scenario: &Scenario) -> Result<BTreeSet<String>, String> {
    let began = Instant::now();
    let done = catch_unwind(AssertUnwindSafe(|| drill(scenario)));
    println!("{:5.1} s  {}", began.elapsed().as_secs_f64(), scenario.name);
    done.map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
        NOW.with_borrow(|now| format!("{now}\n{}", text.unwrap_or("(no words)")))
    })
}

/// The names of all failpoints of the driver, as its source has them.
fn failpoints_in_source() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../driver-local/src"), &mut names);
    assert!(names.len() > 30, "the source is not where this test looks for it: {names:?}");
    names
}

fn collect(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            collect(&entry.path(), names);
        } else {
            let text = fs::read_to_string(entry.path()).unwrap();
            let marks = text.split("failpoint::hit(\"").skip(1);
            names.extend(marks.filter_map(|rest| rest.split_once('"')).map(|(name, _)| name.to_owned()));
        }
    }
}
