//! Power cuts at every point of a recorded run.
//!
//! The child is this test program, told to write, under strace: every write, truncation, rename and sync of the real
//! program is recorded with its bytes, and so is every revision that it acknowledged. The recording is then played into
//! a model of a disk (`disk`), which is stopped after each operation. Whatever was not synced by then may be there or
//! not, sector by sector and name by name. Each such disk must open with every acknowledged write.
//!
//! # What this cannot show
//! A disk that says "synced" before it is; sectors of 512 bytes that are themselves torn; a filesystem that breaks its
//! own structure. Names and sectors are taken to be independent of each other, which is worse than most filesystems are.

mod disk;
mod recording;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use self::disk::{Disk, Loss};
use self::recording::{Operation, operations};
use super::*;

const DIRECTORY: &str = "STORE_POWER_TEST_DIRECTORY";
const UPTO: &str = "STORE_POWER_TEST_UPTO";
const SEED: &str = "STORE_POWER_TEST_SEED";

/// Rows are removed and pages are moved into the database every few writes.
const OPTIONS: Options = Options {
    history: History { min_age_millis: 1_000, min_events: 3, max_events: 12, max_bytes: 1 << 20 },
    batch_writes: 512,
    batch_bytes: 4 << 20,
    checkpoint_pages: 12,
};
const WRITES: u64 = 60;

/// Numbers that look random and are the same for the same seed.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}

/// What lies under a key after a write, with the revision of that write.
type State = BTreeMap<String, (u64, Vec<u8>)>;

/// The write that takes this revision. It always succeeds, so that writes and revisions go together.
fn write(revision: u64, state: &State) -> Write {
    let mut random = Random(revision);
    let name = random.below(9).to_string();
    let key = pod(&name);
    if state.contains_key(key.path()) && random.below(4) == 0 {
        return Write::delete(key, Expect::Present);
    }
    let size = [10, 600, 5_000, 30_000][random.below(4) as usize];
    put(key, &format!("{revision} {}", "v".repeat(size)))
}

fn after(revision: u64, state: &mut State) {
    let write = write(revision, state);
    let path = write.key.path().to_owned();
    match write.action {
        Action::Put { value, .. } => drop(state.insert(path, (revision, value.to_vec()))),
        Action::Delete => drop(state.remove(&path)),
    }
}

/// The states after each revision, from none on.
fn states() -> Vec<State> {
    let mut all = vec![State::new()];
    for revision in 1..=WRITES {
        let mut state = all[all.len() - 1].clone();
        after(revision, &mut state);
        all.push(state);
    }
    all
}

fn state_of(snapshot: &Snapshot) -> State {
    let each = snapshot.objects.iter();
    each.map(|stored| (stored.key.path().to_owned(), (stored.revision.0, stored.value.to_vec()))).collect()
}

/// Goes on with the writes where the store is, and says what was acknowledged: also what a reader sees at the start.
#[test]
fn the_child_goes_on_writing_when_told_to() {
    let (Some(dir), Some(upto)) = (std::env::var_os(DIRECTORY), std::env::var(UPTO).ok()) else { return };
    let upto: u64 = upto.parse().unwrap();
    let (image, log) = sqlite::open(Path::new(&dir), OPTIONS.checkpoint_pages).unwrap();
    let store = Store::inline(image, Box::new(log), OPTIONS);
    let say = |revision: Revision| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "acknowledged {revision}").unwrap();
        out.flush().unwrap();
    };
    say(store.revision());
    block_on(async {
        store.tick(UnixMillis(0)).await.unwrap();
        for revision in store.revision().0 + 1..=upto {
            let state = state_of(&store.snapshot());
            say(store.commit(write(revision, &state)).await.unwrap().revision);
            if revision % 7 == 0 {
                store.tick(UnixMillis(revision * 1_000)).await.unwrap();
            }
        }
    });
}

