//! Lists: whole, in pages, and while things come and go (LOCAL-R15).

use std::collections::BTreeSet;

use driver_sdk::testing::Clients;
use tonic::Code;

use crate::needs;
use crate::rig::ask::*;
use crate::rig::call::*;
use crate::rig::world::*;
use crate::rig::{MIB, Options, run};

async fn all(clients: &Clients, page: i32) -> Vec<String> {
    let (mut ids, mut token) = (Vec::new(), String::new());
    loop {
        let answer = list(clients, page, &token).await.unwrap();
        assert!(page == 0 || answer.entries.len() <= usize::try_from(page).unwrap());
        ids.extend(answer.entries.into_iter().map(|entry| entry.volume.unwrap().volume_id));
        token = answer.next_token;
        if token.is_empty() {
            return ids;
        }
    }
}

/// Rules: LOCAL-R15, WIRE-B.8.ListVolumes
#[test]
fn pages_together_are_the_list_also_when_volumes_come_and_go_between_them() {
    needs!();
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let mut ids = BTreeSet::new();
        for number in 0..9 {
            ids.insert(create(&clients, &format!("v{number}"), MIB, block()).await.unwrap().volume_id);
        }
        let whole: Vec<String> = ids.iter().cloned().collect();
        for page in [0, 1, 2, 3, 9, 10] {
            assert_eq!(all(&clients, page).await, whole, "pages of {page}");
        }

        let first = list(&clients, 4, "").await.unwrap();
        assert!(!first.next_token.is_empty());
        let seen: Vec<String> =
            first.entries.iter().map(|entry| entry.volume.as_ref().unwrap().volume_id.clone()).collect();
        // The last one seen, one before it and the next one go; others stay where they are.
        for id in [&whole[3], &whole[0], &whole[4]] {
            delete(&clients, id).await.unwrap();
        }
        let rest = list(&clients, 0, &first.next_token).await.unwrap();
        let rest: Vec<String> = rest.entries.into_iter().map(|entry| entry.volume.unwrap().volume_id).collect();
        assert_eq!((seen, rest), (whole[..4].to_vec(), whole[5..].to_vec()));
        refused(list(&clients, 0, "no token of ours").await, Code::Aborted, &[]);
        for id in &whole {
            delete(&clients, id).await.unwrap();
        }
    });
    world.end_clean();
}

/// Rule: WIRE-B.8.ListVolumes
#[test]
fn all_snapshots_of_a_volume_are_listed_and_no_others() {
    // WIRE-B.8.ListVolumes: the Go host-path driver shows only the first.
    needs!();
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let one = create(&clients, "one", MIB, block()).await.unwrap().volume_id;
        let two = create(&clients, "two", MIB, block()).await.unwrap().volume_id;
        let mut of_one = BTreeSet::new();
        for number in 0..5 {
            of_one.insert(snapshot(&clients, &format!("s{number}"), &one).await.unwrap().snapshot_id);
        }
        let of_two = snapshot(&clients, "t", &two).await.unwrap().snapshot_id;
        let want: Vec<String> = of_one.iter().cloned().collect();
        for page in [0, 1, 2, 5] {
            assert_eq!(snapshots_of(&clients, &one, page).await.unwrap(), want);
        }
        assert_eq!(snapshots_of(&clients, &two, 0).await.unwrap(), std::slice::from_ref(&of_two));
        assert!(snapshots_of(&clients, "vol-none", 0).await.unwrap().is_empty());
        assert_eq!(snapshots_of(&clients, "", 2).await.unwrap().len(), 6);
        for id in of_one.iter().chain([&of_two]) {
            delete_snapshot(&clients, id).await.unwrap();
        }
        for id in [&one, &two] {
            delete(&clients, id).await.unwrap();
        }
    });
    world.end_clean();
}

/// Rule: WIRE-B.8.CreateVolume
#[test]
fn a_repeat_finds_the_volume_and_a_conflict_is_named() {
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let request = create_request("v", 64 * MIB, mount("ext4"));
        let volume = create_with(&clients, request.clone()).await.unwrap();
        assert_eq!(create_with(&clients, request.clone()).await.unwrap(), volume);
        assert_eq!(create(&clients, "v", 32 * MIB, mount("ext4")).await.unwrap(), volume, "large enough");
        let mut thick = request.clone();
        thick.parameters = map([("provisioning", "thick")]);
        let mut small = request.clone();
        small.capacity_range.as_mut().unwrap().required_bytes = 0;
        small.capacity_range.as_mut().unwrap().limit_bytes = i64::try_from(48 * MIB).unwrap();
        let cases = [
            (create_request("v", 128 * MIB, mount("ext4")), "its size"),
            (create_request("v", 64 * MIB, block()), "block or mount"),
            (create_request("v", 64 * MIB, mount("xfs")), "its filesystem"),
            (thick, "its parameters"),
            (small, "its size"),
        ];
        for (request, words) in cases {
            refused(create_with(&clients, request).await, Code::AlreadyExists, &[words]);
        }
        delete(&clients, &volume.volume_id).await.unwrap();
    });
    world.end_clean();
}
