//! Disks as a drive without a protected cache leaves them: from a recording of every write, what came before one flush, and
//! some of what followed it. Only this finds an fsync that is missing, since a machine that is only stopped keeps every write
//! that was completed.
//!
//! The recording has the format of the kernel's dm-log-writes: a head, then entries of one sector each, followed by their data.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};

use super::records::SeededNumbers;
use super::voice::LINES_BYTES;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
const MARK: u64 = 8;

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
        let until = usize::try_from(random.below(until as u64 + 1))?;
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
        let mut data = vec![0; usize::try_from(entry.bytes)?];
        if entry.flags & DISCARD == 0 {
            self.file.read_exact_at(&mut data, entry.data)?;
        } else if data.len() > 64 << 20 {
            bail!("a discard of {} bytes is more than a recording should have", data.len());
        }
        disk.write_all_at(&data, entry.offset)?;
        Ok(())
    }
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
    fn something_else_is_no_recording() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        std::fs::write(&path, vec![0; 4096]).expect("writing");
        assert!(Recording::open(&path).is_err());
    }
}
