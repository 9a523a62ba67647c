//! Group snapshots: several volumes at one moment, or none (WIRE-B.10).

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use csi::v1::VolumeGroupSnapshot;
use driver_sdk::testing::Clients;
use linux::fs::FsType;
use tonic::Code;

use crate::needs;
use crate::rig::ask::*;
use crate::rig::call::*;
use crate::rig::world::*;
use crate::rig::{GIB, MIB, Options, run};

/// Writes ever larger numbers, each to the first file and then, when it is on disk, to the second.
fn keep_counting(files: [PathBuf; 2]) -> (Arc<AtomicBool>, std::thread::JoinHandle<u64>) {
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    let files = files.map(|path| {
        write_synced(&path, &0u64.to_le_bytes());
        File::options().write(true).open(path).unwrap()
    });
    let writer = std::thread::spawn(move || {
        let mut number = 0u64;
        while !told.load(Ordering::Relaxed) {
            number += 1;
            for file in &files {
                file.write_all_at(&number.to_le_bytes(), 0).unwrap();
                file.sync_data().unwrap();
            }
        }
        number
    });
    (stop, writer)
}

/// Restores the member that was cut from this volume and reads the number in it.
async fn number_in(world: &World, clients: &Clients, group: &VolumeGroupSnapshot, source: &str) -> u64 {
    let member = group.snapshots.iter().find(|member| member.source_volume_id == source).unwrap();
    assert_eq!(member.group_snapshot_id, group.group_snapshot_id);
    let mut request = create_request(&format!("copy-{}", member.snapshot_id), 0, mount("ext4"));
    request.volume_content_source = from_snapshot(&member.snapshot_id);
    let copy = create_with(clients, request).await.unwrap();
    let copy = Use::new(&world.scratch, &copy.volume_id, mount("ext4"));
    bring_up(clients, &copy).await.unwrap();
    let bytes = fs::read(copy.target.join("number")).unwrap();
    bring_down(clients, &copy).await.unwrap();
    delete(clients, &copy.id).await.unwrap();
    u64::from_le_bytes(bytes.try_into().unwrap())
}

async fn group_is_one_moment(world: &World, cuts: usize) {
    let clients = world.clients().await;
    let mut uses = Vec::new();
    for name in ["first", "second"] {
        let volume = create(&clients, name, 32 * MIB, mount("ext4")).await.unwrap();
        uses.push(Use::new(&world.scratch, &volume.volume_id, mount("ext4")));
        bring_up(&clients, uses.last().unwrap()).await.unwrap();
    }
    let (first, second) = (&uses[0], &uses[1]);
    let (stop, writer) = keep_counting([first.target.join("number"), second.target.join("number")]);
    let mut groups = Vec::new();
    for number in 0..cuts {
        groups.push(create_group(&clients, &format!("g{number}"), &[&second.id, &first.id]).await.unwrap());
    }
    stop.store(true, Ordering::Relaxed);
    assert!(writer.join().unwrap() > 0);
    for group in &groups {
        let one = number_in(world, &clients, group, &first.id).await;
        let two = number_in(world, &clients, group, &second.id).await;
        assert!(two <= one && one <= two + 1, "the second volume has {two} and the first {one}");
    }
    for group in &groups {
        delete_group(&clients, group).await.unwrap();
        delete_group(&clients, group).await.unwrap();
    }
    for using in &uses {
        bring_down(&clients, using).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
    }
}

/// Rule: WIRE-B.10
#[test]
fn a_group_never_shows_a_later_write_without_the_one_before_it() {
    needs!(Ext4, Xfs);
    let world = World::on(FsType::Xfs, 2 * GIB, &Options::default());
    run(group_is_one_moment(&world, 6));
    world.end_clean();
}

/// Rule: WIRE-B.10
#[test]
fn a_group_is_one_moment_also_where_it_is_copied_byte_by_byte() {
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(group_is_one_moment(&world, 2));
    world.end_clean();
}

/// Rules: WIRE-B.10, LOCAL-F.6
#[test]
fn a_raw_device_in_use_cannot_be_cut_together_with_others() {
    needs!(Ext4, Xfs);
    let world = World::on(FsType::Xfs, 2 * GIB, &Options::default());
    run(async {
        let clients = world.clients().await;
        let raw = create(&clients, "raw", 16 * MIB, block()).await.unwrap();
        let raw = Use::new(&world.scratch, &raw.volume_id, block());
        let other = create(&clients, "other", 32 * MIB, mount("ext4")).await.unwrap().volume_id;
        bring_up(&clients, &raw).await.unwrap();
        let answer = create_group(&clients, "g", &[&raw.id, &other]).await;
        refused(answer, Code::FailedPrecondition, &[&raw.id, "raw device", "unpublish"]);
        world.scratch.assert_pool_holds(2, 0, 0);
        let alone = create_group(&clients, "alone", &[&raw.id]).await.unwrap();
        bring_down(&clients, &raw).await.unwrap();
        let group = create_group(&clients, "g", &[&raw.id, &other]).await.unwrap();
        for group in [&alone, &group] {
            delete_group(&clients, group).await.unwrap();
        }
        delete(&clients, &raw.id).await.unwrap();
        delete(&clients, &other).await.unwrap();
    });
    world.end_clean();
}

/// Rule: WIRE-B.10
#[test]
fn a_group_is_one_object_with_members_that_do_not_go_alone() {
    needs!();
    let mut world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let mut ids = Vec::new();
        for name in ["a", "b", "c"] {
            ids.push(create(&clients, name, 16 * MIB, block()).await.unwrap().volume_id);
        }
        let group = create_group(&clients, "g", &[&ids[0], &ids[1]]).await.unwrap();
        assert!(group.ready_to_use && group.snapshots.len() == 2);
        assert_eq!(create_group(&clients, "g", &[&ids[1], &ids[0]]).await.unwrap(), group, "order does not matter");
        refused(create_group(&clients, "g", &[&ids[0], &ids[2]]).await, Code::AlreadyExists, &["other volumes"]);
        refused(create_group(&clients, "h", &[&ids[0], "vol-none"]).await, Code::NotFound, &["vol-none"]);
        let member = &group.snapshots[0];
        refused(delete_snapshot(&clients, &member.snapshot_id).await, Code::InvalidArgument, &["delete the group"]);
        assert_eq!(snapshots_of(&clients, &ids[0], 0).await.unwrap().len(), 1, "members are snapshots too");
        let mut wrong = group.clone();
        wrong.snapshots.pop();
        refused(delete_group(&clients, &wrong).await, Code::InvalidArgument, &[]);

        for id in &ids {
            delete(&clients, id).await.unwrap();
        }
        world.restart(&Options::default()).await;
        let clients = world.clients().await;
        assert_eq!(get_group(&clients, &group).await.unwrap(), group, "it survives its volumes and a restart");
        delete_group(&clients, &group).await.unwrap();
        refused(get_group(&clients, &group).await, Code::NotFound, &[]);
        assert!(snapshots_of(&clients, &ids[0], 0).await.unwrap().is_empty());
    });
    world.end_clean();
}
