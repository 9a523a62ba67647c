//! Image files on the machine's own filesystem and on an XFS pool made for the test.

use std::path::PathBuf;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::fs::FsType;
use crate::rig::{MIB, Rig, needs};

const BLOCK: u64 = 4096;

fn read(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; length(file).unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn go_on(_: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Rule: LOCAL-F.2
#[test]
fn a_sparse_file_takes_no_space_and_a_thick_one_all_of_it() {
    let rig = Rig::new();
    let sparse = rig.image("sparse", 16 * MIB);
    assert_eq!((length(&sparse).unwrap(), allocated_bytes(&sparse).unwrap()), (16 * MIB, 0));
    let thick = create_thick(&rig.path("thick"), 4 * MIB).unwrap();
    assert!(allocated_bytes(&thick).unwrap() >= 4 * MIB);
    grow(&thick, 8 * MIB, Provisioning::Thick).unwrap();
    assert!(allocated_bytes(&thick).unwrap() >= 8 * MIB);
    grow(&sparse, 32 * MIB, Provisioning::Thin).unwrap();
    grow(&sparse, MIB, Provisioning::Thin).unwrap();
    assert_eq!((length(&sparse).unwrap(), allocated_bytes(&sparse).unwrap()), (32 * MIB, 0));
}

/// Rule: LOCAL-F.2
#[test]
fn a_failed_allocation_leaves_nothing_behind() {
    let rig = Rig::new();
    let path = rig.path("huge");
    let error = create_thick(&path, 1 << 60).unwrap_err();
    assert!(error.is_out_of_space(), "{error:?}");
    assert!(!path.exists());
    let thick = create_thick(&rig.path("thick"), MIB).unwrap();
    assert!(grow(&thick, 1 << 60, Provisioning::Thick).is_err());
    assert_eq!(length(&thick).unwrap(), MIB);
}

#[test]
fn an_existing_file_is_never_reused() {
    let rig = Rig::new();
    rig.image("a", MIB);
    assert!(create_sparse(&rig.path("a"), MIB).unwrap_err().is(Errno::EXIST));
}

#[test]
fn a_copy_keeps_holes_and_bytes() {
    let rig = Rig::new();
    let src = rig.image("src", 64 * MIB);
    src.write_all_at(&[1; 100], 5 * MIB).unwrap();
    src.write_all_at(&vec![2; 20 << 20], 30 * MIB).unwrap();
    let dst = rig.image("dst", 80 * MIB);
    let mut seen = Vec::new();
    let mut progress = |at| {
        seen.push(at);
        ControlFlow::Continue(())
    };
    assert_eq!(copy_sparse(&src, &dst, 0, &mut progress).unwrap(), Copied::Complete);
    assert!(seen.is_sorted() && seen.last() == Some(&(64 * MIB)), "{seen:?}");
    assert_eq!(length(&dst).unwrap(), 80 * MIB, "a larger destination keeps its size");
    assert_eq!(read(&dst)[..64 << 20], read(&src)[..]);
    assert!(allocated_bytes(&dst).unwrap() < 24 * MIB);
}

#[test]
fn a_stopped_copy_resumes_and_trusts_nothing_beyond_its_progress() {
    let rig = Rig::new();
    let src = rig.image("src", 40 * MIB);
    src.write_all_at(&vec![7; 40 << 20], 0).unwrap();
    let dst = rig.image("dst", 40 * MIB);
    let stopped = copy_sparse(&src, &dst, 0, &mut |_| ControlFlow::Break(())).unwrap();
    assert_eq!(stopped, Copied::Stopped(16 * MIB));
    // What a crash may leave: bytes that were never reported.
    dst.write_all_at(&[0xee; 4096], 39 * MIB).unwrap();
    assert_eq!(copy_sparse(&src, &dst, 16 * MIB, &mut go_on).unwrap(), Copied::Complete);
    assert!(read(&src) == read(&dst));
}

/// The directories to test in: the machine's, and an XFS pool. The pool is mounted in the rig.
fn pools(rig: &Rig) -> Vec<PathBuf> {
    let xfs = rig.mounted("pool.img", FsType::Xfs, 512 * MIB).2;
    vec![rig.dir("plain"), xfs]
}

/// Rule: LOCAL-0.21
#[test]
fn reflink_works_on_xfs_and_the_probe_knows() {
    needs!(FsType::Xfs, FsType::Ext4);
    let rig = Rig::new();
    let xfs = rig.mounted("xfs.img", FsType::Xfs, 300 * MIB).2;
    let ext4 = rig.mounted("ext4.img", FsType::Ext4, 64 * MIB).2;
    assert!(supports_reflink(&xfs).unwrap());
    assert!(!supports_reflink(&ext4).unwrap());
    let src = create_sparse(&xfs.join("src"), 16 * MIB).unwrap();
    src.write_all_at(&[9; 8192], MIB).unwrap();
    let dst = create_sparse(&xfs.join("dst"), 0).unwrap();
    assert_eq!(clone_file(&src, &dst).unwrap(), Cloned::Reflinked);
    assert!(read(&src) == read(&dst));
    let elsewhere = create_sparse(&ext4.join("dst"), 0).unwrap();
    assert_eq!(clone_file(&src, &elsewhere).unwrap(), Cloned::Unsupported, "another filesystem");
    let ext4_src = create_sparse(&ext4.join("src"), MIB).unwrap();
    assert_eq!(clone_file(&ext4_src, &elsewhere).unwrap(), Cloned::Unsupported, "ext4 has no reflink");
}

#[test]
fn a_clone_on_btrfs_is_written_to_as_its_source_is() {
    needs!(FsType::Btrfs);
    let rig = Rig::new();
    let pool = rig.mounted("pool.img", FsType::Btrfs, 256 * MIB).2;
    let options = || OpenOptions::new().read(true).write(true).create_new(true).clone();
    let older = options().open(pool.join("older")).unwrap();
    let newer = create_sparse(&pool.join("newer"), 0).unwrap();
    for (name, source, want) in [("older", &older, CopyOnWrite::On), ("newer", &newer, CopyOnWrite::Off)] {
        source.write_all_at(&[9; 8192], 0).unwrap();
        assert_eq!(copy_on_write_of(source).unwrap(), want, "{name}");
        let copy = create_sparse(&pool.join(format!("{name}-copy")), 0).unwrap();
        assert_eq!(clone_file(source, &copy).unwrap(), Cloned::Reflinked, "{name}");
        assert_eq!(copy_on_write_of(&copy).unwrap(), want, "{name}");
    }
}

#[test]
fn unchanged_shared_extents_are_not_read() {
    needs!(FsType::Xfs);
    let rig = Rig::new();
    let pool = rig.mounted("pool.img", FsType::Xfs, 300 * MIB).2;
    let base = create_sparse(&pool.join("base"), 32 * MIB).unwrap();
    base.write_all_at(&vec![1; 32 << 20], 0).unwrap();
    let target = create_sparse(&pool.join("target"), 0).unwrap();
    assert_eq!(clone_file(&base, &target).unwrap(), Cloned::Reflinked);
    target.write_all_at(&[2; 1], 17 * MIB + 5).unwrap();
    let mut ranges = changed_ranges(&base, &target, 0, BLOCK).unwrap();
    let first = ranges.next().unwrap().unwrap();
    assert_eq!(first, 17 * MIB..17 * MIB + BLOCK);
    assert!(ranges.next().is_none());
    let mut map = changed_ranges(&base, &target, 0, BLOCK).unwrap();
    map.step().unwrap();
    assert!(map.at >= 16 * MIB, "one step must skip the shared extent, not read it: {}", map.at);
}

/// One edit of a file: where, how much, and with what (zero bytes are a legitimate content).
type Write = (u64, u64, u8);

fn writes() -> impl Strategy<Value = Vec<Write>> {
    let size = 2 * MIB;
    prop::collection::vec((0..size, 1..100_000u64, 0..3u8), 0..8)
}

fn apply(file: &File, writes: &[Write]) {
    for (at, size, byte) in writes {
        file.write_all_at(&vec![*byte; *size as usize], *at).unwrap();
    }
}

/// Blocks that differ, by reading everything: the slow truth.
fn oracle(base: &[u8], target: &[u8], block: u64) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for (index, new) in target.chunks(block as usize).enumerate() {
        let start = index as u64 * block;
        let old = |at: usize| base.get(start as usize + at).copied().unwrap_or(0);
        if new.iter().enumerate().all(|(at, byte)| *byte == old(at)) {
            continue;
        }
        let end = start + new.len() as u64;
        match ranges.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => ranges.push(start..end),
        }
    }
    ranges
}

