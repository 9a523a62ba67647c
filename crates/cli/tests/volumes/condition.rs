//! Statistics and health: what is told about a volume is what is so.

use std::fs;

use csi::v1::NodeGetVolumeStatsResponse;
use csi::v1::volume_usage::Unit;
use tonic::Code;

use crate::needs;
use crate::rig::ask::*;
use crate::rig::call::*;
use crate::rig::world::*;
use crate::rig::{Driver, MIB, Options, run};

fn units(answer: &NodeGetVolumeStatsResponse) -> Vec<Unit> {
    answer.usage.iter().map(|usage| usage.unit()).collect()
}

/// Rule: WIRE-B.9.NodeGetVolumeStats
#[test]
fn statistics_are_those_of_the_filesystem() {
    needs!(Ext4, Xfs, Btrfs);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let cases = [
            ("ext4", 32 * MIB, vec![Unit::Bytes, Unit::Inodes]),
            ("xfs", 300 * MIB, vec![Unit::Bytes, Unit::Inodes]),
            // btrfs counts none, and zero would be read as "full".
            ("btrfs", 256 * MIB, vec![Unit::Bytes]),
        ];
        for (fs, size, want) in cases {
            let volume = create(&clients, fs, size, mount(fs)).await.unwrap();
            let using = Use::new(&world.scratch, &volume.volume_id, mount(fs));
            bring_up(&clients, &using).await.unwrap();
            let before = stats(&clients, &using.id, &using.target).await.unwrap();
            assert_eq!(units(&before), want, "{fs}");
            assert!(!before.volume_condition.as_ref().unwrap().abnormal, "{before:?}");
            let bytes = &before.usage[0];
            assert_eq!(u64::try_from(bytes.total).unwrap(), fs_bytes(&using.target));
            assert!(bytes.used + bytes.available <= bytes.total && bytes.available > 0, "{fs}: {bytes:?}");
            write_synced(using.target.join("file"), &vec![1; usize::try_from(8 * MIB).unwrap()]);
            // btrfs counts what is used when it commits, which an fsync does not make it do.
            rustix::fs::syncfs(fs::File::open(&using.target).unwrap()).unwrap();
            let after = stats(&clients, &using.id, &using.staging).await.unwrap();
            assert!(after.usage[0].used >= bytes.used + i64::try_from(7 * MIB).unwrap(), "{fs}");
            bring_down(&clients, &using).await.unwrap();
            refused(stats(&clients, &using.id, &using.target).await, Code::NotFound, &[]);
            delete(&clients, &using.id).await.unwrap();
        }
    });
    world.end_clean();
}

/// Rules: LOCAL-0.7, WIRE-B.9.NodeGetVolumeStats
#[test]
fn a_block_volume_tells_its_size() {
    needs!();
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let volume = create(&clients, "v", 16 * MIB, block()).await.unwrap();
        let using = Use::new(&world.scratch, &volume.volume_id, block());
        bring_up(&clients, &using).await.unwrap();
        let answer = stats(&clients, &using.id, &using.target).await.unwrap();
        assert_eq!(units(&answer), [Unit::Bytes], "LOCAL-0.7");
        assert_eq!(answer.usage[0].total, i64::try_from(16 * MIB).unwrap());
        bring_down(&clients, &using).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
    });
    world.end_clean();
}

#[test]
fn an_image_that_was_cut_short_behind_our_back_is_abnormal_and_is_not_formatted() {
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let volume = create(&clients, "v", 32 * MIB, mount("ext4")).await.unwrap();
        let using = Use::new(&world.scratch, &volume.volume_id, mount("ext4"));
        bring_up(&clients, &using).await.unwrap();
        write_synced(using.target.join("file"), b"kept");
        assert!(!condition(&clients, &using.id).await.0);
        bring_down(&clients, &using).await.unwrap();

        let image = world.image(&using.id);
        let kept = world.scratch.path("kept.img");
        fs::copy(&image, &kept).unwrap();
        fs::File::options().write(true).open(&image).unwrap().set_len(0).unwrap();
        let (abnormal, why) = condition(&clients, &using.id).await;
        assert!(abnormal && why.contains("its image has 0 bytes"), "{why}");
        attach(&clients, &using).await.unwrap();
        assert!(stage(&clients, &using).await.is_err());
        assert_eq!(fs::metadata(&image).unwrap().len(), 0, "nothing was made in its place");
        unstage(&clients, &using).await.unwrap();

        fs::copy(&kept, &image).unwrap();
        assert!(!condition(&clients, &using.id).await.0);
        stage(&clients, &using).await.unwrap();
        publish(&clients, &using).await.unwrap();
        assert_eq!(fs::read(using.target.join("file")).unwrap(), b"kept");
        let entry = list(&clients, 0, "").await.unwrap().entries.remove(0).status.unwrap();
        assert_eq!(entry.published_node_ids, [crate::rig::NODE]);
        bring_down(&clients, &using).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
    });
    world.end_clean();
}

