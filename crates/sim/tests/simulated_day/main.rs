//! A day of kube's own watcher, reflector and controller against the in-process API server, on paused time, with every
//! fault the layer knows, and a user who makes, edits and deletes: twice from one seed, and in two processes, the same
//! day to the last line.

mod day;
mod entropy;
mod keeper;
mod keys;
mod user;

use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use sim::{Journal, Seed};

use crate::day::{Record, live};

const SEED: Seed = Seed(20_270_101);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Where a child process is to put its record.
const RECORD: &str = "ORLOP_DAY_RECORD";

/// The day of [`SEED`], which several tests look at.
fn the_day() -> &'static Record {
    static THE_DAY: OnceLock<Record> = OnceLock::new();
    THE_DAY.get_or_init(|| live(SEED, DAY))
}

fn assert_same(what: &str, left: &[String], right: &[String]) {
    if let Some((at, left, right)) = Journal::first_difference(left, right) {
        panic!("seed {SEED}: the {what} differ at line {at}\n  one:   {left}\n  other: {right}");
    }
}

#[test]
fn a_day_with_every_fault_ends_with_every_claim_kept_and_nothing_left_behind() {
    let record = the_day();
    if let Some(path) = std::env::var_os(RECORD) {
        std::fs::write(path, record.text()).expect("the record can be written");
    }
    assert_eq!(record.complaints, [""; 0], "seed {SEED}");
    let count = |text: &str| record.journal.iter().filter(|line| line.contains(text)).count();
    let kinds = [
        "409 (injected)",
        "410 (injected)",
        "429, retry",
        "503, retry",
        "request lost",
        "answer lost",
        "as of ",
        "held for",
        "ended (injected)",
        "broken (injected)",
        "ended by the server",
        "too old",
        "restarted",
    ];
    let seen = kinds.map(|kind| (kind, count(kind)));
    println!(
        "seed {SEED}: {} lines, {} rows, {} deeds, {seen:?}",
        record.journal.len(),
        record.store.len(),
        record.deeds
    );
    for (kind, times) in seen {
        assert!(times > 0, "seed {SEED}: no {kind:?} in a whole day");
    }
    assert!(record.deeds > 3_000, "the user did {} things", record.deeds);
}

#[test]
fn the_same_seed_gives_the_same_hours_on_two_threads() {
    let (one, other) = std::thread::scope(|scope| {
        let run = || live(SEED, 3 * HOUR);
        let (one, other) = (scope.spawn(run), scope.spawn(run));
        (one.join().expect("no panic"), other.join().expect("no panic"))
    });
    assert_same("journals", &one.journal, &other.journal);
    assert_same("stores", &one.store, &other.store);
}

#[test]
fn another_process_has_the_same_day() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let path = directory.path().join("record");
    let program = std::env::current_exe().expect("this program has a path");
    let child = Command::new(program)
        .args(["--exact", "a_day_with_every_fault_ends_with_every_claim_kept_and_nothing_left_behind"])
        .env(RECORD, &path)
        .output()
        .expect("this program can be started");
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    let theirs = std::fs::read_to_string(&path).expect("the child wrote its record");
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert_same("records", &lines(&the_day().text()), &lines(&theirs));
}

#[test]
fn another_seed_gives_another_hour() {
    let (one, other) = (live(Seed(1), HOUR), live(Seed(2), HOUR));
    assert_ne!(one.journal, other.journal);
    assert_ne!(one.store, other.store);
}
