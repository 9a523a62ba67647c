//! A pool that runs full under mounted volumes: what could not be written is told, marked and reported.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;

use driver_local::config::Role;
use driver_local::loss::{self, Accepted};
use driver_sdk::{AccessMode, Condition, Reason, Source};
use linux::freeze::{self, Thaw};
use linux::fs::FsType;
use linux::loopdev::{self, BackingFile};
use linux::mounts::{self, MountFlags};

use super::bench::{BLOCK, Bench, MIB, needs};

/// Fails unless a call was answered with DATA_LOSS.
fn assert_told<T: std::fmt::Debug>(answer: Result<T, driver_sdk::Error>) {
    let error = answer.expect_err("lost writes must be told");
    assert!(matches!(error.reason(), Reason::DataLoss(_)), "{}", error.chain());
    assert_eq!(format!("{:?}", error.code()), "DataLoss");
    assert!(error.to_string().starts_with("writes were lost:"), "{error}");
}

/// What a workload writes that never syncs: the kernel takes all of it.
fn write_without_sync(place: &std::path::Path) {
    fs::write(place.join("data"), vec![0x5a; usize::try_from(60 * MIB).unwrap()]).unwrap();
}

#[test]
fn writes_lost_to_a_full_pool_are_told_marked_and_reported_until_they_are_accepted() {
    for (fs, kind, size) in
        [("ext4", FsType::Ext4, 100 * MIB), ("xfs", FsType::Xfs, 300 * MIB), ("btrfs", FsType::Btrfs, 200 * MIB)]
    {
        if let Some(why) = super::bench::cannot_run(&[FsType::Ext4, kind]) {
            println!("skipped: {why}");
            continue;
        }
        let bench = Bench::new(300 * MIB);
        let id = bench.create("v", fs, size);
        let place = bench.stage_writable(&id, fs);
        fs::write(place.join("before"), "kept").unwrap();
        rustix::fs::syncfs(fs::File::open(&place).unwrap()).unwrap();
        assert_eq!(bench.trouble(&id).filter(|why| why.starts_with("writes")), None, "{fs}");
        bench.fill();
        write_without_sync(&place);
        assert_told(bench.unstage(&id));
        assert!(bench.is_mounted(&place), "{fs}: the call failed, so nothing was unmounted");
        let said = bench.trouble(&id).expect("a marked volume is abnormal");
        assert!(said.starts_with("writes were lost:") && said.contains("2023-11-14T22:13:20Z"), "{fs}: {said}");
        assert_eq!(bench.node_trouble(&id), Some(said), "{fs}");

        // The caller repeats its call. The pool is still full, and the volume must not stay for ever.
        let mut repeats = 0;
        while let Err(error) = bench.unstage(&id) {
            repeats += 1;
            assert!(repeats < 4, "{fs}: the volume is stuck: {}", error.chain());
        }
        assert!(!bench.is_mounted(&place), "{fs}");
        bench.make_space();
        let marked = |id| bench.trouble(id).is_some_and(|why| why.starts_with("writes were lost:"));
        assert!(marked(&id), "{fs}: the mark outlives the staging");
        if fs != "btrfs" {
            assert_eq!(fs::read(bench.stage_writable(&id, fs).join("before")).unwrap(), b"kept", "{fs}");
            bench.unstage(&id).unwrap();
        }
        let snapshot = bench.snapshot("s", &id).unwrap();
        let copy = bench.create_from("copy", fs, size, Some(&Source::Snapshot(snapshot.id)));
        assert!(marked(&copy), "{fs}: a copy of lost writes is reported too");
        let pools = [bench.path("pool")];
        for id in [&id, &copy] {
            assert!(matches!(loss::accept(&pools, id.as_str()).unwrap(), Accepted::Cleared(_)), "{fs}");
            assert!(!marked(id), "{fs}");
            assert_eq!(loss::accept(&pools, id.as_str()).unwrap(), Accepted::NotMarked, "{fs}");
        }
    }
}

#[test]
fn a_loss_that_a_full_pool_has_no_room_to_note_is_noted_by_a_later_call() {
    needs!(FsType::Ext4);
    let bench = Bench::new(300 * MIB);
    let id = bench.create("v", "ext4", 100 * MIB);
    let place = bench.stage_writable(&id, "ext4");
    // As on btrfs, where a file's reserved space is no help: each write takes new blocks.
    fs::remove_file(bench.image(&id).with_file_name("loss.room")).unwrap();
    bench.fill();
    write_without_sync(&place);
    let error = bench.unstage(&id).unwrap_err();
    assert!(
        matches!(error.reason(), Reason::DataLoss(_)) && error.to_string().contains("could not be noted"),
        "{error}"
    );
    for said in [bench.trouble(&id), bench.node_trouble(&id)] {
        assert!(said.as_ref().is_some_and(|why| why.contains("cannot be noted beside the volume")), "{said:?}");
    }
    bench.make_space();
    // The kernel tells of a failed write once. The repeat finds nothing wrong any more, and must not count as good.
    assert_told(bench.unstage(&id));
    assert!(bench.is_mounted(&place));
    bench.unstage(&id).unwrap();
    assert!(bench.trouble(&id).is_some_and(|why| why.contains("accept-loss")), "the mark is on disk now");
}

