//! Raw block volumes: bytes, devices, copies.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use linux::fs::FsType;
use tonic::Code;

use crate::needs;
use crate::rig::ask::*;
use crate::rig::call::*;
use crate::rig::world::*;
use crate::rig::{MIB, Options, run};

#[test]
fn bytes_of_a_block_volume_survive_unstaging_and_a_restart() {
    needs!();
    let mut world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let volume = create(&clients, "v", 16 * MIB, block()).await.unwrap();
        let using = Use::new(&world.scratch, &volume.volume_id, block());
        bring_up(&clients, &using).await.unwrap();
        write_block(&using.target, 0, b"first").unwrap();
        write_block(&using.target, 16 * MIB - 4, b"last").unwrap();
        assert!(write_block(&using.target, 16 * MIB, b"beyond").is_err());
        bring_down(&clients, &using).await.unwrap();
        assert!(world.scratch.pool_loops().is_empty(), "unstaging lets go of the device");
        world.restart(&Options::default()).await;
        let clients = world.clients().await;
        bring_up(&clients, &using).await.unwrap();
        assert_eq!(read_block(&using.target, 0, 5), b"first");
        assert_eq!(read_block(&using.target, 16 * MIB - 4, 4), b"last");
        world.restart(&Options::default()).await;
        let clients = world.clients().await;
        write_block(&using.target, 0, b"again").unwrap();
        bring_down(&clients, &using).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
    });
    world.end_clean();
}

/// Rule: LOCAL-0.10
#[test]
fn two_volumes_never_share_a_device_and_one_volume_never_has_two() {
    // LOCAL-0.10: the kernel would not mind either.
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let mut uses = Vec::new();
        for number in 0..4 {
            let capability = if number % 2 == 0 { block() } else { mount("ext4") };
            let volume = create(&clients, &format!("v{number}"), 32 * MIB, capability.clone()).await.unwrap();
            uses.push(Use::new(&world.scratch, &volume.volume_id, capability));
        }
        for using in uses.iter().chain(&uses) {
            bring_up(&clients, using).await.unwrap();
        }
        let devices: std::collections::BTreeSet<PathBuf> =
            uses.iter().map(|using| world.device(&using.id).device.path).collect();
        assert_eq!(devices.len(), uses.len(), "{devices:?}");
        assert_eq!(world.scratch.pool_loops().len(), uses.len());
        for (number, using) in uses.iter().enumerate().step_by(2) {
            write_block(&using.target, 0, format!("volume {number}").as_bytes()).unwrap();
        }
        for (number, using) in uses.iter().enumerate().step_by(2) {
            assert_eq!(read_block(&using.target, 0, 8), format!("volume {number}").as_bytes());
        }
        for using in &uses {
            bring_down(&clients, using).await.unwrap();
            delete(&clients, &using.id).await.unwrap();
        }
    });
    world.end_clean();
}

/// Rule: LOCAL-R9
#[test]
fn a_device_that_someone_else_put_on_an_image_is_not_used_for_a_filesystem() {
    // LOCAL-R9: an administrator looked at the image with losetup and forgot.
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let volume = create(&clients, "v", 32 * MIB, mount("ext4")).await.unwrap();
        let using = Use::new(&world.scratch, &volume.volume_id, mount("ext4"));
        attach(&clients, &using).await.unwrap();
        let foreign = tool("losetup", ["--find", "--show", world.image(&using.id).to_str().unwrap()]).trim().to_owned();
        refused(stage(&clients, &using).await, Code::Aborted, &[&foreign, "losetup -d"]);
        assert_eq!(world.device(&using.id).device.path, PathBuf::from(&foreign), "it is left alone");
        tool("losetup", ["-d", &foreign]);
        bring_up(&clients, &using).await.unwrap();
        bring_down(&clients, &using).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
    });
    world.end_clean();
}

#[test]
fn a_snapshot_of_a_block_volume_in_use_is_whole_where_files_share_extents() {
    needs!(Xfs);
    let world = World::on(FsType::Xfs, 1024 * MIB, &Options::default());
    run(async {
        let clients = world.clients().await;
        let volume = create(&clients, "v", 16 * MIB, block()).await.unwrap();
        let using = Use::new(&world.scratch, &volume.volume_id, block());
        bring_up(&clients, &using).await.unwrap();
        write_block(&using.target, 4096, b"before").unwrap();
        let cut = snapshot(&clients, "s", &using.id).await.unwrap();
        write_block(&using.target, 4096, b"after!").unwrap();
        let mut request = create_request("copy", 16 * MIB, block());
        request.volume_content_source = from_snapshot(&cut.snapshot_id);
        let copy = create_with(&clients, request).await.unwrap();
        let copy = Use::new(&world.scratch, &copy.volume_id, block());
        bring_up(&clients, &copy).await.unwrap();
        assert_eq!(read_block(&copy.target, 4096, 6), b"before");
        assert_eq!(read_block(&using.target, 4096, 6), b"after!");
        for using in [&using, &copy] {
            bring_down(&clients, using).await.unwrap();
            delete(&clients, &using.id).await.unwrap();
        }
        delete_snapshot(&clients, &cut.snapshot_id).await.unwrap();
    });
    world.end_clean();
}

/// Keeps writing one number to the first and then to the last block, so that a copy over time shows a first block that
/// is older than the last one.
fn keep_writing(node: PathBuf, last: u64) -> (Arc<AtomicBool>, std::thread::JoinHandle<()>) {
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    let writer = std::thread::spawn(move || {
        let mut number = 1u64;
        while !told.load(Ordering::Relaxed) {
            write_block(&node, 0, &number.to_le_bytes()).unwrap();
            write_block(&node, last, &number.to_le_bytes()).unwrap();
            number += 1;
        }
    });
    (stop, writer)
}

#[test]
fn a_block_volume_that_is_being_written_is_not_copied_byte_by_byte() {
    // A full copy takes time, nothing can stop the writers of a raw device, and a copy that mixes two moments is worse
    // than none. Of a device that is still it is a moment.
    needs!();
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let size = 64 * MIB;
        let volume = create(&clients, "v", size, block()).await.unwrap();
        let using = Use::new(&world.scratch, &volume.volume_id, block());
        bring_up(&clients, &using).await.unwrap();
        write_block(&using.target, 0, &vec![0xab; usize::try_from(size).unwrap()]).unwrap();
        let (stop, writer) = keep_writing(using.target.clone(), size - 4096);
        let answer = snapshot(&clients, "busy", &using.id).await;
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        refused(answer, Code::FailedPrecondition, &["written", "unpublish"]);

        let cut = snapshot(&clients, "still", &using.id).await.unwrap();
        let image = world.scratch.path("pool").join("snapshots").join(&cut.snapshot_id).join("image");
        assert_eq!(read_block(&image, 0, 8), read_block(&using.target, 0, 8));
        delete_snapshot(&clients, &cut.snapshot_id).await.unwrap();
        bring_down(&clients, &using).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
    });
    world.end_clean();
}
