//! Records that a volume is written with: numbered, checksummed, each at the place that its number gives it.
//!
//! A file or device holds a ring of [`SLOTS`] records. A writer is never more than [`AHEAD`] records beyond the last one whose
//! sync was acknowledged, so that all other slots must hold what was acknowledged. Records that are never synced have a ring of
//! their own, whose name ends in [`UNSYNCED`].

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

pub(super) const RECORD_BYTES: usize = 1024;
pub(super) const SLOTS: u64 = 256;
/// Records that may be written and not acknowledged at the time of a cut.
pub(super) const AHEAD: u64 = 16;
/// The end of the name of a ring whose records are not synced.
pub(super) const UNSYNCED: &str = "-unsynced";
/// Where that ring begins, also on a device that has the other ring.
const UNSYNCED_PLACE: u64 = 1 << 20;
const WORDS: usize = RECORD_BYTES / 8;
const MAGIC: u64 = 0x6f72_6c6f_7072_6563;

/// Numbers that look random and are the same for the same seed.
#[derive(Debug, Clone)]
pub(super) struct SeededNumbers(u64);

impl SeededNumbers {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below the limit.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}

/// A number for a text, to tell volumes apart.
pub(super) fn hash(text: &str) -> u64 {
    text.bytes().fold(MAGIC, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The one right content of a record.
pub(super) fn record(volume: &str, number: u64) -> Vec<u8> {
    let mut words = Vec::with_capacity(WORDS);
    words.extend([MAGIC, hash(volume), number]);
    let mut payload = SeededNumbers::new(hash(volume) ^ number);
    words.extend((words.len()..WORDS).map(|_| payload.next()));
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

fn place(volume: &str, number: u64) -> u64 {
    let ring = if volume.ends_with(UNSYNCED) { UNSYNCED_PLACE } else { 0 };
    ring + number % SLOTS * RECORD_BYTES as u64
}

pub(super) fn write(file: &File, volume: &str, number: u64) -> io::Result<()> {
    file.write_all_at(&record(volume, number), place(volume, number))
}

/// Reads back every record that must be there and says of each that is not.
pub(super) fn missing(file: &File, volume: &str, acknowledged: u64) -> Vec<String> {
    let first = acknowledged.saturating_sub(SLOTS - AHEAD - 1).max(1);
    let promise = if volume.ends_with(UNSYNCED) { "written without an error" } else { "synced" };
    let mut wrong = Vec::new();
    let mut found = vec![0; RECORD_BYTES];
    for number in first..=acknowledged {
        match file.read_exact_at(&mut found, place(volume, number)) {
            Ok(()) if found == record(volume, number) => {}
            Ok(()) => wrong.push(format!("{volume}: record {number} was {promise} and {}", described(&found, volume))),
            Err(error) => wrong.push(format!("{volume}: record {number} was {promise} and cannot be read: {error}")),
        }
    }
    wrong
}

fn described(found: &[u8], volume: &str) -> String {
    let word =
        |at: usize| found.get(at * 8..at * 8 + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    match (word(0), word(1), word(2)) {
        (Some(MAGIC), Some(owner), Some(number)) if owner != hash(volume) => {
            format!("another volume's record {number} is in its place")
        }
        (Some(MAGIC), _, Some(number)) if found == record(volume, number) => format!("record {number} is in its place"),
        (Some(MAGIC), _, Some(number)) => format!("a torn record {number} is in its place"),
        _ if found.iter().all(|byte| *byte == 0) => "zeros are in its place".to_owned(),
        _ => "other bytes are in its place".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_synced_record_that_is_not_there_is_found() {
        let file = tempfile::tempfile().expect("a file");
        let last = SLOTS + 40;
        for number in 1..=last {
            write(&file, "a", number).expect("writing");
        }
        assert_eq!(missing(&file, "a", last), [] as [String; 0]);
        // What a writer may have written beyond the last acknowledged record is no fault.
        for number in last + 1..=last + AHEAD {
            write(&file, "a", number).expect("writing");
        }
        assert_eq!(missing(&file, "a", last), [] as [String; 0]);

        file.write_all_at(&[0; RECORD_BYTES], place("a", last)).expect("writing");
        assert_eq!(missing(&file, "a", last), [format!("a: record {last} was synced and zeros are in its place")]);
        write(&file, "b", last).expect("writing");
        assert!(missing(&file, "a", last)[0].contains("another volume's record"));
        write(&file, "a", last - SLOTS).expect("writing");
        assert!(missing(&file, "a", last)[0].contains(&format!("and record {} is in its place", last - SLOTS)));
        file.write_all_at(&[7; 100], place("a", last) + 200).expect("writing");
        assert!(missing(&file, "a", last)[0].contains("a torn record"));
    }

    #[test]
    fn a_device_holds_both_rings() {
        let file = tempfile::tempfile().expect("a file");
        for number in 1..=SLOTS {
            write(&file, "a", number).expect("writing");
            write(&file, "a-unsynced", number).expect("writing");
        }
        assert_eq!(missing(&file, "a", SLOTS), [] as [String; 0]);
        assert_eq!(missing(&file, "a-unsynced", SLOTS), [] as [String; 0]);
        assert!(missing(&file, "a-unsynced", SLOTS + 1)[0].contains("was written without an error and record 1 is"));
    }

    #[test]
    fn an_empty_file_has_lost_everything_that_was_synced() {
        let file = tempfile::tempfile().expect("a file");
        assert_eq!(missing(&file, "a", 0), [] as [String; 0]);
        assert_eq!(missing(&file, "a", 3).len(), 3);
    }
}
