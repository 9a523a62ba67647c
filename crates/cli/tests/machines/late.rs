//! A volume that waits for its pod.

use api::keys::annotation;

use super::objects::{FILES, Volume, pod};
use super::room::{Room, missing};
use crate::needs;
use crate::rig::skip;

/// Whoever schedules names the node, the volume is made for it, and the agent there mounts it.
/// Rule: SCHED-5.7
#[tokio::test]
async fn a_volume_is_made_where_its_pod_was_put() {
    needs!(Ext4);
    if let Some(why) = missing() {
        return skip("machines::late", why);
    }
    let room = Room::open().await;
    room.claim_of(&room.late_class(), "late", FILES).await;
    let there = &room.machines[1];
    room.pod(&pod("user", &[there], &[Volume::files("data", "late")])).await;
    let (user, machine) = room.ready("user").await;
    assert_eq!(machine.name, there.name);
    let claim = room.claims().get("late").await.unwrap();
    let notes = claim.metadata.annotations.unwrap_or_default();
    assert_eq!(notes.get(annotation::SELECTED_NODE.text()), Some(&there.name));
    let volume = room.volume_of("late").await;
    let note = machine.mount_of(&user, volume.metadata.name.as_deref().unwrap()).join("note");
    machine.write(&note, "late");
    assert_eq!(machine.read(&note, 4), "late");
    assert_eq!(room.handshake(machine, &volume).await, (true, true));
    room.delete_pod("user").await;
    room.delete_claim("late").await;
    room.close().await;
}
