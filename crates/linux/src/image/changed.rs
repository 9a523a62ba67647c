//! The difference between two image files: which blocks of `target` are not as they are in `base`.
//!
//! On a reflink filesystem most of a snapshot shares its extents with its predecessor, and shared extents need no
//! reading: the filesystem's extent map (FIEMAP) proves them equal. Everything the map cannot prove is compared byte
//! by byte, so the answer is right on every filesystem and only the speed differs.
//!
//! # Invariants
//! 1. "Unchanged without reading" needs proof: both are holes (or allocated but unwritten), or both map to the same
//!    place of the same filesystem with a plain extent. Compressed, inline, delayed and unknown extents prove nothing.
//! 2. Beyond its end `base` reads as zeros, so that a grown volume has as changes what was written to the new part.
//! 3. The files must not change meanwhile; snapshots do not.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::fstat;
use rustix::io::Errno;

use super::{data_ranges, length};
use crate::{SysError, ioctl};

/// FIEMAP flags under which `physical` is the plain place of plain bytes: `LAST`, `MERGED`, `SHARED`. Any other flag
/// is a reason to read.
const PLAIN_FLAGS: u32 = 0x1 | 0x1000 | 0x2000;
const UNWRITTEN: u32 = 0x800;

/// How much is read at a time where reading is needed.
const BUFFER: u64 = 1 << 20;

/// What is known about a piece of a file without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Zeros,
    /// Plain bytes; the number is the difference between physical and logical position, equal for equal places.
    At(u64),
    Unknown,
}

/// The ranges of `target`, from `from` on, whose content differs from `base`: in units of `block` bytes (cut at the
/// end of `target`), ascending, adjacent ones joined.
pub fn changed_ranges<'a>(
    base: &'a File,
    target: &'a File,
    from: u64,
    block: u64,
) -> Result<ChangedRanges<'a>, SysError> {
    let block = block.max(1);
    let devices = [base, target].map(|file| fstat(file).map(|stat| stat.st_dev));
    let [base_device, target_device] = devices;
    let stat_error = |errno| SysError::new("inspect an image file", errno);
    let comparable = base_device.map_err(stat_error)? == target_device.map_err(stat_error)?;
    let end = length(target)?;
    Ok(ChangedRanges {
        base: Layout::new(base, end, comparable),
        target: Layout::new(target, end, comparable),
        at: from - from % block,
        end,
        block,
        pending: None,
        complete: VecDeque::new(),
        failed: false,
    })
}

/// Iterator of [`changed_ranges`].
#[derive(Debug)]
pub struct ChangedRanges<'a> {
    base: Layout<'a>,
    target: Layout<'a>,
    pub(super) at: u64,
    end: u64,
    block: u64,
    /// The last changed range found; the next one may join it.
    pending: Option<Range<u64>>,
    /// Changed ranges that nothing can join any more.
    complete: VecDeque<Range<u64>>,
    failed: bool,
}

impl Iterator for ChangedRanges<'_> {
    type Item = Result<Range<u64>, SysError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(range) = self.complete.pop_front() {
                return Some(Ok(range));
            }
            if self.failed || self.at >= self.end {
                return self.pending.take().map(Ok);
            }
            if let Err(error) = self.step() {
                self.failed = true;
                self.pending = None;
                return Some(Err(error));
            }
        }
    }
}

impl ChangedRanges<'_> {
    /// Looks at the next piece that is uniform in both files.
    pub(super) fn step(&mut self) -> Result<(), SysError> {
        let (base_content, base_end) = self.base.at(self.at)?;
        let (target_content, target_end) = self.target.at(self.at)?;
        let stop = base_end.min(target_end).min(self.end);
        let proven_equal = match (base_content, target_content) {
            (Content::Zeros, Content::Zeros) => true,
            (Content::At(base), Content::At(target)) => base == target,
            (Content::Zeros | Content::At(_) | Content::Unknown, _) => false,
        };
        if proven_equal {
            self.at = stop;
            return Ok(());
        }
        self.compare(stop.min(self.at + BUFFER))
    }

    /// Reads both files up to `stop` and notes the blocks that differ.
    fn compare(&mut self, stop: u64) -> Result<(), SysError> {
        let origin = self.at;
        let size = usize::try_from(stop - origin).unwrap_or(usize::MAX);
        let old = read_padded(self.base.file, origin, size)?;
        let new = read_padded(self.target.file, origin, size)?;
        while self.at < stop {
            let block_start = self.at - self.at % self.block;
            let block_end = (block_start + self.block).min(self.end);
            let piece = (self.at - origin) as usize..(block_end.min(stop) - origin) as usize;
            if old[piece.clone()] == new[piece] {
                self.at = block_end.min(stop);
            } else {
                self.note(block_start..block_end);
                // The rest of this block needs no look: the block has changed.
                self.at = block_end;
            }
        }
        Ok(())
    }

    /// Joins a changed range to the pending one, or completes the pending one when they do not touch.
    fn note(&mut self, range: Range<u64>) {
        match &mut self.pending {
            Some(pending) if range.start <= pending.end => pending.end = pending.end.max(range.end),
            pending => self.complete.extend(pending.replace(range)),
        }
    }
}