/// Runs the child in `root/store` and gives what it did there; why not, if strace does not work here.
fn record(root: &Path, upto: u64) -> Result<Vec<Operation>, String> {
    let trace = root.with_extension("trace");
    let before = fs::read_dir(root.join("store")).into_iter().flatten();
    let before = before.map(|entry| Path::new("store").join(entry.unwrap().file_name())).collect();
    let calls = "trace=openat,open,creat,close,dup,dup2,dup3,pwrite64,pwritev,write,writev,lseek,fsync,fdatasync,\
                 ftruncate,fallocate,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,link,linkat";
    let child = concat!(module_path!(), "::the_child_goes_on_writing_when_told_to").split_once("::").unwrap().1;
    let ran = Command::new("strace")
        .args(["-f", "-xx", "-s", "4000000", "-e", calls, "-o"])
        .arg(&trace)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", child, "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, root.join("store"))
        .env(UPTO, upto.to_string())
        .output()
        .map_err(|error| format!("strace does not start: {error}"))?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(said.contains("ptrace") || said.contains("PTRACE"), "the child failed: {said}");
        return Err("strace may not trace here".to_owned());
    }
    Ok(operations(&fs::read_to_string(&trace).unwrap(), root, before))
}

fn skip(why: &str) {
    println!("skipped: {why}");
    if let Some(log) = std::env::var_os("ORLOP_SKIP_LOG") {
        let file = fs::File::options().append(true).create(true).open(log);
        drop(file.and_then(|mut file| writeln!(file, "store power cuts: {why}")));
    }
}

fn seed() -> u64 {
    let given = std::env::var(SEED).ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| std::hash::RandomState::new().build_hasher().finish());
    println!("{SEED}={seed}");
    seed
}

/// Stops the disk at many points of a recorded run and opens what is left.
struct Cutter {
    scratch: TempDir,
    states: Vec<State>,
    random: Random,
    /// Disks that were opened already.
    seen: BTreeSet<u64>,
    /// The newest revision that anybody was told of.
    acknowledged: Option<u64>,
    opened: usize,
    syncs: usize,
}

impl Cutter {
    fn new(seed: u64) -> Self {
        Self {
            // In memory if possible: these disks are thrown away, and syncing them costs minutes.
            scratch: TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap(),
            states: states(),
            random: Random(seed),
            seen: BTreeSet::new(),
            acknowledged: None,
            opened: 0,
            syncs: 0,
        }
    }

    fn play(&mut self, disk: &mut Disk, operations: &[Operation]) {
        for (number, operation) in operations.iter().enumerate() {
            match operation {
                Operation::Acknowledge(revision) => self.acknowledged = Some(*revision),
                Operation::Sync(_) => {
                    // Everything since the last sync is at stake here.
                    self.syncs += 1;
                    for loss in Loss::ALL {
                        self.cut(disk, loss, number);
                    }
                    disk.apply(operation);
                    self.cut(disk, Loss::All, number);
                }
                _ => disk.apply(operation),
            }
            self.cut(disk, Loss::Some, number);
        }
    }

    fn cut(&mut self, disk: &Disk, loss: Loss, number: usize) {
        let left = disk.after_power_cut(loss, &mut self.random);
        let mut hash = std::hash::DefaultHasher::new();
        std::hash::Hash::hash(&(&left, self.acknowledged), &mut hash);
        if !self.seen.insert(hash.finish()) {
            return;
        }
        let root = self.scratch.path().join("disk");
        disk::write_out(&left, &root);
        let dir = root.join("store");
        let at = format!("operation {number}, {loss:?}");
        // Writing on takes several syncs, so it is done for one disk in four; all are read.
        match (self.acknowledged, self.opened % 4) {
            (None, _) | (_, 0) => self.write_on(&dir, &at),
            (Some(_), _) => {
                let examined = examine(&dir).unwrap_or_else(|error| panic!("{at}: {error}"));
                assert!(examined.damage.is_empty(), "{at}: {:?}", examined.damage);
                self.check(&examined.snapshot, &at);
            }
        }
        self.opened += 1;
        fs::remove_dir_all(&root).unwrap();
    }

    /// The store is at a revision that was acknowledged or begun, and exactly as that revision left it.
    fn check(&self, snapshot: &Snapshot, at: &str) {
        let revision = snapshot.revision.0;
        assert!(
            self.acknowledged.is_none_or(|told| revision >= told),
            "{at}: back at {revision} of {:?}",
            self.acknowledged
        );
        assert!(state_of(snapshot) == self.states[revision as usize], "{at}: not what revision {revision} left");
    }

