//! One process at a time, private files, and stores made of snapshots.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

#[test]
fn a_second_user_of_the_directory_is_told_who_has_it() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path());
    let error = Store::open(dir.path(), Options::default()).unwrap_err();
    let me = std::process::id();
    assert!(matches!(error, OpenError::Locked { pid: Some(pid), .. } if pid == me));
    assert!(error.to_string().contains(&format!("process {me}")), "{error}");
    assert!(matches!(examine(dir.path()).unwrap_err(), OpenError::Locked { pid: Some(pid), .. } if pid == me));
    let copying = salvage(dir.path(), &dir.path().join("copy"), NOW).unwrap_err();
    assert!(matches!(copying, CopyError::Source(OpenError::Locked { .. })));
    drop(store);
    open(dir.path());
}

#[tokio::test]
async fn files_are_for_their_owner_alone() {
    let dir = TempDir::new().unwrap();
    let (live, copy) = (dir.path().join("live"), dir.path().join("copy"));
    let store = open(&live);
    store.commit(put(pod("a"), "1")).await.unwrap();
    restore(&store.snapshot(), &copy, NOW).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for dir in [live, copy] {
        assert_eq!(mode(&dir), 0o700);
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
    }
}

#[tokio::test]
async fn a_snapshot_under_load_is_one_moment_of_the_store() {
    let dir = TempDir::new().unwrap();
    let restored = dir.path().join("restored");
    let store = open(&dir.path().join("live"));
    // Each round writes the same number to two objects, first to one, then to the other.
    let writing = tokio::spawn({
        let store = store.clone();
        async move {
            for round in 0..400 {
                for name in ["first", "second"] {
                    store.commit(put(pod(name), &round.to_string())).await.unwrap();
                }
            }
        }
    });
    store.wait_for(Revision(100), Duration::from_secs(60)).await.unwrap();
    let snapshot = store.snapshot();
    let at = snapshot.revision;
    writing.await.unwrap();
    assert_eq!(store.revision(), Revision(800), "writes went on");

    let start = restore(&snapshot, &restored, NOW).unwrap();
    let copied = open(&restored);
    let expected = store.list(&List::at(&Scope::all(PODS), At::Exact(at))).unwrap().items;
    assert_eq!(copied.list(&List::latest(&Scope::all(PODS))).unwrap().items, expected);
    assert_eq!((copied.revision(), copied.uuid()), (start, store.uuid()));
    let next = copied.commit(put(pod("first"), "new")).await.unwrap();
    assert_eq!(next.revision.0, start.0 + 1);
}

/// What upstream's restore is known for: informers that know newer revisions than the restored store.
#[tokio::test]
async fn a_client_that_saw_later_revisions_is_told_that_history_was_cut() {
    let dir = TempDir::new().unwrap();
    let restored = dir.path().join("restored");
    let store = Store::memory(Options::default());
    store.commit(put(pod("a"), "1")).await.unwrap();
    let snapshot = store.snapshot();
    let seen = store.commit(put(pod("a"), "2")).await.unwrap().revision;

    restore(&snapshot, &restored, NOW).unwrap();
    let copied = open(&restored);
    for scope in [Scope::all(PODS), Scope::namespace(PODS, "default"), Scope::all(NODES)] {
        for revision in [snapshot.revision, seen, Revision(seen.0 + 100_000)] {
            assert!(copied.watch(scope.clone(), Start::After(revision)).is_err(), "{scope:?} after {revision}");
            let old = copied.list(&List::at(&scope, At::Exact(revision)));
            assert!(matches!(old, Err(ReadError::TooOld(_))), "{scope:?} at {revision}");
            let newer = copied.list(&List::at(&scope, At::NotOlderThan(revision))).unwrap();
            assert!(newer.revision > seen);
        }
    }
    let stale = copied.commit(Write::put(pod("a"), Expect::At(seen), "3")).await.unwrap_err();
    assert!(matches!(stale, CommitError::Changed { .. }), "an update of what is gone is a conflict");
}

#[tokio::test]
async fn restoring_the_same_backup_again_uses_no_revision_again() {
    let dir = TempDir::new().unwrap();
    let store = Store::memory(Options::default());
    store.commit(put(pod("a"), "1")).await.unwrap();
    let snapshot = store.snapshot();
    let first = restore(&snapshot, &dir.path().join("first"), NOW).unwrap();
    let second = restore(&snapshot, &dir.path().join("second"), UnixMillis(NOW.0 + 1_000)).unwrap();
    assert!(second.0 - first.0 >= 1_000_000, "a million writes fit into the second between them");
    let clockless = restore(&snapshot, &dir.path().join("third"), UnixMillis(0)).unwrap();
    assert!(clockless.0 > 1_000_000, "without a clock there is still a distance: {clockless}");
    let copied = open(&dir.path().join("second"));
    let again = restore(&copied.snapshot(), &dir.path().join("fourth"), UnixMillis(0)).unwrap();
    assert!(again > second);
}

#[tokio::test]
async fn a_restored_store_survives_being_reopened() {
    let dir = TempDir::new().unwrap();
    let restored = dir.path().join("restored");
    let memory = Store::memory(Options::default());
    memory.commit(put(pod("a"), "1")).await.unwrap();
    restore(&memory.snapshot(), &restored, NOW).unwrap();
    let store = open(&restored);
    store.commit(put(pod("b"), "2")).await.unwrap();
    let before = content(&store);
    drop(store);
    assert_eq!(content(&open(&restored)), before);
}

#[tokio::test]
async fn copies_do_not_overwrite_and_leave_nothing_half_done() {
    let dir = TempDir::new().unwrap();
    let taken = dir.path().join("taken");
    let store = Store::memory(Options::default());
    store.commit(put(pod("a"), &"v".repeat(5_000))).await.unwrap();
    fs::create_dir(&taken).unwrap();
    fs::write(taken.join("something"), "of value").unwrap();
    let snapshot = store.snapshot();
    assert!(matches!(restore(&snapshot, &taken, NOW).unwrap_err(), CopyError::Occupied { .. }));
    let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["taken"]);
}

#[tokio::test]
async fn a_store_is_examined_without_a_change() {
    let dir = TempDir::new().unwrap();
    let live = dir.path().join("live");
    assert!(matches!(examine(&live).unwrap_err(), OpenError::Absent { .. }));
    fs::create_dir(&live).unwrap();
    assert!(matches!(examine(&live).unwrap_err(), OpenError::Absent { .. }));
    let store = open(&live);
    for value in ["1", "2"] {
        store.commit(put(pod("a"), value)).await.unwrap();
    }
    let crashed = dir.path().join("crashed");
    fs::create_dir(&crashed).unwrap();
    let files = ["store.db", "store.db-wal", "acknowledged"];
    for file in files {
        fs::copy(live.join(file), crashed.join(file)).unwrap();
    }
    let bytes = || files.map(|file| fs::read(crashed.join(file)).unwrap());
    let before = bytes();
    let examined = examine(&crashed).unwrap();
    assert_eq!((examined.snapshot, examined.rows, examined.damage.len()), (store.snapshot(), 2, 0));
    assert_eq!(bytes(), before);
    fs::remove_file(crashed.join("store.db")).unwrap();
    assert!(matches!(examine(&crashed).unwrap_err(), OpenError::Damaged { .. }));
}
