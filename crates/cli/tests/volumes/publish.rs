//! Publishing more than once, in other ways, at odd targets; and the order of taking down (WIRE-B.7, WIRE-B.9).

use std::fs;
use std::os::unix::fs::symlink;

use csi::v1::volume_capability::access_mode::Mode;
use tonic::Code;

use crate::needs;
use crate::rig::ask::*;
use crate::rig::call::*;
use crate::rig::world::*;
use crate::rig::{MIB, Options, run};

/// Publishes a volume of this mode once, then again in the four ways of the table: same or other target, same or
/// other arguments. Gives the codes.
async fn publish_again(world: &World, mode: Mode, name: &str) -> [Code; 4] {
    let clients = world.clients().await;
    let capability = with_mode(mount("ext4"), mode);
    let volume = create(&clients, name, 32 * MIB, capability.clone()).await.unwrap();
    let first = Use::new(&world.scratch, &volume.volume_id, capability);
    let second = first.clone().at(world.scratch.path("targets").join(format!("{name}-second")));
    bring_up(&clients, &first).await.unwrap();
    let mut codes = Vec::new();
    for (using, changed) in [(&first, false), (&first, true), (&second, false), (&second, true)] {
        let mut request = publish_request(using);
        if changed {
            request.volume_context = map([("another", "argument")]);
        }
        let answer = publish_with(&clients, request).await;
        codes.push(answer.map_or_else(|status| status.code(), |()| Code::Ok));
        if using.target == second.target {
            unpublish(&clients, using).await.unwrap();
        }
    }
    bring_down(&clients, &first).await.unwrap();
    delete(&clients, &first.id).await.unwrap();
    codes.try_into().unwrap()
}

/// Rule: WIRE-B.7
#[test]
fn a_second_publication_is_answered_by_path_access_mode_and_arguments() {
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(async {
        let shared = [Code::Ok, Code::AlreadyExists, Code::Ok, Code::Ok];
        let alone = [Code::Ok, Code::AlreadyExists, Code::FailedPrecondition, Code::FailedPrecondition];
        let rows = [
            (Mode::SingleNodeSingleWriter, "single", alone),
            (Mode::SingleNodeMultiWriter, "multi", shared),
            // The lenient row: Kubernetes shares such a volume between pods of one node.
            (Mode::SingleNodeWriter, "plain", shared),
            (Mode::MultiNodeMultiWriter, "anywhere", shared),
        ];
        for (mode, name, want) in rows {
            assert_eq!(publish_again(&world, mode, name).await, want, "{mode:?}");
        }
    });
    world.end_clean();
}

/// Rule: WIRE-B.7
#[test]
fn staging_again_is_fine_and_staging_otherwise_is_not() {
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let volume = create(&clients, "v", 32 * MIB, mount("ext4")).await.unwrap();
        let using = Use::new(&world.scratch, &volume.volume_id, mount("ext4"));
        refused(stage(&clients, &using).await, Code::FailedPrecondition, &["not attached", "ControllerPublishVolume"]);
        attach(&clients, &using).await.unwrap();
        refused(publish(&clients, &using).await, Code::FailedPrecondition, &["not staged"]);
        stage(&clients, &using).await.unwrap();
        stage(&clients, &using).await.unwrap();

        let mut other = using.clone();
        other.capability = with_flags(mount("ext4"), ["noatime"]);
        refused(stage(&clients, &other).await, Code::AlreadyExists, &["another capability"]);
        let mut elsewhere = using.clone();
        elsewhere.staging = world.scratch.dir("staging-elsewhere");
        refused(stage(&clients, &elsewhere).await, Code::FailedPrecondition, &["one staging path"]);
        let mut as_block = using.clone();
        as_block.capability = block();
        refused(stage(&clients, &as_block).await, Code::FailedPrecondition, &["is a mount volume"]);
        refused(detach(&clients, &using.id).await, Code::Aborted, &["still in use"]);
        refused(delete(&clients, &using.id).await, Code::FailedPrecondition, &["attached"]);

        unstage(&clients, &using).await.unwrap();
        unstage(&clients, &using).await.unwrap();
        detach(&clients, &using.id).await.unwrap();
        detach(&clients, &using.id).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
    });
    world.end_clean();
}

