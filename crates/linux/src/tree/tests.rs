//! Trees on the machine's own filesystem, and subvolumes on a btrfs made for the test.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};

use rustix::fs::{IFlags, XattrFlags, ioctl_setflags, lsetxattr};

use super::*;
use crate::fs::FsType;
use crate::image;
use crate::mounts::{BindOptions, bind};
use crate::rig::{MIB, Rig, needs};

/// Rule: LOCAL-F.8
#[test]
fn a_copy_has_everything_the_original_has() {
    needs!();
    let rig = Rig::new();
    let (src, dst) = (rig.dir("src"), rig.dir("dst"));
    fs::create_dir(src.join("sub")).unwrap();
    let sparse = image::create_sparse(&src.join("sub/sparse"), 8 * MIB).unwrap();
    sparse.write_all_at(&[5; 4096], 4 * MIB).unwrap();
    fs::hard_link(src.join("sub/sparse"), src.join("second-name")).unwrap();
    symlink("/nowhere/at/all", src.join("link")).unwrap();
    fs::set_permissions(src.join("sub"), fs::Permissions::from_mode(0o2750)).unwrap();
    fs::write(src.join("program"), "x").unwrap();
    std::os::unix::fs::chown(src.join("program"), Some(1234), Some(5678)).unwrap();
    fs::set_permissions(src.join("program"), fs::Permissions::from_mode(0o4755)).unwrap();
    lsetxattr(src.join("program"), "user.note", b"hello", XattrFlags::empty()).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, src.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let old = rustix::fs::Timespec { tv_sec: 1_000_000, tv_nsec: 42 };
    let times = rustix::fs::Timestamps { last_access: old, last_modification: old };
    for name in ["sub", "program", "link"] {
        rustix::fs::utimensat(rustix::fs::CWD, src.join(name), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }

    copy_tree(&src, &dst, true).unwrap();

    for name in ["sub", "sub/sparse", "second-name", "link", "program", "pipe"] {
        let (a, b) = (src.join(name).symlink_metadata().unwrap(), dst.join(name).symlink_metadata().unwrap());
        let facts = |m: &fs::Metadata| (m.mode(), m.uid(), m.gid(), m.mtime(), m.mtime_nsec(), m.nlink());
        assert_eq!(facts(&a), facts(&b), "{name}");
    }
    assert_eq!(fs::read(src.join("sub/sparse")).unwrap(), fs::read(dst.join("sub/sparse")).unwrap());
    let (a, b) = (dst.join("sub/sparse").metadata().unwrap(), dst.join("second-name").metadata().unwrap());
    assert_eq!(a.ino(), b.ino(), "hard links stay links");
    assert!(a.blocks() * 512 < MIB, "holes stay holes");
    assert_eq!(fs::read_link(dst.join("link")).unwrap(), Path::new("/nowhere/at/all"));
    let mut value = [0; 16];
    let length = rustix::fs::lgetxattr(dst.join("program"), "user.note", &mut value).unwrap();
    assert_eq!(&value[..length], b"hello");
}

/// Rule: LOCAL-F.8
#[test]
fn deleting_does_not_follow_links() {
    let rig = Rig::new();
    let (tree, outside) = (rig.dir("tree/a/b/.."), rig.dir("outside"));
    fs::write(outside.join("precious"), "x").unwrap();
    symlink(&outside, tree.join("link")).unwrap();
    remove_tree(&rig.path("tree")).unwrap();
    assert!(!rig.path("tree").exists() && outside.join("precious").exists());
    remove_tree(&rig.path("tree")).expect("gone already is fine");
    symlink(&outside, rig.path("root-link")).unwrap();
    assert!(remove_tree(&rig.path("root-link")).is_err());
    assert!(outside.join("precious").exists());
}

/// Rule: LOCAL-F.8
#[test]
fn deleting_and_copying_stop_at_a_mount_point() {
    needs!();
    let rig = Rig::new();
    let (outside, inside) = (rig.dir("outside"), rig.dir("tree/mnt"));
    fs::write(outside.join("precious"), "x").unwrap();
    bind(&outside, &inside, BindOptions::default()).unwrap();
    let error = remove_tree(&rig.path("tree")).unwrap_err();
    assert!(matches!(&error, TreeError::MountPoint(path) if *path == inside), "{error}");
    let error = remove_tree(&inside).unwrap_err();
    assert!(matches!(&error, TreeError::MountPoint(path) if *path == inside), "{error}");
    let error = copy_tree(&rig.path("tree"), &rig.dir("copy"), false).unwrap_err();
    assert!(matches!(&error, TreeError::MountPoint(path) if *path == inside), "{error}");
    assert!(outside.join("precious").exists());
}

#[test]
fn a_tree_of_any_depth_is_deleted() {
    let rig = Rig::new();
    let root = rig.dir("deep");
    // Deeper than any path can name, so each level is made relative to the one above.
    let mut at = open_root(&root).unwrap().0;
    for _ in 0..3000 {
        rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, "d", DIRECTORY, Mode::empty()).unwrap();
    }
    drop(at);
    let error = copy_tree(&root, &rig.dir("copy"), false).unwrap_err();
    assert!(matches!(error, TreeError::TooDeep { .. }), "{error}");
    remove_tree(&root).unwrap();
    assert!(!root.exists());
}

/// Rule: LOCAL-F.8
#[test]
fn immutable_files_are_deleted_too() {
    needs!();
    let rig = Rig::new();
    let file = rig.dir("tree").join("fixed");
    let opened = fs::File::create(&file).unwrap();
    if let Err(errno) = ioctl_setflags(&opened, IFlags::IMMUTABLE) {
        println!("skipped: no immutable flag here: {errno}");
        return;
    }
    assert!(fs::remove_file(&file).is_err());
    remove_tree(&rig.path("tree")).unwrap();
    assert!(!file.exists());
}

/// Rule: LOCAL-F.4
#[test]
fn btrfs_subvolumes_are_created_snapshotted_and_deleted() {
    needs!(FsType::Btrfs);
    let rig = Rig::new();
    let pool = rig.mounted("pool.img", FsType::Btrfs, 256 * MIB).2;
    assert!(is_btrfs(&pool).unwrap() && !is_btrfs(Path::new("/proc")).unwrap());
    let name = |name: &'static str| OsStr::new(name);
    subvolume_create(&pool, name("vol")).unwrap();
    fs::write(pool.join("vol/file"), "before").unwrap();
    subvolume_snapshot(&pool.join("vol"), &pool, name("snap"), true).unwrap();
    fs::write(pool.join("vol/file"), "after").unwrap();
    assert_eq!(fs::read(pool.join("snap/file")).unwrap(), b"before");
    assert!(fs::write(pool.join("snap/file"), "x").is_err(), "the snapshot is read-only");
    let error = remove_tree(&pool.join("snap/..").canonicalize().unwrap()).unwrap_err();
    assert!(matches!(error, TreeError::MountPoint(_)), "{error}");
    subvolume_delete(&pool, name("snap")).unwrap();
    subvolume_delete(&pool, name("vol")).unwrap();
    assert!(!pool.join("vol").exists() && !pool.join("snap").exists());
    assert!(subvolume_create(&pool, name("a/b")).unwrap_err().is(Errno::INVAL));
}
