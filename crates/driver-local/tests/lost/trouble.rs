//! Filesystems that get into trouble while they are mounted.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::process::Command;

use driver_sdk::{Reason, Source, StatsQuery, VolumeId};
use linux::fs::FsType;
use linux::mountinfo::MountTable;

use super::bench::{Bench, MIB, needs};

#[test]
fn a_filesystem_that_was_shut_down_is_marked_when_it_is_asked_about_and_is_not_stuck() {
    needs!(FsType::Ext4);
    let bench = Bench::new(300 * MIB);
    let id = bench.create("v", "ext4", 32 * MIB);
    let place = bench.stage_writable(&id, "ext4");
    assert_eq!(bench.node_trouble(&id), None);
    std::fs::write(place.join("file"), "not written out").unwrap();
    let aborted = Command::new("mount").args(["-o", "remount,abort"]).arg(&place).status().unwrap();
    println!("remount,abort: {aborted}");
    drop(std::fs::write(place.join("next"), "x"));
    assert_first_copy_is_refused_and_the_next_one_marked(&bench, &id, "ext4");
    let query = StatsQuery { volume: id.clone(), path: place.clone(), staging: None };
    bench.core().stats(&query).unwrap();
    let said = bench.node_trouble(&id).expect("the kernel shows that it writes no more");
    assert!(said.starts_with("writes were lost:"), "{said}");
    assert_eq!(bench.trouble(&id), Some(said), "the controller reports what the node has seen");
    let mut repeats = 0;
    while let Err(error) = bench.unstage(&id) {
        repeats += 1;
        assert!(repeats < 4, "the volume is stuck: {}", error.chain());
    }
    assert!(!bench.is_mounted(&place));
    bench.stage_writable(&id, "ext4");
    assert!(bench.node_trouble(&id).is_some_and(|why| why.starts_with("writes were lost:")), "the mark stays");
    bench.unstage(&id).unwrap();
}

/// A snapshot of a volume that lost writes answers DATA_LOSS. The repeat is ready, and a volume made of it is marked.
fn assert_first_copy_is_refused_and_the_next_one_marked(bench: &Bench, id: &VolumeId, fs: &str) {
    let error = bench.snapshot("s", id).expect_err("a snapshot does not have what was in memory");
    assert!(matches!(error.reason(), Reason::DataLoss(_)), "{}", error.chain());
    assert!(bench.trouble(id).is_some_and(|why| why.starts_with("writes were lost:")));
    let snapshot = bench.snapshot("s", id).unwrap();
    assert!(snapshot.ready);
    let copy = bench.create_from("copy", fs, 0, Some(&Source::Snapshot(snapshot.id)));
    let said = bench.trouble(&copy).expect("a copy of lost writes is reported too");
    assert!(said.contains(&format!("in {id}, of which this is a copy")), "{said}");
}

#[test]
fn an_ext4_that_turned_read_only_after_errors_is_not_copied_or_unstaged_as_if_all_was_written() {
    needs!(FsType::Ext4);
    let bench = Bench::new(300 * MIB);
    for unstaged_first in [false, true] {
        let id = bench.create(if unstaged_first { "u" } else { "v" }, "ext4", 32 * MIB);
        let place = bench.stage_writable(&id, "ext4");
        let device = MountTable::read().unwrap().top(&place).unwrap().source.clone();
        // Older kernels make an ext4 read-only after an error as if it was remounted, and every sync of it succeeds
        // then.
        let errors = Path::new("/sys/fs/ext4").join(Path::new(&device).file_name().unwrap()).join("trigger_fs_error");
        std::fs::write(errors, "of a test").unwrap();
        let turned = Command::new("mount").args(["-o", "remount,ro"]).arg(&place).status().unwrap();
        assert!(turned.success());
        rustix::fs::syncfs(File::open(&place).unwrap()).unwrap();
        if !unstaged_first {
            assert_first_copy_is_refused_and_the_next_one_marked(&bench, &id, "ext4");
        }
        let error = bench.unstage(&id).expect_err("the caller is told before the volume is let go");
        assert!(matches!(error.reason(), Reason::DataLoss(_)), "{}", error.chain());
        bench.unstage(&id).unwrap();
        assert!(bench.trouble(&id).is_some_and(|why| why.starts_with("writes were lost:")));
    }
}

#[test]
fn a_btrfs_that_the_kernel_made_read_only_is_marked_although_a_sync_of_it_succeeds() {
    needs!(FsType::Ext4, FsType::Btrfs);
    let bench = Bench::new(300 * MIB);
    let id = bench.create("v", "btrfs", 256 * MIB);
    let place = bench.stage_writable(&id, "btrfs");
    bench.fill();
    let is_read_only = |error: &std::io::Error| error.kind() == ErrorKind::ReadOnlyFilesystem;
    let write = |number: usize| {
        let mut file = File::create(place.join(format!("file-{number}")))?;
        // So little is stored in the metadata, and metadata that cannot be written ends the filesystem's work.
        file.write_all(&[0x5a; 1000])?;
        file.sync_all()
    };
    let turned = (0..10_000).any(|number| write(number).is_err_and(|error| is_read_only(&error)));
    assert!(turned, "the kernel makes a btrfs read-only that cannot be written");
    // The workload takes the error that the kernel reports once. A sync of a read-only filesystem does nothing and succeeds.
    let root = File::open(&place).unwrap();
    _ = rustix::fs::syncfs(&root);
    rustix::fs::syncfs(&root).unwrap();
    drop(root);
    // A snapshot has to have room.
    bench.make_space();
    assert_first_copy_is_refused_and_the_next_one_marked(&bench, &id, "btrfs");
    let error = bench.unstage(&id).expect_err("what was in memory is lost");
    assert!(matches!(error.reason(), Reason::DataLoss(_)), "{}", error.chain());
    bench.unstage(&id).unwrap();
    assert!(!bench.is_mounted(&place));
    assert!(bench.trouble(&id).is_some_and(|why| why.starts_with("writes were lost:")));
}