/// Rule: LOCAL-G.7
#[test]
fn a_volume_whose_image_is_gone_is_abnormal_and_can_still_be_deleted() {
    // LOCAL-G.7: the caller must not believe that it never existed.
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let volume = create(&clients, "v", 32 * MIB, mount("ext4")).await.unwrap();
        let using = Use::new(&world.scratch, &volume.volume_id, mount("ext4"));
        attach(&clients, &using).await.unwrap();
        fs::remove_file(world.image(&using.id)).unwrap();
        let (abnormal, why) = condition(&clients, &using.id).await;
        assert!(abnormal && why.contains("cannot be read"), "{why}");
        refused(stage(&clients, &using).await, Code::FailedPrecondition, &["missing", "record"]);
        refused(snapshot(&clients, "s", &using.id).await, Code::FailedPrecondition, &["missing"]);
        unstage(&clients, &using).await.unwrap();
        detach(&clients, &using.id).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
    });
    world.end_clean();
}

/// Rule: LOCAL-F.5
#[test]
fn a_volume_whose_filesystem_was_wiped_is_refused_and_not_formatted_again() {
    // LOCAL-F.5: after the first mount a blank device is an error, not an invitation.
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let volume = create(&clients, "v", 32 * MIB, mount("ext4")).await.unwrap();
        let using = Use::new(&world.scratch, &volume.volume_id, mount("ext4"));
        bring_up(&clients, &using).await.unwrap();
        bring_down(&clients, &using).await.unwrap();
        let image = fs::File::options().write(true).open(world.image(&using.id)).unwrap();
        image.set_len(0).unwrap();
        image.set_len(32 * MIB).unwrap();
        attach(&clients, &using).await.unwrap();
        refused(stage(&clients, &using).await, Code::FailedPrecondition, &["is empty", "not formatted again"]);
        assert_eq!(on_disk(&world.image(&using.id)), 0, "still blank");
        unstage(&clients, &using).await.unwrap();
        detach(&clients, &using.id).await.unwrap();
        delete(&clients, &using.id).await.unwrap();

        let never = create(&clients, "foreign", 32 * MIB, mount("ext4")).await.unwrap();
        let never = Use::new(&world.scratch, &never.volume_id, mount("ext4"));
        tool("mkfs.ext4", ["-q", "-F", world.image(&never.id).to_str().unwrap()]);
        attach(&clients, &never).await.unwrap();
        refused(stage(&clients, &never).await, Code::FailedPrecondition, &["never formatted by this driver", "ext4"]);
        detach(&clients, &never.id).await.unwrap();
        delete(&clients, &never.id).await.unwrap();
    });
    world.end_clean();
}

#[test]
fn a_damaged_filesystem_is_not_mounted_and_the_answer_says_how_to_repair_it() {
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let volume = create(&clients, "v", 32 * MIB, mount("ext4")).await.unwrap();
        let using = Use::new(&world.scratch, &volume.volume_id, mount("ext4"));
        bring_up(&clients, &using).await.unwrap();
        fs::write(using.target.join("file"), b"kept").unwrap();
        bring_down(&clients, &using).await.unwrap();
        let path = world.image(&using.id);
        let image = fs::File::options().write(true).open(&path).unwrap();
        // The checksum of the first group descriptor, which stands in the block after the superblock.
        std::os::unix::fs::FileExt::write_all_at(&image, &[0x12, 0x34], 4096 + 0x1e).unwrap();
        image.sync_all().unwrap();
        drop(image);
        attach(&clients, &using).await.unwrap();
        let repair = format!("e2fsck -f {}", path.display());
        refused(stage(&clients, &using).await, Code::FailedPrecondition, &["is damaged", &repair]);
        std::process::Command::new("e2fsck").args(["-f", "-y"]).arg(&path).output().unwrap();
        bring_up(&clients, &using).await.unwrap();
        assert_eq!(fs::read(using.target.join("file")).unwrap(), b"kept");
        bring_down(&clients, &using).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
    });
    world.end_clean();
}

