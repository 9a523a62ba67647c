//! Directory volumes: where there is no loop device, or nobody wants one.

use std::fs;
use std::io::ErrorKind;

use driver_sdk::testing::Clients;
use linux::fs::FsType;
use tonic::Code;

use crate::needs;
use crate::rig::ask::*;
use crate::rig::call::*;
use crate::rig::world::*;
use crate::rig::{GIB, MIB, Options, run};

async fn create_directory(clients: &Clients, name: &str) -> String {
    let mut request = create_request(name, 32 * MIB, mount(""));
    request.parameters = map([("kind", "directory")]);
    create_with(clients, request).await.unwrap().volume_id
}

async fn copy_of(clients: &Clients, name: &str, source: csi::v1::VolumeContentSource) -> String {
    let mut request = create_request(name, 32 * MIB, mount(""));
    request.parameters = map([("kind", "directory")]);
    request.volume_content_source = Some(source);
    create_with(clients, request).await.unwrap().volume_id
}

/// Writes, snapshots, restores and clones a directory volume.
async fn a_directory_is_a_volume(world: &World) {
    let clients = world.clients().await;
    let using = Use::new(&world.scratch, &create_directory(&clients, "v").await, mount(""));
    bring_up(&clients, &using).await.unwrap();
    fs::create_dir(using.target.join("dir")).unwrap();
    fs::write(using.target.join("dir/file"), b"first").unwrap();
    std::os::unix::fs::symlink("dir/file", using.target.join("link")).unwrap();
    let reader = using.clone().at(world.scratch.path("targets/reader")).readonly();
    publish(&clients, &reader).await.unwrap();
    let wrote = fs::write(reader.target.join("dir/file"), b"forbidden");
    assert!(wrote.is_err_and(|error| error.kind() == ErrorKind::ReadOnlyFilesystem));
    unpublish(&clients, &reader).await.unwrap();
    refused(unstage(&clients, &using).await, Code::Aborted, &["still shown"]);
    bring_down(&clients, &using).await.unwrap();
    assert!(world.scratch.pool_loops().is_empty() && world.scratch.mounts().is_empty());

    let cut = snapshot(&clients, "s", &using.id).await.unwrap();
    let clone = Use::new(&world.scratch, &copy_of(&clients, "clone", from_volume(&using.id).unwrap()).await, mount(""));
    bring_up(&clients, &using).await.unwrap();
    fs::write(using.target.join("dir/file"), b"second").unwrap();
    let restored = copy_of(&clients, "restored", from_snapshot(&cut.snapshot_id).unwrap()).await;
    let restored = Use::new(&world.scratch, &restored, mount(""));
    for copy in [&clone, &restored] {
        bring_up(&clients, copy).await.unwrap();
        assert_eq!(fs::read(copy.target.join("link")).unwrap(), b"first");
        fs::write(copy.target.join("dir/file"), b"own").unwrap();
    }
    assert_eq!(fs::read(using.target.join("dir/file")).unwrap(), b"second");
    refused(allocated(&clients, &cut.snapshot_id, 0, 0).await, Code::FailedPrecondition, &["directory"]);
    for using in [&using, &clone, &restored] {
        bring_down(&clients, using).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
    }
    delete_snapshot(&clients, &cut.snapshot_id).await.unwrap();
}

#[test]
fn directories_are_volumes_in_a_plain_pool() {
    needs!();
    let world = World::plain(&Options::default());
    run(a_directory_is_a_volume(&world));
    world.end_clean();
}

#[test]
fn directories_are_volumes_in_an_xfs_pool() {
    needs!(Xfs);
    let world = World::on(FsType::Xfs, GIB, &Options::default());
    run(a_directory_is_a_volume(&world));
    world.end_clean();
}

#[test]
fn directories_are_subvolumes_in_a_btrfs_pool() {
    needs!(Btrfs);
    let world = World::on(FsType::Btrfs, GIB, &Options::default());
    run(a_directory_is_a_volume(&world));
    world.end_clean();
}

#[test]
fn a_directory_in_use_is_cut_at_one_moment_or_not_at_all() {
    needs!(Btrfs);
    for (fs, can) in [(None, false), (Some(FsType::Btrfs), true)] {
        let world = fs.map_or_else(|| World::plain(&Options::default()), |fs| World::on(fs, GIB, &Options::default()));
        run(async {
            let clients = world.clients().await;
            let using = Use::new(&world.scratch, &create_directory(&clients, "v").await, mount(""));
            bring_up(&clients, &using).await.unwrap();
            fs::write(using.target.join("file"), b"first").unwrap();
            let answer = snapshot(&clients, "s", &using.id).await;
            if can {
                let cut = answer.unwrap().snapshot_id;
                fs::write(using.target.join("file"), b"second").unwrap();
                let kept = world.scratch.path("pool").join("snapshots").join(&cut).join("data/file");
                assert_eq!(fs::read(kept).unwrap(), b"first");
                delete_snapshot(&clients, &cut).await.unwrap();
            } else {
                refused(answer, Code::FailedPrecondition, &["as a directory", "cannot be stopped", "unpublish"]);
                world.scratch.assert_pool_holds(1, 0, 0);
            }
            bring_down(&clients, &using).await.unwrap();
            delete(&clients, &using.id).await.unwrap();
        });
        world.end_clean();
    }
}

#[test]
fn a_directory_cannot_be_a_device() {
    needs!();
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let mut request = create_request("v", 32 * MIB, block());
        request.parameters = map([("kind", "directory")]);
        refused(create_with(&clients, request).await, Code::InvalidArgument, &["cannot be a block volume"]);
        let id = create_directory(&clients, "v").await;
        let answer = modify(&clients, &id, map([("readAheadKiB", "64")])).await;
        refused(answer, Code::InvalidArgument, &["no device to tune"]);
        delete(&clients, &id).await.unwrap();
    });
    world.end_clean();
}

#[test]
fn subvolumes_that_a_workload_made_go_with_its_volume() {
    needs!(Btrfs);
    let world = World::on(FsType::Btrfs, GIB, &Options::default());
    run(async {
        let clients = world.clients().await;
        let using = Use::new(&world.scratch, &create_directory(&clients, "v").await, mount(""));
        bring_up(&clients, &using).await.unwrap();
        fs::create_dir(using.target.join("dir")).unwrap();
        for inner in ["dir/inner", "dir/inner/innermost"] {
            tool("btrfs", ["subvolume", "create", using.target.join(inner).to_str().unwrap()]);
        }
        fs::write(using.target.join("dir/inner/innermost/file"), b"x").unwrap();
        bring_down(&clients, &using).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
    });
    world.end_clean();
}

#[test]
fn a_group_of_subvolumes_in_use_is_refused_since_two_snapshots_are_two_moments() {
    needs!(Btrfs);
    let world = World::on(FsType::Btrfs, GIB, &Options::default());
    run(async {
        let clients = world.clients().await;
        let mut volumes = Vec::new();
        for name in ["a", "b"] {
            let using = Use::new(&world.scratch, &create_directory(&clients, name).await, mount(""));
            bring_up(&clients, &using).await.unwrap();
            volumes.push(using);
        }
        let ids: Vec<&str> = volumes.iter().map(|using| using.id.as_str()).collect();
        refused(create_group(&clients, "g", &ids).await, Code::FailedPrecondition, &["cannot be stopped"]);
        for using in &volumes {
            bring_down(&clients, using).await.unwrap();
            delete(&clients, &using.id).await.unwrap();
        }
    });
    world.end_clean();
}
