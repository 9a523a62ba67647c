//! Damaged records: seen, said, never guessed at, never removed (LOCAL-F.10, LOCAL-G.7).

use std::fs;
use std::path::PathBuf;

use driver_sdk::testing::Clients;
use tonic::Code;

use crate::needs;
use crate::rig::ask::*;
use crate::rig::call::*;
use crate::rig::world::*;
use crate::rig::{MIB, Options, run};

/// A way in which a record can be unreadable, and what the driver says about it.
struct Damage {
    words: &'static str,
    inflict: fn(Vec<u8>) -> Vec<u8>,
}

const DAMAGES: [Damage; 5] = [
    Damage { words: "the checksum does not match", inflict: flip_a_byte },
    Damage { words: "bytes where the header says", inflict: |bytes| bytes[..bytes.len() / 2].to_vec() },
    Damage { words: "no header line", inflict: |_| Vec::new() },
    Damage { words: "record mark", inflict: |_| b"{ \"not\": \"a\" }\nrecord of ours\n".to_vec() },
    Damage { words: "use the newer program", inflict: newer },
];

fn flip_a_byte(mut bytes: Vec<u8>) -> Vec<u8> {
    let at = bytes.len() - 20;
    bytes[at] ^= 0x01;
    bytes
}

fn newer(bytes: Vec<u8>) -> Vec<u8> {
    let text = String::from_utf8(bytes).unwrap();
    text.replacen("orlop-record 1 ", "orlop-record 2 ", 1).into_bytes()
}

async fn everything_is_refused(clients: &Clients, using: &Use, words: &[&str]) {
    let id = &using.id;
    refused(delete(clients, id).await, Code::FailedPrecondition, words);
    refused(attach(clients, using).await, Code::FailedPrecondition, words);
    refused(stage(clients, using).await, Code::FailedPrecondition, words);
    refused(publish(clients, using).await, Code::FailedPrecondition, words);
    refused(snapshot(clients, "of-damaged", id).await, Code::FailedPrecondition, words);
    refused(expand(clients, id, 64 * MIB).await, Code::FailedPrecondition, words);
    refused(modify(clients, id, map([("readAheadKiB", "1")])).await, Code::FailedPrecondition, words);
    refused(create(clients, "damaged", 32 * MIB, mount("ext4")).await, Code::FailedPrecondition, words);
    let mut copy = create_request("copy", 32 * MIB, mount("ext4"));
    copy.volume_content_source = from_volume(id);
    refused(create_with(clients, copy).await, Code::FailedPrecondition, words);
}

/// Rules: LOCAL-F.10, LOCAL-G.7
#[test]
fn a_damaged_record_stops_its_volume_and_no_other_until_it_is_restored() {
    needs!(Ext4);
    let mut world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let hurt = create(&clients, "damaged", 32 * MIB, mount("ext4")).await.unwrap().volume_id;
        let hurt = Use::new(&world.scratch, &hurt, mount("ext4"));
        let fine = create(&clients, "fine", 32 * MIB, mount("ext4")).await.unwrap().volume_id;
        let fine = Use::new(&world.scratch, &fine, mount("ext4"));
        bring_up(&clients, &hurt).await.unwrap();
        fs::write(hurt.target.join("file"), b"kept").unwrap();
        bring_down(&clients, &hurt).await.unwrap();
        let path = world.volume(&hurt.id).join("record.json");
        let whole = fs::read(&path).unwrap();
        for damage in &DAMAGES {
            let damaged = (damage.inflict)(whole.clone());
            fs::write(&path, &damaged).unwrap();
            world.restart(&Options::default()).await;
            let clients = world.clients().await;
            let log = world.driver.log();
            let said = |line: &str| line.contains("ERROR") && line.contains(&hurt.id) && line.contains(damage.words);
            assert!(log.lines().any(said), "{}: {log}", damage.words);

            everything_is_refused(&clients, &hurt, &["record.json", damage.words]).await;
            let listed = list(&clients, 0, "").await.unwrap().entries;
            let entry = listed.iter().find(|entry| entry.volume.as_ref().unwrap().volume_id == hurt.id).unwrap();
            let condition = entry.status.as_ref().unwrap().volume_condition.as_ref().unwrap();
            assert!(condition.abnormal && condition.message.contains(damage.words), "{condition:?}");
            assert_eq!(listed.len(), 2);
            bring_up(&clients, &fine).await.unwrap();
            bring_down(&clients, &fine).await.unwrap();
            assert_eq!(fs::read(&path).unwrap(), damaged, "nobody mends or rewrites it");
        }
        // Restored under the running driver.
        fs::write(&path, &whole).unwrap();
        let clients = world.clients().await;
        bring_up(&clients, &hurt).await.unwrap();
        assert_eq!(fs::read(hurt.target.join("file")).unwrap(), b"kept");
        bring_down(&clients, &hurt).await.unwrap();
        for id in [&hurt.id, &fine.id] {
            delete(&clients, id).await.unwrap();
        }
    });
    world.end_clean();
}

