//! `orlop demo` as strangers meet it: as root, as an ordinary user, where user namespaces are forbidden, and interrupted.

mod stack_rig;

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use linux::mountinfo::MountTable;
use linux::mounts::Rights;
use stack_rig::{SmallDisk, skip};

const PROGRAM: &str = env!("CARGO_BIN_EXE_orlop");
/// Somebody who owns nothing.
const NOBODY: u32 = 65_534;
/// How it ends where nothing can be mounted.
const IN_PART: i32 = 3;

const START: [&str; 3] = ["Start everything", "claim default/data is Pending", "$ orlop explain pvc/data"];
const MOUNTED: [&str; 11] = [
    "Create a pod that uses claim",
    "claim default/data is Bound",
    "pod default/web has its volume",
    "written, synced and read back",
    "got SIGKILL",
    "the open file is written to all the same",
    "is the same one",
    "has all three lines: before, meanwhile, after",
    "sha256 of the block is still",
    "pod default/web is gone",
    "claim default/data is gone",
];
const END: [&str; 5] = [
    "no PersistentVolume, no VolumeAttachment, no mount, no loop device, no file",
    "orlop up has ended",
    "is gone",
    "together",
    "Where next:",
];

/// One demonstration after the other: one that makes a mount namespace holds copies of what another one has mounted.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// These sentences, in this order.
fn assert_told<'a>(said: &str, sentences: impl IntoIterator<Item = &'a str>) {
    let mut rest = said;
    for sentence in sentences {
        let Some((_, after)) = rest.split_once(sentence) else {
            panic!("{sentence:?} is missing or too early in\n{said}")
        };
        rest = after;
    }
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn assert_nothing_is_left(place: &Path) {
    let left: Vec<_> = std::fs::read_dir(place).expect("it is there").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    let place = place.canonicalize().expect("it is there");
    let table = MountTable::read().expect("there is a mount table");
    assert_eq!(table.below(&place).count(), 0, "{table:?}");
    for entry in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let file = std::fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        assert!(!Path::new(&file).starts_with(&place), "{:?} holds {file}", entry.file_name());
    }
}

#[test]
fn the_demonstration_takes_a_claim_to_a_mount_and_back_and_leaves_nothing() {
    let _turn = turn();
    if Rights::ask() < Rights::Devices {
        return skip("the demonstration with loop devices needs root");
    }
    let place = tempfile::tempdir().expect("a directory can be made");
    let output =
        Command::new(PROGRAM).arg("demo").env("TMPDIR", place.path()).output().expect("the binary was just built");
    let (said, warned) = texts(&output);
    assert!(output.status.success(), "{said}\n{warned}");
    assert_told(&said, START.into_iter().chain(MOUNTED).chain(END));
    if linux::loopdev::available() == linux::loopdev::LoopSupport::Yes {
        assert!(said.contains("it is the file pool/volumes/") && said.contains("/dev/loop"), "{said}");
    }
    assert_eq!(warned, "", "a demonstration has nothing to warn of");
    assert_nothing_is_left(place.path());
}

/// A folder that the other user owns and can come to.
fn place_for_nobody() -> Option<tempfile::TempDir> {
    let homes = [std::env::temp_dir(), PathBuf::from("/tmp"), PathBuf::from("/var/tmp")];
    homes.into_iter().find_map(|home| {
        let place = tempfile::Builder::new().prefix("orlop-nobody-").tempdir_in(home).ok()?;
        std::os::unix::fs::chown(place.path(), Some(NOBODY), Some(NOBODY)).ok()?;
        as_nobody("test").arg("-w").arg(place.path()).status().ok()?.success().then_some(place)
    })
}

/// The program where the other user can come to it, which a clone in somebody's home often is not.
fn program_for_nobody(place: &Path) -> PathBuf {
    let program = place.join("orlop");
    let linked = std::fs::hard_link(PROGRAM, &program);
    linked.or_else(|_| std::fs::copy(PROGRAM, &program).map(drop)).expect("there is room for the program");
    program
}

