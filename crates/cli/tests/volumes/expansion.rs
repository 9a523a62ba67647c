//! Growing volumes: while nobody uses them, while somebody does, and when the machine does not let us.

use std::fs;

use linux::fs::FsType;
use tonic::Code;

use crate::needs;
use crate::rig::ask::*;
use crate::rig::call::*;
use crate::rig::world::*;
use crate::rig::{GIB, MIB, Options, run};

#[test]
fn an_idle_volume_grows_when_it_is_staged_the_next_time() {
    needs!(Ext4, Xfs, Btrfs);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        for (fs, size, larger) in
            [("ext4", 32 * MIB, 128 * MIB), ("xfs", 300 * MIB, 400 * MIB), ("btrfs", 256 * MIB, 384 * MIB)]
        {
            let volume = create(&clients, fs, size, mount(fs)).await.unwrap();
            let using = Use::new(&world.scratch, &volume.volume_id, mount(fs));
            bring_up(&clients, &using).await.unwrap();
            fs::write(using.target.join("file"), b"kept").unwrap();
            let small = fs_bytes(&using.target);
            bring_down(&clients, &using).await.unwrap();
            let answer = expand(&clients, &using.id, larger).await.unwrap();
            assert_eq!((answer.capacity_bytes, answer.node_expansion_required), (i64::try_from(larger).unwrap(), true));
            let again = expand(&clients, &using.id, larger).await.unwrap();
            assert_eq!(again, answer, "a repeat changes nothing");
            bring_up(&clients, &using).await.unwrap();
            assert!(fs_bytes(&using.target) > small + (larger - size) * 8 / 10, "{fs}");
            assert_eq!(node_expand(&clients, &using.id, &using.target).await.unwrap(), larger, "nothing left to do");
            assert_eq!(fs::read(using.target.join("file")).unwrap(), b"kept", "{fs}");
            bring_down(&clients, &using).await.unwrap();
            delete(&clients, &using.id).await.unwrap();
        }
    });
    world.end_clean();
}

/// Rule: LOCAL-F.5
#[test]
fn xfs_and_btrfs_grow_while_they_are_mounted() {
    needs!(Xfs, Btrfs);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        for (fs, size, larger) in [("xfs", 300 * MIB, 400 * MIB), ("btrfs", 256 * MIB, 384 * MIB)] {
            let volume = create(&clients, fs, size, mount(fs)).await.unwrap();
            let using = Use::new(&world.scratch, &volume.volume_id, mount(fs));
            bring_up(&clients, &using).await.unwrap();
            fs::write(using.target.join("file"), b"kept").unwrap();
            let small = fs_bytes(&using.target);
            refused(node_expand_to(&clients, &using, larger).await, Code::OutOfRange, &["controller expands it first"]);
            expand(&clients, &using.id, larger).await.unwrap();
            assert_eq!(fs_bytes(&using.target), small, "the controller does not touch the filesystem");
            assert_eq!(node_expand(&clients, &using.id, &using.target).await.unwrap(), larger);
            assert!(fs_bytes(&using.target) > small + (larger - size) * 8 / 10, "{fs}");
            assert_eq!(node_expand(&clients, &using.id, &using.staging).await.unwrap(), larger);
            assert_eq!(fs::read(using.target.join("file")).unwrap(), b"kept");
            bring_down(&clients, &using).await.unwrap();
            bring_up(&clients, &using).await.unwrap();
            assert!(fs_bytes(&using.target) > small + (larger - size) * 8 / 10, "{fs}");
            bring_down(&clients, &using).await.unwrap();
            delete(&clients, &using.id).await.unwrap();
        }
    });
    world.end_clean();
}

async fn node_expand_to(clients: &driver_sdk::testing::Clients, using: &Use, size: u64) -> Result<(), tonic::Status> {
    let request = csi::v1::NodeExpandVolumeRequest {
        volume_id: using.id.clone(),
        volume_path: using.target.to_str().unwrap().to_owned(),
        capacity_range: Some(csi::v1::CapacityRange { required_bytes: i64::try_from(size).unwrap(), limit_bytes: 0 }),
        ..Default::default()
    };
    clients.node.clone().node_expand_volume(request).await.map(drop)
}

