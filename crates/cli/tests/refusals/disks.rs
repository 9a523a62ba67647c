//! Pools that fill up or turn read-only while the driver runs (LOCAL-F.10, LOCAL-R26).

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use linux::fs::FsType;
use tonic::Code;

use crate::needs;
use crate::rig::ask::*;
use crate::rig::call::*;
use crate::rig::world::*;
use crate::rig::{MIB, Options, run};

/// Takes all space of a pool's filesystem, to the last block.
fn fill(pool: &Path) -> PathBuf {
    let path = pool.join("somebody-elses-file");
    let mut file = File::create(&path).unwrap();
    let mut length = 1 << 20;
    while length >= 512 {
        if file.write_all(&vec![0xff; length]).and_then(|()| file.sync_all()).is_err() {
            length /= 2;
        }
    }
    path
}

/// Everything that takes space is refused, everything that gives space back works.
async fn full_pool(world: &World) {
    let clients = world.clients().await;
    let pool = world.scratch.path("pool");
    let old = create(&clients, "old", 32 * MIB, mount("ext4")).await.unwrap();
    let old = Use::new(&world.scratch, &old.volume_id, mount("ext4"));
    bring_up(&clients, &old).await.unwrap();
    write_synced(old.target.join("file"), b"kept");
    let spare = create(&clients, "spare", 32 * MIB, block()).await.unwrap().volume_id;
    let cut = snapshot(&clients, "s", &spare).await.unwrap().snapshot_id;
    let filler = fill(&pool);

    let mut thick = create_request("thick", 32 * MIB, block());
    thick.parameters = map([("provisioning", "thick")]);
    refused(create_with(&clients, thick).await, Code::ResourceExhausted, &["can promise 0 more bytes"]);
    refused(create(&clients, "thin", 32 * MIB, mount("ext4")).await, Code::ResourceExhausted, &["can promise 0 more"]);
    refused(snapshot(&clients, "s2", &old.id).await, Code::ResourceExhausted, &["can promise 0 more"]);
    refused(expand(&clients, &old.id, 64 * MIB).await, Code::ResourceExhausted, &["can promise 0 more"]);
    let (abnormal, why) = condition(&clients, &old.id).await;
    assert!(abnormal && why.starts_with("pool full: \"p\" at "), "{why}");
    world.scratch.assert_pool_holds(2, 1, 0);
    assert_eq!(fs::read(old.target.join("file")).unwrap(), b"kept");

    bring_down(&clients, &old).await.unwrap();
    delete(&clients, &spare).await.unwrap();
    delete_snapshot(&clients, &cut).await.unwrap();
    world.scratch.assert_pool_holds(1, 0, 0);
    fs::remove_file(filler).unwrap();
    bring_up(&clients, &old).await.unwrap();
    assert_eq!(fs::read(old.target.join("file")).unwrap(), b"kept", "nothing was lost");
    bring_down(&clients, &old).await.unwrap();
    delete(&clients, &old.id).await.unwrap();
}

/// Rule: LOCAL-F.10
#[test]
fn a_full_ext4_pool_refuses_what_takes_space_and_does_what_gives_it_back() {
    needs!(Ext4);
    let world = World::on(FsType::Ext4, 256 * MIB, &Options::default());
    run(full_pool(&world));
    world.end_clean();
}

/// Rule: LOCAL-F.10
#[test]
fn a_full_xfs_pool_refuses_what_takes_space_and_does_what_gives_it_back() {
    needs!(Ext4, Xfs);
    let world = World::on(FsType::Xfs, 512 * MIB, &Options::default());
    run(full_pool(&world));
    world.end_clean();
}

/// Rule: LOCAL-F.10
#[test]
fn a_driver_starts_on_a_full_ext4_pool() {
    needs!(Ext4);
    starts_on_a_full_pool(World::on(FsType::Ext4, 256 * MIB, &Options::default()));
}

/// Rule: LOCAL-F.10
#[test]
fn a_driver_starts_on_a_full_xfs_pool() {
    needs!(Ext4, Xfs);
    starts_on_a_full_pool(World::on(FsType::Xfs, 512 * MIB, &Options::default()));
}

fn starts_on_a_full_pool(mut world: World) {
    run(async {
        let clients = world.clients().await;
        let id = create(&clients, "v", 32 * MIB, block()).await.unwrap().volume_id;
        let filler = fill(&world.scratch.path("pool"));
        world.restart(&Options::default()).await;
        let clients = world.clients().await;
        delete(&clients, &id).await.unwrap();
        fs::remove_file(filler).unwrap();
    });
    world.end_clean();
}

/// Rule: LOCAL-F.11
#[test]
fn an_overcommitted_pool_that_is_full_refuses_a_thick_volume_and_leaves_no_half() {
    // Promising more than there is was the operator's wish; the disk has the last word.
    needs!(Ext4);
    let world = World::on(FsType::Ext4, 256 * MIB, &Options::args(["--overcommit", "100"]));
    run(async {
        let clients = world.clients().await;
        let mut thick = create_request("thick", 512 * MIB, block());
        thick.parameters = map([("provisioning", "thick")]);
        refused(create_with(&clients, thick.clone()).await, Code::ResourceExhausted, &["no space left"]);
        world.scratch.assert_pool_holds(0, 0, 0);
        let thin = create(&clients, "thin", 512 * MIB, block()).await.unwrap().volume_id;
        let answer = modify(&clients, &thin, map([("provisioning", "thick")])).await;
        refused(answer, Code::ResourceExhausted, &["no space left"]);
        assert_eq!(fs::metadata(world.image(&thin)).unwrap().len(), 512 * MIB);
        delete(&clients, &thin).await.unwrap();
        thick.capacity_range.as_mut().unwrap().required_bytes = i64::try_from(64 * MIB).unwrap();
        let id = create_with(&clients, thick).await.unwrap().volume_id;
        delete(&clients, &id).await.unwrap();
    });
    world.end_clean();
}

/// Rule: LOCAL-R26
#[test]
fn a_pool_that_turns_read_only_makes_calls_wait_and_loses_nothing() {
    needs!(Ext4);
    let world = World::on(FsType::Ext4, 256 * MIB, &Options::default());
    run(async {
        let clients = world.clients().await;
        let pool = world.scratch.path("pool");
        let id = create(&clients, "v", 32 * MIB, mount("ext4")).await.unwrap().volume_id;
        let using = Use::new(&world.scratch, &id, mount("ext4"));
        tool("mount", ["-o", "remount,ro", pool.to_str().unwrap()]);
        let words = ["read-only", "remount it read-write"];
        refused(create(&clients, "w", 32 * MIB, mount("ext4")).await, Code::Unavailable, &words);
        refused(delete(&clients, &id).await, Code::Unavailable, &words);
        refused(snapshot(&clients, "s", &id).await, Code::Unavailable, &words);
        refused(expand(&clients, &id, 64 * MIB).await, Code::Unavailable, &words);
        refused(attach(&clients, &using).await, Code::Unavailable, &words);
        assert_eq!(list(&clients, 0, "").await.unwrap().entries.len(), 1, "reading goes on");
        tool("mount", ["-o", "remount,rw", pool.to_str().unwrap()]);
        bring_up(&clients, &using).await.unwrap();
        bring_down(&clients, &using).await.unwrap();
        delete(&clients, &id).await.unwrap();
    });
    world.end_clean();
}
