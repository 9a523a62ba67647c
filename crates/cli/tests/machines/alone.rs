//! A volume for one pod at a time.

use api::keys::condition;
use k8s_openapi::api::core::v1::Pod;

use super::objects::{FOR_ONE_POD, Volume, pod, told};
use super::room::{Room, missing};
use crate::needs;
use crate::rig::skip;

/// Neither whoever schedules nor the agent gives a ReadWriteOncePod volume to a second pod.
/// Rules: SCHED-5.9, NODE-10.2
#[tokio::test]
async fn a_volume_for_one_pod_waits_for_that_pod_to_go() {
    needs!(Ext4);
    if let Some(why) = missing() {
        return skip("machines::alone", why);
    }
    let room = Room::open().await;
    room.claim("data", FOR_ONE_POD).await;
    let volumes = [Volume::files("data", "data")];
    let anywhere: Vec<_> = room.machines.iter().collect();
    room.pod(&pod("has", &anywhere, &volumes)).await;
    let (_, machine) = room.ready("has").await;

    room.pod(&pod("waits", &anywhere, &volumes)).await;
    let refused = |pod: Option<&Pod>| {
        let told = pod.and_then(|pod| told(pod, "PodScheduled"));
        told.is_some_and(|told| told.status == "False" && told.reason.as_deref() == Some("Unschedulable"))
    };
    room.until(room.pods(), "waits", "refused", refused).await;
    // Somebody goes past the scheduler.
    let mut pushed = pod("pushed", &anywhere, &volumes);
    pushed["spec"]["nodeName"] = machine.name.as_str().into();
    room.pod(&pushed).await;
    let used = |pod: Option<&Pod>| {
        let told = pod.and_then(|pod| told(pod, condition::VOLUMES_READY));
        told.is_some_and(|told| told.status == "False" && told.reason.as_deref() == Some("UsedByPod"))
    };
    room.until(room.pods(), "pushed", "refused by the agent", used).await;

    room.delete_pod("pushed").await;
    room.delete_pod("has").await;
    room.ready("waits").await;
    room.delete_pod("waits").await;
    room.delete_claim("data").await;
    room.close().await;
}
