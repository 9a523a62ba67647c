//! Filesystems that get into trouble while they are mounted.

use std::process::Command;

use driver_sdk::StatsQuery;
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
