//! Pools that another writer fills while volumes of every kind are written: everything that was synced is there afterwards, and a
//! writer that got no error reads back what it wrote, or the volume is marked.
//!
//! `ORLOP_FULL_POOL_SEED` repeats a run's choices (not its interleaving).

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says why by panicking")]

#[path = "full_pool/matrix.rs"]
mod matrix;
mod rig;
#[path = "full_pool/site.rs"]
mod site;
#[path = "full_pool/writer.rs"]
mod writer;

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use linux::fs::FsType;
use matrix::{FillPace, PoolCombination, VolumeProvisioning};

/// Plays every combination on a pool of this filesystem. The failure lists all wrong rows.
fn play(pool: FsType) {
    let seed = std::env::var("ORLOP_FULL_POOL_SEED").ok().and_then(|text| text.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("ORLOP_FULL_POOL_SEED={seed}");
    // The driver counts all dirty memory of the machine, also that of other tests and of builds. Only the filesystem of the
    // temporary files is synced: a sync of all would wait for volumes that another test has frozen.
    let temporary = std::fs::File::open(std::env::temp_dir()).expect("there are temporary files");
    rustix::fs::syncfs(&temporary).expect("the filesystem of temporary files is synced");
    let mut wrong = Vec::new();
    for combination in PoolCombination::all(pool) {
        for (row, verdict) in site::play(combination, seed) {
            println!("{row}: {}", verdict.as_ref().map_or_else(|wrong| format!("WRONG: {wrong}"), Clone::clone));
            if let Err(why) = verdict {
                wrong.push(format!("{row}: {why}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} rows are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn nothing_is_lost_unnoticed_in_a_full_ext4_pool() {
    needs!(Ext4, Xfs, Btrfs);
    play(FsType::Ext4);
}

#[test]
fn nothing_is_lost_unnoticed_in_a_full_xfs_pool() {
    needs!(Ext4, Xfs, Btrfs);
    play(FsType::Xfs);
}

#[test]
fn nothing_is_lost_unnoticed_in_a_full_btrfs_pool() {
    needs!(Ext4, Xfs, Btrfs);
    play(FsType::Btrfs);
}

#[test]
fn every_combination_has_a_row_or_a_reason() {
    let all: Vec<PoolCombination> =
        [FsType::Ext4, FsType::Xfs, FsType::Btrfs].into_iter().flat_map(PoolCombination::all).collect();
    let rows: Vec<String> = all.iter().flat_map(|one| one.volumes().map(move |volume| one.row(volume))).collect();
    // Of each pool filesystem: five kinds of thin volumes and four of thick ones, each with and without overcommit; thin ones
    // are in a pool that fills slowly and in one that fills at once.
    assert_eq!(rows.len(), 3 * 2 * (2 * 5 + 4), "{rows:?}");
    let different: std::collections::BTreeSet<&String> = rows.iter().collect();
    assert_eq!(different.len(), rows.len());
    assert!(all.iter().all(|one| one.fill == FillPace::Sudden || one.provisioning == VolumeProvisioning::Thin));
}