#[test]
fn changed_ranges_equal_a_comparison_byte_by_byte() {
    needs!(FsType::Xfs);
    let rig = Rig::new();
    for pool in pools(&rig) {
        let mut runner = TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
        let input = (writes(), writes(), prop::sample::select(vec![512, BLOCK, 65536]), 0..4u64, any::<bool>());
        runner
            .run(&input, |(before, after, block, grown, synced)| {
                let dir = tempfile::tempdir_in(&pool).unwrap();
                let base = create_sparse(&dir.path().join("base"), 2 * MIB).unwrap();
                apply(&base, &before);
                let target = create_sparse(&dir.path().join("target"), 0).unwrap();
                if clone_file(&base, &target).unwrap() == Cloned::Unsupported {
                    assert_eq!(copy_sparse(&base, &target, 0, &mut go_on).unwrap(), Copied::Complete);
                }
                apply(&target, &after);
                grow(&target, 2 * MIB + grown * 100_000, Provisioning::Thin).unwrap();
                if synced {
                    target.sync_all().unwrap();
                }
                let expected = oracle(&read(&base), &read(&target), block);
                let found: Result<Vec<_>, _> = changed_ranges(&base, &target, 0, block).unwrap().collect();
                prop_assert_eq!(found.unwrap(), expected);
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn data_ranges_cover_exactly_what_was_written() {
    let rig = Rig::new();
    let file = rig.image("a", 16 * MIB);
    assert_eq!(data_ranges(&file, 0).count(), 0);
    file.write_all_at(&[1; 4096], MIB).unwrap();
    file.write_all_at(&[1; 4096], 8 * MIB).unwrap();
    let ranges: Vec<_> = data_ranges(&file, 0).map(Result::unwrap).collect();
    assert!(ranges.iter().any(|range| range.contains(&MIB)) && ranges.iter().any(|range| range.contains(&(8 * MIB))));
    assert_eq!(data_ranges(&file, 9 * MIB).count(), 0);
}
