//! Mutable parameters do what they say, at once and after the next stage.

use std::fs;
use std::path::PathBuf;

use tonic::Code;

use crate::needs;
use crate::rig::ask::*;
use crate::rig::call::*;
use crate::rig::world::*;
use crate::rig::{MIB, Options, run};

/// A fact about a volume's device, as sysfs has it.
fn sysfs(world: &World, id: &str, what: &str) -> String {
    let device = world.device(id).device.path;
    let path = PathBuf::from("/sys/block").join(device.file_name().unwrap()).join(what);
    fs::read_to_string(path).unwrap().trim().to_owned()
}

#[test]
fn read_ahead_changes_at_once_and_stays() {
    needs!(Ext4);
    let mut world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        for (name, capability) in [("mounted", mount("ext4")), ("raw", block())] {
            let volume = create(&clients, name, 32 * MIB, capability.clone()).await.unwrap();
            let using = Use::new(&world.scratch, &volume.volume_id, capability);
            bring_up(&clients, &using).await.unwrap();
            for kib in ["512", "0", "2048"] {
                modify(&clients, &using.id, map([("readAheadKiB", kib)])).await.unwrap();
                assert_eq!(sysfs(&world, &using.id, "queue/read_ahead_kb"), kib, "{name}");
            }
            bring_down(&clients, &using).await.unwrap();
        }
        world.restart(&Options::default()).await;
        let clients = world.clients().await;
        for entry in list(&clients, 0, "").await.unwrap().entries {
            let id = entry.volume.unwrap().volume_id;
            let is_block =
                fs::read_to_string(world.volume(&id).join("record.json")).unwrap().contains("\"access\": \"block\"");
            let using = Use::new(&world.scratch, &id, if is_block { block() } else { mount("ext4") });
            bring_up(&clients, &using).await.unwrap();
            assert_eq!(sysfs(&world, &id, "queue/read_ahead_kb"), "2048");
            bring_down(&clients, &using).await.unwrap();
            delete(&clients, &id).await.unwrap();
        }
    });
    world.end_clean();
}

#[test]
fn direct_io_goes_off_and_on_again() {
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let volume = create(&clients, "v", 32 * MIB, mount("ext4")).await.unwrap();
        let using = Use::new(&world.scratch, &volume.volume_id, mount("ext4"));
        bring_up(&clients, &using).await.unwrap();
        assert_eq!(sysfs(&world, &using.id, "loop/dio"), "1");
        modify(&clients, &using.id, map([("directIo", "false")])).await.unwrap();
        assert_eq!(sysfs(&world, &using.id, "loop/dio"), "0");
        bring_down(&clients, &using).await.unwrap();
        bring_up(&clients, &using).await.unwrap();
        assert_eq!(sysfs(&world, &using.id, "loop/dio"), "0", "after the next stage too");
        modify(&clients, &using.id, map([("directIo", "true")])).await.unwrap();
        assert_eq!(sysfs(&world, &using.id, "loop/dio"), "1");
        bring_down(&clients, &using).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
    });
    world.end_clean();
}

#[test]
fn a_thin_volume_becomes_thick_without_losing_a_byte() {
    needs!();
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let mut thin = create_request("v", 32 * MIB, block());
        thin.parameters = map([("provisioning", "thin")]);
        let volume = create_with(&clients, thin).await.unwrap();
        let using = Use::new(&world.scratch, &volume.volume_id, block());
        bring_up(&clients, &using).await.unwrap();
        write_block(&using.target, 8 * MIB, b"in the middle").unwrap();
        assert!(on_disk(&world.image(&using.id)) < MIB);
        modify(&clients, &using.id, map([("provisioning", "thick")])).await.unwrap();
        assert!(on_disk(&world.image(&using.id)) >= 32 * MIB);
        assert_eq!(read_block(&using.target, 8 * MIB, 13), b"in the middle");
        bring_down(&clients, &using).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
    });
    world.end_clean();
}

/// Rule: WIRE-B.8.ControllerModifyVolume
#[test]
fn a_change_that_is_wrong_in_one_part_changes_nothing() {
    needs!();
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let volume = create(&clients, "v", 16 * MIB, block()).await.unwrap();
        let record = || fs::read(world.volume(&volume.volume_id).join("record.json")).unwrap();
        let before = record();
        let cases = [
            (map([("readAheadKiB", "256"), ("pool", "other")]), "pool"),
            (map([("readAheadKiB", "256"), ("directIo", "maybe")]), "true or false"),
            (map([("readAheadKiB", "lots")]), "0 to 65536"),
            (map([("fsType", "xfs")]), "fsType"),
        ];
        for (changes, words) in cases {
            refused(modify(&clients, &volume.volume_id, changes).await, Code::InvalidArgument, &[words]);
            assert_eq!(record(), before);
        }
        let unknown = modify(&clients, "vol-unknown", map([("readAheadKiB", "1")])).await;
        refused(unknown, Code::NotFound, &[]);
        delete(&clients, &volume.volume_id).await.unwrap();
    });
    world.end_clean();
}
