//! Filesystems that get into trouble while they are mounted.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::process::Command;

use driver_sdk::{Reason, StatsQuery};
use linux::fs::FsType;

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
    let error = bench.unstage(&id).expect_err("what was in memory is lost");
    assert!(matches!(error.reason(), Reason::DataLoss(_)), "{}", error.chain());
    bench.unstage(&id).unwrap();
    assert!(!bench.is_mounted(&place));
    assert!(bench.trouble(&id).is_some_and(|why| why.starts_with("writes were lost:")));
}
