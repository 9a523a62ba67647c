//! Volumes and snapshots on the controller side.

use driver_sdk::csi::v1::*;
use driver_sdk::testing::Clients;
use tonic::Code;

use crate::model::{self, GIB, NODE, code, create, served, writer};

async fn make(clients: &mut Clients, name: &str) -> Volume {
    clients.controller.create_volume(create(name)).await.unwrap().into_inner().volume.unwrap()
}

async fn cut(clients: &mut Clients, name: &str, source: &str) -> Snapshot {
    let request = CreateSnapshotRequest { name: name.into(), source_volume_id: source.into(), ..Default::default() };
    clients.controller.create_snapshot(request).await.unwrap().into_inner().snapshot.unwrap()
}

fn from(kind: volume_content_source::Type) -> Option<VolumeContentSource> {
    Some(VolumeContentSource { r#type: Some(kind) })
}

fn of_snapshot(id: &str) -> Option<VolumeContentSource> {
    from(volume_content_source::Type::Snapshot(volume_content_source::SnapshotSource { snapshot_id: id.into() }))
}

fn of_volume(id: &str) -> Option<VolumeContentSource> {
    from(volume_content_source::Type::Volume(volume_content_source::VolumeSource { volume_id: id.into() }))
}

/// Rules: WIRE-C.3.14, WIRE-B.8.CreateVolume
#[tokio::test(start_paused = true)]
async fn a_repeated_create_gives_the_same_volume_and_says_where_it_is() {
    let (_, _, mut clients) = served();
    let first = make(&mut clients, "v").await;
    assert_eq!(first, make(&mut clients, "v").await);
    assert_eq!(first.capacity_bytes, 1 << 20);
    assert_eq!(first.accessible_topology[0].segments["zone"], "a");
    let larger = CreateVolumeRequest {
        capacity_range: Some(CapacityRange { required_bytes: 1 << 21, limit_bytes: 1 << 21 }),
        ..create("v")
    };
    assert_eq!(code(clients.controller.create_volume(larger).await), Code::AlreadyExists, "WIRE-C.3.14");
}

/// Rules: WIRE-C.3.17, WIRE-C.3.19, WIRE-B.8.CreateVolume
#[tokio::test(start_paused = true)]
async fn volumes_from_a_source_say_so_and_unknown_sources_are_not_found() {
    let (_, _, mut clients) = served();
    make(&mut clients, "v").await;
    let snapshot = cut(&mut clients, "s", "vol-v").await;
    for (name, source) in [("restored", of_snapshot(&snapshot.snapshot_id)), ("cloned", of_volume("vol-v"))] {
        let request = CreateVolumeRequest { volume_content_source: source.clone(), ..create(name) };
        let volume = clients.controller.create_volume(request).await.unwrap().into_inner().volume.unwrap();
        assert_eq!(volume.content_source, source);
    }
    for source in [of_snapshot("non-existing"), of_volume("non-existing")] {
        let request = CreateVolumeRequest { volume_content_source: source, ..create("w") };
        assert_eq!(code(clients.controller.create_volume(request).await), Code::NotFound, "WIRE-C.3.17, WIRE-C.3.19");
    }
    // The name is taken by a clone, so an empty volume of that name cannot be had.
    assert_eq!(code(clients.controller.create_volume(create("cloned")).await), Code::AlreadyExists);
}

/// Rule: WIRE-B.8.ValidateVolumeCapabilities
#[tokio::test(start_paused = true)]
async fn validation_confirms_all_or_nothing() {
    let (_, _, mut clients) = served();
    make(&mut clients, "v").await;
    let good = ValidateVolumeCapabilitiesRequest {
        volume_id: "vol-v".into(),
        volume_capabilities: vec![writer()],
        volume_context: [("a".to_owned(), "b".to_owned())].into(),
        parameters: [("c".to_owned(), "d".to_owned())].into(),
        mutable_parameters: [("speed".to_owned(), "9".to_owned())].into(),
        ..Default::default()
    };
    let answer = clients.controller.validate_volume_capabilities(good.clone()).await.unwrap().into_inner();
    let confirmed = answer.confirmed.unwrap();
    assert_eq!(confirmed.volume_capabilities, good.volume_capabilities);
    assert_eq!(confirmed.volume_context, good.volume_context);
    assert_eq!(confirmed.parameters, good.parameters);
    assert_eq!(confirmed.mutable_parameters, good.mutable_parameters);

    let many = model::capability(volume_capability::access_mode::Mode::MultiNodeMultiWriter);
    let unfit = ValidateVolumeCapabilitiesRequest { volume_capabilities: vec![writer(), many], ..good.clone() };
    let unknown = ValidateVolumeCapabilitiesRequest {
        mutable_parameters: [("XXX_FakeKey".to_owned(), "9".to_owned())].into(),
        ..good
    };
    for request in [unfit, unknown] {
        let answer = clients.controller.validate_volume_capabilities(request).await.unwrap().into_inner();
        assert_eq!(answer.confirmed, None);
        assert!(!answer.message.is_empty());
    }
}

/// Rules: LOCAL-R15, WIRE-C.3.7, WIRE-B.4, WIRE-B.8.ListVolumes
#[tokio::test(start_paused = true)]
async fn listings_come_in_pages_with_condition_nodes_and_place() {
    let (model, _, mut clients) = served();
    for name in ["a", "b", "c"] {
        make(&mut clients, name).await;
    }
    model.state().volumes.get_mut("vol-b").unwrap().attached.insert(NODE.into(), false);
    let mut token = String::new();
    let mut ids = Vec::new();
    for _ in 0..2 {
        let request = ListVolumesRequest { max_entries: 2, starting_token: token };
        let page = clients.controller.list_volumes(request).await.unwrap().into_inner();
        for entry in page.entries {
            let (volume, status) = (entry.volume.unwrap(), entry.status.unwrap());
            assert!(!status.volume_condition.unwrap().abnormal);
            assert_eq!(status.published_node_ids.is_empty(), volume.volume_id != "vol-b");
            assert_eq!(volume.accessible_topology.len(), 1);
            ids.push(volume.volume_id);
        }
        token = page.next_token;
        // Something in between comes and something already told goes: neither is told twice nor disturbs (LOCAL-R15).
        model.state().volumes.remove("vol-a");
    }
    assert_eq!((ids, token.as_str()), (vec!["vol-a".to_owned(), "vol-b".into(), "vol-c".into()], ""));
    let bad = ListVolumesRequest { starting_token: "invalid-token".into(), ..Default::default() };
    assert_eq!(code(clients.controller.list_volumes(bad).await), Code::Aborted, "WIRE-C.3.7");
    let negative = ListVolumesRequest { max_entries: -1, ..Default::default() };
    assert_eq!(code(clients.controller.list_volumes(negative).await), Code::InvalidArgument, "WIRE-B.4");
}

/// Rules: WIRE-C.3.40, WIRE-C.3.41, WIRE-C.3.45, WIRE-C.3.55, WIRE-B.8.ListVolumes, WIRE-B.8.CreateSnapshot
#[tokio::test(start_paused = true)]
async fn snapshots_are_listed_by_filter_and_by_page() {
    let (_, _, mut clients) = served();
    make(&mut clients, "v").await;
    make(&mut clients, "w").await;
    for (name, source) in [("1", "vol-v"), ("2", "vol-w"), ("3", "vol-v")] {
        cut(&mut clients, name, source).await;
    }
    let list = |request: ListSnapshotsRequest| {
        let mut controller = clients.controller.clone();
        async move {
            let page = controller.list_snapshots(request).await.unwrap().into_inner();
            let ids = page.entries.into_iter().map(|entry| entry.snapshot.unwrap().snapshot_id);
            (ids.collect::<Vec<_>>().join(" "), page.next_token)
        }
    };
    let none = ListSnapshotsRequest::default;
    assert_eq!(list(none()).await.0, "snap-1 snap-2 snap-3");
    let by_id = ListSnapshotsRequest { snapshot_id: "snap-2".into(), ..none() };
    assert_eq!(list(by_id).await.0, "snap-2", "WIRE-C.3.40");
    let by_source = ListSnapshotsRequest { source_volume_id: "vol-v".into(), ..none() };
    assert_eq!(list(by_source.clone()).await.0, "snap-1 snap-3");
    let unknown = ListSnapshotsRequest { snapshot_id: "none".into(), ..none() };
    assert_eq!(list(unknown).await.0, "", "WIRE-C.3.41");
    let (first, token) = list(ListSnapshotsRequest { max_entries: 1, ..by_source.clone() }).await;
    let (rest, end) = list(ListSnapshotsRequest { starting_token: token, ..by_source }).await;
    assert_eq!((first.as_str(), rest.as_str(), end.as_str()), ("snap-1", "snap-3", ""), "WIRE-C.3.45");
    let other_source =
        CreateSnapshotRequest { name: "1".into(), source_volume_id: "vol-w".into(), ..Default::default() };
    assert_eq!(code(clients.controller.create_snapshot(other_source).await), Code::AlreadyExists, "WIRE-C.3.55");
    let get = GetSnapshotRequest { snapshot_id: "snap-1".into(), ..Default::default() };
    let found = clients.controller.get_snapshot(get).await.unwrap().into_inner().snapshot.unwrap();
    assert_eq!((found.size_bytes, found.creation_time.unwrap().seconds), (1 << 20, 1_700_000_000));
}

/// Rules: WIRE-C.3.35, WIRE-C.3.34, WIRE-B.8.ControllerPublishVolume
#[tokio::test(start_paused = true)]
async fn attaching_read_only_reaches_the_slot_that_can_do_it() {
    let (_, _, mut clients) = served();
    make(&mut clients, "v").await;
    let attach = |readonly, node: &str| ControllerPublishVolumeRequest {
        volume_id: "vol-v".into(),
        node_id: node.into(),
        volume_capability: Some(writer()),
        readonly,
        ..Default::default()
    };
    let controller = &mut clients.controller;
    let context = controller.controller_publish_volume(attach(false, NODE)).await.unwrap().into_inner();
    assert_eq!(context.publish_context["readonly"], "false");
    let again = code(controller.controller_publish_volume(attach(true, NODE)).await);
    assert_eq!(again, Code::AlreadyExists, "WIRE-C.3.35");
    assert_eq!(code(controller.controller_publish_volume(attach(false, "else")).await), Code::NotFound, "WIRE-C.3.34");
    let everywhere = ControllerUnpublishVolumeRequest { volume_id: "vol-v".into(), ..Default::default() };
    assert_eq!(code(controller.controller_unpublish_volume(everywhere).await), Code::Ok);
    let context = controller.controller_publish_volume(attach(true, NODE)).await.unwrap().into_inner();
    assert_eq!(context.publish_context["readonly"], "true");
    let get = ControllerGetVolumeRequest { volume_id: "vol-v".into() };
    let status = controller.controller_get_volume(get).await.unwrap().into_inner().status.unwrap();
    assert_eq!(status.published_node_ids, [NODE]);
    assert!(!status.volume_condition.unwrap().abnormal);
}

/// Rules: WIRE-C.3.59, WIRE-C.3.62, WIRE-C.3.61, WIRE-C.3.63, WIRE-C.3.21, WIRE-B.8.ControllerExpandVolume
/// Rule: WIRE-B.8.ControllerModifyVolume
#[tokio::test(start_paused = true)]
async fn volumes_grow_and_change_and_never_half() {
    let (model, _, mut clients) = served();
    make(&mut clients, "v").await;
    let expand = ControllerExpandVolumeRequest {
        volume_id: "vol-v".into(),
        capacity_range: Some(CapacityRange { required_bytes: 1 << 21, limit_bytes: 0 }),
        ..Default::default()
    };
    let expanded = clients.controller.controller_expand_volume(expand).await.unwrap().into_inner();
    assert_eq!((expanded.capacity_bytes, expanded.node_expansion_required), (1 << 21, true), "WIRE-C.3.59");
    let modify = |volume: &str, key: &str| ControllerModifyVolumeRequest {
        volume_id: volume.into(),
        mutable_parameters: [("speed".to_owned(), "9".to_owned()), (key.to_owned(), "9".to_owned())].into(),
        ..Default::default()
    };
    let controller = &mut clients.controller;
    let bad = controller.controller_modify_volume(modify("vol-v", "XXX_FakeKey")).await;
    assert_eq!(code(bad), Code::InvalidArgument, "WIRE-C.3.62");
    assert!(model.state().volumes["vol-v"].parameters.mutable.is_empty());
    assert_eq!(code(controller.controller_modify_volume(modify("none", "speed")).await), Code::NotFound, "WIRE-C.3.61");
    assert_eq!(code(controller.controller_modify_volume(modify("vol-v", "speed")).await), Code::Ok, "WIRE-C.3.63");
    assert_eq!(model.state().volumes["vol-v"].parameters.get("speed"), Some("9"));
    let unknown =
        CreateVolumeRequest { mutable_parameters: [("XXX_FakeKey".to_owned(), String::new())].into(), ..create("w") };
    assert_eq!(code(controller.create_volume(unknown).await), Code::InvalidArgument, "WIRE-C.3.21");
}

/// Rule: WIRE-B.8.GetCapacity
#[tokio::test(start_paused = true)]
async fn capacity_is_told_for_a_place_and_zero_elsewhere() {
    let (_, _, mut clients) = served();
    let query = |zone: &str| GetCapacityRequest {
        accessible_topology: Some(Topology { segments: [("zone".to_owned(), zone.to_owned())].into() }),
        ..Default::default()
    };
    let here = clients.controller.get_capacity(query("a")).await.unwrap().into_inner();
    assert_eq!((here.available_capacity, here.maximum_volume_size), (10 * GIB as i64, Some(GIB as i64)));
    let elsewhere = clients.controller.get_capacity(query("b")).await.unwrap().into_inner();
    assert_eq!(elsewhere.available_capacity, 0);
}
