//! Freezing real filesystems, with this test binary as the guard process.

use super::*;
use crate::fs::FsType;
use crate::mountinfo::MountTable;
use crate::rig::{MIB, MINUTE, Rig, needs};

const MOUNTS_VARIABLE: &str = "ORLOP_TEST_GUARD_MOUNTS";
const BUDGET_VARIABLE: &str = "ORLOP_TEST_GUARD_BUDGET_MS";

/// Runs this binary again as the guard: `env` hands over what a real guard would get as arguments.
fn guard_argv(mounts: &[PathBuf], budget: Duration) -> Vec<OsString> {
    let joined = std::env::join_paths(mounts).unwrap();
    let mut variable = OsString::from(format!("{MOUNTS_VARIABLE}="));
    variable.push(joined);
    let budget = format!("{BUDGET_VARIABLE}={}", budget.as_millis());
    let this_test = format!("{}::acts_as_the_guard", module_path!().split_once("::").unwrap().1);
    let mut argv = vec!["env".into(), variable, budget.into(), std::env::current_exe().unwrap().into()];
    argv.extend(["--exact", &this_test, "--nocapture", "--test-threads=2"].map(OsString::from));
    argv
}

/// Not a test of its own: run by the other tests as their guard process, and at once done otherwise.
#[test]
fn acts_as_the_guard() {
    let (Some(mounts), Ok(budget)) = (std::env::var_os(MOUNTS_VARIABLE), std::env::var(BUDGET_VARIABLE)) else {
        return;
    };
    let mounts: Vec<PathBuf> = std::env::split_paths(&mounts).collect();
    let code = guard_main(&mounts, Duration::from_millis(budget.parse().unwrap()));
    assert_eq!(code, ExitCode::SUCCESS);
}

/// Freezing is the only way to ask: `EBUSY` says frozen. A success is undone at once.
fn is_frozen(mount: &Path) -> bool {
    let dir = File::open(mount).unwrap();
    match ioctl::freeze(&dir) {
        Ok(()) => {
            thaw(&dir).unwrap();
            false
        }
        Err(errno) => {
            assert_eq!(errno, Errno::BUSY);
            true
        }
    }
}

fn opened(mounts: &[PathBuf]) -> Vec<Arc<OpenMount>> {
    let table = MountTable::read().unwrap();
    mounts.iter().map(|place| Arc::new(OpenMount::open(table.top(place).unwrap()).unwrap())).collect()
}

/// Rule: LOCAL-F.6
#[test]
fn frozen_filesystems_are_thawed_in_the_end() {
    needs!(FsType::Ext4);
    let rig = Rig::new();
    let mounts: Vec<PathBuf> = ["a", "b"].map(|name| rig.mounted(name, FsType::Ext4, 64 * MIB).2).into();
    let frozen = Frozen::freeze(&guard_argv(&mounts, MINUTE), &opened(&mounts), MINUTE).unwrap();
    assert!(mounts.iter().all(|mount| is_frozen(mount)));
    assert_eq!(frozen.thaw().unwrap(), Held::ToTheEnd);
    assert!(!mounts.iter().any(|mount| is_frozen(mount)));

    drop(Frozen::freeze(&guard_argv(&mounts, MINUTE), &opened(&mounts), MINUTE).unwrap());
    assert!(!mounts.iter().any(|mount| is_frozen(mount)), "dropping thaws too");
}

/// Rule: LOCAL-0.20
#[test]
fn the_guard_thaws_when_its_parent_dies() {
    needs!(FsType::Ext4);
    let rig = Rig::new();
    let mounts = [rig.mounted("a", FsType::Ext4, 64 * MIB).2];
    let mut frozen = Frozen::freeze(&guard_argv(&mounts, MINUTE), &opened(&mounts), MINUTE).unwrap();
    // Death of the parent, as the guard sees it: the pipe ends and nobody has thawed anything.
    let guard = frozen.guard.as_mut().unwrap();
    drop(guard.lifeline.take());
    assert!(guard.child.wait().unwrap().success());
    assert!(!is_frozen(&mounts[0]));
    assert_eq!(frozen.thaw().unwrap(), Held::EndedEarly);
}

/// Rule: LOCAL-R20
#[test]
fn the_guard_thaws_when_the_budget_is_spent_and_we_learn_of_it() {
    needs!(FsType::Ext4);
    let rig = Rig::new();
    let mounts = [rig.mounted("a", FsType::Ext4, 64 * MIB).2];
    let frozen = Frozen::freeze(&guard_argv(&mounts, Duration::from_millis(300)), &opened(&mounts), MINUTE).unwrap();
    // A writer blocks in the kernel until the thaw; that it returns is the proof.
    std::fs::write(mounts[0].join("file"), "written after the thaw").unwrap();
    assert_eq!(frozen.thaw().unwrap(), Held::EndedEarly);
}

#[test]
fn a_filesystem_frozen_by_somebody_else_is_left_to_them() {
    needs!(FsType::Ext4);
    let rig = Rig::new();
    let mounts: Vec<PathBuf> = ["a", "b"].map(|name| rig.mounted(name, FsType::Ext4, 64 * MIB).2).into();
    let theirs = File::open(&mounts[1]).unwrap();
    freeze(&theirs).unwrap();
    let error = Frozen::freeze(&guard_argv(&mounts, MINUTE), &opened(&mounts), MINUTE).unwrap_err();
    assert!(matches!(&error, FreezeError::AlreadyFrozen(path) if *path == mounts[1]), "{error}");
    assert!(!is_frozen(&mounts[0]), "the one frozen before it is thawed again");
    assert!(is_frozen(&mounts[1]), "neither we nor the guard may thaw theirs");
    assert_eq!(thaw_sweep(&mounts).unwrap(), [mounts[1].clone()]);
    assert_eq!(thaw_sweep(&mounts).unwrap(), [] as [PathBuf; 0]);
}

#[test]
fn a_guard_that_dies_early_means_nothing_is_frozen() {
    needs!(FsType::Ext4);
    let rig = Rig::new();
    let mounts = [rig.mounted("a", FsType::Ext4, 64 * MIB).2];
    let error = Frozen::freeze(&["true".into()], &opened(&mounts), MINUTE).unwrap_err();
    assert!(matches!(error, FreezeError::GuardNotReady), "{error}");
    assert!(!is_frozen(&mounts[0]));
}

#[test]
fn a_freeze_that_returns_too_late_is_thawed_at_once_and_the_guard_stays_until_then() {
    needs!(FsType::Ext4);
    let rig = Rig::new();
    let mounts = [rig.mounted("a", FsType::Ext4, 64 * MIB).2];
    let mount = opened(&mounts).remove(0);
    let mut guard = Some(Guard::start(&guard_argv(&mounts, MINUTE), MINUTE).unwrap());
    let (release, held) = mpsc::channel::<()>();
    let (say, frozen) = mpsc::channel();
    let slow = move |mount: &OpenMount| {
        held.recv().unwrap();
        let answer = ioctl::freeze(&mount.dir);
        say.send(answer).unwrap();
        answer
    };
    assert_eq!(freeze_within(&mount, Duration::from_millis(20), slow, &mut guard), None);
    assert!(guard.is_none(), "the thread that freezes has the guard now");
    release.send(()).unwrap();
    frozen.recv().unwrap().unwrap();
    // A writer blocks in the kernel until the thaw; that it returns is the proof.
    std::fs::write(mounts[0].join("file"), "written after the thaw").unwrap();
    assert!(!is_frozen(&mounts[0]));
}