#[test]
fn writes_to_a_raw_device_that_the_pool_cannot_store_are_told() {
    needs!(FsType::Ext4);
    let bench = Bench::new(300 * MIB);
    let id = bench.create("v", BLOCK, 100 * MIB);
    let place = bench.stage_writable(&id, BLOCK);
    let image = fs::File::open(bench.image(&id)).unwrap();
    let device = loopdev::find(BackingFile::of(&image).unwrap()).unwrap().remove(0).device;
    bench.fill();
    let mut raw = fs::File::options().write(true).open(&device.path).unwrap();
    // The kernel may or may not notice while this is written; the workload does not look.
    drop(raw.write_all(&vec![0x5a; usize::try_from(60 * MIB).unwrap()]));
    drop(raw);
    assert_told(bench.unstage(&id));
    assert!(bench.node_trouble(&id).unwrap().starts_with("writes were lost: writing the device to the image"));
    bench.unstage(&id).unwrap();
    assert!(loopdev::find(BackingFile::of(&image).unwrap()).unwrap().is_empty() && place.is_dir());
    assert!(bench.trouble(&id).unwrap().starts_with("writes were lost:"));
}

/// Fills the pool of `bench` until it is at its floor, with a little room left.
fn leave_little(bench: &Bench) {
    let filler = fs::File::create(bench.path("pool/filler")).unwrap();
    let more = linux::statfs::free_space(&bench.path("pool")).unwrap() - 5 * MIB;
    rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), 0, more).unwrap();
    filler.sync_all().unwrap();
}

#[test]
fn the_device_of_a_thin_raw_volume_is_read_only_while_its_pool_is_full() {
    needs!(FsType::Ext4);
    let mut bench = Bench::new(300 * MIB);
    let id = bench.create("v", BLOCK, 100 * MIB);
    let read_only = bench.create("read-only", BLOCK, 100 * MIB);
    bench.stage_writable(&id, BLOCK);
    bench.stage(&read_only, BLOCK, AccessMode::SingleNodeReaderOnly).unwrap();
    let device = |id| {
        let image = fs::File::open(bench.image(id)).unwrap();
        loopdev::find(BackingFile::of(&image).unwrap()).unwrap().remove(0).device
    };
    let (writable, protected) = (device(&id), device(&read_only));
    let raw = fs::File::options().write(true).open(&writable.path).unwrap();
    raw.write_all_at(&[1; 4096], 0).unwrap();
    bench.core().watch_space();
    assert!(!writable.is_read_only().unwrap(), "the pool has enough space");

    leave_little(&bench);
    bench.core().watch_space();
    let refused = raw.write_all_at(&[2; 4096], 4096).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied, "a writer is told");
    let said = bench.core().space_condition(&id).unwrap();
    assert!(
        matches!(&said, Some(Condition::Abnormal(why)) if why.starts_with("pool full: ") && why.contains("read-only")),
        "{said:?}"
    );
    // The next driver lifts what this one leaves, and protects the device again as long as the pool is full.
    bench.restart_as(Role::All);
    assert!(!writable.is_read_only().unwrap());
    assert!(protected.is_read_only().unwrap(), "what was staged read-only stays so");
    bench.core().watch_space();
    assert!(writable.is_read_only().unwrap());

    fs::remove_file(bench.path("pool/filler")).unwrap();
    rustix::fs::syncfs(fs::File::open(bench.path("pool")).unwrap()).unwrap();
    bench.core().watch_space();
    raw.write_all_at(&[3; 4096], 4096).unwrap();
    raw.sync_all().unwrap();
    assert!(protected.is_read_only().unwrap());
    drop(raw);
    for id in [&id, &read_only] {
        bench.unstage(id).unwrap();
        assert_eq!(bench.trouble(id), None, "nothing was lost");
    }
    let image = fs::File::open(bench.image(&id)).unwrap();
    let mut stored = [0; 8192];
    image.read_exact_at(&mut stored, 0).unwrap();
    assert!(stored[..4096] == [1; 4096] && stored[4096..] == [3; 4096]);
}

