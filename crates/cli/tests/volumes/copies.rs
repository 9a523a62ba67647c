//! Snapshots, restores and clones: what was there at the cut, all of it, and nothing later.

use std::fs;

use csi::v1::VolumeContentSource;
use driver_sdk::testing::Clients;
use linux::fs::FsType;
use tonic::Code;

use crate::needs;
use crate::rig::ask::*;
use crate::rig::call::*;
use crate::rig::world::*;
use crate::rig::{GIB, MIB, Options, run};

/// Bytes that repeat nowhere, so that a block in the wrong place is seen.
fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

async fn restore(clients: &Clients, name: &str, size: u64, fs: &str, source: Option<VolumeContentSource>) -> String {
    let mut request = create_request(name, size, mount(fs));
    request.volume_content_source = source.clone();
    let volume = create_with(clients, request).await.unwrap();
    assert_eq!(volume.content_source, source, "the answer names the source");
    volume.volume_id
}

/// Cuts a mounted volume, writes on, and looks at what the snapshot holds.
async fn cut_is_a_moment(world: &World, fs: &str, size: u64) {
    let clients = world.clients().await;
    let volume = create(&clients, &format!("{fs}-source"), size, mount(fs)).await.unwrap();
    let using = Use::new(&world.scratch, &volume.volume_id, mount(fs));
    bring_up(&clients, &using).await.unwrap();
    let before = pattern(1, 3 * 1024 * 1024 + 17);
    // Not synced: the cut itself must bring it to disk.
    fs::write(using.target.join("before"), &before).unwrap();
    let cut = snapshot(&clients, &format!("{fs}-snap"), &using.id).await.unwrap();
    assert!(cut.ready_to_use && cut.size_bytes == i64::try_from(size).unwrap());
    fs::write(using.target.join("before"), pattern(2, before.len())).unwrap();
    write_synced(using.target.join("after"), &pattern(3, 1024 * 1024));

    // A frozen filesystem is clean on disk (LOCAL-F.3): checking finds nothing to mend.
    let image = world.scratch.path("pool").join("snapshots").join(&cut.snapshot_id).join("image");
    if fs == "ext4" {
        tool("e2fsck", ["-fn", image.to_str().unwrap()]);
    }
    let again = snapshot(&clients, &format!("{fs}-snap"), &using.id).await.unwrap();
    assert_eq!(again, cut, "a repeat answers with the first cut and makes no other");

    let copy = restore(&clients, &format!("{fs}-restored"), size, fs, from_snapshot(&cut.snapshot_id)).await;
    let copy = Use::new(&world.scratch, &copy, mount(fs));
    // Beside its source, although both began with one identity (LOCAL-0.16).
    bring_up(&clients, &copy).await.unwrap();
    assert_eq!(fs::read(copy.target.join("before")).unwrap(), before, "{fs}");
    assert!(!copy.target.join("after").exists(), "{fs}: a later write is in the snapshot");
    fs::write(copy.target.join("own"), b"copy").unwrap();
    assert!(!using.target.join("own").exists(), "{fs}: the copy writes into its source");
    for using in [&using, &copy] {
        bring_down(&clients, using).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
    }
    delete_snapshot(&clients, &cut.snapshot_id).await.unwrap();
    delete_snapshot(&clients, &cut.snapshot_id).await.unwrap();
}

/// Rule: LOCAL-F.3
#[test]
fn a_snapshot_of_a_mounted_volume_holds_one_moment_in_a_pool_that_copies() {
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(cut_is_a_moment(&world, "ext4", 64 * MIB));
    world.end_clean();
}

/// Rule: LOCAL-F.3
#[test]
fn a_snapshot_of_a_mounted_volume_holds_one_moment_in_an_xfs_pool() {
    needs!(Ext4, Xfs, Btrfs);
    let world = World::on(FsType::Xfs, 4 * GIB, &Options::default());
    run(async {
        cut_is_a_moment(&world, "ext4", 64 * MIB).await;
        cut_is_a_moment(&world, "xfs", 300 * MIB).await;
        cut_is_a_moment(&world, "btrfs", 256 * MIB).await;
    });
    world.end_clean();
}

/// Rule: LOCAL-F.3
#[test]
fn a_snapshot_of_a_mounted_volume_holds_one_moment_in_a_btrfs_pool() {
    needs!(Ext4, Btrfs);
    let world = World::on(FsType::Btrfs, 2 * GIB, &Options::default());
    run(cut_is_a_moment(&world, "ext4", 64 * MIB));
    world.end_clean();
}

/// Rule: LOCAL-0.16
#[test]
fn a_clone_of_a_mounted_volume_mounts_beside_its_source() {
    needs!(Ext4, Xfs);
    let world = World::on(FsType::Xfs, 4 * GIB, &Options::default());
    run(async {
        let clients = world.clients().await;
        let mut uses = Vec::new();
        for (fs, size) in [("ext4", 64 * MIB), ("xfs", 300 * MIB)] {
            let volume = create(&clients, fs, size, mount(fs)).await.unwrap();
            let source = Use::new(&world.scratch, &volume.volume_id, mount(fs));
            bring_up(&clients, &source).await.unwrap();
            fs::write(source.target.join("file"), pattern(7, 1 << 20)).unwrap();
            let clone = restore(&clients, &format!("{fs}-clone"), 0, fs, from_volume(&source.id)).await;
            let clone = Use::new(&world.scratch, &clone, mount(fs));
            bring_up(&clients, &clone).await.unwrap();
            let clone_of_clone = restore(&clients, &format!("{fs}-second"), 0, fs, from_volume(&clone.id)).await;
            let second = Use::new(&world.scratch, &clone_of_clone, mount(fs));
            bring_up(&clients, &second).await.unwrap();
            assert_eq!(fs::read(second.target.join("file")).unwrap(), pattern(7, 1 << 20), "{fs}");
            uses.extend([source, clone, second]);
        }
        let ids: std::collections::BTreeSet<String> = uses
            .iter()
            .map(|using| {
                tool(
                    "blkid",
                    ["-p", "-s", "UUID", "-o", "value", world.device(&using.id).device.path.to_str().unwrap()],
                )
            })
            .collect();
        assert_eq!(ids.len(), uses.len(), "every filesystem has an identity of its own: {ids:?}");
        for using in &uses {
            bring_down(&clients, using).await.unwrap();
            delete(&clients, &using.id).await.unwrap();
        }
    });
    world.end_clean();
}

