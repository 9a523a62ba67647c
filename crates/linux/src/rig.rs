//! What the tests of this layer share: a scratch directory with image files whose loop devices and mounts are undone
//! when it goes out of scope, also on a panic. Every name is unique, so that two runs do not meet.

use std::fs::File;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::fs::{FsType, Mkfs, Uuid, mkfs};
use super::loopdev::{self, Attach, Attached, BackingFile, LoopSupport};
use super::mounts::{self, MountFlags};
use super::{image, mountinfo::MountTable};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const RW: Attach = Attach { read_only: false, autoclear: false, direct_io: false, block_size: 512 };

/// Says why a test cannot run here, or nothing when it can.
pub(crate) fn cannot_run(fs_types: &[FsType]) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root".to_owned());
    }
    if let LoopSupport::No(reason) = loopdev::available() {
        return Some(reason);
    }
    let mut missing = fs_types.iter().flat_map(|fs_type| fs_type.missing_tools());
    missing.next().map(|tool| tool.to_string())
}

/// Returns from the test, stating the reason, when the machine lacks what the test needs.
macro_rules! needs {
    ($($fs_type:expr),*) => {
        if let Some(why) = $crate::rig::cannot_run(&[$($fs_type),*]) {
            println!("skipped: {why}");
            return;
        }
    };
}
pub(crate) use needs;

pub(crate) struct Rig {
    dir: tempfile::TempDir,
}

impl Rig {
    pub(crate) fn new() -> Rig {
        Rig { dir: tempfile::Builder::new().prefix("orlop-linux-").tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    pub(crate) fn image(&self, name: &str, size: u64) -> File {
        image::create_sparse(&self.path(name), size).unwrap()
    }

    pub(crate) fn attach(&self, image: &File) -> Attached {
        loopdev::attach(image, RW).unwrap()
    }

    /// A fresh image with a filesystem on it, attached.
    pub(crate) fn formatted(&self, name: &str, fs_type: FsType, size: u64) -> (File, Attached) {
        let image = self.image(name, size);
        let attached = self.attach(&image);
        mkfs(fs_type, &attached.device.path, &Mkfs { uuid: uuid(name), sector_size: 512, lock: None }, MINUTE).unwrap();
        (image, attached)
    }

    /// As [`Rig::formatted`], and mounted on a directory of the rig.
    pub(crate) fn mounted(&self, name: &str, fs_type: FsType, size: u64) -> (File, Attached, PathBuf) {
        let (image, attached) = self.formatted(name, fs_type, size);
        let target = self.dir(&format!("{name}.mnt"));
        mounts::mount_fs(&attached.device.path, &target, fs_type.name(), &MountFlags::default()).unwrap();
        (image, attached, target)
    }
}

/// A uuid that is the same for the same name in one test, and differs between tests and between runs: filesystems with
/// one uuid cannot be mounted side by side (LOCAL-0.16).
pub(crate) fn uuid(name: &str) -> Uuid {
    let mut hasher = std::hash::DefaultHasher::new();
    (name, std::process::id(), std::thread::current().name()).hash(&mut hasher);
    let mut bytes = [0x5a; 16];
    bytes[..8].copy_from_slice(&hasher.finish().to_be_bytes());
    Uuid::from_digest(bytes)
}

impl Drop for Rig {
    fn drop(&mut self) {
        let Ok(root) = self.dir.path().canonicalize() else { return };
        match MountTable::read() {
            Ok(table) => unmount_below(&table, &root),
            Err(error) => eprintln!("the mounts of {} stay: {error}", root.display()),
        }
        detach_all(&root);
    }
}

fn unmount_below(table: &MountTable, root: &Path) {
    let mut points: Vec<&PathBuf> = table.below(root).map(|mount| &mount.mount_point).collect();
    // Deepest first, so that nothing is unmounted under another mount.
    points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    for point in points {
        thaw(point);
        if let Err(error) = mounts::unmount_all(point) {
            eprintln!("a mount stays: {error}");
        }
    }
}

fn thaw(point: &Path) {
    if let Ok(dir) = File::open(point) {
        let _ = super::freeze::thaw(&dir);
    }
}

fn detach_all(root: &Path) {
    let Ok(entries) = std::fs::read_dir(root) else { return };
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()) {
        let Ok(backing) = File::open(&path).map_err(drop).and_then(|file| BackingFile::of(&file).map_err(drop)) else {
            continue;
        };
        for status in loopdev::find(backing).unwrap_or_default() {
            let _ = loopdev::detach_and_wait(&status.device, backing, Duration::from_secs(5));
        }
    }
}
