//! One process at a time, private files, backup and restore.

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
    let copying = restore(dir.path(), &dir.path().join("copy")).unwrap_err();
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
    store.backup(&copy).unwrap();
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
async fn a_backup_under_load_is_one_moment_of_the_store() {
    let dir = TempDir::new().unwrap();
    let (copy, restored) = (dir.path().join("copy"), dir.path().join("restored"));
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
    let backup = tokio::task::spawn_blocking({
        let (store, copy) = (store.clone(), copy.clone());
        move || store.backup(&copy).unwrap()
    });
    let at = backup.await.unwrap();
    writing.await.unwrap();
    assert_eq!(store.revision(), Revision(800), "writes went on");

    let start = restore(&copy, &restored).unwrap();
    let copied = open(&restored);
    let expected = store.list(&List::at(&Scope::all(PODS), At::Exact(at))).unwrap().items;
    assert_eq!(copied.list(&List::latest(&Scope::all(PODS))).unwrap().items, expected);
    assert_eq!((copied.revision(), copied.uuid()), (start, store.uuid()));
    assert!(start > store.revision(), "clients of the old store see that history was cut");
    let next = copied.commit(put(pod("first"), "new")).await.unwrap();
    assert_eq!(next.revision.0, start.0 + 1);
    assert!(copied.watch(Scope::all(PODS), Start::After(at)).is_err());
}

#[tokio::test]
async fn a_restored_store_survives_being_reopened() {
    let dir = TempDir::new().unwrap();
    let (copy, restored) = (dir.path().join("copy"), dir.path().join("restored"));
    let memory = Store::memory(Options::default());
    memory.commit(put(pod("a"), "1")).await.unwrap();
    memory.backup(&copy).unwrap();
    restore(&copy, &restored).unwrap();
    let store = open(&restored);
    store.commit(put(pod("b"), "2")).await.unwrap();
    let before = content(&store);
    drop(store);
    assert_eq!(content(&open(&restored)), before);
}

#[tokio::test]
async fn copies_do_not_overwrite_and_leave_nothing_half_done() {
    let dir = TempDir::new().unwrap();
    let (copy, taken) = (dir.path().join("copy"), dir.path().join("taken"));
    let store = Store::memory(Options::default());
    store.commit(put(pod("a"), &"v".repeat(5_000))).await.unwrap();
    store.backup(&copy).unwrap();
    fs::create_dir(&taken).unwrap();
    fs::write(taken.join("something"), "of value").unwrap();
    assert!(matches!(store.backup(&taken).unwrap_err(), CopyError::Occupied { .. }));
    assert!(matches!(restore(&copy, &taken).unwrap_err(), CopyError::Occupied { .. }));
    assert!(matches!(store.backup(&copy).unwrap_err(), CopyError::Occupied { .. }));

    let mut bytes = fs::read(copy.join("store.db")).unwrap();
    let at = bytes.windows(4).position(|window| window == b"vvvv").unwrap();
    bytes[at] = b'w';
    fs::write(copy.join("store.db"), bytes).unwrap();
    let damaged = restore(&copy, &dir.path().join("restored")).unwrap_err();
    assert!(matches!(damaged, CopyError::Source(OpenError::Damaged { .. })), "{damaged}");
    let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["copy", "taken"]);
}
