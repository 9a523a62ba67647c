//! A pool whose disk is not mounted.

use std::fs;

use driver_local::config::Role;
use driver_sdk::Reason;
use linux::fs::FsType;

use super::bench::{BLOCK, Bench, MIB, needs};

#[test]
fn nothing_is_made_or_counts_as_deleted_where_the_disk_of_a_known_pool_is_not_mounted() {
    needs!(FsType::Ext4);
    let mut bench = Bench::new(100 * MIB);
    let id = bench.create("v", BLOCK, 16 * MIB);
    bench.take_pool_away();
    bench.restart_as(Role::All);
    let error = bench.core().delete_volume(&id).expect_err("the volume is on the disk that is not mounted");
    assert!(matches!(error.reason(), Reason::Unavailable(_)), "{}", error.chain());
    assert!(error.to_string().starts_with("pool missing: "), "{error}");
    let error = bench.try_create_from("v", BLOCK, 16 * MIB, None).expect_err("a second volume of this name");
    assert!(matches!(error.reason(), Reason::Unavailable(_)), "{}", error.chain());
    assert_eq!(fs::read_dir(bench.path("pool")).unwrap().count(), 0, "nothing is made in the mount point");
}
