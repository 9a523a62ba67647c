//! WIRE-B.2: the gate comes first, then presence, then syntax, and all of it before any lookup. The numbers are those
//! of the csi-sanity cases in WIRE-C.3.

use driver_sdk::Readiness;
use driver_sdk::csi::v1::*;
use driver_sdk::testing::Clients;
use driver_sdk::{Driver, Mode};
use tonic::Code;

use crate::model::{self, Model, code, served, writer};

const UNKNOWN: &str = "fake-vol-id";

fn id() -> String {
    UNKNOWN.into()
}

/// Rules: WIRE-B.2.2, WIRE-C.3.9, WIRE-C.3.10, WIRE-C.3.22, WIRE-C.3.25, WIRE-C.3.26, WIRE-C.3.29, WIRE-C.3.30
/// Rules: WIRE-C.3.31, WIRE-C.3.38, WIRE-C.3.46, WIRE-C.3.49, WIRE-C.3.52, WIRE-C.3.53, WIRE-C.3.57, WIRE-C.3.58
/// Rules: WIRE-C.3.60, WIRE-C.3.67, WIRE-C.3.68, WIRE-C.3.70
#[tokio::test(start_paused = true)]
async fn missing_fields_are_invalid_before_any_lookup_on_the_controller() {
    let (_, _, mut clients) = served();
    macro_rules! invalid {
        ($($case:literal: $client:ident.$method:ident($request:expr);)*) => {
            $(assert_eq!(code(clients.$client.$method($request).await), Code::InvalidArgument, "WIRE-C.3.{}", $case);)*
        };
    }
    let range = || Some(CapacityRange { required_bytes: 1, limit_bytes: 0 });
    invalid! {
        9: controller.create_volume(CreateVolumeRequest { name: String::new(), ..model::create("x") });
        10: controller.create_volume(CreateVolumeRequest { volume_capabilities: vec![], ..model::create("x") });
        22: controller.delete_volume(DeleteVolumeRequest::default());
        25: controller.validate_volume_capabilities(ValidateVolumeCapabilitiesRequest {
            volume_capabilities: vec![writer()],
            ..Default::default()
        });
        26: controller.validate_volume_capabilities(ValidateVolumeCapabilitiesRequest {
            volume_id: id(),
            ..Default::default()
        });
        29: controller.controller_publish_volume(ControllerPublishVolumeRequest::default());
        30: controller.controller_publish_volume(ControllerPublishVolumeRequest {
            volume_id: id(),
            volume_capability: Some(writer()),
            ..Default::default()
        });
        31: controller.controller_publish_volume(ControllerPublishVolumeRequest {
            volume_id: id(),
            node_id: "fake".into(),
            ..Default::default()
        });
        38: controller.controller_unpublish_volume(ControllerUnpublishVolumeRequest::default());
        46: controller.get_snapshot(GetSnapshotRequest::default());
        49: controller.delete_snapshot(DeleteSnapshotRequest::default());
        52: controller.create_snapshot(CreateSnapshotRequest {
            source_volume_id: "testId".into(),
            ..Default::default()
        });
        53: controller.create_snapshot(CreateSnapshotRequest { name: "s".into(), ..Default::default() });
        57: controller.controller_expand_volume(ControllerExpandVolumeRequest {
            capacity_range: range(),
            ..Default::default()
        });
        58: controller.controller_expand_volume(ControllerExpandVolumeRequest {
            volume_id: id(),
            ..Default::default()
        });
        60: controller.controller_modify_volume(ControllerModifyVolumeRequest {
            mutable_parameters: [("speed".to_owned(), "1".to_owned())].into(),
            ..Default::default()
        });
        67: group.create_volume_group_snapshot(CreateVolumeGroupSnapshotRequest {
            source_volume_ids: vec![id()],
            ..Default::default()
        });
        68: group.get_volume_group_snapshot(GetVolumeGroupSnapshotRequest::default());
        70: group.delete_volume_group_snapshot(DeleteVolumeGroupSnapshotRequest::default());
    }
}

