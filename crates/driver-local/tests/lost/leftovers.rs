//! What is left in the hidden folders of a pool is cleared while the driver runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use driver_local::driver::LocalDriver;
use driver_local::pool::{Hold, Object, leftovers};
use driver_local::record::{self, CopyIntent, SourceStamp};
use linux::mounts::{self, MountFlags};

use super::bench::{Bench, MIB, needs};

/// An unfinished copy of a volume that does not exist.
fn leave_copy(pool: &Path, letter: &str) -> PathBuf {
    let dir = pool.join(".tmp").join(format!("vol-{}", letter.repeat(26)));
    fs::create_dir(&dir).unwrap();
    let stamp = SourceStamp { inode: 1, size: 1, modified_ns: 1, changed_ns: 1 };
    let intent = CopyIntent { request: format!("vol-{}", "z".repeat(26)), stamp, copied: 4096, created_ms: 1 };
    fs::write(dir.join("copy.json"), record::seal(&intent).unwrap()).unwrap();
    dir
}

#[tokio::test(start_paused = true)]
async fn leftovers_are_cleared_every_five_minutes_while_the_driver_runs() {
    needs!();
    let mut bench = Bench::new(100 * MIB);
    bench.core = None;
    let pool = bench.path("pool");
    // A foreign mount inside a deleted volume cannot be removed.
    let inside = bench.dir("pool/.trash/vol-aaaaaaaaaaaaaaaaaaaaaaaaaa.0/data/inside");
    mounts::mount_fs("none".as_ref(), &inside, "tmpfs", &MountFlags::default()).unwrap();
    let driver = LocalDriver::start(bench.config()).unwrap();
    let (dead, running) = (leave_copy(&pool, "b"), leave_copy(&pool, "c"));
    let lock = Object::at(running.clone()).hold(Hold::Exclusive).unwrap();
    let live_for = async |seconds| {
        tokio::time::timeout(Duration::from_secs(seconds), driver.watch_space()).await.unwrap_err();
        leftovers(&pool).unwrap().into_iter().map(|left| left.path).collect::<Vec<PathBuf>>()
    };
    let trash = pool.join(".trash/vol-aaaaaaaaaaaaaaaaaaaaaaaaaa.0");
    assert_eq!(live_for(299).await, [dead, running.clone(), trash.clone()], "it is not time yet");
    assert_eq!(live_for(301).await, [running, trash], "a copy that runs stays, and what cannot be removed");
    mounts::unmount_all(&inside).unwrap();
    drop(lock);
    assert_eq!(live_for(301).await, [] as [PathBuf; 0]);
}
