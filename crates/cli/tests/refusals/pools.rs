//! Directories that are no pools, or not ours, or cannot be written.

use std::fs;
use std::path::Path;

use linux::fs::FsType;

use crate::needs;
use crate::rig::call::*;
use crate::rig::world::*;
use crate::rig::{Driver, MIB, Options, Scratch, run};

/// The one line that says why a driver ended before it served.
#[track_caller]
fn refusal(scratch: &Scratch, options: &Options) -> String {
    let log = Driver::try_start(scratch, options).expect_err("the driver should refuse to start");
    let errors: Vec<&str> = log.lines().filter(|line| line.starts_with("orlop driver: ")).collect();
    assert_eq!(errors.len(), 1, "one line: {log}");
    assert!(!log.contains("panicked"), "{log}");
    errors[0].to_owned()
}

#[track_caller]
fn assert_says(line: &str, words: &[&str]) {
    for word in words {
        assert!(line.contains(word), "{word:?} is not in: {line}");
    }
}

fn entries(path: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

#[test]
fn a_pool_that_is_a_file_or_holds_something_else_is_refused_and_left_alone() {
    let scratch = Scratch::new();
    fs::write(scratch.path("pool"), b"a file").unwrap();
    assert_says(&refusal(&scratch, &Options::default()), &["is not a directory"]);
    assert_eq!(fs::read(scratch.path("pool")).unwrap(), b"a file");

    let scratch = Scratch::new();
    fs::write(scratch.plain_pool().join("photo.jpg"), b"mine").unwrap();
    let line = refusal(&scratch, &Options::default());
    assert_says(&line, &["is not empty", "pool.json", "only made in an empty directory"]);
    assert_eq!(entries(&scratch.path("pool")), ["photo.jpg"]);
}

#[test]
fn a_pool_that_is_given_twice_is_refused() {
    let scratch = Scratch::new();
    let pool = scratch.plain_pool();
    let twice = format!("--pool=again={}", pool.display());
    assert_says(&refusal(&scratch, &Options::args([&twice])), &["given twice"]);
    let same_name = format!("--pool=p={}", scratch.dir("other").display());
    assert_says(&refusal(&scratch, &Options::args([&same_name])), &["two pools are called \"p\"", "NAME=DIR"]);
    // The same directory under another name is seen by its lock.
    std::os::unix::fs::symlink(&pool, scratch.path("link")).unwrap();
    let linked = format!("--pool=linked={}", scratch.path("link").display());
    assert_says(&refusal(&scratch, &Options::args([&linked])), &["in use by"]);
}

#[test]
fn without_permission_to_make_pools_none_is_made() {
    let scratch = Scratch::new();
    let no_init = Options::args(["--no-init"]);
    assert_says(&refusal(&scratch, &no_init), &["does not exist", "mount its disk"]);
    assert!(!scratch.path("pool").exists());
    scratch.plain_pool();
    assert_says(&refusal(&scratch, &no_init), &["is empty", "is its disk mounted?", "without --no-init"]);
    assert!(entries(&scratch.path("pool")).is_empty());
    drop(Driver::start(&scratch, &Options::default()));
    drop(Driver::start(&scratch, &no_init));
}

/// Rule: LOCAL-R28
#[test]
fn a_pool_of_another_driver_is_refused() {
    let scratch = Scratch::new();
    scratch.plain_pool();
    drop(Driver::start(&scratch, &Options::default()));
    let other = Options::args(["--driver-name", "other.example.com"]);
    assert_says(&refusal(&scratch, &other), &["belongs to", "local.csi.orlop.dev", "other.example.com"]);
    drop(Driver::start(&scratch, &Options::default()));
}

#[test]
fn a_pool_whose_identity_is_damaged_is_not_made_anew() {
    let scratch = Scratch::new();
    let pool = scratch.plain_pool();
    drop(Driver::start(&scratch, &Options::default()));
    let identity = fs::read(pool.join("pool.json")).unwrap();
    fs::write(pool.join("pool.json"), &identity[..identity.len() / 2]).unwrap();
    // A driver that knew the pool takes it for missing and serves the others; one that did not refuses to start.
    let fresh = || {
        let state = tempfile::tempdir_in(scratch.path("")).unwrap().keep();
        Options::default().env("ORLOP_STATE_DIR", state.to_str().unwrap())
    };
    let missing = || Driver::start(&scratch, &Options::default()).log();
    assert_says(&missing(), &["pool missing:", "pool.json", "damaged"]);
    assert_says(&refusal(&scratch, &fresh()), &["pool.json", "damaged"]);
    assert_eq!(fs::read(pool.join("pool.json")).unwrap(), identity[..identity.len() / 2]);
    fs::remove_file(pool.join("pool.json")).unwrap();
    assert_says(&missing(), &["pool missing:", "holds no pool.json"]);
    assert_says(&refusal(&scratch, &fresh()), &["is not empty", "not a pool"]);
    assert!(!pool.join("pool.json").exists());
    fs::write(pool.join("pool.json"), &identity).unwrap();
    drop(Driver::start(&scratch, &Options::default()));
}

#[test]
fn a_read_only_pool_is_refused_at_start() {
    needs!(Ext4);
    let scratch = Scratch::new();
    let pool = scratch.pool_on(FsType::Ext4, 256 * MIB);
    drop(Driver::start(&scratch, &Options::default()));
    tool("mount", ["-o", "remount,ro", pool.to_str().unwrap()]);
    assert_says(&refusal(&scratch, &Options::default()), &["is read-only", "remount it read-write"]);
    tool("mount", ["-o", "remount,rw", pool.to_str().unwrap()]);
    drop(Driver::start(&scratch, &Options::default()));
}

#[test]
fn a_socket_that_cannot_be_made_is_said_so() {
    let scratch = Scratch::new();
    scratch.plain_pool();
    let nowhere = Options { socket: "missing/csi.sock".to_owned(), ..Default::default() };
    assert_says(&refusal(&scratch, &nowhere), &["missing", "does not exist"]);
    fs::write(scratch.path("file.sock"), b"not a socket").unwrap();
    let file = Options { socket: "file.sock".to_owned(), ..Default::default() };
    assert_says(&refusal(&scratch, &file), &["not a socket", "left alone"]);
    assert_eq!(fs::read(scratch.path("file.sock")).unwrap(), b"not a socket");
}

#[test]
fn stray_files_in_a_pool_disturb_nothing() {
    needs!(Ext4);
    let scratch = Scratch::new();
    let pool = scratch.plain_pool();
    drop(Driver::start(&scratch, &Options::default()));
    fs::write(pool.join("volumes/notes.txt"), b"a note").unwrap();
    fs::create_dir(pool.join("volumes/lost")).unwrap();
    fs::write(pool.join("volumes/lost/image"), b"who knows").unwrap();
    fs::create_dir(pool.join("snapshots/vol-looks-like-one")).unwrap();
    std::os::unix::fs::symlink("/etc", pool.join("groups/link")).unwrap();
    let world = World::over(scratch, &Options::default());
    for name in ["volumes/lost", "volumes/notes.txt", "snapshots/vol-looks-like-one"] {
        let said = world
            .driver
            .log()
            .lines()
            .any(|line| line.contains("ERROR") && line.contains(name) && line.contains("no record"));
        assert!(said, "{name}: {}", world.driver.log());
    }
    run(async {
        let clients = world.clients().await;
        let volume = create(&clients, "v", 32 * MIB, mount("ext4")).await.unwrap();
        let using = Use::new(&world.scratch, &volume.volume_id, mount("ext4"));
        bring_up(&clients, &using).await.unwrap();
        bring_down(&clients, &using).await.unwrap();
        let listed = crate::rig::ask::list(&clients, 0, "").await.unwrap().entries;
        assert_eq!(listed.len(), 1, "strays are not volumes");
        assert!(crate::rig::ask::snapshots_of(&clients, "", 0).await.unwrap().is_empty());
        delete(&clients, &using.id).await.unwrap();
    });
    assert_eq!(entries(&pool.join("volumes")), ["lost", "notes.txt"], "they are left alone");
    assert_eq!(fs::read(pool.join("volumes/lost/image")).unwrap(), b"who knows");
}