/// Rule: LOCAL-R27
#[test]
fn a_record_that_is_gone_leaves_the_data_to_a_person() {
    needs!();
    let mut world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let id = create(&clients, "v", 16 * MIB, block()).await.unwrap().volume_id;
        let path: PathBuf = world.volume(&id).join("record.json");
        let whole = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        world.restart(&Options::default()).await;
        let clients = world.clients().await;
        assert!(world.driver.log().contains("it has no record"));
        refused(delete(&clients, &id).await, Code::FailedPrecondition, &["no record", "record.json"]);
        refused(create(&clients, "v", 16 * MIB, block()).await, Code::FailedPrecondition, &["no record"]);
        assert!(world.image(&id).exists());
        fs::write(&path, &whole).unwrap();
        delete(&clients, &id).await.unwrap();
    });
    world.end_clean();
}

/// Rules: LOCAL-F.10, LOCAL-G.7
#[test]
fn a_damaged_snapshot_record_is_refused_and_does_not_hide_the_others() {
    needs!();
    let mut world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let volume = create(&clients, "v", 16 * MIB, block()).await.unwrap().volume_id;
        let one = snapshot(&clients, "one", &volume).await.unwrap().snapshot_id;
        let two = snapshot(&clients, "two", &volume).await.unwrap().snapshot_id;
        let path = world.scratch.path("pool").join("snapshots").join(&one).join("record.json");
        let whole = fs::read(&path).unwrap();
        fs::write(&path, flip_a_byte(whole.clone())).unwrap();
        world.restart(&Options::default()).await;
        let clients = world.clients().await;
        assert!(snapshots_of(&clients, "", 0).await.unwrap().contains(&two));
        let mut copy = create_request("copy", 16 * MIB, block());
        copy.volume_content_source = from_snapshot(&one);
        refused(create_with(&clients, copy).await, Code::FailedPrecondition, &["record.json", "damaged"]);
        refused(snapshot(&clients, "one", &volume).await, Code::FailedPrecondition, &["damaged"]);
        refused(delete_snapshot(&clients, &one).await, Code::FailedPrecondition, &["damaged"]);
        fs::write(&path, &whole).unwrap();
        for id in [&one, &two] {
            delete_snapshot(&clients, id).await.unwrap();
        }
        delete(&clients, &volume).await.unwrap();
    });
    world.end_clean();
}

/// Rule: LOCAL-F.10
#[test]
fn unreadable_notes_are_no_reason_to_lose_a_volume() {
    // Notes are hints; attachments are promises.
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let id = create(&clients, "v", 32 * MIB, mount("ext4")).await.unwrap().volume_id;
        let using = Use::new(&world.scratch, &id, mount("ext4"));
        bring_up(&clients, &using).await.unwrap();
        fs::write(world.volume(&id).join("node.json"), b"garbage").unwrap();
        publish(&clients, &using).await.unwrap();
        assert!(stats(&clients, &id, &using.target).await.is_ok());
        bring_down(&clients, &using).await.unwrap();

        attach(&clients, &using).await.unwrap();
        fs::write(world.volume(&id).join("attach.json"), b"garbage").unwrap();
        refused(stage(&clients, &using).await, Code::FailedPrecondition, &["attach.json", "damaged"]);
        refused(delete(&clients, &id).await, Code::FailedPrecondition, &["attach.json", "damaged"]);
        fs::remove_file(world.volume(&id).join("attach.json")).unwrap();
        delete(&clients, &id).await.unwrap();
    });
    world.end_clean();
}

/// Rule: LOCAL-G.7
#[test]
fn a_volume_whose_record_is_damaged_while_in_use_can_still_be_taken_down() {
    needs!(Ext4);
    for capability in [mount("ext4"), block()] {
        let mut world = World::plain(&Options::default());
        run(async {
            let clients = world.clients().await;
            let id = create(&clients, "damaged", 32 * MIB, capability.clone()).await.unwrap().volume_id;
            let using = Use::new(&world.scratch, &id, capability);
            bring_up(&clients, &using).await.unwrap();
            let path = world.volume(&id).join("record.json");
            let whole = fs::read(&path).unwrap();
            fs::write(&path, flip_a_byte(whole.clone())).unwrap();
            unpublish(&clients, &using).await.unwrap();
            unstage(&clients, &using).await.unwrap();
            assert!(world.scratch.mounts().is_empty() && world.scratch.pool_loops().is_empty());
            fs::write(&path, whole).unwrap();
            detach(&clients, &id).await.unwrap();
            delete(&clients, &id).await.unwrap();
        });
        world.driver.stop();
        world.scratch.assert_clean();
    }
}