fn as_nobody(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    command
}

#[test]
fn an_ordinary_user_sees_all_of_it_in_a_namespace_of_its_own() {
    let _turn = turn();
    if !rustix::process::geteuid().is_root() {
        return skip("only root can start a program as somebody else");
    }
    let (Some(place), Some(home)) = (place_for_nobody(), place_for_nobody()) else {
        return skip("the other user has no folder to work in");
    };
    if !as_nobody("unshare").args(["--user", "--map-root-user", "true"]).status().is_ok_and(|s| s.success()) {
        return skip("this machine forbids user namespaces");
    }
    let program = program_for_nobody(home.path());
    let output = as_nobody(program).arg("demo").env("TMPDIR", place.path()).output().expect("it can be started");
    let (said, warned) = texts(&output);
    assert!(output.status.success(), "{said}\n{warned}");
    assert_told(&said, START.into_iter().chain(MOUNTED).chain(END));
    assert!(said.contains("Volumes are directories: without root's rights"), "{said}");
    assert!(said.contains("it is the directory pool/volumes/"), "{said}");
    assert_eq!(warned, "");
    assert_nothing_is_left(place.path());
}

#[test]
fn root_of_a_user_namespace_gets_directories_though_loop_devices_look_free() {
    let _turn = turn();
    let place = tempfile::tempdir().expect("a directory can be made");
    let inside = || {
        let mut command = Command::new("unshare");
        // Not private: a copy of somebody's mount would keep their loop device busy.
        command.args(["--user", "--map-root-user", "--mount", "--propagation", "slave"]);
        command
    };
    if !inside().arg("true").status().is_ok_and(|status| status.success()) {
        return skip("this machine forbids user namespaces");
    }
    let output = inside().args([PROGRAM, "demo"]).env("TMPDIR", place.path()).output().expect("it worked before");
    let (said, warned) = texts(&output);
    assert!(output.status.success(), "{said}\n{warned}");
    assert_told(&said, START.into_iter().chain(MOUNTED).chain(END));
    assert!(said.contains("Volumes are directories: root of a user namespace"), "{said}");
    assert!(said.contains("it is the directory pool/volumes/"), "{said}");
    assert_nothing_is_left(place.path());
}

#[test]
fn where_user_namespaces_are_forbidden_the_setting_is_named_and_all_else_is_shown() {
    let _turn = turn();
    let place = tempfile::tempdir().expect("a directory can be made");
    // A user namespace without a mount namespace of its own: nothing may be mounted in it. Then no further ones.
    let script = "echo 0 > /proc/sys/user/max_user_namespaces || exit 77; exec \"$0\" demo";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-c", script, PROGRAM])
        .env("TMPDIR", place.path())
        .output();
    let output = match output {
        Ok(output) if output.status.code() != Some(77) && !output.stdout.is_empty() => output,
        Ok(_) | Err(_) => return skip("no user namespace can be made to forbid others in"),
    };
    let (said, warned) = texts(&output);
    assert_eq!(output.status.code(), Some(IN_PART), "{said}\n{warned}");
    let forbidden = ["Nothing will be mounted", "user.max_user_namespaces is 0", "sysctl -w user.max_user_namespaces="];
    let shown =
        ["claim default/data is Bound", "it is the directory", "got SIGKILL", "claim and volume are what they were"];
    assert_told(&said, forbidden.into_iter().chain(START).chain(shown).chain(END));
    assert_eq!(warned, "");
    assert_nothing_is_left(place.path());
}

#[test]
fn an_interrupted_demonstration_takes_everything_away() {
    let _turn = turn();
    // Whoever closes the terminal sends the second one.
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::HUP] {
        interrupted_by(signal);
    }
}