#[test]
fn a_covered_volume_of_a_full_pool_is_frozen_and_not_what_covers_it() {
    needs!(FsType::Ext4);
    let bench = Bench::new(300 * MIB);
    let id = bench.create("v", "ext4", 100 * MIB);
    let place = bench.stage_writable(&id, "ext4");
    let volume = fs::File::open(&place).unwrap();
    mounts::mount_fs("none".as_ref(), &place, "tmpfs", &MountFlags::default()).unwrap();
    leave_little(&bench);
    bench.core().watch_space();
    // Freezing is the only way to ask. A success is undone at once.
    let asked = freeze::freeze(&volume);
    if asked.is_ok() {
        freeze::thaw(&volume).unwrap();
    }
    let is_frozen = asked.is_err_and(|error| error.is(rustix::io::Errno::BUSY));
    assert!(is_frozen, "a writer that has a file of the volume open would lose writes");
    fs::write(place.join("file"), "the cover is not frozen").unwrap();
    fs::remove_file(bench.path("pool/filler")).unwrap();
    rustix::fs::syncfs(fs::File::open(bench.path("pool")).unwrap()).unwrap();
    bench.core().watch_space();
    assert_eq!(freeze::thaw(&volume).unwrap(), Thaw::WasNotFrozen);
    drop(volume);
    bench.unstage(&id).unwrap();
}

#[test]
fn a_full_btrfs_stores_a_write_to_a_device_whole_or_fails_it() {
    needs!(FsType::Btrfs);
    // The kernel's loop driver counts a write as done of which the filesystem stored a part only. With copy-on-write, about every
    // second of these pools ends in such a write.
    for round in 0..8 {
        let bench = Bench::on(FsType::Btrfs, 300 * MIB);
        let id = bench.create("v", BLOCK, 64 * MIB);
        bench.stage_writable(&id, BLOCK);
        let image = fs::File::open(bench.image(&id)).unwrap();
        let device = loopdev::find(BackingFile::of(&image).unwrap()).unwrap().remove(0).device;
        let filler = fs::File::create(bench.path("pool/filler")).unwrap();
        // Not a multiple of what is written at a time, so that the space ends in the middle of a write.
        let left = 4 * MIB + 300_000 + round * 70_000;
        let free = linux::statfs::free_space(&bench.path("pool")).unwrap();
        rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), 0, free - left).unwrap();
        filler.sync_all().unwrap();
        let raw = fs::File::options().write(true).open(&device.path).unwrap();
        let (chunk, mut stored) = (vec![0x5a; 1 << 20], vec![0; 1 << 20]);
        let mut places = (0..64 * MIB).step_by(1 << 20);
        let is_full = places.any(|at| {
            if raw.write_all_at(&chunk, at).and_then(|()| raw.sync_all()).is_err() {
                return true;
            }
            image.read_exact_at(&mut stored, at).unwrap();
            assert!(stored == chunk, "round {round}: a write to {at} succeeded and was not stored");
            false
        });
        assert!(is_full, "the volume is larger than its pool");
        drop(raw);
        assert!((0..4).any(|_| bench.unstage(&id).is_ok()), "the volume is stuck");
    }
}

#[test]
fn a_volume_that_writes_everything_is_neither_marked_nor_held_up() {
    needs!(FsType::Ext4);
    let bench = Bench::new(300 * MIB);
    let id = bench.create("v", "ext4", 100 * MIB);
    let place = bench.stage_writable(&id, "ext4");
    write_without_sync(&place);
    bench.snapshot("s", &id).unwrap();
    bench.unstage(&id).unwrap();
    assert_eq!(bench.trouble(&id), None);
    let place = bench.stage(&id, "ext4", AccessMode::SingleNodeReaderOnly).unwrap();
    assert!(fs::read(place.join("data")).unwrap().iter().all(|byte| *byte == 0x5a));
    bench.unstage(&id).unwrap();
}

#[test]
fn a_snapshot_of_a_volume_that_loses_writes_fails_first_and_carries_the_mark_then() {
    needs!(FsType::Ext4);
    let bench = Bench::new(300 * MIB);
    let id = bench.create("v", "ext4", 100 * MIB);
    let place = bench.stage_writable(&id, "ext4");
    bench.fill();
    write_without_sync(&place);
    // The kernel tries to store it, as it does by itself after a while. Only who has this file open is told.
    fs::File::open(place.join("data")).unwrap().sync_all().unwrap_err();
    bench.make_space();
    assert_told(bench.snapshot("s", &id));
    let snapshot = bench.snapshot("s", &id).unwrap();
    let copy = bench.create_from("copy", "ext4", 100 * MIB, Some(&Source::Snapshot(snapshot.id)));
    let said = bench.trouble(&copy).unwrap();
    assert!(said.contains(&format!("in {id}, of which this is a copy")), "{said}");
    bench.unstage(&id).unwrap();
}
