//! Damaged files: opened with the same content, or refused with a reason. Never anything else.

use std::fs;

use super::*;

/// The distance between changed bytes. Small numbers take minutes.
const STEP: &str = "STORE_DAMAGE_TEST_STEP";

const PAGE: usize = 8192;
const FILES: [&str; 3] = ["store.db", "store.db-wal", "acknowledged"];

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in FILES.into_iter().filter(|file| from.join(file).exists()) {
        fs::copy(from.join(file), to.join(file)).unwrap();
    }
}

/// All that readers can get: the newest state with its values, each older state, and each event with its value.
fn everything(store: &Store) -> String {
    let mut text = String::new();
    for scope in [Scope::all(PODS), Scope::all(NODES)] {
        for revision in (0..=store.revision().0).map(Revision) {
            let state = store.list(&List::at(&scope, At::Exact(revision)));
            text += &format!("{revision}: {state:?}\n");
            if let Ok(mut watch) = store.watch(scope.clone(), Start::After(revision)) {
                let event = watch.try_next().unwrap();
                let value = event.as_ref().and_then(|event| event.new_version()).map(|new| new.value.clone());
                text += &format!("{event:?} {value:?}\n");
            }
        }
        for stored in store.list(&List::latest(&scope)).unwrap().items {
            text += &format!("{stored:?} {:?}\n", stored.value);
        }
    }
    text
}

/// A store that was killed: some of it in the database, some in the write-ahead file, some rows removed.
async fn crashed() -> (TempDir, String) {
    let dir = TempDir::new().unwrap();
    let live = dir.path().join("live");
    for session in 0..2 {
        let store = Store::open(&live, small_history()).unwrap();
        for round in 0..40 {
            let value = format!("{session} {round} {}", "v".repeat(300 + round * 10));
            store.commit(put(pod(&(round % 15).to_string()), &value)).await.unwrap();
            store.commit(put(key(NODES, "x", &(round % 30).to_string()), &value)).await.unwrap();
        }
        store.commit(Write::delete(pod("3"), Expect::Present)).await.unwrap();
        store.tick(UnixMillis(0)).await.unwrap();
        if session == 1 {
            store.commit(put(pod("last"), "after the tick")).await.unwrap();
            copy_files(&live, &dir.path().join("crashed"));
            let content = everything(&store);
            return (dir, content);
        }
    }
    unreachable!("the second session returns");
}

/// Opens a copy with one file changed. None if it was refused.
fn open_changed(base: &Path, file: &str, change: impl FnOnce(&mut Vec<u8>)) -> Result<(TempDir, Store), OpenError> {
    let dir = TempDir::new().unwrap();
    copy_files(&base.join("crashed"), dir.path());
    let mut bytes = fs::read(dir.path().join(file)).unwrap();
    change(&mut bytes);
    fs::write(dir.path().join(file), bytes).unwrap();
    Store::open(dir.path(), small_history()).map(|store| (dir, store))
}

#[tokio::test]
async fn a_crashed_store_opens_as_it_was() {
    let (base, content) = crashed().await;
    let (_dir, store) = open_changed(base.path(), "store.db", |_| {}).unwrap();
    assert_eq!(everything(&store), content);
}

#[tokio::test]
async fn a_changed_byte_is_harmless_or_noticed() {
    let (base, content) = crashed().await;
    let step = std::env::var(STEP).ok().and_then(|text| text.parse().ok()).unwrap_or(1021);
    let (mut harmless, mut noticed) = (0, 0);
    for file in FILES {
        let length = fs::metadata(base.path().join("crashed").join(file)).unwrap().len() as usize;
        let offsets = (0..length.min(128)).step_by(3).chain((128..length).step_by(step));
        for offset in offsets {
            let bit = 1u8 << (offset % 8);
            match open_changed(base.path(), file, |bytes| bytes[offset] ^= bit) {
                Ok((dir, store)) => {
                    assert_eq!(everything(&store), content, "{file} at {offset}: silently different");
                    survives_more_writes(dir.path(), store).await;
                    harmless += 1;
                }
                Err(OpenError::Damaged { damage, .. }) => {
                    assert!(!damage.is_empty());
                    noticed += 1;
                }
                Err(OpenError::Newer { .. } | OpenError::Sqlite(_)) => noticed += 1,
                Err(error) => panic!("{file} at {offset}: {error}"),
            }
        }
    }
    assert!(harmless > 10 && noticed > 100, "{harmless} changes were harmless, {noticed} noticed");
}

/// What looked harmless must not come up later: new rows go into pages that the database believes to be free.
async fn survives_more_writes(dir: &Path, store: Store) {
    for number in 0..2 {
        store.commit(put(pod(&format!("new-{number}")), &"n".repeat(20_000))).await.unwrap();
    }
    let content = content(&store);
    drop(store);
    let store = Store::open(dir, small_history()).unwrap();
    assert_eq!(super::content(&store), content);
}

