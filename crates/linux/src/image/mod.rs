//! Image files: making, growing, cloning and copying them (LOCAL-F.2, LOCAL-F.3).
//!
//! # Invariants
//! 1. A file that could not be made complete is removed again: `fallocate` may fail half way and keep what it got.
//! 2. Copies keep holes, and a copy that reports progress has that much on disk.
//! 3. On btrfs, image files have no copy-on-write, so that a loop device never counts half a write as done.
//! 4. Nothing here syncs a directory; the caller makes names durable when the whole object stands.

mod changed;

use std::fs::{File, OpenOptions};
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{
    FallocateFlags, IFlags, SeekFrom, copy_file_range, fallocate, fstat, ftruncate, ioctl_ficlone, ioctl_getflags,
    ioctl_setflags, seek,
};
use rustix::io::Errno;

pub use changed::{ChangedRanges, changed_ranges};

use super::SysError;
use super::tree::is_on_btrfs;

/// Makes a sparse file: instant, and without a promise of space.
pub fn create_sparse(path: &Path, size: u64) -> Result<File, SysError> {
    create(path, |file| ftruncate(file, size))
}

/// Makes a file whose space is reserved.
pub fn create_thick(path: &Path, size: u64) -> Result<File, SysError> {
    create(path, |file| fallocate(file, FallocateFlags::empty(), 0, size))
}

fn create(path: &Path, fill: impl FnOnce(&File) -> rustix::io::Result<()>) -> Result<File, SysError> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(SysError::on("create the image file", path))?;
    match set_copy_on_write(&file, CopyOnWrite::Off).and_then(|()| fill(&file)) {
        Ok(()) => Ok(file),
        Err(errno) => {
            // The first error is the one that matters; a file that cannot be removed is found as an orphan.
            let _ = std::fs::remove_file(path);
            Err(SysError::on("allocate the image file", path)(errno))
        }
    }
}

/// How btrfs writes to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CopyOnWrite {
    /// Each write takes new blocks and has checksums.
    On,
    /// Blocks that the file has alone are written in place.
    Off,
}

/// Sets how an empty file is written to. Other filesystems than btrfs always write in place.
///
/// The kernel's loop driver counts a write as done of which the filesystem stored a part only. On btrfs that happens in a full
/// filesystem to files with checksums, whose direct writes become buffered ones (since Linux 6.15). Without copy-on-write there are
/// no checksums: a direct write stays direct and fails as a whole. Space that is reserved then also holds for later writes.
fn set_copy_on_write(file: &File, wanted: CopyOnWrite) -> rustix::io::Result<()> {
    if !is_on_btrfs(file)? {
        return Ok(());
    }
    let flags = ioctl_getflags(file)?;
    let mut changed = flags;
    changed.set(IFlags::NOCOW, wanted == CopyOnWrite::Off);
    if changed == flags { Ok(()) } else { ioctl_setflags(file, changed) }
}

/// btrfs shares extents only between files that it writes to in the same way.
fn copy_on_write_of(file: &File) -> rustix::io::Result<CopyOnWrite> {
    let in_place = is_on_btrfs(file)? && ioctl_getflags(file)?.contains(IFlags::NOCOW);
    Ok(if in_place { CopyOnWrite::Off } else { CopyOnWrite::On })
}

/// Whether a file's space is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provisioning {
    Thin,
    Thick,
}

/// Grows a file to `size`; a larger file is left alone. A failed thick growth leaves the file as it was.
pub fn grow(file: &File, size: u64, provisioning: Provisioning) -> Result<(), SysError> {
    let old = length(file)?;
    match provisioning {
        Provisioning::Thin if old < size => ftruncate(file, size).map_err(SysError::doing("grow an image file")),
        Provisioning::Thin => Ok(()),
        Provisioning::Thick => {
            // From the start, so that a growth that was cut short is completed, and holes punched since are filled.
            let filled = fallocate(file, FallocateFlags::empty(), 0, size.max(old));
            if filled.is_err() && length(file)? > old {
                ftruncate(file, old).map_err(SysError::doing("undo the growth of an image file"))?;
            }
            filled.map_err(SysError::doing("reserve space for an image file"))
        }
    }
}

/// Bytes the file occupies. Shared extents count in full for every file that has them.
pub fn allocated_bytes(file: &File) -> Result<u64, SysError> {
    let stat = fstat(file).map_err(SysError::doing("measure an image file"))?;
    Ok(u64::try_from(stat.st_blocks).unwrap_or(0) * 512)
}

fn length(file: &File) -> Result<u64, SysError> {
    let stat = fstat(file).map_err(SysError::doing("measure an image file"))?;
    Ok(u64::try_from(stat.st_size).unwrap_or(0))
}

/// The answer to a request to share extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Cloned {
    /// `dst` has the content and the size of `src`.
    Reflinked,
    /// Not on this filesystem, or not between these two; nothing was changed.
    Unsupported,
}

/// Makes `dst`, which is empty, share all extents of `src`. Takes no space and about no time.
pub fn clone_file(src: &File, dst: &File) -> Result<Cloned, SysError> {
    copy_on_write_of(src)
        .and_then(|wanted| set_copy_on_write(dst, wanted))
        .map_err(SysError::doing("prepare the clone of an image file"))?;
    match ioctl_ficlone(dst, src) {
        Ok(()) => Ok(Cloned::Reflinked),
        Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOTTY | Errno::NOSYS) => Ok(Cloned::Unsupported),
        Err(errno) => Err(SysError::new("clone an image file", errno)),
    }
}

