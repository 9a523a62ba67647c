//! A few blocks that the driver keeps for itself in each pool.
//!
//! A pool that is full to the last block cannot take a record, a mark or a lock file, and then its driver cannot even start
//! to delete something. The ballast is a file with allocated blocks: it is given up when the pool is full, and made again
//! when there is room.

use std::fs;
use std::io;
use std::path::Path;

use super::Pool;
use linux::{SysError, durable, image, statfs};

const BALLAST: &str = ".ballast";
const LARGEST: u64 = 8 << 20;

/// Whether blocks became free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ballast {
    Released,
    /// There was none left to give up.
    WasGone,
}

/// How large the ballast of a pool with this reserve is.
fn wanted(reserve: u64) -> u64 {
    (reserve / 4).min(LARGEST)
}

/// Gives up the ballast of a pool that has next to no room.
pub(super) fn release_if_full(root: &Path) -> Result<(), SysError> {
    let usage = statfs::usage(root)?;
    let inodes_left = usage.inodes.is_none_or(|inodes| inodes.free > 16);
    if usage.available >= LARGEST / 2 && inodes_left {
        return Ok(());
    }
    match release(root)? {
        Ballast::Released => tracing::warn!(pool = %root.display(), "the pool is full: its ballast is given up"),
        Ballast::WasGone => {}
    }
    Ok(())
}

fn release(root: &Path) -> Result<Ballast, SysError> {
    let path = root.join(BALLAST);
    match fs::remove_file(&path) {
        // Freed blocks can be used once the removal is on disk.
        Ok(()) => durable::fsync_dir(root).map(|()| Ballast::Released),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Ballast::WasGone),
        Err(error) => Err(SysError::on("remove", &path)(error)),
    }
}

impl Pool {
    /// Gives up the ballast, so that what failed for want of space can be tried once more.
    pub fn release_ballast(&self) -> Ballast {
        release(&self.root).unwrap_or_else(|error| {
            tracing::warn!(pool = %self.name, error = %error, "the ballast cannot be given up");
            Ballast::WasGone
        })
    }

    /// Makes the ballast again where there is room for it. It is an aid: a failure is told and stops nothing.
    pub fn load_ballast(&self) {
        let size = wanted(self.reserve);
        let path = self.root.join(BALLAST);
        let room = statfs::free_space(&self.root).is_ok_and(|free| free > self.reserve);
        if size == 0 || !room || path.exists() {
            return;
        }
        match image::create_thick(&path, size) {
            Ok(file) => drop(file),
            Err(error) => tracing::warn!(pool = %self.name, error = %error, "the pool gets no ballast"),
        }
    }
}