#[tokio::test]
async fn a_shortened_write_ahead_file_is_noticed_as_lost_writes() {
    let (base, content) = crashed().await;
    let length = fs::metadata(base.path().join("crashed/store.db-wal")).unwrap().len() as usize;
    let mut lost = 0;
    for cut in (0..length).step_by(length / 40) {
        match open_changed(base.path(), "store.db-wal", |bytes| bytes.truncate(cut)) {
            Ok((_dir, store)) => assert_eq!(everything(&store), content),
            Err(OpenError::Damaged { damage, .. }) => {
                assert!(damage.iter().any(|damage| matches!(damage, Damage::Lost { .. })), "{damage:?}");
                lost += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(lost >= 39);
}

/// Power fails while a commit is written: any part of it may be on disk, and nothing of it was acknowledged.
#[tokio::test]
async fn a_power_cut_between_two_syncs_leaves_what_was_acknowledged() {
    let dir = TempDir::new().unwrap();
    let live = dir.path().join("live");
    let store = Store::open(&live, Options::default()).unwrap();
    let mut syncs = Vec::new();
    for round in 0..12 {
        store.commit(put(pod(&round.to_string()), &"p".repeat(1 + round * 400))).await.unwrap();
        let ahead = fs::metadata(live.join("store.db-wal")).unwrap().len() as usize;
        syncs.push((ahead, fs::read(live.join("acknowledged")).unwrap(), content(&store)));
    }
    let ahead = fs::read(live.join("store.db-wal")).unwrap();
    for (number, pair) in syncs.windows(2).enumerate() {
        let [(from, mark, expected), (to, ..)] = pair else { panic!("windows of two") };
        for cut in [*from, from + 1, from + 24, (from + to) / 2, to - 1] {
            let copy = dir.path().join(format!("cut-{number}-{cut}"));
            fs::create_dir(&copy).unwrap();
            fs::copy(live.join("store.db"), copy.join("store.db")).unwrap();
            fs::write(copy.join("store.db-wal"), &ahead[..cut]).unwrap();
            fs::write(copy.join("acknowledged"), mark).unwrap();
            assert_eq!(content(&open(&copy)), *expected, "cut {number} at {cut}");
        }
    }
}

/// Power fails while the write-ahead file is moved into the database: any of the pages may be there already.
#[tokio::test]
async fn a_power_cut_during_a_checkpoint_loses_nothing() {
    let (base, content) = crashed().await;
    let (before, copy) = (base.path().join("crashed"), base.path().join("copy"));
    // `crashed` let go of the live store, which has moved everything into its database since.
    let old = fs::read(before.join("store.db")).unwrap();
    let new = fs::read(base.path().join("live/store.db")).unwrap();
    let pages = new.len() / PAGE;
    let page = |bytes: &[u8], number: usize| bytes.get(number * PAGE..(number + 1) * PAGE).map(<[u8]>::to_vec);
    assert!(pages > 5 && old != new);
    for cut in 0..=pages {
        for moved in [|number: usize, cut: usize| number < cut, |number: usize, cut: usize| number >= cut] {
            let mixed = (0..pages).map(|number| match moved(number, cut) {
                true => page(&new, number).unwrap(),
                false => page(&old, number).unwrap_or_else(|| vec![0; PAGE]),
            });
            let mixed: Vec<u8> = mixed.flatten().collect();
            copy_files(&before, &copy);
            fs::write(copy.join("store.db"), mixed).unwrap();
            assert_eq!(everything(&Store::open(&copy, small_history()).unwrap()), content, "cut {cut}");
            fs::remove_dir_all(&copy).unwrap();
        }
    }
}

#[tokio::test]
async fn a_store_never_starts_empty_where_one_was() {
    for file in FILES {
        let (base, _) = crashed().await;
        let crashed = base.path().join("crashed");
        fs::remove_file(crashed.join(file)).unwrap();
        let error = Store::open(&crashed, Options::default()).unwrap_err();
        assert!(matches!(error, OpenError::Damaged { .. }), "without {file}: {error}");
    }
}

#[tokio::test]
async fn a_newer_format_is_refused_by_its_number() {
    let dir = TempDir::new().unwrap();
    drop(open(dir.path()));
    rusqlite::Connection::open(dir.path().join("store.db")).unwrap().execute_batch("PRAGMA user_version = 9").unwrap();
    let error = Store::open(dir.path(), Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::Newer { found: 9, supported: 1 }));
    assert!(error.to_string().contains("format 9"), "{error}");
}

#[tokio::test]
async fn the_last_good_state_of_every_object_can_be_saved_from_a_damaged_store() {
    let dir = TempDir::new().unwrap();
    let (live, saved) = (dir.path().join("live"), dir.path().join("saved"));
    let store = open(&live);
    for number in 0..200 {
        store.commit(put(pod(&number.to_string()), &format!("value {number} {}", "v".repeat(900)))).await.unwrap();
    }
    store.commit(put(pod("7"), "newest of seven")).await.unwrap();
    store.commit(put(pod("8"), "newest of eight")).await.unwrap();
    drop(store);
    change_text(&live.join("store.db"), "value 50 ", "value 5O ");
    change_text(&live.join("store.db"), "newest of seven", "newest of sevem");

    let error = Store::open(&live, Options::default()).unwrap_err();
    let OpenError::Damaged { damage, .. } = &error else { panic!("{error}") };
    let rows = damage.iter().filter_map(|damage| match damage {
        Damage::Row { table: "log", row, .. } => Some(*row),
        _ => None,
    });
    assert_eq!(rows.collect::<Vec<_>>(), [51, 201], "{error}");

    let salvaged = salvage(&live, &saved, NOW).unwrap();
    assert_eq!((salvaged.objects, &salvaged.damage), (199, damage));
    let store = open(&saved);
    assert_eq!(store.get(&pod("50")), None);
    assert!(store.get(&pod("7")).unwrap().value.starts_with(b"value 7 "), "back at its older version");
    assert_eq!(store.get(&pod("8")).unwrap().value, "newest of eight");
    assert!(store.revision() > Revision(1_000_000), "no revision can come twice");
    assert!(store.watch(Scope::all(PODS), Start::After(Revision(202))).is_err());
    assert!(store.watch(Scope::all(NODES), Start::After(Revision(202))).is_err(), "of no resource");
    assert!(Store::open(&live, Options::default()).is_err(), "the damaged store is untouched");
}

#[tokio::test]
async fn whole_pages_can_be_unreadable_and_the_rest_is_saved() {
    let dir = TempDir::new().unwrap();
    let (live, saved) = (dir.path().join("live"), dir.path().join("saved"));
    let store = open(&live);
    for number in 0..100 {
        store.commit(put(pod(&number.to_string()), &"v".repeat(900))).await.unwrap();
    }
    drop(store);
    let mut bytes = fs::read(live.join("store.db")).unwrap();
    bytes[PAGE * 5..PAGE * 6].fill(0xff);
    fs::write(live.join("store.db"), bytes).unwrap();
    let salvaged = salvage(&live, &saved, NOW).unwrap();
    assert!((85..100).contains(&salvaged.objects), "{salvaged:?}");
    assert_eq!(content(&open(&saved)).1.len(), salvaged.objects);
}

/// Found by the fuzzer: such numbers have good checksums, and adding to them overflowed.
#[tokio::test]
async fn a_revision_that_no_store_reaches_is_damage() {
    for revision in [1 << 62, u64::MAX] {
        let dir = TempDir::new().unwrap();
        let (live, saved) = (dir.path().join("live"), dir.path().join("saved"));
        write_one(&live).await;
        let mut mark = b"ORLOPACK".to_vec();
        mark.extend(revision.to_le_bytes());
        mark.extend(crc32c::crc32c(&mark).to_le_bytes());
        fs::write(live.join("acknowledged"), mark).unwrap();
        let error = Store::open(&live, Options::default()).unwrap_err();
        assert!(error.to_string().contains("no store reaches"), "{error}");
        assert_eq!(salvage(&live, &saved, NOW).unwrap().objects, 1);
        assert!(open(&saved).revision() < Revision(1 << 62));
    }
}

#[tokio::test]
async fn objects_are_saved_also_when_the_account_of_them_is_damaged() {
    let dir = TempDir::new().unwrap();
    let (live, saved) = (dir.path().join("live"), dir.path().join("saved"));
    write_one(&live).await;
    change_text(&live.join("store.db"), "\"uuid\":", "\"uuiD\":");
    let salvaged = salvage(&live, &saved, NOW).unwrap();
    assert_eq!(salvaged.objects, 1);
    assert!(matches!(salvaged.damage[..], [Damage::Row { table: "meta", .. }]), "{:?}", salvaged.damage);
    let store = open(&saved);
    assert!(store.get(&pod("a")).is_some() && !store.uuid().is_empty(), "under a new name");
}

#[tokio::test]
async fn nothing_left_is_an_error_and_not_an_empty_store() {
    let dir = TempDir::new().unwrap();
    let (live, saved) = (dir.path().join("live"), dir.path().join("saved"));
    write_one(&live).await;
    fs::write(live.join("store.db"), vec![0x55; 50_000]).unwrap();
    assert!(matches!(salvage(&live, &saved, NOW).unwrap_err(), CopyError::NothingLeft { .. }));
    assert!(!saved.exists());
}

async fn write_one(dir: &Path) {
    open(dir).commit(put(pod("a"), "1")).await.unwrap();
}

fn change_text(file: &Path, from: &str, to: &str) {
    let mut bytes = fs::read(file).unwrap();
    let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
    bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    fs::write(file, bytes).unwrap();
}
