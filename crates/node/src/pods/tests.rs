use serde_json::json;

use super::*;

fn pod(spec: serde_json::Value, status: serde_json::Value) -> LocalPod {
    let metadata = json!({"name": "p", "namespace": "n", "uid": "u"});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
}

#[test]
fn only_volumes_that_a_container_uses_count_node_5_4() {
    let pod = pod(
        json!({
            "volumes": [
                {"name": "a", "persistentVolumeClaim": {"claimName": "c", "readOnly": true}},
                {"name": "b", "ephemeral": {"volumeClaimTemplate": {}}},
                {"name": "idle", "persistentVolumeClaim": {"claimName": "d"}},
                {"name": "i", "csi": {"driver": "x", "volumeAttributes": {"k": "v"}}},
                {"name": "s", "secret": {"secretName": "s"}},
            ],
            "containers": [{"name": "m", "volumeMounts": [{"name": "a"}, {"name": "s"}]}],
            "initContainers": [{"name": "i", "volumeDevices": [{"name": "b"}]}],
            "ephemeralContainers": [{"name": "e", "volumeMounts": [{"name": "i"}]}],
            "securityContext": {"fsGroup": 7, "fsGroupChangePolicy": "OnRootMismatch"},
        }),
        json!({}),
    );
    let names: Vec<&str> = pod.volumes.iter().map(|volume| &*volume.name).collect();
    assert_eq!(names, ["a", "b", "i", "s"]);
    assert_eq!(pod.volumes[0].source, VolumeSource::Claim { name: "c".into(), read_only: true });
    assert_eq!((pod.volumes[1].mounted, pod.volumes[1].device), (false, true));
    assert!(matches!(&pod.volumes[2].source, VolumeSource::Csi(csi) if &*csi.driver == "x"));
    assert_eq!(pod.volumes[3].source, VolumeSource::Other);
    assert_eq!((pod.group, pod.group_change), (Some(7), When::OnRootMismatch));
}

#[test]
fn what_was_said_about_the_volumes_is_read_back() {
    let condition = json!({"type": condition::VOLUMES_READY, "status": "False", "reason": "r", "message": "m"});
    let pod = pod(json!({}), json!({"conditions": [{"type": "Ready", "status": "True"}, condition]}));
    assert_eq!(pod.said.map(|said| (said.status, said.reason)), Some(("False".into(), "r".into())));
}

#[test]
fn a_pod_that_ended_or_was_deleted_wants_nothing() {
    assert!(pod(json!({}), json!({"phase": "Pending"})).lives());
    assert!(!pod(json!({}), json!({"phase": "Succeeded"})).lives());
    let metadata = json!({"name": "p", "namespace": "n", "uid": "u", "deletionTimestamp": "2026-01-02T03:04:05Z"});
    let going: LocalPod = serde_json::from_value(json!({"metadata": metadata})).unwrap();
    assert!(!going.lives());
}