    /// A watch from a moment that is still remembered gets every write since, as it was.
    fn check_history(&self, store: &Store, at: &str) {
        let newest = store.revision().0;
        for from in newest.saturating_sub(3)..newest {
            let mut watch = store.watch(Scope::all(PODS), Start::After(Revision(from))).unwrap();
            for revision in from + 1..=newest {
                let event = watch.try_next().unwrap().unwrap_or_else(|| panic!("{at}: {revision} is not in history"));
                assert_eq!(event.revision.0, revision, "{at}");
                let value = event.new_version().map(|new| (revision, new.value.to_vec()));
                assert!(value.as_ref() == self.states[revision as usize].get(event.key.path()), "{at}: {revision}");
            }
        }
    }

    fn write_on(&self, dir: &Path, at: &str) {
        let store = Store::open(dir, OPTIONS).unwrap_or_else(|error| panic!("{at}: {error}"));
        self.check(&store.snapshot(), at);
        self.check_history(&store, at);
        let next = block_on(store.commit(put(pod("after the cut"), "x"))).unwrap();
        assert!(self.acknowledged.is_none_or(|told| next.revision.0 > told), "{at}: a revision comes again");
        let before = content(&store);
        drop(store);
        let store = Store::open(dir, OPTIONS).unwrap_or_else(|error| panic!("{at}, opened again: {error}"));
        assert_eq!(content(&store), before, "{at}");
    }
}

#[test]
fn a_power_cut_at_any_point_loses_nothing_that_was_acknowledged() {
    let dir = TempDir::new().unwrap();
    let root: PathBuf = dir.path().join("disk");
    fs::create_dir(&root).unwrap();
    let (mut disk, mut cutter) = (Disk::default(), Cutter::new(seed()));
    // The first run makes the store; the second one finds it.
    for upto in [WRITES / 2, WRITES] {
        match record(&root, upto) {
            Ok(operations) => {
                // The database: when it is made, at checkpoints, and at the end. The mark: at each tick.
                for (file, least) in [("store.db-wal", 30), ("store.db", 5), ("acknowledged", 4)] {
                    let count = operations.iter().filter(|operation| synced(operation, file)).count();
                    assert!(count >= least, "{count} syncs of {file}");
                }
                cutter.play(&mut disk, &operations);
            }
            Err(why) => return skip(&why),
        }
    }
    println!("{} syncs, {} different disks opened", cutter.syncs, cutter.opened);
    assert!(cutter.syncs > 100 && cutter.opened > 500);
}

/// A process that is killed between its writes and its sync leaves a commit that the next one can read, but that is on
/// no disk. Once a reader has seen it, it must not go away.
#[test]
fn what_was_read_after_a_kill_is_there_after_a_power_cut() {
    let dir = TempDir::new().unwrap();
    let root: PathBuf = dir.path().join("disk");
    fs::create_dir(&root).unwrap();
    let seed = seed();
    let recorded = match record(&root, WRITES / 2) {
        Ok(operations) => operations,
        Err(why) => return skip(&why),
    };
    let syncs: Vec<usize> = (0..recorded.len()).filter(|number| synced(&recorded[*number], "store.db-wal")).collect();
    assert!(syncs.len() > 20, "{} syncs of the write-ahead file", syncs.len());
    // Before some syncs, and at any other moment: early, while the store is made, and later.
    let mut random = Random(seed);
    let mut kills: Vec<usize> = syncs.iter().rev().take(12).step_by(4).copied().collect();
    kills.extend((0..4).map(|_| random.below(40) as usize));
    kills.extend((0..4).map(|_| random.below(recorded.len() as u64) as usize));
    for kill in kills {
        let mut disk = Disk::default();
        recorded[..kill].iter().for_each(|operation| disk.apply(operation));
        fs::remove_dir_all(&root).unwrap();
        disk::write_out(&disk.cached(), &root);
        let mut cutter = Cutter::new(seed);
        cutter.acknowledged = recorded[..kill].iter().filter_map(Operation::acknowledged).max();
        let next = record(&root, cutter.acknowledged.unwrap_or(0) + 4).unwrap();
        println!("killed before operation {kill} of {}", recorded.len());
        cutter.play(&mut disk, &next);
        assert!(cutter.opened > 20);
    }
}

fn synced(operation: &Operation, name: &str) -> bool {
    matches!(operation, Operation::Sync(path) if path.ends_with(name))
}