/// Rules: WIRE-B.2.2, WIRE-C.3.74, WIRE-C.3.75, WIRE-C.3.76, WIRE-C.3.78, WIRE-C.3.79, WIRE-C.3.81, WIRE-C.3.82
/// Rules: WIRE-C.3.83, WIRE-C.3.84, WIRE-C.3.85, WIRE-C.3.86, WIRE-C.3.87, WIRE-C.3.90, WIRE-C.3.91
#[tokio::test(start_paused = true)]
async fn missing_fields_are_invalid_before_any_lookup_on_the_node() {
    let (_, _, mut clients) = served();
    macro_rules! invalid {
        ($($case:literal: $method:ident($request:expr);)*) => {
            $(assert_eq!(code(clients.node.$method($request).await), Code::InvalidArgument, "WIRE-C.3.{}", $case);)*
        };
    }
    let stage = || NodeStageVolumeRequest {
        volume_id: id(),
        staging_target_path: "/s".into(),
        volume_capability: Some(writer()),
        ..Default::default()
    };
    invalid! {
        74: node_publish_volume(NodePublishVolumeRequest::default());
        75: node_publish_volume(model::publish(UNKNOWN, ""));
        76: node_publish_volume(NodePublishVolumeRequest { volume_capability: None, ..model::publish(UNKNOWN, "/t") });
        78: node_unpublish_volume(NodeUnpublishVolumeRequest::default());
        79: node_unpublish_volume(NodeUnpublishVolumeRequest { volume_id: id(), ..Default::default() });
        81: node_stage_volume(NodeStageVolumeRequest { volume_id: String::new(), ..stage() });
        82: node_stage_volume(NodeStageVolumeRequest { staging_target_path: String::new(), ..stage() });
        83: node_stage_volume(NodeStageVolumeRequest { volume_capability: None, ..stage() });
        84: node_unstage_volume(NodeUnstageVolumeRequest {
            staging_target_path: "/s".into(),
            ..Default::default()
        });
        85: node_unstage_volume(NodeUnstageVolumeRequest { volume_id: id(), ..Default::default() });
        86: node_get_volume_stats(NodeGetVolumeStatsRequest { volume_path: "some/path".into(), ..Default::default() });
        87: node_get_volume_stats(NodeGetVolumeStatsRequest { volume_id: id(), ..Default::default() });
        90: node_expand_volume(NodeExpandVolumeRequest { volume_path: "some/path".into(), ..Default::default() });
        91: node_expand_volume(NodeExpandVolumeRequest { volume_id: id(), ..Default::default() });
    }
}

/// Rules: WIRE-C.3.23, WIRE-C.3.28, WIRE-C.3.33, LOCAL-0.6, WIRE-C.3.50, WIRE-C.3.48, WIRE-C.3.88, LOCAL-0.2, LOCAL-0.5
/// Rules: WIRE-C.3.92, WIRE-C.3.69, WIRE-C.3.71, WIRE-B.2.5, WIRE-B.2.6, WIRE-B.2.7
#[tokio::test(start_paused = true)]
async fn unknown_objects_are_looked_up_and_not_judged_by_their_format() {
    let (_, _, mut clients) = served();
    let controller = &mut clients.controller;
    assert_eq!(code(controller.delete_volume(model::delete(UNKNOWN)).await), Code::Ok, "WIRE-C.3.23");
    let validate = ValidateVolumeCapabilitiesRequest {
        volume_id: id(),
        volume_capabilities: vec![writer()],
        ..Default::default()
    };
    assert_eq!(code(controller.validate_volume_capabilities(validate).await), Code::NotFound, "WIRE-C.3.28");
    let attach = ControllerPublishVolumeRequest {
        volume_id: id(),
        node_id: "fake".into(),
        volume_capability: Some(writer()),
        ..Default::default()
    };
    assert_eq!(code(controller.controller_publish_volume(attach).await), Code::NotFound, "WIRE-C.3.33");
    let detach = ControllerUnpublishVolumeRequest { volume_id: id(), ..Default::default() };
    assert_eq!(code(controller.controller_unpublish_volume(detach).await), Code::Ok, "LOCAL-0.6");
    let snapshot = DeleteSnapshotRequest { snapshot_id: "reallyfakesnapshotid".into(), ..Default::default() };
    assert_eq!(code(controller.delete_snapshot(snapshot).await), Code::Ok, "WIRE-C.3.50");
    let get = GetSnapshotRequest { snapshot_id: "none-exist-id".into(), ..Default::default() };
    assert_eq!(code(controller.get_snapshot(get).await), Code::NotFound, "WIRE-C.3.48");
    let stats = NodeGetVolumeStatsRequest { volume_id: id(), volume_path: "some/path".into(), ..Default::default() };
    assert_eq!(code(clients.node.node_get_volume_stats(stats).await), Code::NotFound, "WIRE-C.3.88, LOCAL-0.2");
    let expand = NodeExpandVolumeRequest { volume_id: id(), volume_path: "some/path".into(), ..Default::default() };
    assert_eq!(code(clients.node.node_expand_volume(expand).await), Code::NotFound, "WIRE-C.3.92, LOCAL-0.2");
    let group = GetVolumeGroupSnapshotRequest { group_snapshot_id: id(), ..Default::default() };
    assert_eq!(code(clients.group.get_volume_group_snapshot(group).await), Code::NotFound, "WIRE-C.3.69, LOCAL-0.5");
    let group = DeleteVolumeGroupSnapshotRequest { group_snapshot_id: id(), ..Default::default() };
    assert_eq!(code(clients.group.delete_volume_group_snapshot(group).await), Code::Ok, "WIRE-C.3.71, LOCAL-0.5");
}

