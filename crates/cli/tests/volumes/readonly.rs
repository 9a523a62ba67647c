//! Read-only is enforced, by the mount or by the device, never by a promise (LOCAL-0.13 and LOCAL-0.14).

use std::fs::{self, File};
use std::io::ErrorKind;

use csi::v1::volume_capability::access_mode::Mode;
use rustix::io::Errno;
use tonic::Code;

use crate::needs;
use crate::rig::ask::*;
use crate::rig::call::*;
use crate::rig::world::*;
use crate::rig::{MIB, Options, run};

fn is_read_only_fs(answer: std::io::Result<()>) -> bool {
    answer.is_err_and(|error| error.kind() == ErrorKind::ReadOnlyFilesystem)
}

/// Writing through a device node fails, at the open or at the write.
fn device_refuses(node: &std::path::Path) -> bool {
    let wrote = write_block(node, 4096, b"forbidden");
    wrote.is_err_and(|error| {
        matches!(Errno::from_io_error(&error), Some(Errno::PERM | Errno::ROFS | Errno::ACCESS | Errno::IO))
    })
}

#[test]
fn a_readonly_publication_of_a_filesystem_cannot_be_written_and_the_other_still_can() {
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let volume = create(&clients, "v", 32 * MIB, mount("ext4")).await.unwrap();
        let writer = Use::new(&world.scratch, &volume.volume_id, mount("ext4"));
        let reader = writer.clone().at(world.scratch.path("targets/reader")).readonly();
        bring_up(&clients, &writer).await.unwrap();
        fs::write(writer.target.join("file"), b"seen").unwrap();
        publish(&clients, &reader).await.unwrap();
        publish(&clients, &reader).await.unwrap();
        assert_eq!(fs::read(reader.target.join("file")).unwrap(), b"seen");
        assert!(is_read_only_fs(fs::write(reader.target.join("file"), b"overwritten")));
        assert!(is_read_only_fs(fs::create_dir(reader.target.join("dir"))));
        fs::write(writer.target.join("file"), b"changed").unwrap();
        assert_eq!(fs::read(reader.target.join("file")).unwrap(), b"changed");

        // The same target in the other mode is a conflict, not a remount.
        let turned = reader.clone();
        let turned = Use { readonly: false, ..turned };
        refused(publish(&clients, &turned).await, Code::AlreadyExists, &[]);
        assert!(is_read_only_fs(fs::write(reader.target.join("file"), b"x")));
        unpublish(&clients, &reader).await.unwrap();
        bring_down(&clients, &writer).await.unwrap();
        delete(&clients, &writer.id).await.unwrap();
    });
    world.end_clean();
}

/// Rule: LOCAL-0.14
#[test]
fn a_readonly_mount_is_readonly_from_its_first_moment() {
    // LOCAL-0.14: a bind mount that is made read-only in a second step has a writable window. Somebody who tries to
    // write all the time never succeeds.
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let volume = create(&clients, "v", 32 * MIB, mount("ext4")).await.unwrap();
        let using = Use::new(&world.scratch, &volume.volume_id, mount("ext4"));
        attach(&clients, &using).await.unwrap();
        stage(&clients, &using).await.unwrap();
        fs::write(using.staging.join("guarded"), b"original").unwrap();
        let reader = using.clone().at(world.scratch.path("targets/reader")).readonly();
        let (path, done) =
            (reader.target.join("guarded"), std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false)));
        let stop = std::sync::Arc::clone(&done);
        let attacker = std::thread::spawn(move || {
            let mut refusals = 0u32;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                match File::options().write(true).open(&path) {
                    Ok(_) => return None,
                    Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem => refusals += 1,
                    Err(_) => {}
                }
            }
            Some(refusals)
        });
        for _ in 0..25 {
            publish(&clients, &reader).await.unwrap();
            // The attacker may hold the mount for the instant of an attempt.
            while unpublish(&clients, &reader).await.is_err() {}
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(attacker.join().unwrap().is_some(), "the file could be opened for writing");
        unstage(&clients, &using).await.unwrap();
        detach(&clients, &using.id).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
    });
    world.end_clean();
}

/// Rule: LOCAL-0.13
#[test]
fn a_readonly_publication_of_a_device_cannot_be_written_and_modes_do_not_mix() {
    needs!();
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let volume = create(&clients, "v", 32 * MIB, block()).await.unwrap();
        let writer = Use::new(&world.scratch, &volume.volume_id, block());
        let reader = writer.clone().at(world.scratch.path("targets/reader")).readonly();
        bring_up(&clients, &writer).await.unwrap();
        write_block(&writer.target, 4096, b"original!").unwrap();
        refused(publish(&clients, &reader).await, Code::FailedPrecondition, &["read-write", "cannot be both"]);
        write_block(&writer.target, 8192, b"still writable").unwrap();
        assert!(!reader.target.exists(), "a refusal leaves no target");

        unpublish(&clients, &writer).await.unwrap();
        publish(&clients, &reader).await.unwrap();
        assert!(device_refuses(&reader.target));
        assert_eq!(read_block(&reader.target, 4096, 9), b"original!");
        refused(publish(&clients, &writer).await, Code::FailedPrecondition, &["read-only", "cannot be both"]);
        assert!(device_refuses(&reader.target), "the refused writer did not open the door");

        unpublish(&clients, &reader).await.unwrap();
        publish(&clients, &writer).await.unwrap();
        write_block(&writer.target, 4096, b"replaced!").unwrap();
        bring_down(&clients, &writer).await.unwrap();
        delete(&clients, &writer.id).await.unwrap();
    });
    world.end_clean();
}

