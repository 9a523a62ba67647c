//! Killing a process that writes, again and again.
//!
//! The child is this test program itself, told by an environment variable to write instead of to test. It prints a
//! line for each acknowledged write; the parent kills it in the middle and opens the store.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use super::*;

/// Small enough that rows are removed during a run, large enough to look back over a few batches.
fn options() -> Options {
    let history = History { min_age_millis: 1_000, min_events: 100, max_events: 1_000, max_bytes: 1 << 20 };
    Options { history, ..Options::default() }
}

const DIRECTORY: &str = "STORE_CRASH_TEST_DIRECTORY";
/// How often to kill. The default is for every day, the whole run sets 200 or 1000.
const KILLS: &str = "STORE_CRASH_TEST_KILLS";

struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes until it is killed, from eight tasks, and says what was acknowledged.
#[test]
fn the_child_writes_when_told_to() {
    let Some(dir) = std::env::var_os(DIRECTORY) else { return };
    block_on(async {
        let store = Store::open(Path::new(&dir), options()).unwrap();
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let store = store.clone();
                tokio::spawn(async move {
                    for round in 0u64.. {
                        let key = pod(&format!("{writer}-{}", round % 5));
                        let value = format!("{writer} {round} {}", "x".repeat(500));
                        let written = match round % 7 {
                            6 => store.commit(Write::delete(key.clone(), Expect::Anything)).await,
                            _ => store.commit(put(key.clone(), &value)).await,
                        };
                        match written {
                            Ok(committed) => acknowledge(&committed, &key),
                            Err(CommitError::Missing { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        for now in 0u64.. {
            // Upkeep runs as well, faster than it would: its transactions get killed too.
            store.tick(UnixMillis(now * 100)).await.unwrap();
            tokio::task::yield_now().await;
        }
        drop(writers);
    });
}

fn acknowledge(committed: &Committed, key: &Key) {
    let what = if committed.stored.is_some() { "put" } else { "delete" };
    let mut out = std::io::stdout().lock();
    writeln!(out, "acknowledged {} {what} {}", committed.revision, key.path()).unwrap();
    out.flush().unwrap();
}

/// Revision, whether it was a put, path.
type Acknowledged = (u64, bool, String);

fn run_and_kill(dir: &Path, lines: usize) -> Vec<Acknowledged> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", concat!(module_path!(), "::the_child_writes_when_told_to").split_once("::").unwrap().1])
        .arg("--nocapture")
        .env(DIRECTORY, dir)
        .stdout(Stdio::piped())
        .spawn()
        .map(KillOnDrop)
        .unwrap();
    let mut output = BufReader::new(child.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut acknowledged: Vec<_> = output.by_ref().filter_map(|line| parse(&line)).take(lines).collect();
    child.0.kill().unwrap();
    // What it had printed before it died counts; a line that is cut off was not said.
    acknowledged.extend(output.filter_map(|line| parse(&line)));
    acknowledged
}

fn parse(line: &str) -> Option<Acknowledged> {
    let mut words = line.split("acknowledged ").nth(1)?.split(' ');
    let revision = words.next()?.parse().ok()?;
    let put = words.next()? == "put";
    let path = words.next()?.to_owned();
    // A path has its full length only if its number is there.
    path.rsplit_once('-').is_some_and(|(_, number)| number.len() == 1).then_some((revision, put, path))
}

#[tokio::test]
async fn killed_at_any_moment_the_store_has_every_acknowledged_write() {
    let kills: usize = std::env::var(KILLS).ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let dir = TempDir::new().unwrap();
    let mut last = Revision(0);
    for round in 0..kills {
        let acknowledged = run_and_kill(dir.path(), 1 + round * 37 % 400);
        let store = Store::open(dir.path(), options()).unwrap();

        let first = acknowledged.iter().map(|(revision, ..)| *revision).min().unwrap();
        assert!(Revision(first) > last, "round {round}: revision {first} was used before; {last} was reached");
        let newest = acknowledged.iter().map(|(revision, ..)| *revision).max().unwrap();
        assert!(store.revision() >= Revision(newest), "round {round}");
        check_objects(&store, &acknowledged);
        check_watch(&store, &acknowledged);

        last = store.revision();
    }
}

/// Each object is as its last acknowledged write left it, or as a later write did that nobody was told of.
fn check_objects(store: &Store, acknowledged: &[Acknowledged]) {
    let mut newest = BTreeMap::new();
    for (revision, put, path) in acknowledged {
        let known = newest.entry(path).or_insert((*revision, *put));
        *known = (*known).max((*revision, *put));
    }
    for (path, (revision, put)) in newest {
        let found = store.get(&pod(path.split_once('/').unwrap().1));
        match found {
            Some(stored) if stored.revision.0 == revision => assert!(put),
            Some(stored) => assert!(stored.revision.0 > revision, "{path} went back to {}", stored.revision),
            None => assert!(!put || was_deleted_after(store, path, revision), "{path} is gone"),
        }
    }
}

fn was_deleted_after(store: &Store, path: &str, revision: u64) -> bool {
    let mut watch = store.watch(Scope::all(PODS), Start::After(Revision(revision))).unwrap();
    let mut events = std::iter::from_fn(|| watch.try_next().unwrap());
    events.any(|event| event.key.path() == path && event.new_version().is_none())
}

/// A watcher that comes back finds everything it has not seen, or is told that it is too late.
fn check_watch(store: &Store, acknowledged: &[Acknowledged]) {
    let mut revisions: Vec<_> = acknowledged.iter().map(|(revision, ..)| *revision).collect();
    revisions.sort_unstable();
    let seen = revisions[revisions.len().saturating_sub(3)];
    let Ok(mut watch) = store.watch(Scope::all(PODS), Start::After(Revision(seen))) else {
        panic!("the last three of at least three kept events can be watched")
    };
    let mut expected = seen;
    while let Some(event) = watch.try_next().unwrap() {
        expected += 1;
        assert_eq!(event.revision, Revision(expected), "all writes are to pods, so none may be skipped");
    }
    assert_eq!(Revision(expected), store.revision());
}
