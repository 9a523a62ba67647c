use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use rustix::mount::{UnmountFlags, mount_bind, unmount};

use super::*;

/// A root with a directory `v` in it, and a directory outside with a file that has to survive.
struct Rig {
    _dir: tempfile::TempDir,
    root: PathBuf,
    outside: PathBuf,
}

impl Rig {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("precious"), "data").unwrap();
        make(&root, "v").unwrap();
        Self { _dir: dir, root, outside }
    }

    fn volume(&self) -> PathBuf {
        self.root.join("v")
    }

    fn open(&self) -> Place {
        find(&self.root, &self.volume()).unwrap().unwrap()
    }

    fn outside_is_whole(&self) {
        assert_eq!(fs::read_to_string(self.outside.join("precious")).unwrap(), "data");
    }
}

/// Says why a test cannot run here.
fn skipped(why: &str) {
    println!("skipped: {why}");
    if let Some(log) = std::env::var_os("ORLOP_SKIP_LOG") {
        use std::io::Write as _;
        let mut log = fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
        writeln!(log, "{why}").unwrap();
    }
}

#[tokio::test]
async fn a_directory_is_made_once_emptied_and_removed_and_all_of_it_can_be_repeated() {
    let rig = Rig::new();
    make(&rig.root, "v").unwrap();
    fs::write(rig.volume().join("file"), "x").unwrap();
    rig.open().empty().await.unwrap();
    assert!(rig.volume().read_dir().unwrap().next().is_none());
    fs::write(rig.volume().join("file"), "x").unwrap();
    rig.open().remove().await.unwrap();
    assert!(!rig.volume().exists());
    assert!(find(&rig.root, &rig.volume()).unwrap().is_none(), "gone is no error");
    assert!(find(&rig.root.join("v"), &rig.volume().join("w")).unwrap().is_none(), "a root that is gone neither");
}

#[tokio::test]
async fn a_deep_and_broad_tree_goes_completely() {
    let rig = Rig::new();
    let mut deep = rig.volume();
    for _ in 0..1000 {
        deep.push("d");
        fs::create_dir(&deep).unwrap();
        fs::write(deep.join("f"), "").unwrap();
    }
    // What is lifted must not run into what has such a name already.
    fs::create_dir_all(rig.volume().join(".lifted-0/.lifted-1/.lifted-0")).unwrap();
    for number in 0..3 * STEP {
        fs::write(rig.volume().join(format!("file-{number}")), "").unwrap();
    }
    rig.open().remove().await.unwrap();
    assert!(!rig.volume().exists());
}

#[tokio::test]
async fn links_are_removed_and_what_they_point_to_stays() {
    let rig = Rig::new();
    symlink(&rig.outside, rig.volume().join("link")).unwrap();
    fs::create_dir(rig.volume().join("inner")).unwrap();
    symlink(rig.outside.join("precious"), rig.volume().join("inner/link")).unwrap();
    rig.open().remove().await.unwrap();
    rig.outside_is_whole();
}

#[test]
fn a_link_in_the_place_of_a_directory_is_refused() {
    let rig = Rig::new();
    symlink(&rig.outside, rig.root.join("link")).unwrap();
    let refused = |path: PathBuf| matches!(find(&rig.root, &path), Err(TreeError::NoDirectory { .. }));
    assert!(refused(rig.root.join("link")));
    assert!(refused(rig.root.join("link/below")));
    assert!(matches!(make(&rig.root, "link"), Err(TreeError::NoDirectory { .. })));
    let root = rig.root.with_file_name("linked-root");
    symlink(&rig.outside, &root).unwrap();
    assert!(matches!(find(&root, &root.join("v")), Err(TreeError::NoDirectory { .. })));
    assert!(matches!(make(&root, "v"), Err(TreeError::NoDirectory { .. })));
    fs::write(rig.root.join("file"), "").unwrap();
    assert!(refused(rig.root.join("file")));
    rig.outside_is_whole();
}

#[test]
fn what_is_not_below_the_root_is_refused() {
    let rig = Rig::new();
    for path in [
        rig.root.clone(),
        rig.root.join(""),
        rig.root.join("../outside"),
        rig.root.join("v/../../outside"),
        rig.outside.clone(),
        rig.root.with_file_name("root-2").join("v"),
        PathBuf::from("/"),
        PathBuf::from("v"),
    ] {
        assert!(matches!(find(&rig.root, &path), Err(TreeError::Outside { .. })), "{}", path.display());
    }
}

/// Takes a mount away, also when the test fails.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[tokio::test]
async fn a_mount_inside_stops_everything_and_is_not_entered() {
    let rig = Rig::new();
    let target = rig.volume().join("a/b");
    fs::create_dir_all(&target).unwrap();
    if let Err(errno) = mount_bind(&rig.outside, &target) {
        return skipped(&format!("bind mounts: {errno}"));
    }
    let mounted = Mounted(target.clone());
    assert!(matches!(rig.open().empty().await, Err(TreeError::Mounted { .. })));
    rig.outside_is_whole();
    assert!(matches!(find(&rig.root, &target), Err(TreeError::Mounted { .. })));
    drop(mounted);
    rig.open().remove().await.unwrap();
    rig.outside_is_whole();
}

#[tokio::test]
async fn a_mount_directly_in_the_volume_is_not_entered() {
    let rig = Rig::new();
    let target = rig.volume().join("m");
    fs::create_dir(&target).unwrap();
    if let Err(errno) = mount_bind(&rig.outside, &target) {
        return skipped(&format!("bind mounts: {errno}"));
    }
    let _mounted = Mounted(target);
    assert!(matches!(rig.open().remove().await, Err(TreeError::Mounted { .. })));
    rig.outside_is_whole();
}

#[test]
fn a_root_that_somebody_else_made_is_refused() {
    let rig = Rig::new();
    if std::os::unix::fs::chown(&rig.root, Some(12345), None).is_err() {
        return skipped("chown needs root");
    }
    assert!(matches!(make(&rig.root, "w"), Err(TreeError::ForeignRoot { .. })));
}