/// Rule: WIRE-B.8.CreateVolume
#[test]
fn a_restore_to_a_larger_size_has_the_larger_filesystem() {
    needs!(Ext4, Xfs, Btrfs);
    let world = World::on(FsType::Xfs, 4 * GIB, &Options::default());
    run(async {
        let clients = world.clients().await;
        for (fs, size, larger) in
            [("ext4", 64 * MIB, 160 * MIB), ("xfs", 300 * MIB, 512 * MIB), ("btrfs", 256 * MIB, 400 * MIB)]
        {
            let volume = create(&clients, fs, size, mount(fs)).await.unwrap();
            let source = Use::new(&world.scratch, &volume.volume_id, mount(fs));
            bring_up(&clients, &source).await.unwrap();
            fs::write(source.target.join("file"), pattern(9, 1 << 20)).unwrap();
            let small = fs_bytes(&source.target);
            let cut = snapshot(&clients, &format!("{fs}-snap"), &source.id).await.unwrap();
            let copy = restore(&clients, &format!("{fs}-larger"), larger, fs, from_snapshot(&cut.snapshot_id)).await;
            let copy = Use::new(&world.scratch, &copy, mount(fs));
            bring_up(&clients, &copy).await.unwrap();
            let grown = fs_bytes(&copy.target);
            assert!(grown > small + (larger - size) * 8 / 10, "{fs}: {small} became {grown}");
            assert_eq!(fs::read(copy.target.join("file")).unwrap(), pattern(9, 1 << 20), "{fs}");

            let mut request = create_request(&format!("{fs}-smaller"), size - MIB, mount(fs));
            request.volume_content_source = from_snapshot(&cut.snapshot_id);
            request.capacity_range.as_mut().unwrap().limit_bytes = i64::try_from(size - MIB).unwrap();
            refused(create_with(&clients, request).await, Code::OutOfRange, &[]);
            for using in [&source, &copy] {
                bring_down(&clients, using).await.unwrap();
                delete(&clients, &using.id).await.unwrap();
            }
            delete_snapshot(&clients, &cut.snapshot_id).await.unwrap();
        }
    });
    world.end_clean();
}

/// Rule: WIRE-B.1
#[test]
fn a_snapshot_outlives_its_volume_and_the_volumes_made_from_it() {
    needs!(Ext4);
    let mut world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let volume = create(&clients, "v", 32 * MIB, mount("ext4")).await.unwrap();
        let source = Use::new(&world.scratch, &volume.volume_id, mount("ext4"));
        bring_up(&clients, &source).await.unwrap();
        fs::write(source.target.join("file"), b"kept").unwrap();
        let cut = snapshot(&clients, "s", &source.id).await.unwrap();
        bring_down(&clients, &source).await.unwrap();
        delete(&clients, &source.id).await.unwrap();
        world.restart(&Options::default()).await;
        let clients = world.clients().await;
        assert_eq!(snapshots_of(&clients, &source.id, 0).await.unwrap(), std::slice::from_ref(&cut.snapshot_id));

        for round in ["first", "second"] {
            let copy = restore(&clients, round, 0, "ext4", from_snapshot(&cut.snapshot_id)).await;
            let copy = Use::new(&world.scratch, &copy, mount("ext4"));
            bring_up(&clients, &copy).await.unwrap();
            assert_eq!(fs::read(copy.target.join("file")).unwrap(), b"kept", "{round}");
            fs::write(copy.target.join("file"), b"changed in the copy").unwrap();
            bring_down(&clients, &copy).await.unwrap();
            delete(&clients, &copy.id).await.unwrap();
        }
        delete_snapshot(&clients, &cut.snapshot_id).await.unwrap();
        let mut request = create_request("third", 32 * MIB, mount("ext4"));
        request.volume_content_source = from_snapshot(&cut.snapshot_id);
        refused(create_with(&clients, request).await, Code::NotFound, &[&cut.snapshot_id]);
    });
    world.end_clean();
}

#[test]
fn a_copy_keeps_its_kind_and_its_filesystem() {
    needs!(Ext4, Xfs);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let volume = create(&clients, "v", 32 * MIB, mount("ext4")).await.unwrap();
        let cut = snapshot(&clients, "s", &volume.volume_id).await.unwrap();
        let other = create(&clients, "other", 32 * MIB, mount("ext4")).await.unwrap();
        refused(snapshot(&clients, "s", &other.volume_id).await, Code::AlreadyExists, &[&volume.volume_id]);
        for (name, capability, words) in [("as-block", block(), "block"), ("as-xfs", mount("xfs"), "xfs")] {
            let mut request = create_request(name, 512 * MIB, capability);
            request.volume_content_source = from_snapshot(&cut.snapshot_id);
            refused(create_with(&clients, request).await, Code::InvalidArgument, &[words]);
        }
        for id in [&volume.volume_id, &other.volume_id] {
            delete(&clients, id).await.unwrap();
        }
        delete_snapshot(&clients, &cut.snapshot_id).await.unwrap();
    });
    world.end_clean();
}
