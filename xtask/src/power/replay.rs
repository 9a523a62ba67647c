//! Disks as a drive without a protected cache leaves them: from a recording of every write, what came before one flush, and
//! some of what followed it. Only this finds a flush that is missing, since a machine that is only stopped keeps every write
//! that was completed.
//!
//! The recording has the format of the kernel's dm-log-writes: a head, then entries of one sector each, followed by their data.
//! The emulator notes a request when it is done, and only then tells the machine. So a flush that an acknowledgement needs comes
//! before its line, and what the machine wrote before that flush comes before the flush.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use rustix::fs::FallocateFlags;

use super::records::SeededNumbers;
use super::voice::LINES_BYTES;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
const MARK: u64 = 8;
/// Data is copied in pieces of this size.
const PIECE_BYTES: u64 = 1 << 20;

/// One entry of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RecordedWrite {
    offset: u64,
    bytes: u64,
    flags: u64,
    /// Where its data begins in the recording.
    data: u64,
}

/// A recording of a disk that was empty at its beginning.
#[derive(Debug)]
pub(super) struct Recording {
    file: File,
    entries: Vec<RecordedWrite>,
}

impl Recording {
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
        let head = numbers::<3>(&file, 0)?;
        let [magic, version, count] = head;
        ensure!(magic == MAGIC && version == 1, "{} is not a recording of writes", path.display());
        let mut size = [0; 4];
        file.read_exact_at(&mut size, 24)?;
        let sector = u64::from(u32::from_le_bytes(size));
        ensure!((512..=65_536).contains(&sector), "{} has sectors of {sector} bytes", path.display());
        let mut at = sector;
        let mut entries = Vec::new();
        for _ in 0..count {
            let [start, sectors, flags, mark] = numbers::<4>(&file, at)?;
            let bytes = sectors * sector;
            entries.push(RecordedWrite { offset: start * sector, bytes, flags, data: at + sector });
            let stored = match flags {
                _ if flags & MARK != 0 => mark.next_multiple_of(sector),
                _ if flags & DISCARD != 0 => 0,
                _ => bytes,
            };
            at += sector + stored;
        }
        Ok(Self { file, entries })
    }

    /// The flushes after which something was written, by their place in the recording.
    pub(super) fn flushes(&self) -> Vec<usize> {
        let is_flush = |entry: &RecordedWrite| entry.flags & FLUSH != 0;
        let places = self.entries.iter().enumerate().filter(|(_, entry)| is_flush(entry));
        places.map(|(at, _)| at).filter(|at| self.entries.len() > at + 1).collect()
    }

    /// A flush after which the power goes: half of the choices are before a line, since mkfs writes much and says nothing. Of the
    /// others, those are chosen more often that have many writes before the next flush.
    pub(super) fn choose_flush(&self, random: &mut SeededNumbers) -> Option<usize> {
        let flushes = self.flushes();
        let is_line = |entry: &RecordedWrite| entry.flags & DISCARD == 0 && entry.offset + entry.bytes <= LINES_BYTES;
        let lines_only = random.below(2) == 0;
        let written = self.entries.iter().enumerate().filter(|(_, entry)| entry.bytes > 0);
        let choices: Vec<usize> = written
            .filter(|(_, entry)| !lines_only || is_line(entry))
            .filter_map(|(at, _)| flushes.partition_point(|flush| *flush < at).checked_sub(1))
            .filter_map(|number| flushes.get(number).copied())
            .collect();
        choices.get(usize::try_from(random.below(choices.len() as u64)).ok()?).copied()
    }

    /// Makes the disk as it may be when the power goes after this flush and before the next one. The answer says how many
    /// writes are on it and how many were left out.
    ///
    /// `begun` gets all lines that were written until then, also those that the disk lost.
    pub(super) fn build(
        &self,
        disk: &File,
        begun: &File,
        flush: usize,
        random: &mut SeededNumbers,
    ) -> anyhow::Result<(usize, usize)> {
        let (sure, later) = self.entries.split_at(flush + 1);
        let until = later.iter().position(|entry| entry.flags & FLUSH != 0).unwrap_or(later.len());
        // Half of the cuts come just before the next flush: then most can be left out.
        let until = if random.below(2) == 0 { until } else { usize::try_from(random.below(until as u64 + 1))? };
        let (mut kept, mut dropped) = (0, 0);
        for entry in sure.iter().chain(&later[..until]).filter(|entry| entry.offset + entry.bytes <= LINES_BYTES) {
            self.apply(begun, entry)?;
        }
        for entry in sure {
            self.apply(disk, entry)?;
            kept += 1;
        }
        for entry in &later[..until] {
            // A write that asked to be stored at once and was completed is stored.
            if entry.flags & FUA != 0 || random.below(2) == 0 {
                self.apply(disk, entry)?;
                kept += 1;
            } else {
                dropped += 1;
            }
        }
        Ok((kept, dropped))
    }

    fn apply(&self, disk: &File, entry: &RecordedWrite) -> anyhow::Result<()> {
        if entry.flags & MARK != 0 || entry.bytes == 0 {
            return Ok(());
        }
        // mkfs discards the whole disk at once.
        if entry.flags & DISCARD != 0 {
            return clear(disk, entry.offset, entry.bytes);
        }
        let mut done = 0;
        while done < entry.bytes {
            let bytes = PIECE_BYTES.min(entry.bytes - done);
            let mut data = vec![0; usize::try_from(bytes)?];
            self.file.read_exact_at(&mut data, entry.data + done)?;
            // Zeros take no space: a request to write zeros is recorded with all of them.
            if data.iter().all(|byte| *byte == 0) {
                clear(disk, entry.offset + done, bytes)?;
            } else {
                disk.write_all_at(&data, entry.offset + done)?;
            }
            done += bytes;
        }
        Ok(())
    }
}