#[test]
fn reader_only_modes_are_readonly_without_being_told() {
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        for (name, capability) in [("mounted", mount("ext4")), ("raw", block())] {
            let volume = create(&clients, name, 32 * MIB, capability.clone()).await.unwrap();
            let writer = Use::new(&world.scratch, &volume.volume_id, capability.clone());
            bring_up(&clients, &writer).await.unwrap();
            bring_down(&clients, &writer).await.unwrap();
            for mode in [Mode::SingleNodeReaderOnly, Mode::MultiNodeReaderOnly] {
                let reader = Use { capability: with_mode(capability.clone(), mode), ..writer.clone() };
                bring_up(&clients, &reader).await.unwrap();
                let safe = match name {
                    "raw" => device_refuses(&reader.target),
                    _ => is_read_only_fs(fs::write(reader.target.join("x"), b"x")),
                };
                assert!(safe, "{name} {mode:?}");
                let device = world.device(&reader.id).device;
                assert!(device.is_read_only().unwrap(), "{name} {mode:?}: nothing above the device can write");
                bring_down(&clients, &reader).await.unwrap();
            }
            delete(&clients, &writer.id).await.unwrap();
        }
    });
    world.end_clean();
}

#[test]
fn a_readonly_attachment_holds_whatever_publishing_asks_for() {
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        for (name, capability) in [("mounted", mount("ext4")), ("raw", block())] {
            let volume = create(&clients, name, 32 * MIB, capability.clone()).await.unwrap();
            let using = Use::new(&world.scratch, &volume.volume_id, capability);
            bring_up(&clients, &using).await.unwrap();
            refused(attach_readonly(&clients, &using).await.map(drop), Code::AlreadyExists, &["detach it first"]);
            bring_down(&clients, &using).await.unwrap();

            let context = attach_readonly(&clients, &using).await.unwrap();
            assert_eq!(context, map([("attachedReadOnly", "true")]));
            stage(&clients, &using).await.unwrap();
            publish(&clients, &using).await.unwrap();
            let safe = match name {
                "raw" => device_refuses(&using.target),
                _ => is_read_only_fs(fs::write(using.target.join("x"), b"x")),
            };
            assert!(safe, "{name}");
            refused(attach(&clients, &using).await, Code::AlreadyExists, &["detach it first"]);
            bring_down(&clients, &using).await.unwrap();
            delete(&clients, &using.id).await.unwrap();
        }
    });
    world.end_clean();
}

/// Rule: LOCAL-F.5
#[test]
fn a_volume_that_crashed_with_a_dirty_journal_shows_what_was_synced_when_it_is_staged_read_only() {
    // The pool's copy of a frozen filesystem is clean; one taken from under a mount is not, like a disk after a
    // power cut. What was synced may be in the journal only, which is replayed before the device becomes read-only.
    needs!(Ext4, Xfs);
    for (fs, size) in [("ext4", 32 * MIB), ("xfs", 300 * MIB)] {
        let world = World::plain(&Options::default());
        run(async {
            let clients = world.clients().await;
            let volume = create(&clients, fs, size, mount(fs)).await.unwrap();
            let using = Use::new(&world.scratch, &volume.volume_id, mount(fs));
            bring_up(&clients, &using).await.unwrap();
            write_synced(using.target.join("file"), b"synced");
            let before = world.scratch.path("dirty.img");
            tool("cp", ["--sparse=always", world.image(&using.id).to_str().unwrap(), before.to_str().unwrap()]);
            bring_down(&clients, &using).await.unwrap();
            fs::copy(&before, world.image(&using.id)).unwrap();

            let reader = Use { capability: with_mode(mount(fs), Mode::SingleNodeReaderOnly), ..using.clone() };
            bring_up(&clients, &reader).await.unwrap();
            assert_eq!(fs::read(reader.target.join("file")).unwrap(), b"synced", "{fs}: the journal was replayed");
            assert!(is_read_only_fs(fs::write(reader.target.join("x"), b"x")), "{fs}");
            bring_down(&clients, &reader).await.unwrap();

            bring_up(&clients, &using).await.unwrap();
            assert_eq!(fs::read(using.target.join("file")).unwrap(), b"synced", "{fs}");
            bring_down(&clients, &using).await.unwrap();
            delete(&clients, &using.id).await.unwrap();
        });
        world.end_clean();
    }
}