/// Reads `size` bytes, with zeros for what lies beyond the end.
fn read_padded(file: &File, at: u64, size: usize) -> Result<Vec<u8>, SysError> {
    let mut buffer = vec![0; size];
    let mut filled = 0;
    while filled < size {
        match file.read_at(&mut buffer[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(SysError::new("read an image file", error)),
        }
    }
    Ok(buffer)
}

/// A forward cursor over what is known of a file's content, fetched from the kernel in batches.
#[derive(Debug)]
struct Layout<'a> {
    file: &'a File,
    end: u64,
    /// Whether physical positions of the two files may be compared.
    comparable: bool,
    pieces: VecDeque<(Range<u64>, Content)>,
    /// Up to here the pieces are complete: what no piece covers is zeros.
    fetched: u64,
}

impl<'a> Layout<'a> {
    fn new(file: &'a File, end: u64, comparable: bool) -> Layout<'a> {
        Layout { file, end, comparable, pieces: VecDeque::new(), fetched: 0 }
    }

    /// What the file has at `at`, and up to where that holds. Positions must ascend from call to call.
    fn at(&mut self, at: u64) -> Result<(Content, u64), SysError> {
        loop {
            while self.pieces.front().is_some_and(|(range, _)| range.end <= at) {
                self.pieces.pop_front();
            }
            match self.pieces.front() {
                Some((range, content)) if range.start <= at => return Ok((*content, range.end)),
                Some((range, _)) => return Ok((Content::Zeros, range.start)),
                None if self.fetched > at => return Ok((Content::Zeros, self.fetched)),
                None => self.fetch(at)?,
            }
        }
    }

    fn fetch(&mut self, at: u64) -> Result<(), SysError> {
        let extents = match ioctl::fiemap(self.file, at, self.end - at) {
            Ok(extents) => extents,
            Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS) => return self.fetch_by_seeking(at),
            Err(errno) => return Err(SysError::new("read the extent map of an image file", errno)),
        };
        let last = extents.last().map(|extent| extent.logical.saturating_add(extent.length));
        let complete = extents.len() < ioctl::FIEMAP_BATCH;
        self.fetched = match last {
            Some(last) if !complete => last,
            Some(_) | None => self.end,
        };
        if self.fetched <= at {
            // A map that says nothing about the place it was asked about is not a map; everything is read instead.
            self.fetched = self.end;
            self.pieces.push_back((at..self.end, Content::Unknown));
            return Ok(());
        }
        for extent in extents {
            let range = extent.logical..extent.logical.saturating_add(extent.length);
            self.pieces.push_back((range, self.content(&extent)));
        }
        Ok(())
    }

    fn content(&self, extent: &ioctl::FiemapExtent) -> Content {
        match extent.flags & !PLAIN_FLAGS {
            0 if self.comparable => Content::At(extent.physical.wrapping_sub(extent.logical)),
            // Synced and still unwritten: it reads as zeros.
            UNWRITTEN => Content::Zeros,
            _ => Content::Unknown,
        }
    }

    /// Where there is no extent map, holes can still be told from data.
    fn fetch_by_seeking(&mut self, at: u64) -> Result<(), SysError> {
        match data_ranges(self.file, at).next() {
            Some(range) => {
                let range = range?;
                self.fetched = range.end;
                self.pieces.push_back((range, Content::Unknown));
            }
            None => self.fetched = self.end,
        }
        Ok(())
    }
}