/// A driver with few slots refuses what belongs to an empty one, as invalid and not silently.
/// Rule: WIRE-B.2.1
#[tokio::test(start_paused = true)]
async fn what_needs_an_empty_slot_is_refused() {
    let model = Model::new();
    let attaching = driver_sdk::ControllerSlots::new(model.clone()).provisioner().attachment();
    let node = driver_sdk::NodeSlots::new(model.clone());
    let driver = Driver::builder(model::identity()).controller(attaching).node(node).build().unwrap();
    let mut clients = Clients::in_memory(&driver, Mode::All);
    let created = clients.controller.create_volume(model::create("v")).await.unwrap().into_inner().volume.unwrap();
    assert!(created.accessible_topology.is_empty());

    let source = |kind| VolumeContentSource { r#type: Some(kind) };
    let snapshot = volume_content_source::SnapshotSource { snapshot_id: "s".into() };
    let volume = volume_content_source::VolumeSource { volume_id: "v".into() };
    let requests = [
        CreateVolumeRequest {
            volume_content_source: Some(source(volume_content_source::Type::Snapshot(snapshot))),
            ..model::create("a")
        },
        CreateVolumeRequest {
            volume_content_source: Some(source(volume_content_source::Type::Volume(volume))),
            ..model::create("b")
        },
        CreateVolumeRequest { volume_content_source: Some(VolumeContentSource { r#type: None }), ..model::create("c") },
        CreateVolumeRequest { mutable_parameters: [("speed".to_owned(), "1".to_owned())].into(), ..model::create("d") },
    ];
    for request in requests {
        assert_eq!(code(clients.controller.create_volume(request).await), Code::InvalidArgument);
    }
    let readonly = ControllerPublishVolumeRequest {
        volume_id: "vol-v".into(),
        node_id: model::NODE.into(),
        volume_capability: Some(writer()),
        readonly: true,
        ..Default::default()
    };
    assert_eq!(code(clients.controller.controller_publish_volume(readonly).await), Code::InvalidArgument);
    let mut inline = model::publish("csi-1", "/t");
    inline.volume_context.insert(driver_sdk::keys::EPHEMERAL.into(), "true".into());
    assert_eq!(code(clients.node.node_publish_volume(inline).await), Code::InvalidArgument);
    assert_eq!(model.count("create"), 1);
}

/// Rule: WIRE-B.8.ValidateVolumeCapabilities
#[tokio::test(start_paused = true)]
async fn a_driver_that_makes_no_volumes_still_answers_validation() {
    let model = Model::new();
    let slots = driver_sdk::ControllerSlots::new(model).capacity();
    let driver = Driver::builder(model::identity()).controller(slots).build().unwrap();
    let mut clients = Clients::in_memory(&driver, Mode::All);
    let request = ValidateVolumeCapabilitiesRequest {
        volume_id: id(),
        volume_capabilities: vec![writer()],
        ..Default::default()
    };
    let answer = clients.controller.validate_volume_capabilities(request).await.unwrap().into_inner();
    assert_eq!(answer.confirmed, None);
    assert!(!answer.message.is_empty());
}

/// Rule: WIRE-B.3
#[tokio::test(start_paused = true)]
async fn the_driver_tells_who_it_is_and_whether_it_can_work() {
    let (model, _, mut clients) = served();
    let info = clients.identity.get_plugin_info(GetPluginInfoRequest {}).await.unwrap().into_inner();
    assert_eq!((info.name.as_str(), info.vendor_version.as_str()), ("model.csi.example", "1.0"));
    assert_eq!(info.manifest["built"], "by a test");
    let probe = |clients: &Clients| {
        let mut identity = clients.identity.clone();
        async move { identity.probe(ProbeRequest {}).await }
    };
    assert_eq!(probe(&clients).await.unwrap().into_inner().ready, Some(true));
    model.state().readiness = Some(Readiness::Starting);
    assert_eq!(probe(&clients).await.unwrap().into_inner().ready, Some(false));
    model.state().readiness = Some(Readiness::Unhealthy("the pool is gone".into()));
    let status = probe(&clients).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, "the pool is gone"));
}

/// Rule: LOCAL-E.3
#[tokio::test(start_paused = true)]
async fn a_mode_serves_its_side_only() {
    let model = Model::new();
    let driver = model::full(&model);
    let mut controller = Clients::in_memory(&driver, Mode::Controller);
    let mut node = Clients::in_memory(&driver, Mode::Node);
    assert_eq!(code(controller.controller.create_volume(model::create("v")).await), Code::Ok);
    assert_eq!(code(controller.node.node_get_info(NodeGetInfoRequest {}).await), Code::Unimplemented);
    assert_eq!(code(node.node.node_get_info(NodeGetInfoRequest {}).await), Code::Ok);
    assert_eq!(code(node.controller.create_volume(model::create("v")).await), Code::Unimplemented);
    for clients in [&mut controller, &mut node] {
        assert_eq!(code(clients.identity.probe(ProbeRequest {}).await), Code::Ok);
    }
}
