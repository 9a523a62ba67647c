//! A pool whose disk is not there is missing: it is not empty, and its volumes are not deleted.

use std::fs;
use std::process::Command;

use csi::v1::Volume;
use driver_sdk::testing::Clients;
use linux::fs::FsType;
use linux::mounts;
use tonic::{Code, Status};

use crate::needs;
use crate::rig::ask::*;
use crate::rig::call::*;
use crate::rig::world::*;
use crate::rig::{Driver, MIB, Options, Scratch, run};

const MISSING: [&str; 2] = ["pool missing: \"p\" is not at ", "--forget-pool"];

async fn create_in(clients: &Clients, pool: &str, name: &str) -> Result<Volume, Status> {
    let mut request = create_request(name, 16 * MIB, block());
    request.parameters = map([("pool", pool)]);
    create_with(clients, request).await
}

/// Rule: LOCAL-R25
#[test]
fn a_pool_whose_disk_is_not_mounted_is_missing_until_it_is_back() {
    needs!(Ext4);
    let scratch = Scratch::new();
    let pool = scratch.pool_on(FsType::Ext4, 256 * MIB);
    let options = Options::args(["--pool", &format!("q={}", scratch.path("second").display())]);
    let mut driver = Driver::start(&scratch, &options);
    run(async {
        let clients = driver.clients().await;
        let kept = create_in(&clients, "p", "kept").await.unwrap().volume_id;
        let cut = snapshot(&clients, "cut", &kept).await.unwrap().snapshot_id;
        let other = create_in(&clients, "q", "other").await.unwrap().volume_id;
        assert!(driver.stop());
        mounts::unmount_all(&pool).unwrap();

        driver = Driver::start(&scratch, &options);
        assert!(driver.log().contains("pool missing:"), "{}", driver.log());
        let clients = driver.clients().await;
        refused(delete(&clients, &kept).await, Code::Unavailable, &MISSING);
        refused(delete_snapshot(&clients, &cut).await, Code::Unavailable, &MISSING);
        refused(get(&clients, &kept).await, Code::Unavailable, &MISSING);
        refused(detach(&clients, &kept).await, Code::Unavailable, &MISSING);
        refused(snapshots_of(&clients, "", 0).await, Code::Unavailable, &MISSING);
        refused(list(&clients, 0, "").await, Code::Unavailable, &MISSING);
        refused(create_in(&clients, "p", "new").await, Code::Unavailable, &MISSING);
        refused(create(&clients, "kept", 16 * MIB, block()).await, Code::Unavailable, &MISSING);
        let using = Use::new(&scratch, &kept, block());
        refused(stage(&clients, &using).await, Code::Unavailable, &MISSING);
        refused(unstage(&clients, &using).await, Code::Unavailable, &MISSING);
        assert!(available(&clients).await > 0, "the other pool has room");
        delete(&clients, &other).await.unwrap();
        create_in(&clients, "q", "served").await.unwrap();
        assert_eq!(fs::read_dir(&pool).unwrap().count(), 0, "nothing is made in the mount point");

        scratch.mount_pool(FsType::Ext4);
        get(&clients, &kept).await.unwrap();
        delete_snapshot(&clients, &cut).await.unwrap();

        // The disk goes away under a driver that runs.
        tool("umount", ["-l", pool.to_str().unwrap()]);
        refused(delete(&clients, &kept).await, Code::Unavailable, &MISSING);
        refused(create_in(&clients, "p", "new").await, Code::Unavailable, &MISSING);
        assert_eq!(fs::read_dir(&pool).unwrap().count(), 0, "nothing is made in the mount point");
        scratch.mount_pool(FsType::Ext4);
        delete(&clients, &kept).await.unwrap();
    });
    assert!(driver.stop());
    scratch.assert_clean();
}

#[test]
fn a_pool_that_is_gone_for_good_is_forgotten_by_an_operator() {
    needs!();
    let scratch = Scratch::new();
    let (pool, state) = (scratch.plain_pool(), scratch.path("state"));
    let forget = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
        command.args(["driver", "--state-dir"]).arg(&state).arg("--forget-pool").arg(&pool).output().unwrap()
    };
    let mut driver = Driver::start(&scratch, &Options::default());
    run(async {
        let clients = driver.clients().await;
        let lost = create(&clients, "lost", 16 * MIB, block()).await.unwrap().volume_id;
        assert!(driver.stop());
        fs::remove_dir_all(&pool).unwrap();

        driver = Driver::start(&scratch, &Options::default());
        let clients = driver.clients().await;
        refused(delete(&clients, &lost).await, Code::Unavailable, &MISSING);
        assert!(!pool.exists(), "nothing is made in its place");
        assert!(forget().status.success());
        delete(&clients, &lost).await.unwrap();
        assert!(pool.join("pool.json").exists(), "once forgotten, a new pool is made");
        let again = forget();
        assert!(again.status.success(), "the new pool is remembered as well");
        assert_eq!(forget().status.code(), Some(1), "nothing is left to forget");
    });
    assert!(driver.stop());
    scratch.assert_clean();
}

/// Rule: LOCAL-R25
#[test]
fn an_older_pool_is_adopted_and_another_pool_in_its_place_is_not() {
    needs!();
    let scratch = Scratch::new();
    let pool = scratch.plain_pool();
    let other_state = Options::default().env("ORLOP_STATE_DIR", scratch.path("other-state").to_str().unwrap());
    let mut driver = Driver::start(&scratch, &other_state);
    let id = run(async {
        let clients = driver.clients().await;
        create(&clients, "v", 16 * MIB, block()).await.unwrap().volume_id
    });
    assert!(driver.stop());
    // This state directory knows nothing yet, as that of a driver which was upgraded.
    let mut driver = Driver::start(&scratch, &Options::default());
    assert!(driver.stop());
    fs::rename(&pool, scratch.path("aside")).unwrap();
    scratch.plain_pool();
    let third_state = Options::default().env("ORLOP_STATE_DIR", scratch.path("third-state").to_str().unwrap());
    assert!(Driver::start(&scratch, &third_state).stop());

    let mut driver = Driver::start(&scratch, &Options::default());
    run(async {
        let clients = driver.clients().await;
        refused(delete(&clients, &id).await, Code::Unavailable, &["pool missing:", "the directory holds the pool "]);
        fs::rename(&pool, scratch.path("stranger")).unwrap();
        fs::rename(scratch.path("aside"), &pool).unwrap();
        delete(&clients, &id).await.unwrap();
    });
    assert!(driver.stop());
    scratch.assert_clean();
}
