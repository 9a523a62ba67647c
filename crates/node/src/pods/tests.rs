use serde_json::json;

use super::*;

fn pod(spec: serde_json::Value, status: serde_json::Value) -> LocalPod {
    let metadata = json!({"name": "p", "namespace": "n", "uid": "u"});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
}

/// Rule: NODE-5.4
#[test]
fn only_volumes_that_a_container_uses_count() {
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

/// Rule: NODE-15.1
#[test]
fn a_container_asks_for_its_own_context_or_its_pods() {
    let options = |level: &str| json!({"seLinuxOptions": {"level": level, "type": "t"}});
    let mounts = |names: &[&str]| names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>();
    let mut security = options("s0:c1");
    security["seLinuxChangePolicy"] = "Recursive".into();
    let pod = pod(
        json!({
            "volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "emptyDir": {}}, {"name": "c", "emptyDir": {}}],
            "containers": [
                {"name": "1", "volumeMounts": mounts(&["a", "b"])},
                {"name": "2", "volumeMounts": mounts(&["a"]), "securityContext": options("s0:c2")},
                {"name": "3", "volumeMounts": mounts(&["a"]), "securityContext": options("s0:c2")},
                {"name": "4", "volumeMounts": mounts(&["c"]), "securityContext": {"seLinuxOptions": {"level": ""}}},
            ],
            "securityContext": security,
        }),
        json!({}),
    );
    let levels = |at: usize| {
        let asked = pod.volumes[at].contexts.iter();
        asked.map(|asked| asked.level.as_deref().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((levels(0), levels(1)), (vec!["s0:c1".to_owned(), "s0:c2".to_owned()], vec!["s0:c1".to_owned()]));
    assert!(levels(2).is_empty(), "a container that asks for nothing hides its pod");
    assert_eq!(pod.relabelling, ChangePolicy::Recursive);
}

/// Rule: NODE-5.4
#[test]
fn volumes_of_plugins_that_drivers_took_over_are_told_from_others() {
    let pod = pod(
        json!({
            "volumes": [
                {"name": "disk", "awsElasticBlockStore": {"volumeID": "vol-1"}},
                {"name": "iscsi", "iscsi": {"iqn": "q"}},
            ],
            "containers": [{"name": "m", "volumeMounts": [{"name": "disk"}, {"name": "iscsi"}]}],
        }),
        json!({}),
    );
    let disk = json!({"name": "disk", "awsElasticBlockStore": {"volumeID": "vol-1"}});
    assert_eq!(pod.volumes[0].source, VolumeSource::Migrated(Box::new(disk)));
    assert_eq!(pod.volumes[1].source, VolumeSource::Other);
}
