//! How full a mounted filesystem is.

use std::path::Path;

use rustix::fs::statvfs;

use super::SysError;

/// Bytes and inodes of one filesystem. Byte counts use the fragment size, which is what the block counts are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub total: u64,
    pub used: u64,
    /// What an unprivileged writer may still use: less than `total - used` where blocks are reserved for root.
    pub available: u64,
    /// `None` on filesystems that make inodes as they go (btrfs reports zero).
    pub inodes: Option<Inodes>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inodes {
    pub total: u64,
    pub used: u64,
    pub free: u64,
}

/// What `statvfs` says about the filesystem that holds `path`.
pub fn usage(path: &Path) -> Result<Usage, SysError> {
    let stat = statvfs(path).map_err(SysError::on("read the usage of", path))?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    let inodes = (stat.f_files > 0).then(|| Inodes {
        total: stat.f_files,
        used: stat.f_files.saturating_sub(stat.f_ffree),
        free: stat.f_ffree,
    });
    Ok(Usage {
        total: bytes(stat.f_blocks),
        used: bytes(stat.f_blocks.saturating_sub(stat.f_bfree)),
        available: bytes(stat.f_bavail),
        inodes,
    })
}

/// Bytes an unprivileged writer may still use on the filesystem that holds `path`.
pub fn free_space(path: &Path) -> Result<u64, SysError> {
    Ok(usage(path)?.available)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_adds_up() {
        let dir = tempfile::tempdir().unwrap();
        let usage = usage(dir.path()).unwrap();
        assert!(usage.total > 0 && usage.used <= usage.total && usage.available <= usage.total - usage.used);
        if let Some(inodes) = usage.inodes {
            assert_eq!(inodes.total, inodes.used + inodes.free);
        }
    }

    #[test]
    fn a_missing_path_is_an_error_that_names_it() {
        let error = usage(Path::new("/nonexistent/volume")).unwrap_err();
        assert_eq!(error.to_string(), "could not read the usage of /nonexistent/volume");
        assert!(error.is(rustix::io::Errno::NOENT));
    }
}
