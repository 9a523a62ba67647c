//! Writing what is cached to disk, and learning of writes that failed earlier.
//!
//! The kernel keeps a write error until it is told to one caller: whoever opens a file of the filesystem (or the device)
//! after the error, and syncs it, is told, unless an earlier caller was. So the files are opened before anything else is
//! done, and stay open until the last sync.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, open, statx};
use rustix::io::Errno;

use super::mountinfo::Mount;
use super::mounts::{self, MountError};
use super::tree::is_on_btrfs;
use super::{SysError, ioctl};

/// The root directory of one mount, held open.
#[derive(Debug)]
pub struct OpenMount {
    pub place: PathBuf,
    pub dir: File,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenMountError {
    #[error(transparent)]
    Sys(#[from] SysError),
    /// The path shows another mount, which stands above the wanted one or took its place.
    #[error("another mount covers the one at {}", .0.display())]
    Covered(PathBuf),
}

impl OpenMount {
    /// Opens what `mount` shows. The mount id of what was opened is compared, because the path may show another filesystem.
    pub fn open(mount: &Mount) -> Result<OpenMount, OpenMountError> {
        let place = &mount.mount_point;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let dir = open(place, flags, Mode::empty()).map_err(SysError::on("open", place))?;
        let found = statx(&dir, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).map_err(SysError::on("inspect", place))?;
        if found.stx_mnt_id == mount.id {
            Ok(OpenMount { place: place.clone(), dir: File::from(dir) })
        } else {
            Err(OpenMountError::Covered(place.clone()))
        }
    }

    /// Opens the first of these mounts of one filesystem that its path really shows. `None` without mounts; if none can
    /// be opened, the error of the first. A filesystem that was shut down opens through none of them: `EIO`.
    pub fn open_first<'m>(mounts: impl IntoIterator<Item = &'m Mount>) -> Result<Option<OpenMount>, OpenMountError> {
        let mut failed = None;
        for mount in mounts {
            match OpenMount::open(mount) {
                Ok(opened) => return Ok(Some(opened)),
                Err(OpenMountError::Sys(error)) if error.is(Errno::IO) => return Err(error.into()),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(None), Err)
    }

    /// Opens the filesystem of `mount`, which is on `device`, where no path shows it: through one more mount of it,
    /// which nothing shows either and which ends when the directory is closed.
    pub fn open_covered(device: &Path, mount: &Mount) -> Result<OpenMount, MountError> {
        let dir = mounts::mount_detached(device, &mount.fs_type, mount.is_filesystem_read_only())?;
        Ok(OpenMount { place: mount.mount_point.clone(), dir: File::from(dir) })
    }

    /// A path by which another process opens this very directory, even if another mount covers it meanwhile.
    pub fn path_for_other_processes(&self) -> OsString {
        format!("/proc/{}/fd/{}", std::process::id(), self.dir.as_raw_fd()).into()
    }

    /// Writes the whole filesystem to its device; an error that an earlier write met is reported as well.
    ///
    /// `syncfs` does nothing and succeeds on a filesystem that is read-only, also on one that the kernel made so after an error,
    /// with writes in memory that are lost. btrfs has a request of its own that tells the two apart.
    pub fn sync(&self) -> Result<(), SysError> {
        let synced = rustix::fs::syncfs(&self.dir).and_then(|()| match is_on_btrfs(&self.dir)? {
            true => ioctl::btrfs_sync(&self.dir),
            false => Ok(()),
        });
        synced.map_err(SysError::on("write the filesystem to its device at", &self.place))
    }
}

/// Opens a file or device to be synced later.
pub fn open_for_sync(path: &Path) -> Result<File, SysError> {
    File::open(path).map_err(SysError::on("open", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::FsType;
    use crate::mountinfo::MountTable;
    use crate::mounts::{self, MountFlags};
    use crate::rig::{MIB, Rig, needs};

    #[test]
    fn a_mount_that_another_one_covers_is_not_taken_for_it() {
        needs!(FsType::Ext4);
        let rig = Rig::new();
        let (_image, attached, place) = rig.mounted("a", FsType::Ext4, 32 * MIB);
        let mount = MountTable::read().unwrap().top(&place).unwrap().clone();
        let opened = OpenMount::open(&mount).unwrap();
        opened.sync().unwrap();
        let (_other, above) = rig.formatted("b", FsType::Ext4, 32 * MIB);
        mounts::mount_fs(&above.device.path, &place, "ext4", &MountFlags::default()).unwrap();
        let error = OpenMount::open(&mount).unwrap_err();
        assert!(matches!(&error, OpenMountError::Covered(path) if *path == place), "{error:?}");

        assert!(matches!(OpenMount::open_first([&mount]), Err(OpenMountError::Covered(_))));
        let table = MountTable::read().unwrap();
        let cover = table.top(&place).unwrap();
        assert_eq!(identity(&OpenMount::open_first([&mount, cover]).unwrap().unwrap()), identity_of(cover));
        let below = OpenMount::open_covered(&attached.device.path, &mount).unwrap();
        assert_eq!(identity(&below), identity_of(&mount));
        drop(below);
        assert_eq!(MountTable::read().unwrap(), table, "nothing shows that mount");
    }

    fn identity(opened: &OpenMount) -> (u32, u32) {
        let device = rustix::fs::fstat(&opened.dir).unwrap().st_dev;
        (rustix::fs::major(device), rustix::fs::minor(device))
    }

    fn identity_of(mount: &Mount) -> (u32, u32) {
        (mount.major, mount.minor)
    }
}