/// Rule: WIRE-B.7
#[test]
fn unstaging_under_a_workload_is_put_off_and_tears_nothing_down() {
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        for (name, capability) in [("mounted", mount("ext4")), ("raw", block())] {
            let volume = create(&clients, name, 32 * MIB, capability.clone()).await.unwrap();
            let using = Use::new(&world.scratch, &volume.volume_id, capability);
            bring_up(&clients, &using).await.unwrap();
            refused(unstage(&clients, &using).await, Code::Aborted, &["still shown at", "unpublish"]);
            refused(delete(&clients, &using.id).await, Code::FailedPrecondition, &["attached"]);
            assert!(is_mounted(&using.target), "{name}");
            match name {
                "raw" => write_block(&using.target, 0, b"alive").unwrap(),
                _ => fs::write(using.target.join("file"), b"alive").unwrap(),
            }
            bring_down(&clients, &using).await.unwrap();
            delete(&clients, &using.id).await.unwrap();
        }
    });
    world.end_clean();
}

/// Rules: LOCAL-R23, LOCAL-R24
#[test]
fn unpublishing_a_directory_with_files_in_it_deletes_nothing() {
    // LOCAL-R23: after a reboot the mount is gone, and what a workload wrote to the bare directory is not ours.
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let volume = create(&clients, "v", 32 * MIB, mount("ext4")).await.unwrap();
        let using = Use::new(&world.scratch, &volume.volume_id, mount("ext4"));
        fs::create_dir(&using.target).unwrap();
        fs::write(using.target.join("precious"), b"not ours").unwrap();
        let answer = unpublish(&clients, &using).await;
        refused(answer, Code::Aborted, &["holds files", "left alone"]);
        assert_eq!(fs::read(using.target.join("precious")).unwrap(), b"not ours");

        fs::remove_file(using.target.join("precious")).unwrap();
        unpublish(&clients, &using).await.unwrap();
        assert!(!using.target.exists(), "an empty directory goes (LOCAL-R24)");

        fs::write(&using.target, b"a file with content").unwrap();
        refused(unpublish(&clients, &using).await, Code::Aborted, &["left alone"]);
        assert_eq!(fs::read(&using.target).unwrap(), b"a file with content");
        delete(&clients, &using.id).await.unwrap();
    });
    world.end_clean();
}

/// Rule: LOCAL-R16
#[test]
fn a_symbolic_link_is_no_target() {
    // LOCAL-R16: whoever can swap the target for a link must not move the mount elsewhere.
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let victim = world.scratch.dir("victim");
        for (name, capability) in [("mounted", mount("ext4")), ("raw", block())] {
            let volume = create(&clients, name, 32 * MIB, capability.clone()).await.unwrap();
            let using = Use::new(&world.scratch, &volume.volume_id, capability);
            attach(&clients, &using).await.unwrap();
            stage(&clients, &using).await.unwrap();
            symlink(&victim, &using.target).unwrap();
            refused(publish(&clients, &using).await, Code::FailedPrecondition, &["is not a"]);
            assert!(!is_mounted(&victim));
            assert!(using.target.is_symlink(), "what is not ours is left alone");
            fs::remove_file(&using.target).unwrap();
            unstage(&clients, &using).await.unwrap();
            detach(&clients, &using.id).await.unwrap();
            delete(&clients, &using.id).await.unwrap();
        }
    });
    world.end_clean();
}

/// Rule: WIRE-B.9.NodePublishVolume
#[test]
fn something_else_at_the_target_is_neither_hidden_nor_removed() {
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let mut uses = Vec::new();
        for name in ["one", "two"] {
            let volume = create(&clients, name, 32 * MIB, mount("ext4")).await.unwrap();
            uses.push(Use::new(&world.scratch, &volume.volume_id, mount("ext4")));
        }
        let (one, two) = (&uses[0], &uses[1]);
        bring_up(&clients, one).await.unwrap();
        fs::write(one.target.join("mine"), b"1").unwrap();
        attach(&clients, two).await.unwrap();
        stage(&clients, two).await.unwrap();

        let intruder = two.clone().at(&one.target);
        refused(publish(&clients, &intruder).await, Code::FailedPrecondition, &["something else is mounted"]);
        refused(unpublish(&clients, &intruder).await, Code::FailedPrecondition, &["is not volume"]);
        assert_eq!(fs::read(one.target.join("mine")).unwrap(), b"1");

        unstage(&clients, two).await.unwrap();
        detach(&clients, &two.id).await.unwrap();
        bring_down(&clients, one).await.unwrap();
        delete(&clients, &one.id).await.unwrap();
        delete(&clients, &two.id).await.unwrap();
    });
    world.end_clean();
}
