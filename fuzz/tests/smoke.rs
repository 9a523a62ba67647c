//! What CI always runs: every kept case, and some new ones from a fixed seed. `cargo xtask fuzz` runs for longer.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fuzz::case::Case;
use fuzz::generate::Target;
use fuzz::run::{Run, judge};

#[global_allocator]
static ALLOCATOR: peak_alloc::PeakAlloc = peak_alloc::PeakAlloc;

/// Seeds the new cases; another number looks elsewhere.
const SEED: &str = "ORLOP_FUZZ_SEED";
/// The stack of the threads of the real server.
const STACK: usize = 2 << 20;

/// Memory is counted for the whole process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn on_small_stack(work: impl FnOnce() + Send + 'static) {
    let _turn = alone();
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(work).expect("a thread can be started");
    // The hook that watches for panics keeps their messages from being printed: the finding has the message.
    assert!(thread.join().is_ok(), "see the finding above");
}

fn kept() -> Vec<(PathBuf, Case)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the corpus is beside the tests")
        .map(|entry| entry.expect("the corpus can be read").path())
        .collect();
    files.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a kept case can be read");
        let case = serde_json::from_str(&text);
        (path.clone(), case.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    };
    files.into_iter().map(read).collect()
}

#[test]
fn every_kept_case_is_taken_in_stride() {
    let cases = kept();
    assert!(!cases.is_empty());
    on_small_stack(move || {
        let mut found = 0;
        for (path, case) in cases {
            let outcome = judge(&case);
            if let Some(finding) = outcome.finding {
                println!("{}: {finding}; {:?}", path.display(), outcome.said);
                found += 1;
            }
        }
        assert_eq!(found, 0);
    });
}

fn explore(target: Target, cases: u64) {
    let seed = std::env::var(SEED).ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    println!("{target:?}: seed {seed}");
    on_small_stack(move || {
        let mut run = Run::new(target, seed);
        for number in 0..cases {
            let case = run.next_case();
            let outcome = judge(&case);
            run.learn(&case, &outcome);
            if let Some(finding) = outcome.finding {
                println!("case {number}: {finding}\n{}", serde_json::to_string_pretty(&case).unwrap_or_default());
                panic!("{finding}");
            }
        }
        let (_, answers) = run.progress();
        assert!(answers > 5, "the generator reaches only {answers} kinds of answers");
    });
}

#[test]
fn new_requests_are_taken_in_stride() {
    explore(Target::Http, 150);
}

#[test]
fn new_credentials_are_taken_in_stride() {
    explore(Target::Credentials, 60);
}

#[test]
fn new_store_files_are_taken_in_stride() {
    explore(Target::Store, 40);
}
