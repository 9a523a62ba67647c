//! A volume for one node goes from one machine to the other, and not before the first one has let go of it.

use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use super::cast::Who;
use super::machine::Machine;
use super::objects::{FILES, Volume, pod};
use super::room::{Room, missing};
use crate::needs;
use crate::rig::skip;

const NOTE: &str = "written on the first machine";

/// Attachments to a machine that are not on their way out.
async fn attachments(room: &Room, machine: &Machine) -> usize {
    let attachments: Api<VolumeAttachment> = Api::all(room.client.clone());
    let found = attachments.list(&ListParams::default()).await.unwrap();
    let stays = |found: &&VolumeAttachment| {
        let attached = found.status.as_ref().is_some_and(|status| status.attached);
        found.spec.node_name == machine.name && attached && found.metadata.deletion_timestamp.is_none()
    };
    found.items.iter().filter(stays).count()
}

/// Whoever attaches believes the node's word that a volume is in use. The pod is gone from the API while its mount is
/// busy, and only `volumesInUse` speaks for it.
/// Rules: ATTACH-6.5, ATTACH-6.7, NODE-20
#[tokio::test]
async fn a_volume_in_use_stays_where_it_is_and_moves_with_its_data_when_it_is_let_go() {
    needs!(Ext4);
    if let Some(why) = missing() {
        return skip("machines::moving", why);
    }
    let room = Room::open().await;
    let [here, there] = &room.machines[..] else { panic!("there are two machines") };
    room.claim("data", FILES).await;
    let volumes = [Volume::files("data", "data")];
    room.pod(&pod("first", &[here], &volumes)).await;
    let (first, _) = room.ready("first").await;
    let volume = room.volume_of("data").await;
    let name = volume.metadata.name.as_deref().unwrap();
    let note = here.mount_of(&first, name).join("note");
    here.write(&note, NOTE);

    // Whoever has a file open keeps the mount busy.
    let busy = std::fs::File::open(here.namespace.see(&note)).unwrap();
    room.change("DELETE", &format!("{}/first", room.pods_path()), &json!({"gracePeriodSeconds": 0})).await;
    room.pod(&pod("second", &[there], &volumes)).await;
    // Said by whoever attaches, after it has seen that the first pod is gone.
    let told = room.event("second", "FailedAttachVolume").await;
    println!("{told}");
    assert_eq!(told.contains(&here.name), room.cast.attach == Who::Ours, "ours says who has it, upstream's does not");
    assert_eq!(attachments(&room, here).await, 1, "nobody takes away what is in use");
    assert_eq!(attachments(&room, there).await, 0, "nobody gives it to two nodes");
    assert_eq!(room.handshake(here, &volume).await, (true, true));
    assert_eq!(here.read(&note, NOTE.len()), NOTE);

    drop(busy);
    let (second, machine) = room.ready("second").await;
    assert_eq!(machine.name, there.name);
    assert_eq!(there.read(&there.mount_of(&second, name).join("note"), NOTE.len()), NOTE);
    assert_eq!(room.handshake(there, &volume).await, (true, true));
    assert_eq!(room.handshake(here, &volume).await, (false, false));
    assert_eq!((attachments(&room, here).await, attachments(&room, there).await), (0, 1));
    room.delete_claim("data").await;
    room.delete_pod("second").await;
    room.close().await;
}