/// Tries a clone of a 4 KiB file in `dir`. The files have no name, so nothing can be left behind.
pub fn supports_reflink(dir: &Path) -> Result<bool, SysError> {
    let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let nameless = || rustix::fs::open(dir, flags, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).map(File::from);
    let (src, dst) = match nameless().and_then(|src| Ok((src, nameless()?))) {
        Ok(files) => files,
        // Filesystems without nameless files have no reflink either.
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => return Ok(false),
        Err(errno) => return Err(SysError::on("create a file in", dir)(errno)),
    };
    match src.write_all_at(&[0x6f; 4096], 0).map_err(SysError::on("write a file in", dir)) {
        // On a full disk an empty file must do: the kernel asks the filesystem before it looks at the content.
        Err(error) if error.is_out_of_space() => {}
        other => other?,
    }
    Ok(clone_file(&src, &dst)? == Cloned::Reflinked)
}

/// Can files in `dir` get their blocks before they are written? The file that is tried has no name.
pub fn supports_allocation(dir: &Path) -> Result<bool, SysError> {
    let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    match rustix::fs::open(dir, flags, mode).and_then(|file| fallocate(file, FallocateFlags::empty(), 0, 4096)) {
        // A full disk has answered the question: it would, if it had the blocks.
        Ok(()) | Err(Errno::NOSPC | Errno::DQUOT) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::ISDIR) => Ok(false),
        Err(errno) => Err(SysError::on("allocate a file in", dir)(errno)),
    }
}

/// The parts of a file that hold data, from `from` on, in order. Everything between is holes.
pub fn data_ranges(file: &File, from: u64) -> DataRanges<'_> {
    DataRanges { file, at: Some(from) }
}

/// Iterator of [`data_ranges`].
#[derive(Debug)]
pub struct DataRanges<'a> {
    file: &'a File,
    at: Option<u64>,
}

impl Iterator for DataRanges<'_> {
    type Item = Result<Range<u64>, SysError>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at.take()?;
        let start = match seek(self.file, SeekFrom::Data(at)) {
            Ok(start) => start,
            // No data from here to the end.
            Err(Errno::NXIO) => return None,
            Err(errno) => return Some(Err(SysError::new("find data in an image file", errno))),
        };
        match seek(self.file, SeekFrom::Hole(start)) {
            Ok(end) if end > start => {
                self.at = Some(end);
                Some(Ok(start..end))
            }
            // The file was cut between the two questions.
            Ok(_) | Err(Errno::NXIO) => None,
            Err(errno) => Some(Err(SysError::new("find a hole in an image file", errno))),
        }
    }
}

/// How a copy ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Copied {
    Complete,
    /// The caller stopped it; everything before this offset is on disk.
    Stopped(u64),
}

/// How much data is copied between two syncs.
const CHUNK: u64 = 16 << 20;

/// Copies `src` into `dst` from `from` on, keeping holes, and calls `progress` with each offset up to which `dst` is
/// complete and on disk. A later call with that offset resumes.
///
/// `dst` is cut at `from` first: what an interrupted copy wrote beyond its last progress is not trusted. Its length
/// afterwards is the larger of its own and that of `src`.
pub fn copy_sparse(
    src: &File,
    dst: &File,
    from: u64,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Copied, SysError> {
    let (src_length, dst_length) = (length(src)?, length(dst)?);
    let resize = |size| ftruncate(dst, size).map_err(SysError::doing("set the length of a copy"));
    resize(from.min(dst_length))?;
    resize(dst_length.max(src_length))?;
    let mut unsynced = 0;
    for range in data_ranges(src, from) {
        let range = range?;
        let mut at = range.start;
        while at < range.end {
            let end = (at + CHUNK - unsynced).min(range.end);
            copy_range(src, dst, at..end)?;
            unsynced += end - at;
            at = end;
            if unsynced < CHUNK {
                continue;
            }
            unsynced = 0;
            sync_copy(dst)?;
            if progress(at).is_break() {
                return Ok(Copied::Stopped(at));
            }
        }
    }
    sync_copy(dst)?;
    Ok(match progress(src_length) {
        ControlFlow::Continue(()) => Copied::Complete,
        ControlFlow::Break(()) => Copied::Stopped(src_length),
    })
}

fn sync_copy(dst: &File) -> Result<(), SysError> {
    rustix::fs::fdatasync(dst).map_err(SysError::doing("make a copy durable"))
}

/// Copies one range of data: inside the kernel where it can, through a buffer where it cannot.
pub(super) fn copy_range(src: &File, dst: &File, range: Range<u64>) -> Result<(), SysError> {
    let Range { mut start, end } = range;
    while start < end {
        let (mut from, mut to) = (start, start);
        let left = usize::try_from(end - start).unwrap_or(usize::MAX);
        match copy_file_range(src, Some(&mut from), dst, Some(&mut to), left) {
            // The file became shorter under us; its end reads as a hole.
            Ok(0) => return Ok(()),
            Ok(copied) => start += copied as u64,
            Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                return copy_by_hand(src, dst, start..end);
            }
            Err(errno) => return Err(SysError::new("copy an image file", errno)),
        }
    }
    Ok(())
}

fn copy_by_hand(src: &File, dst: &File, range: Range<u64>) -> Result<(), SysError> {
    let mut buffer = vec![0; 1 << 20];
    let mut at = range.start;
    while at < range.end {
        let want = buffer.len().min(usize::try_from(range.end - at).unwrap_or(usize::MAX));
        let read = src.read_at(&mut buffer[..want], at).map_err(SysError::doing("read the source of a copy"))?;
        if read == 0 {
            return Ok(());
        }
        dst.write_all_at(&buffer[..read], at).map_err(SysError::doing("write a copy"))?;
        at += read as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
