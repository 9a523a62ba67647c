//! Read-only stages after a crash.

use std::fs::{self, File};

use driver_sdk::AccessMode;
use linux::fs::FsType;

use super::bench::{Bench, MIB, cannot_run};

#[test]
fn files_that_are_only_in_the_journal_are_shown_by_a_read_only_stage() {
    for (fs, kind, size) in
        [("ext4", FsType::Ext4, 32 * MIB), ("xfs", FsType::Xfs, 300 * MIB), ("btrfs", FsType::Btrfs, 128 * MIB)]
    {
        if let Some(why) = cannot_run(&[FsType::Ext4, kind]) {
            println!("skipped: {why}");
            continue;
        }
        let bench = Bench::new(900 * MIB);
        let id = bench.create("v", fs, size);
        let place = bench.stage_writable(&id, fs);
        for number in 0..200 {
            let file = place.join(format!("file-{number}"));
            fs::write(&file, format!("content {number}")).unwrap();
            File::open(&file).unwrap().sync_all().unwrap();
        }
        // The image as a power cut leaves it: what was synced is there, in part only in the journal.
        let crashed = bench.path("pool/crashed.img");
        copy_sparse(&bench.image(&id), &crashed);
        bench.unstage(&id).unwrap();
        copy_sparse(&crashed, &bench.image(&id));

        let place = bench.stage(&id, fs, AccessMode::SingleNodeReaderOnly).unwrap();
        for number in 0..200 {
            let read = fs::read_to_string(place.join(format!("file-{number}")));
            assert_eq!(read.unwrap(), format!("content {number}"), "{fs}");
        }
        let refused = fs::write(place.join("new"), "x").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem, "{fs}");
        assert_eq!(bench.node_trouble(&id), None, "{fs}");
        bench.unstage(&id).unwrap();
    }
}

fn copy_sparse(from: &std::path::Path, to: &std::path::Path) {
    let copied = std::process::Command::new("cp").arg("--sparse=always").args([from, to]).status().unwrap();
    assert!(copied.success());
}
