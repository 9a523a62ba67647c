//! Volumes as a workload meets them: the real driver, real filesystems, real mounts.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says why by panicking")]

mod rig;

mod volumes {
    mod blocks;
    mod capacity;
    mod condition;
    mod copies;
    mod directories;
    mod expansion;
    mod filesystems;
    mod groups;
    mod inline;
    mod listing;
    mod metadata;
    mod missing;
    mod modify;
    mod process;
    mod publish;
    mod readonly;
    mod space;
}

use std::fs;

use rig::call::*;
use rig::{Driver, MIB, Options, Scratch, run};

#[test]
fn data_written_to_a_volume_is_there_after_a_restart_of_the_driver() {
    needs!(Ext4);
    let scratch = Scratch::new();
    scratch.plain_pool();
    let mut driver = Driver::start(&scratch, &Options::default());
    run(async {
        let clients = driver.clients().await;
        let volume = create(&clients, "claim", 64 * MIB, mount("ext4")).await.unwrap();
        let using = Use::new(&scratch, &volume.volume_id, mount("ext4"));
        bring_up(&clients, &using).await.unwrap();
        fs::write(using.target.join("note"), b"kept").unwrap();

        driver.kill();
        driver = Driver::start(&scratch, &Options::default());
        let clients = driver.clients().await;
        assert_eq!(fs::read(using.target.join("note")).unwrap(), b"kept", "a restart does not touch mounts");
        bring_up(&clients, &using).await.unwrap();
        bring_down(&clients, &using).await.unwrap();
        bring_up(&clients, &using).await.unwrap();
        assert_eq!(fs::read(using.target.join("note")).unwrap(), b"kept");
        bring_down(&clients, &using).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
    });
    assert!(driver.stop());
    scratch.assert_clean();
}