#[test]
fn a_staged_volume_whose_image_was_cut_short_is_abnormal_on_the_node_too() {
    needs!();
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let volume = create(&clients, "v", 16 * MIB, block()).await.unwrap();
        let using = Use::new(&world.scratch, &volume.volume_id, block());
        bring_up(&clients, &using).await.unwrap();
        let health = async || stats(&clients, &using.id, &using.target).await.unwrap().volume_condition.unwrap();
        assert!(!health().await.abnormal);
        let image = fs::File::options().write(true).open(world.image(&using.id)).unwrap();
        image.set_len(8 * MIB).unwrap();
        let told = health().await;
        assert!(told.abnormal && told.message.contains("its image has 8388608 bytes"), "{told:?}");
        image.set_len(16 * MIB).unwrap();
        assert!(!health().await.abnormal);
        bring_down(&clients, &using).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
    });
    world.end_clean();
}

#[test]
fn a_volume_that_lost_writes_is_abnormal_everywhere_until_the_loss_is_accepted() {
    needs!(Ext4);
    let mut world = World::plain(&Options::default());
    let pool = world.scratch.path("pool");
    let accept = |id: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_orlop"));
        command.args(["driver", "accept-loss", id, "--pool"]).arg(&pool).output().unwrap()
    };
    run(async {
        let clients = world.clients().await;
        let volume = create(&clients, "v", 32 * MIB, mount("ext4")).await.unwrap();
        let using = Use::new(&world.scratch, &volume.volume_id, mount("ext4"));
        bring_up(&clients, &using).await.unwrap();
        let without = accept(&using.id);
        assert!(without.status.success(), "{without:?}");
        assert!(String::from_utf8_lossy(&without.stdout).contains("has no mark of lost writes"), "{without:?}");

        let mark = driver_local::loss::LossRecord {
            first_ms: 0,
            last_ms: 0,
            count: 1,
            doing: "writing the filesystem to its device".to_owned(),
            error: "no space".to_owned(),
            copied_from: None,
            told: None,
        };
        let sealed = driver_local::record::seal(&mark).unwrap();
        for accepted_while_running in [true, false] {
            fs::write(world.volume(&using.id).join("loss.json"), &sealed).unwrap();
            let clients = world.clients().await;
            let (abnormal, said) = condition(&clients, &using.id).await;
            assert!(abnormal && said.starts_with("writes were lost: writing the filesystem"), "{said}");
            assert!(said.contains(&format!("orlop driver accept-loss {} --pool ", using.id)), "{said}");
            let on_node = stats(&clients, &using.id, &using.target).await.unwrap().volume_condition.unwrap();
            assert_eq!((on_node.abnormal, &on_node.message), (true, &said));
            let listed = list(&clients, 0, "").await.unwrap().entries.remove(0);
            assert_eq!(listed.status.unwrap().volume_condition.unwrap().message, said);
            if !accepted_while_running {
                world.driver.kill();
            }
            let accepted = accept(&using.id);
            assert!(accepted.status.success(), "{accepted:?}");
            assert!(String::from_utf8_lossy(&accepted.stdout).contains("cleared; it said: writing"), "{accepted:?}");
            if !accepted_while_running {
                world.driver = Driver::start(&world.scratch, &Options::default());
            }
            assert!(!condition(&world.clients().await, &using.id).await.0);
        }
        let unknown = accept("vol-aaaaaaaaaaaaaaaaaaaaaaaaaa");
        assert!(!unknown.status.success(), "{unknown:?}");
        let clients = world.clients().await;
        bring_down(&clients, &using).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
    });
    world.end_clean();
}