fn interrupted_by(signal: rustix::process::Signal) {
    let place = tempfile::tempdir().expect("a directory can be made");
    let mut child = demo_in(place.path());
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut said = String::new();
    // A volume is being made or used at that moment.
    while !said.contains("claim default/data is Bound") && lines.read_line(&mut said).is_ok_and(|read| read > 0) {}
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, signal).expect("it is our child");
    lines.read_to_string(&mut said).expect("it is text");
    let output = child.wait_with_output().expect("it is our child");
    let (_, warned) = texts(&output);
    // A signal that comes after the last stage finds nothing to interrupt.
    if !said.contains("together") {
        assert_eq!(output.status.code(), Some(1), "{said}\n{warned}");
        assert!(warned.contains("interrupted; everything is taken away"), "{said}\n{warned}");
    }
    assert_nothing_is_left(place.path());
}

#[test]
fn what_a_killed_demonstration_left_is_taken_away_by_the_next_one() {
    let _turn = turn();
    let place = tempfile::tempdir().expect("a directory can be made");
    let (mut child, mut said) = (demo_in(place.path()), String::new());
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
    while !said.contains("pod default/web has its volume") && lines.read_line(&mut said).is_ok_and(|read| read > 0) {}
    child.kill().expect("it is our child");
    child.wait().expect("it is our child");
    let mut left: Vec<_> = std::fs::read_dir(place.path()).expect("it is there").flatten().collect();
    let Some(left) = left.pop() else { return skip("nothing can be mounted, so it had nothing to stop at") };
    let left = left.path();
    // Its `orlop up` ends by itself, and with it the last who holds the lock.
    let lock = std::fs::File::open(left.join("demo.lock")).expect("it is there");
    lock.lock().expect("it can be waited for");
    drop(lock);
    let output = demo_in(place.path()).wait_with_output().expect("it is our child");
    let (said, warned) = texts(&output);
    assert!(matches!(output.status.code(), Some(0 | IN_PART)), "{said}\n{warned}");
    let name = left.file_name().and_then(|name| name.to_str()).expect("it is text");
    assert_told(&said, ["An earlier demonstration was killed", name, "is taken away", "Where next:"]);
    assert_nothing_is_left(place.path());
}

fn demo_in(place: &Path) -> std::process::Child {
    let mut command = Command::new(PROGRAM);
    command.arg("demo").env("TMPDIR", place).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the binary was just built")
}

#[test]
fn where_there_is_little_room_the_claim_is_smaller_and_where_there_is_none_that_is_told_at_once() {
    let _turn = turn();
    let demo = |disk: &SmallDisk, words: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.arg("demo").args(words).env("TMPDIR", disk.path()).output().expect("the binary was just built")
    };
    let Some(disk) = SmallDisk::new(200) else { return skip("a small filesystem cannot be mounted") };
    let output = demo(&disk, &[]);
    let (said, warned) = texts(&output);
    assert!(output.status.success(), "{said}\n{warned}");
    assert_told(&said, ["Make a claim of 64Mi", "pod default/web has its volume", "Where next:"]);
    let output = demo(&disk, &["--size", "1Gi"]);
    let (said, warned) = texts(&output);
    assert!(!output.status.success() && said.is_empty(), "{said}");
    assert!(warned.contains("MiB left, and 1104 MiB are needed; choose a smaller --size"), "{warned}");
    assert_nothing_is_left(disk.path());
}

#[test]
fn a_temporary_directory_that_does_not_do_is_told_with_the_variable_that_names_it() {
    let place = tempfile::tempdir().expect("a directory can be made");
    let long = place.path().join("x".repeat(100));
    std::fs::create_dir(&long).expect("it can be made");
    for (directory, why) in [
        (place.path().join("none"), "name another place with TMPDIR=DIR: "),
        (long, "has a long name; TMPDIR=/tmp is shorter"),
    ] {
        let output = Command::new(PROGRAM).arg("demo").env("TMPDIR", &directory).output().expect("it was just built");
        let (said, warned) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(warned.contains(&directory.display().to_string()) && warned.contains(why), "{warned}");
    }
}
