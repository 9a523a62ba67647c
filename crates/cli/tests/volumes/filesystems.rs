//! Every filesystem keeps its data; mount flags and groups do what they say.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Command;

use linux::fs::FsType;
use tonic::Code;

use crate::needs;
use crate::rig::ask::*;
use crate::rig::call::*;
use crate::rig::world::*;
use crate::rig::{GIB, MIB, Options, run};

const ALL: [(&str, u64); 3] = [("ext4", 32 * MIB), ("xfs", 300 * MIB), ("btrfs", 256 * MIB)];

async fn data_survives(world: &World) {
    let clients = world.clients().await;
    for (fs, size) in ALL {
        let volume = create(&clients, fs, size, mount(fs)).await.unwrap();
        assert_eq!(volume.capacity_bytes, i64::try_from(size).unwrap());
        let using = Use::new(&world.scratch, &volume.volume_id, mount(fs));
        bring_up(&clients, &using).await.unwrap();
        assert!(tool("findmnt", ["-no", "FSTYPE", using.target.to_str().unwrap()]).trim() == fs);
        fs::create_dir(using.target.join("dir")).unwrap();
        fs::write(using.target.join("dir/file"), fs.repeat(10_000)).unwrap();
        bring_down(&clients, &using).await.unwrap();
        assert!(
            !using.target.exists() && using.staging.exists(),
            "the target goes, the staging directory is the caller's"
        );
        bring_up(&clients, &using).await.unwrap();
        assert_eq!(fs::read_to_string(using.target.join("dir/file")).unwrap(), fs.repeat(10_000));
        bring_down(&clients, &using).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
    }
}

#[test]
fn every_filesystem_keeps_its_data_in_a_plain_pool() {
    needs!(Ext4, Xfs, Btrfs);
    let world = World::plain(&Options::default());
    run(data_survives(&world));
    world.end_clean();
}

#[test]
fn every_filesystem_keeps_its_data_in_a_btrfs_pool() {
    needs!(Ext4, Xfs, Btrfs);
    let world = World::on(FsType::Btrfs, 2 * GIB, &Options::default());
    run(data_survives(&world));
    world.end_clean();
}

#[test]
fn the_filesystem_is_the_one_that_was_named_or_the_default() {
    needs!(Ext4, Xfs);
    let world = World::plain(&Options::args(["--default-fs", "xfs"]));
    run(async {
        let clients = world.clients().await;
        let mut of_class = create_request("class", 64 * MIB, mount(""));
        of_class.parameters = map([("fsType", "ext4")]);
        let cases = [(create_request("default", 300 * MIB, mount("")), "xfs"), (of_class, "ext4")];
        for (request, want) in cases {
            let volume = create_with(&clients, request).await.unwrap();
            let using = Use::new(&world.scratch, &volume.volume_id, mount(""));
            bring_up(&clients, &using).await.unwrap();
            assert_eq!(tool("findmnt", ["-no", "FSTYPE", using.target.to_str().unwrap()]).trim(), want);
            bring_down(&clients, &using).await.unwrap();
            delete(&clients, &using.id).await.unwrap();
        }
        refused(
            create(&clients, "v", 64 * MIB, mount("ntfs")).await,
            Code::InvalidArgument,
            &["ntfs", "ext4, xfs, btrfs"],
        );
    });
    world.end_clean();
}

#[test]
fn mount_flags_are_honoured_or_refused_in_the_kernels_words() {
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let capability = with_flags(mount("ext4"), ["noexec", "noatime", "commit=17"]);
        let volume = create(&clients, "v", 32 * MIB, capability.clone()).await.unwrap();
        let using = Use::new(&world.scratch, &volume.volume_id, capability);
        bring_up(&clients, &using).await.unwrap();
        let script = using.target.join("script");
        fs::write(&script, "#!/bin/sh\nexit 0\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let error = Command::new(&script).status().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "noexec holds at the target");
        let options = tool("findmnt", ["-no", "OPTIONS", using.target.to_str().unwrap()]);
        assert!(options.contains("noatime") && options.contains("commit=17"), "{options}");
        bring_down(&clients, &using).await.unwrap();

        attach(&clients, &using).await.unwrap();
        let cases = [
            (["no-such-option"], vec!["no-such-option", "ext4"]),
            (["commit=many"], vec!["commit"]),
            (["bind"], vec!["\"bind\"", "not allowed"]),
            (["loop=/dev/loop9"], vec!["not allowed"]),
        ];
        for (flags, words) in cases {
            let wrong = Use { capability: with_flags(mount("ext4"), flags), ..using.clone() };
            refused(stage(&clients, &wrong).await, Code::InvalidArgument, &words);
            assert!(!is_mounted(&using.staging) && world.scratch.pool_loops().is_empty(), "{flags:?} left something");
        }
        let both = Use { capability: with_flags(mount("ext4"), ["ro", "rw"]), ..using.clone() };
        refused(stage(&clients, &both).await, Code::InvalidArgument, &["contradict"]);
        detach(&clients, &using.id).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
    });
    world.end_clean();
}

#[test]
fn a_volume_given_to_a_group_belongs_to_it_and_so_do_new_files() {
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let volume = create(&clients, "v", 32 * MIB, mount("ext4")).await.unwrap();
        let plain = Use::new(&world.scratch, &volume.volume_id, mount("ext4"));
        bring_up(&clients, &plain).await.unwrap();
        fs::create_dir(plain.target.join("dir")).unwrap();
        fs::write(plain.target.join("dir/file"), b"x").unwrap();
        fs::set_permissions(plain.target.join("dir/file"), fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", plain.target.join("link")).unwrap();
        let outside = fs::metadata("/etc/hostname").map(|meta| meta.gid());
        bring_down(&clients, &plain).await.unwrap();

        let grouped = Use { capability: with_group(mount("ext4"), "4711"), ..plain.clone() };
        bring_up(&clients, &grouped).await.unwrap();
        let meta = |name: &str| fs::symlink_metadata(grouped.target.join(name)).unwrap();
        for name in ["", "dir", "dir/file", "link"] {
            assert_eq!(meta(name).gid(), 4711, "{name}");
        }
        assert_eq!(meta("dir/file").mode() & 0o777, 0o660);
        assert_eq!(meta("").mode() & 0o2070, 0o2070, "new files inherit the group");
        fs::write(grouped.target.join("dir/new"), b"x").unwrap();
        assert_eq!(meta("dir/new").gid(), 4711);
        assert_eq!(fs::metadata("/etc/hostname").map(|meta| meta.gid()).ok(), outside.ok(), "links are not followed");
        bring_down(&clients, &grouped).await.unwrap();

        attach(&clients, &plain).await.unwrap();
        let wrong = Use { capability: with_group(mount("ext4"), "staff"), ..plain.clone() };
        refused(stage(&clients, &wrong).await, Code::InvalidArgument, &["staff", "numeric"]);
        detach(&clients, &plain.id).await.unwrap();
        delete(&clients, &plain.id).await.unwrap();
    });
    world.end_clean();
}
