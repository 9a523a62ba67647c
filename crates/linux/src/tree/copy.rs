//! Copying a tree: owner, mode, times, extended attributes, links, special files and holes.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags, chmodat, chownat, lgetxattr,
    linkat, llistxattr, lsetxattr, mkdirat, mknodat, openat, readlinkat, statat, symlinkat, syncfs, utimensat,
};
use rustix::io::Errno;

use super::{TreeError, as_name, kind, names, open_child, open_root};
use crate::SysError;
use crate::image::{Cloned, clone_file, copy_range, data_ranges};

/// Two descriptors per level stay open; this keeps well below the usual limit of 1024.
const DEPTH: usize = 256;

/// Copies the content and attributes of the directory `src` into the existing, empty directory `dst`, and makes the
/// copy durable.
///
/// With `reflink`, file contents share their extents where the filesystem can, and are copied where it cannot.
/// The copy is of a live tree and not of one moment, unless the caller froze it.
pub fn copy_tree(src: &Path, dst: &Path, reflink: bool) -> Result<(), TreeError> {
    let (from, stat) = open_root(src)?;
    let (to, _) = open_root(dst)?;
    let mut copy = TreeCopy { src, dst: &to, device: stat.st_dev, reflink, links: BTreeMap::new() };
    copy.directory(&from, &to, src, 0)?;
    copy_attributes((&from, c"."), (&to, c"."), &stat, src)?;
    Ok(syncfs(&to).map_err(SysError::on("make the copy durable in", dst))?)
}

/// An entry of a directory: the open directory and the name in it.
type Entry<'a> = (&'a OwnedFd, &'a CStr);

struct TreeCopy<'a> {
    src: &'a Path,
    dst: &'a OwnedFd,
    device: u64,
    reflink: bool,
    /// Files with several names, by inode: the first copy, relative to `dst`. Nobody else sees `dst` yet, so a path
    /// into it leads where we put it.
    links: BTreeMap<u64, PathBuf>,
}

impl TreeCopy<'_> {
    fn directory(&mut self, from: &OwnedFd, to: &OwnedFd, path: &Path, depth: usize) -> Result<(), TreeError> {
        if depth > DEPTH {
            return Err(TreeError::TooDeep { path: path.to_path_buf(), limit: DEPTH });
        }
        for name in names(from, path)? {
            let entry = path.join(as_name(&name));
            let stat = statat(from, &name, AtFlags::SYMLINK_NOFOLLOW).map_err(SysError::on("inspect", &entry))?;
            match kind(&stat) {
                FileType::Directory => self.subdirectory((from, &name), to, &entry, depth)?,
                _ => self.leaf((from, &name), to, &stat, &entry)?,
            }
            copy_attributes((from, &name), (to, &name), &stat, &entry)?;
        }
        Ok(())
    }

    fn subdirectory(&mut self, from: Entry<'_>, to: &OwnedFd, path: &Path, depth: usize) -> Result<(), TreeError> {
        let child = open_child(from.0, as_os(from.1), self.device, path)?;
        mkdirat(to, from.1, Mode::RWXU).map_err(SysError::on("copy the directory", path))?;
        let copied =
            openat(to, from.1, super::DIRECTORY, Mode::empty()).map_err(SysError::on("open the copy of", path))?;
        self.directory(&child, &copied, path, depth + 1)
    }

    /// Makes anything that is not a directory.
    fn leaf(&mut self, from: Entry<'_>, to: &OwnedFd, stat: &Stat, path: &Path) -> Result<(), TreeError> {
        let name = from.1;
        let copy_error = || SysError::on("copy", path);
        if let Some(first) = self.links.get(&stat.st_ino) {
            linkat(self.dst, first, to, name, AtFlags::empty()).map_err(SysError::on("link", path))?;
            return Ok(());
        }
        match kind(stat) {
            FileType::RegularFile => self.file(from, to, stat, path)?,
            FileType::Symlink => {
                let target = readlinkat(from.0, name, Vec::new()).map_err(SysError::on("read the link", path))?;
                symlinkat(&target, to, name).map_err(copy_error())?;
            }
            special => {
                let mode = Mode::RUSR | Mode::WUSR;
                mknodat(to, name, special, mode, stat.st_rdev).map_err(copy_error())?;
            }
        }
        if stat.st_nlink > 1 {
            let relative = path.strip_prefix(self.src).unwrap_or(path);
            self.links.insert(stat.st_ino, relative.to_path_buf());
        }
        Ok(())
    }

    fn file(&self, from: Entry<'_>, to: &OwnedFd, stat: &Stat, path: &Path) -> Result<(), SysError> {
        let base = OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let src = openat(from.0, from.1, base | OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty());
        let src = File::from(src.map_err(SysError::on("open", path))?);
        let flags = base | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let dst = openat(to, from.1, flags, Mode::RUSR | Mode::WUSR).map_err(SysError::on("copy", path))?;
        let dst = File::from(dst);
        if self.reflink && clone_file(&src, &dst)? == Cloned::Reflinked {
            return Ok(());
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        rustix::fs::ftruncate(&dst, size).map_err(SysError::on("copy", path))?;
        for range in data_ranges(&src, 0) {
            copy_range(&src, &dst, range?)?;
        }
        Ok(())
    }
}

