//! WIRE-B.10: group snapshots.

use driver_sdk::csi::v1::*;
use tonic::Code;

use crate::model::{code, create, served};

fn group(name: &str, sources: &[&str]) -> CreateVolumeGroupSnapshotRequest {
    CreateVolumeGroupSnapshotRequest {
        name: name.into(),
        source_volume_ids: sources.iter().map(|id| (*id).to_owned()).collect(),
        ..Default::default()
    }
}

/// Rule: WIRE-B.10
#[tokio::test(start_paused = true)]
async fn a_group_is_cut_told_compared_and_deleted() {
    let (model, _, mut clients) = served();
    for name in ["a", "b"] {
        clients.controller.create_volume(create(name)).await.unwrap();
    }
    let request = group("g", &["vol-b", "vol-a", "vol-b"]);
    let made = clients.group.create_volume_group_snapshot(request).await.unwrap().into_inner();
    let made = made.group_snapshot.unwrap();
    assert!(made.ready_to_use);
    let sources: Vec<&str> = made.snapshots.iter().map(|member| member.source_volume_id.as_str()).collect();
    assert_eq!(sources, ["vol-a", "vol-b"], "sorted and without the double");
    assert!(made.snapshots.iter().all(|member| member.group_snapshot_id == "group-g"));

    let ids: Vec<String> = made.snapshots.iter().rev().map(|member| member.snapshot_id.clone()).collect();
    let get = |snapshot_ids| GetVolumeGroupSnapshotRequest {
        group_snapshot_id: "group-g".into(),
        snapshot_ids,
        ..Default::default()
    };
    for list in [ids.clone(), Vec::new()] {
        let told = clients.group.get_volume_group_snapshot(get(list)).await.unwrap().into_inner();
        assert_eq!(told.group_snapshot, Some(made.clone()));
    }
    let part = vec![ids[0].clone()];
    assert_eq!(code(clients.group.get_volume_group_snapshot(get(part.clone())).await), Code::InvalidArgument);

    let delete = |snapshot_ids| DeleteVolumeGroupSnapshotRequest {
        group_snapshot_id: "group-g".into(),
        snapshot_ids,
        ..Default::default()
    };
    assert_eq!(code(clients.group.delete_volume_group_snapshot(delete(part)).await), Code::InvalidArgument);
    assert_eq!(model.state().snapshots.len(), 2);
    for _ in 0..2 {
        assert_eq!(code(clients.group.delete_volume_group_snapshot(delete(ids.clone())).await), Code::Ok);
    }
    assert!(model.state().snapshots.is_empty());
}

/// Rules: LOCAL-R3, WIRE-B.10
#[tokio::test(start_paused = true)]
async fn a_group_stays_while_a_member_is_being_restored() {
    let (model, _, mut clients) = served();
    clients.controller.create_volume(create("a")).await.unwrap();
    clients.group.create_volume_group_snapshot(group("g", &["vol-a"])).await.unwrap();
    let gate = model.hold("create_from_snapshot");
    let before = *model.started.borrow();
    let source = volume_content_source::SnapshotSource { snapshot_id: "snap-g-vol-a".into() };
    let restore = CreateVolumeRequest {
        volume_content_source: Some(VolumeContentSource {
            r#type: Some(volume_content_source::Type::Snapshot(source)),
        }),
        ..create("r")
    };
    let mut controller = clients.controller.clone();
    let restoring = tokio::spawn(async move { code(controller.create_volume(restore).await) });
    model.entered(before + 1).await;
    let delete = DeleteVolumeGroupSnapshotRequest { group_snapshot_id: "group-g".into(), ..Default::default() };
    let status = clients.group.delete_volume_group_snapshot(delete.clone()).await.unwrap_err();
    assert_eq!(status.code(), Code::Aborted, "LOCAL-R3");
    assert!(status.message().contains("CreateVolume (operation"), "{}", status.message());
    gate.add_permits(1);
    assert_eq!(restoring.await.unwrap(), Code::Ok);
    assert_eq!(code(clients.group.delete_volume_group_snapshot(delete).await), Code::Ok);
}

/// Rule: WIRE-B.10
#[tokio::test(start_paused = true)]
async fn a_group_holds_its_sources_while_it_is_cut() {
    let (model, _, mut clients) = served();
    clients.controller.create_volume(create("a")).await.unwrap();
    let gate = model.hold("create_group");
    let before = *model.started.borrow();
    let mut groups = clients.group.clone();
    let cutting = tokio::spawn(async move { code(groups.create_volume_group_snapshot(group("g", &["vol-a"])).await) });
    model.entered(before + 1).await;
    assert_eq!(code(clients.controller.delete_volume(crate::model::delete("vol-a")).await), Code::Aborted);
    let snapshot = CreateSnapshotRequest { name: "s".into(), source_volume_id: "vol-a".into(), ..Default::default() };
    assert_eq!(code(clients.controller.create_snapshot(snapshot).await), Code::Ok, "reading is shared");
    gate.add_permits(1);
    assert_eq!(cutting.await.unwrap(), Code::Ok);
}
