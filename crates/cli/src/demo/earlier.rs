//! Demonstrations that were killed before they could clean up, and how the next one knows them.
//!
//! # Invariants
//! 1. A demonstration and its `orlop up` hold a lock in their directory for as long as one of them lives. It has its name
//!    from the moment it is held, so nobody finds one that is about to be.
//! 2. Only directories of our own user with such a lock that nobody holds are touched. What `--keep` left has none.
//! 3. Nothing is removed below which something is still mounted.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use linux::mountinfo::MountTable;
use rustix::io::FdFlags;

use super::site::sweep;

/// What the directories of demonstrations are called.
pub(super) const PREFIX: &str = "orlop-demo-";
const LOCK: &str = "demo.lock";

/// Says that somebody lives here. Children inherit the lock.
pub(super) fn hold(data: &Path) -> io::Result<File> {
    let unnamed = data.join(format!("{LOCK}.new"));
    let lock = File::create_new(&unnamed)?;
    lock.lock()?;
    rustix::io::fcntl_setfd(lock.as_fd(), FdFlags::empty())?;
    fs::rename(&unnamed, data.join(LOCK))?;
    Ok(lock)
}

/// What is kept is nobody's leftover.
pub(super) fn disown(data: &Path) -> io::Result<()> {
    match fs::remove_file(data.join(LOCK)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Takes away what killed demonstrations left in this place. Their directories.
pub(super) fn clear(place: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(place) else { return Vec::new() };
    let named =
        |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(PREFIX));
    entries.flatten().map(|entry| entry.path()).filter(named).filter_map(|path| take(&path)).collect()
}

/// One of them, if nobody lives there any more.
fn take(path: &Path) -> Option<PathBuf> {
    let meta = fs::symlink_metadata(path).ok()?;
    if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() {
        return None;
    }
    let lock = File::open(path.join(LOCK)).ok()?;
    lock.try_lock().ok()?;
    let data = path.canonicalize().ok()?;
    sweep(&data);
    if MountTable::read().ok()?.below(&data).next().is_some() {
        return None;
    }
    if let Err(error) = fs::remove_dir_all(&data) {
        tracing::warn!(%error, directory = %data.display(), "what a demonstration that was killed left is still there");
        return None;
    }
    Some(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_holds_is_taken_away_and_what_is_kept_stays() {
        let place = tempfile::tempdir().expect("a directory can be made");
        let make = |name: &str| {
            let data = place.path().join(name);
            fs::create_dir(&data).expect("it can be made");
            data
        };
        let (held, left, kept, other) =
            (make("orlop-demo-1"), make("orlop-demo-2"), make("orlop-demo-3"), make("orlop-up"));
        let lives = hold(&held).expect("it can be locked");
        drop(hold(&left).expect("it can be locked"));
        drop(hold(&kept).expect("it can be locked"));
        drop(hold(&other).expect("it can be locked"));
        disown(&kept).expect("it can be given up");
        std::os::unix::fs::symlink(&other, place.path().join("orlop-demo-4")).expect("a link can be made");
        // A process that another test started meanwhile may have inherited a lock.
        let free = || File::open(left.join(LOCK)).and_then(|lock| lock.lock()).expect("it can be locked");
        let mut tries = std::iter::repeat_with(|| {
            free();
            clear(place.path())
        });
        let took = tries.by_ref().take(100).find(|took| !took.is_empty());
        assert_eq!(took, Some(vec![place.path().canonicalize().expect("it is there").join("orlop-demo-2")]));
        assert!(held.exists() && kept.exists() && other.exists() && !left.exists());
        drop(lives);
    }
}
