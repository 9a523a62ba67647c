//! A filesystem and a device: what one pod writes, the next one reads.

use super::objects::{DEVICE, FILES, Volume, pod};
use super::room::{Room, missing};
use crate::needs;
use crate::rig::skip;

/// Stage, publish and map, and everything back.
/// Rules: NODE-10.3, NODE-11, NODE-13, NODE-17, NODE-20
#[tokio::test]
async fn what_a_pod_writes_to_files_and_to_a_device_the_next_pod_reads() {
    needs!(Ext4);
    if let Some(why) = missing() {
        return skip("machines::staying", why);
    }
    let room = Room::open().await;
    room.claim("files", FILES).await;
    room.claim("device", DEVICE).await;
    let volumes = [Volume::files("data", "files"), Volume::device("raw", "device")];
    let anywhere: Vec<_> = room.machines.iter().collect();
    let mut written: Option<(String, String)> = None;
    for name in ["first", "second"] {
        room.pod(&pod(name, &anywhere, &volumes)).await;
        let (running, machine) = room.ready(name).await;
        let (files, device) = (room.volume_of("files").await, room.volume_of("device").await);
        for volume in [&files, &device] {
            assert_eq!(room.handshake(machine, volume).await, (true, true), "used and attached, as its node says");
        }
        let mount = machine.mount_of(&running, files.metadata.name.as_deref().unwrap());
        assert!(machine.is_mounted(&mount), "{} is a mount", mount.display());
        let (file, raw) = (mount.join("note"), machine.device_of(&running, device.metadata.name.as_deref().unwrap()));
        if let Some((in_file, on_device)) = &written {
            assert_eq!(machine.read(&file, in_file.len()), *in_file);
            assert_eq!(machine.read(&raw, on_device.len()), *on_device);
        }
        let (in_file, on_device) = (format!("{name} in a file"), format!("{name} on a device"));
        machine.write(&file, &in_file);
        machine.write(&raw, &on_device);
        written = Some((in_file, on_device));
        room.delete_pod(name).await;
    }
    room.delete_claim("files").await;
    room.delete_claim("device").await;
    room.close().await;
}
