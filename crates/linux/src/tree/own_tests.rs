//! Giving trees to a group (NODE-14).

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

use rustix::fs::CWD;

use super::*;
use crate::mounts::{BindOptions, bind};
use crate::rig::{Rig, needs};

const GROUP: u32 = 4321;

fn own(root: &Path, bits: GroupBits) -> Counts {
    match own_tree(root, GROUP, bits, &mut |_| Walk::GoOn).unwrap() {
        Owned::Done(counts) => counts,
        Owned::Stopped(counts) => panic!("{counts:?}"),
    }
}

fn facts(path: &Path) -> (u32, u32) {
    let seen = path.symlink_metadata().unwrap();
    (seen.gid(), seen.mode() & 0o7777)
}

fn with_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Rule: NODE-14
#[test]
fn files_and_directories_get_the_bits_of_their_group() {
    needs!();
    let rig = Rig::new();
    let root = rig.dir("volume");
    fs::create_dir(root.join("sub")).unwrap();
    for (name, mode) in [("sub/file", 0o600), ("program", 0o4711), ("open", 0o664)] {
        fs::write(root.join(name), "x").unwrap();
        with_mode(&root.join(name), mode);
    }
    rustix::fs::mknodat(CWD, root.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    with_mode(&root, 0o700);
    with_mode(&root.join("sub"), 0o755);

    let counts = own(&root, GroupBits::ReadWrite);

    assert_eq!(counts, Counts { files: 6, refused: 0 });
    assert_eq!(facts(&root), (GROUP, 0o2770));
    assert_eq!(facts(&root.join("sub")), (GROUP, 0o2775));
    assert_eq!(facts(&root.join("sub/file")), (GROUP, 0o660));
    assert_eq!(facts(&root.join("program")), (GROUP, 0o4771));
    assert_eq!(facts(&root.join("open")), (GROUP, 0o664));
    assert_eq!(facts(&root.join("pipe")), (GROUP, 0o660));
    assert!(is_owned(&root, GROUP, GroupBits::ReadWrite).unwrap());
    assert!(!is_owned(&root, GROUP + 1, GroupBits::ReadWrite).unwrap());
}

/// Rule: NODE-14
#[test]
fn a_read_only_volume_gets_no_write_bits() {
    needs!();
    let rig = Rig::new();
    let root = rig.dir("volume");
    fs::write(root.join("file"), "x").unwrap();
    with_mode(&root.join("file"), 0o400);
    with_mode(&root, 0o500);
    own(&root, GroupBits::ReadOnly);
    assert_eq!((facts(&root), facts(&root.join("file"))), ((GROUP, 0o2550), (GROUP, 0o440)));
    assert!(is_owned(&root, GROUP, GroupBits::ReadOnly).unwrap());
    assert!(!is_owned(&root, GROUP, GroupBits::ReadWrite).unwrap());
}

/// Rule: NODE-14
#[test]
fn links_belong_to_the_group_and_what_they_name_does_not() {
    needs!();
    let rig = Rig::new();
    let (root, outside) = (rig.dir("volume"), rig.dir("outside"));
    fs::write(outside.join("secret"), "x").unwrap();
    with_mode(&outside.join("secret"), 0o600);
    symlink(outside.join("secret"), root.join("file")).unwrap();
    symlink(&outside, root.join("directory")).unwrap();
    own(&root, GroupBits::ReadWrite);
    assert_eq!(facts(&root.join("file")).0, GROUP);
    assert_eq!(facts(&root.join("directory")).0, GROUP);
    assert_eq!(facts(&outside.join("secret")), (0, 0o600));
    assert_eq!(facts(&outside).0, 0);
}

#[test]
fn another_filesystem_in_the_tree_is_passed_by() {
    needs!();
    let rig = Rig::new();
    let (root, other) = (rig.dir("volume"), rig.dir("other"));
    fs::write(other.join("file"), "x").unwrap();
    fs::create_dir(root.join("mounted")).unwrap();
    bind(&other, &root.join("mounted"), BindOptions::default()).unwrap();
    own(&root, GroupBits::ReadWrite);
    assert_eq!(facts(&other.join("file")).0, 0);
    assert_eq!(facts(&root).0, GROUP);
}

/// Rule: NODE-30.23
#[test]
fn a_walk_that_is_stopped_leaves_the_root_to_be_walked_again() {
    needs!();
    let rig = Rig::new();
    let root = rig.dir("volume");
    fs::create_dir(root.join("sub")).unwrap();
    for number in 0..1000 {
        fs::write(root.join(format!("sub/{number}")), "").unwrap();
    }
    let mut reports = Vec::new();
    let stopped = own_tree(&root, GROUP, GroupBits::ReadWrite, &mut |files| {
        reports.push(files);
        if files < 500 { Walk::GoOn } else { Walk::Stop }
    });
    assert_eq!(reports, [128, 256, 384, 512]);
    assert_eq!(stopped.unwrap(), Owned::Stopped(Counts { files: 512, refused: 0 }));
    assert!(!is_owned(&root, GROUP, GroupBits::ReadWrite).unwrap());
    assert_eq!(own(&root, GroupBits::ReadWrite).files, 1002);
    assert!(is_owned(&root, GROUP, GroupBits::ReadWrite).unwrap());
}

#[test]
fn a_deep_tree_needs_few_descriptors() {
    needs!();
    let rig = Rig::new();
    let root = rig.dir("volume");
    let mut at = fs::File::open(&root).unwrap();
    for _ in 0..1500 {
        rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, "d", DIRECTORY, Mode::empty()).unwrap().into();
        rustix::fs::mknodat(&at, "f", FileType::RegularFile, Mode::RUSR, 0).unwrap();
    }
    assert_eq!(own(&root, GroupBits::ReadWrite), Counts { files: 3001, refused: 0 });
    assert_eq!(rustix::fs::fstat(&at).unwrap().st_gid, GROUP);
    remove_tree(&root).unwrap();
}

/// Rule: NODE-14
#[test]
fn what_cannot_be_changed_is_counted_and_stops_nothing() {
    needs!();
    let rig = Rig::new();
    let root = rig.dir("volume");
    fs::write(root.join("fixed"), "x").unwrap();
    fs::write(root.join("file"), "x").unwrap();
    let fixed = fs::File::open(root.join("fixed")).unwrap();
    if rustix::fs::ioctl_setflags(&fixed, rustix::fs::IFlags::IMMUTABLE).is_err() {
        println!("skipped: this filesystem has no immutable files");
        return;
    }
    let counts = own(&root, GroupBits::ReadWrite);
    rustix::fs::ioctl_setflags(&fixed, rustix::fs::IFlags::empty()).unwrap();
    assert_eq!(counts, Counts { files: 3, refused: 1 });
    assert_eq!(facts(&root.join("file")).0, GROUP);
}

/// Rule: NODE-31.19
#[test]
fn what_is_right_already_is_not_touched() {
    needs!();
    let rig = Rig::new();
    let root = rig.dir("volume");
    fs::write(root.join("file"), "x").unwrap();
    own(&root, GroupBits::ReadWrite);
    let changed = |name: &str| root.join(name).metadata().map(|seen| (seen.ctime(), seen.ctime_nsec())).unwrap();
    let before = (changed("."), changed("file"));
    own(&root, GroupBits::ReadWrite);
    assert_eq!(before, (changed("."), changed("file")));
    chown(root.join("file"), None, Some(0)).unwrap();
    own(&root, GroupBits::ReadWrite);
    assert_eq!(facts(&root.join("file")).0, GROUP);
}