/// Makes a part of a disk read as zeros.
fn clear(disk: &File, offset: u64, bytes: u64) -> anyhow::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(disk, flags, offset, bytes).with_context(|| format!("clearing {bytes} bytes at {offset}"))
}

/// Little-endian numbers, one after the other.
fn numbers<const COUNT: usize>(file: &File, at: u64) -> io::Result<[u64; COUNT]> {
    let mut bytes = vec![0; COUNT * 8];
    file.read_exact_at(&mut bytes, at)?;
    let mut found = [0; COUNT];
    for (number, bytes) in found.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = u64::from_le_bytes(bytes.try_into().map_err(io::Error::other)?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a recording: sector, data, flags of each entry.
    fn recorded(entries: &[(u64, &[u8], u64)]) -> Recording {
        let mut bytes: Vec<u8> =
            [MAGIC, 1, entries.len() as u64, 512].iter().flat_map(|number| number.to_le_bytes()).collect();
        bytes.resize(512, 0);
        for (sector, data, flags) in entries {
            let head = [*sector, data.len() as u64 / 512, *flags, 0];
            let at = bytes.len();
            bytes.extend(head.iter().flat_map(|number| number.to_le_bytes()));
            bytes.resize(at + 512, 0);
            bytes.extend_from_slice(data);
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        std::fs::write(&path, bytes).expect("writing");
        Recording::open(&path).expect("it was just made")
    }

    #[test]
    fn a_disk_has_all_before_the_flush_and_a_part_of_what_followed() {
        let fill = |byte: u8| vec![byte; 512];
        let (one, two, three) = (fill(1), fill(2), fill(3));
        let recording = recorded(&[(0, &one, 0), (0, &[], FLUSH), (1, &two, 0), (2, &three, FUA), (0, &[], FLUSH)]);
        assert_eq!(recording.flushes(), [1], "the last one has nothing after it");
        let (mut with, mut without, mut cut_before) = (0, 0, 0);
        for seed in 0..100 {
            let disk = tempfile::tempfile().expect("a file");
            disk.set_len(2048).expect("sizing");
            let begun = tempfile::tempfile().expect("a file");
            let (kept, dropped) = recording.build(&disk, &begun, 1, &mut SeededNumbers::new(seed)).expect("building");
            let mut found = vec![0; 2048];
            disk.read_exact_at(&mut found, 0).expect("reading");
            assert_eq!(found[..512], one[..]);
            with += usize::from(found[512] == 2);
            without += dropped;
            // The third write is there unless the power went before it.
            cut_before += usize::from(found[1024] != 3);
            assert!(found[1024] == 3 || kept + dropped < 4);
        }
        assert!(with > 10 && without > 10 && cut_before > 10, "{with} {without} {cut_before}");
    }

    #[test]
    fn a_discard_of_a_whole_disk_leaves_zeros() {
        let one = vec![1; 1024];
        let mut recording = recorded(&[(1, &one, 0), (0, &[], FLUSH), (0, &[], FLUSH)]);
        // mkfs asks for a discard that is larger than any write.
        let discard = RecordedWrite { offset: 0, bytes: 2 << 30, flags: DISCARD, data: 0 };
        recording.entries.insert(1, discard);
        let disk = tempfile::tempfile().expect("a file");
        disk.set_len(2 << 30).expect("sizing");
        disk.write_all_at(&[7; 512], 1 << 30).expect("writing");
        recording.build(&disk, &disk, 2, &mut SeededNumbers::new(1)).expect("building");
        let mut found = vec![1; 4096];
        for place in [0, 1 << 30] {
            disk.read_exact_at(&mut found, place).expect("reading");
            assert!(found.iter().all(|byte| *byte == 0), "at {place}");
        }
        assert_eq!(disk.metadata().expect("asking").len(), 2 << 30);
    }

    #[test]
    fn cuts_are_before_lines_and_where_much_was_written() {
        let (line, data) = (vec![b'@'; 4096], vec![1; 512]);
        let flush: (u64, &[u8], u64) = (0, &[], FLUSH);
        let mut entries = vec![flush; 2];
        entries.push((0, line.as_slice(), 0));
        entries.push(flush);
        entries.extend([(LINES_BYTES / 512, data.as_slice(), 0); 9]);
        entries.extend([flush; 50]);
        let recording = recorded(&entries);
        let mut random = SeededNumbers::new(1);
        let (mut before_line, mut before_data) = (0, 0);
        for _ in 0..1000 {
            match recording.choose_flush(&mut random) {
                Some(1) => before_line += 1,
                Some(3) => before_data += 1,
                other => panic!("nothing was written after {other:?}"),
            }
        }
        assert!((450..650).contains(&before_line) && before_data > 350, "{before_line} {before_data}");
        assert_eq!(recorded(&[(0, &line, 0)]).choose_flush(&mut random), None);
    }

    #[test]
    fn something_else_is_no_recording() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        std::fs::write(&path, vec![0; 4096]).expect("writing");
        assert!(Recording::open(&path).is_err());
    }
}
