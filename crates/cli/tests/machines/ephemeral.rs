//! Volumes that come and go with their pod.

use serde_json::json;

use super::objects::{FILES, Volume, pod};
use super::room::{Room, missing};
use crate::needs;
use crate::rig::skip;

/// One volume that the pod describes to the driver, and one whose claim is made for the pod.
/// Rules: NODE-12, PROTECT-9
#[tokio::test]
async fn volumes_of_a_pod_alone_go_with_it() {
    needs!(Ext4);
    if let Some(why) = missing() {
        return skip("machines::ephemeral", why);
    }
    let room = Room::open().await;
    let inline = json!({"csi": {"driver": room.driver_name(), "volumeAttributes": {"size": "64Mi"}}});
    let template = json!({"ephemeral": {"volumeClaimTemplate": {"spec": room.spec_of_claim(FILES)}}});
    let volumes = [Volume::of("inline", inline), Volume::of("claimed", template)];
    let anywhere: Vec<_> = room.machines.iter().collect();
    room.pod(&pod("short", &anywhere, &volumes)).await;
    let (short, machine) = room.ready("short").await;
    let claimed = room.volume_of("short-claimed").await;
    for volume in ["inline", claimed.metadata.name.as_deref().unwrap()] {
        let mount = machine.mount_of(&short, volume);
        assert!(machine.is_mounted(&mount), "{} is a mount", mount.display());
        machine.write(&mount.join("note"), volume);
        assert_eq!(machine.read(&mount.join("note"), volume.len()), volume);
    }
    assert_eq!(room.handshake(machine, &claimed).await, (true, true));
    room.delete_pod("short").await;
    room.collect("short-claimed", &short).await;
    room.close().await;
}