fn as_os(name: &CStr) -> &OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(name.to_bytes())
}

/// Owner first, because changing it drops set-id bits and capabilities; times last, because all else touches them.
fn copy_attributes(from: Entry<'_>, to: Entry<'_>, stat: &Stat, path: &Path) -> Result<(), SysError> {
    let doing = || SysError::on("copy the attributes of", path);
    let (dir, name) = to;
    let no_follow = AtFlags::SYMLINK_NOFOLLOW;
    let (owner, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    chownat(dir, name, Some(owner), Some(group), no_follow).map_err(doing())?;
    copy_xattrs(from, to, path)?;
    if kind(stat) != FileType::Symlink {
        chmodat(dir, name, Mode::from_raw_mode(stat.st_mode), AtFlags::empty()).map_err(doing())?;
    }
    let time = |tv_sec, nanoseconds| Timespec { tv_sec, tv_nsec: i64::try_from(nanoseconds).unwrap_or(0) };
    let times = Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    };
    utimensat(dir, name, &times, no_follow).map_err(doing())
}

/// Extended attributes have no calls relative to a directory, so the directory is named by its descriptor.
fn copy_xattrs(from: Entry<'_>, to: Entry<'_>, path: &Path) -> Result<(), SysError> {
    let by_fd = |(dir, name): Entry<'_>| -> PathBuf {
        Path::new("/proc/self/fd").join(dir.as_fd().as_raw_fd().to_string()).join(as_os(name))
    };
    let (src, dst) = (by_fd(from), by_fd(to));
    let list = read_whole(|buffer| llistxattr(&src, buffer));
    let list = match list {
        Ok(list) => list,
        Err(Errno::OPNOTSUPP) => return Ok(()),
        Err(errno) => return Err(SysError::on("list the extended attributes of", path)(errno)),
    };
    for name in list.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let value = match read_whole(|buffer| lgetxattr(&src, name, buffer)) {
            Ok(value) => value,
            // Removed since it was listed, or only listed for show.
            Err(Errno::NODATA | Errno::OPNOTSUPP) => continue,
            Err(errno) => return Err(SysError::on("read an extended attribute of", path)(errno)),
        };
        lsetxattr(&dst, name, &value, XattrFlags::empty())
            .map_err(SysError::on("copy an extended attribute of", path))?;
    }
    Ok(())
}

/// Calls with a buffer of the largest size an attribute or a list of them can have on Linux: 64 KiB.
fn read_whole<F>(read: F) -> Result<Vec<u8>, Errno>
where
    F: for<'b> FnOnce(&'b mut [MaybeUninit<u8>]) -> Result<(&'b mut [u8], &'b mut [MaybeUninit<u8>]), Errno>,
{
    let mut buffer = vec![MaybeUninit::uninit(); 64 << 10];
    read(&mut buffer).map(|(filled, _)| filled.to_vec())
}