/// Rule: LOCAL-0.19
#[test]
fn a_mounted_ext4_grows_at_once_or_says_why_it_grows_at_the_next_stage() {
    // LOCAL-0.19: the kernel wants CAP_SYS_RESOURCE for it, which not every node gives a driver.
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let (size, larger) = (32 * MIB, 128 * MIB);
        let volume = create(&clients, "v", size, mount("ext4")).await.unwrap();
        let using = Use::new(&world.scratch, &volume.volume_id, mount("ext4"));
        bring_up(&clients, &using).await.unwrap();
        let small = fs_bytes(&using.target);
        expand(&clients, &using.id, larger).await.unwrap();
        let answer = node_expand(&clients, &using.id, &using.target).await;
        if has_sys_resource() {
            assert_eq!(answer.unwrap(), larger);
        } else {
            refused(answer, Code::FailedPrecondition, &["cannot grow while mounted", "staged the next time"]);
            fs::write(using.target.join("file"), b"still writable").unwrap();
            bring_down(&clients, &using).await.unwrap();
            bring_up(&clients, &using).await.unwrap();
            assert_eq!(fs::read(using.target.join("file")).unwrap(), b"still writable");
        }
        assert!(fs_bytes(&using.target) > small + (larger - size) * 8 / 10);
        bring_down(&clients, &using).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
    });
    world.end_clean();
}

#[test]
fn a_block_volume_in_use_grows_and_its_device_shows_it() {
    needs!();
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let volume = create(&clients, "v", 16 * MIB, block()).await.unwrap();
        let using = Use::new(&world.scratch, &volume.volume_id, block());
        bring_up(&clients, &using).await.unwrap();
        write_block(&using.target, 16 * MIB - 4, b"edge").unwrap();
        let answer = expand(&clients, &using.id, 48 * MIB).await.unwrap();
        assert!(!answer.node_expansion_required, "a device has no filesystem to grow");
        assert_eq!(world.device(&using.id).device.size().unwrap(), 48 * MIB);
        write_block(&using.target, 48 * MIB - 4, b"end!").unwrap();
        assert_eq!(node_expand(&clients, &using.id, &using.target).await.unwrap(), 48 * MIB);
        assert_eq!(read_block(&using.target, 16 * MIB - 4, 4), b"edge");
        bring_down(&clients, &using).await.unwrap();
        bring_up(&clients, &using).await.unwrap();
        assert_eq!(read_block(&using.target, 48 * MIB - 4, 4), b"end!");
        bring_down(&clients, &using).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
    });
    world.end_clean();
}

/// Rule: WIRE-B.8.ControllerExpandVolume
#[test]
fn a_volume_never_shrinks_and_never_grows_beyond_its_pool() {
    needs!(Ext4, Xfs);
    let world = World::on(FsType::Xfs, GIB, &Options::default());
    run(async {
        let clients = world.clients().await;
        let volume = create(&clients, "v", 64 * MIB, mount("ext4")).await.unwrap();
        let id = volume.volume_id;
        assert_eq!(expand(&clients, &id, 32 * MIB).await.unwrap().capacity_bytes, i64::try_from(64 * MIB).unwrap());
        let before = fs::metadata(world.image(&id)).unwrap().len();
        refused(expand(&clients, &id, 8 * GIB).await, Code::ResourceExhausted, &["pool \"p\" can promise"]);
        assert_eq!(fs::metadata(world.image(&id)).unwrap().len(), before, "a refusal changes nothing");
        assert_eq!(get(&clients, &id).await.unwrap().volume.unwrap().capacity_bytes, i64::try_from(64 * MIB).unwrap());
        let most = available(&clients).await;
        expand(&clients, &id, 64 * MIB + most / 4096 * 4096).await.unwrap();
        assert!(available(&clients).await < 4096);
        delete(&clients, &id).await.unwrap();
    });
    world.end_clean();
}
