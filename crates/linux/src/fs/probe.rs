//! What is on a device, before anybody thinks of formatting it.
//!
//! The decision to run mkfs destroys data when it is wrong, so the probe is built to err to the other side: only
//! zeros are empty, and a device that cannot be read is an error.

use std::path::Path;

use super::superblock::{Found, HEAD_BYTES, open_fresh, read_exactly, signatures};
use super::{FsType, Uuid};
use crate::SysError;

/// The content of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// The first and the last MiB were read and are all zeros.
    Empty,
    /// Exactly one signature, of a finished filesystem that we make.
    Known(FsType, Uuid),
    /// Anything else, described for a person.
    Foreign(String),
}

#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error(transparent)]
    Sys(#[from] SysError),
    /// A loop device without a file looks like this. It is not an empty volume.
    #[error("{} has no size", .0.display())]
    NoSize(std::path::PathBuf),
}

/// Looks at a device or image file.
pub fn probe(device: &Path) -> Result<Probe, ProbeError> {
    let (file, size) = open_fresh(device)?;
    if size == 0 {
        return Err(ProbeError::NoSize(device.to_path_buf()));
    }
    let window = usize::try_from(size).unwrap_or(usize::MAX).min(HEAD_BYTES);
    let head = read_exactly(&file, device, 0, window)?;
    let tail = read_exactly(&file, device, size - window as u64, window)?;
    Ok(judge(&head, &tail))
}

/// Decides from the first and last bytes of a device.
fn judge(head: &[u8], tail: &[u8]) -> Probe {
    let filesystems = signatures(head);
    let others = other_signatures(head, tail);
    match (&filesystems[..], &others[..]) {
        ([Found::Known(fs_type, uuid)], []) => Probe::Known(*fs_type, *uuid),
        ([], []) if is_zero(head) && is_zero(tail) => Probe::Empty,
        ([], []) => Probe::Foreign("unrecognised data".to_owned()),
        _ => {
            let names = filesystems.iter().map(|found| match found {
                Found::Known(fs_type, _) => fs_type.name(),
                Found::Odd(what) => what,
            });
            Probe::Foreign(names.chain(others.iter().copied()).collect::<Vec<_>>().join(" and "))
        }
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Signatures of things that are not ours. The list only improves the message: unknown data is foreign anyway.
fn other_signatures(head: &[u8], tail: &[u8]) -> Vec<&'static str> {
    let at = |offset: usize, magic: &[u8]| head.get(offset..offset + magic.len()) == Some(magic);
    let backup_table =
        |sector: usize| tail.len().checked_sub(sector).is_some_and(|at| tail[at..].starts_with(b"EFI PART"));
    let lvm = [0, 512, 1024, 1536].iter().any(|sector| at(*sector, b"LABELONE") && at(*sector + 24, b"LVM2 001"));
    let gpt = at(512, b"EFI PART") || at(4096, b"EFI PART") || backup_table(512) || backup_table(4096);
    let swap = [4096, 16384, 65536].iter().any(|page| at(page - 10, b"SWAPSPACE2"));
    [
        (gpt, "a GPT partition table"),
        (!gpt && at(510, &[0x55, 0xaa]), "an MBR partition table or boot sector"),
        (lvm, "an LVM physical volume"),
        (at(0, b"LUKS\xba\xbe"), "a LUKS volume"),
        (swap, "swap space"),
    ]
    .into_iter()
    .filter_map(|(found, name)| found.then_some(name))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: usize = 1 << 20;

    fn with(offset: usize, bytes: &[u8]) -> Vec<u8> {
        let mut head = vec![0; WINDOW];
        head[offset..offset + bytes.len()].copy_from_slice(bytes);
        head
    }

    fn foreign(head: &[u8], tail: &[u8]) -> String {
        match judge(head, tail) {
            Probe::Foreign(what) => what,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_zeros_are_empty() {
        let zeros = vec![0; WINDOW];
        assert_eq!(judge(&zeros, &zeros), Probe::Empty);
        for offset in [0, 1, 1023, 65536, WINDOW - 1] {
            assert_eq!(foreign(&with(offset, &[1]), &zeros), "unrecognised data");
            assert_eq!(foreign(&zeros, &with(offset, &[1])), "unrecognised data");
        }
    }

    #[test]
    fn foreign_signatures_are_named() {
        let zeros = vec![0; WINDOW];
        assert_eq!(foreign(&with(0, b"LUKS\xba\xbe"), &zeros), "a LUKS volume");
        assert_eq!(foreign(&with(4086, b"SWAPSPACE2"), &zeros), "swap space");
        assert_eq!(foreign(&with(510, &[0x55, 0xaa]), &zeros), "an MBR partition table or boot sector");
        assert_eq!(foreign(&zeros, &with(WINDOW - 512, b"EFI PART")), "a GPT partition table");
        let mut lvm = with(512, b"LABELONE");
        lvm[536..544].copy_from_slice(b"LVM2 001");
        assert_eq!(foreign(&lvm, &zeros), "an LVM physical volume");
    }

    #[test]
    fn two_signatures_are_ambiguous_and_unfinished_ones_are_not_ours() {
        let zeros = vec![0; WINDOW];
        let mut both = with(0, b"XFSB");
        both[65600..65608].copy_from_slice(b"_BHRfS_M");
        assert_eq!(foreign(&both, &zeros), "xfs and btrfs");
        let mut unfinished = with(0, b"XFSB");
        unfinished[126] = 1;
        assert_eq!(foreign(&unfinished, &zeros), "an unfinished xfs filesystem");
        assert_eq!(foreign(&with(65600, b"!BHRfS_M"), &zeros), "an unfinished btrfs filesystem");
    }
}
