//! WIRE-B.7 and WIRE-B.9: the node side.

use driver_sdk::csi::v1::volume_capability::access_mode::Mode as WireMode;
use driver_sdk::csi::v1::volume_capability::{AccessType, MountVolume};
use driver_sdk::csi::v1::*;
use driver_sdk::testing::Clients;
use driver_sdk::{Mode, keys};
use tonic::Code;

use crate::model::{self, Model, capability, code, create, publish, served};

fn in_mode(mode: WireMode, target: &str) -> NodePublishVolumeRequest {
    NodePublishVolumeRequest { volume_capability: Some(capability(mode)), ..publish("vol-v", target) }
}

/// Rules: WIRE-C.3.77, WIRE-B.7
#[tokio::test(start_paused = true)]
async fn a_second_publication_follows_the_table() {
    let readonly = |request: NodePublishVolumeRequest| NodePublishVolumeRequest { readonly: true, ..request };
    let rows = [
        (WireMode::SingleNodeSingleWriter, Code::FailedPrecondition),
        (WireMode::SingleNodeMultiWriter, Code::Ok),
        (WireMode::SingleNodeWriter, Code::Ok),
        (WireMode::MultiNodeMultiWriter, Code::Ok),
    ];
    for (mode, elsewhere) in rows {
        let (_, _, mut clients) = served();
        clients.controller.create_volume(create("v")).await.unwrap();
        for _ in 0..2 {
            assert_eq!(code(clients.node.node_publish_volume(in_mode(mode, "/t")).await), Code::Ok);
        }
        let other = clients.node.node_publish_volume(readonly(in_mode(mode, "/t"))).await;
        assert_eq!(code(other), Code::AlreadyExists, "{mode:?}");
        let second = clients.node.node_publish_volume(in_mode(mode, "/u")).await;
        assert_eq!(code(second), elsewhere, "{mode:?}, WIRE-C.3.77");
    }
}

/// Rule: WIRE-B.7
#[tokio::test(start_paused = true)]
async fn publishing_needs_a_staging_path_only_where_volumes_are_staged() {
    let (_, _, mut clients) = served();
    clients.controller.create_volume(create("v")).await.unwrap();
    let unstaged = NodePublishVolumeRequest { staging_target_path: String::new(), ..publish("vol-v", "/t") };
    assert_eq!(code(clients.node.node_publish_volume(unstaged.clone()).await), Code::FailedPrecondition);
    let model = Model::new();
    let driver = model::small(&model);
    let mut clients = Clients::in_memory(&driver, Mode::All);
    clients.controller.create_volume(create("v")).await.unwrap();
    assert_eq!(code(clients.node.node_publish_volume(unstaged).await), Code::Ok);
}

/// Rules: WIRE-C.3.89, WIRE-B.7, WIRE-B.9.NodeGetVolumeStats, WIRE-B.9.NodeExpandVolume
#[tokio::test(start_paused = true)]
async fn a_volume_goes_through_its_whole_life_on_a_node() {
    let (model, _, mut clients) = served();
    clients.controller.create_volume(create("v")).await.unwrap();
    let stage = NodeStageVolumeRequest {
        volume_id: "vol-v".into(),
        staging_target_path: "/staging".into(),
        volume_capability: Some(model::writer()),
        ..Default::default()
    };
    assert_eq!(code(clients.node.node_stage_volume(stage).await), Code::Ok);
    assert_eq!(code(clients.node.node_publish_volume(publish("vol-v", "/t")).await), Code::Ok);
    let stats = |path: &str| NodeGetVolumeStatsRequest {
        volume_id: "vol-v".into(),
        volume_path: path.into(),
        ..Default::default()
    };
    let answer = clients.node.node_get_volume_stats(stats("/t")).await.unwrap().into_inner();
    assert_eq!((answer.usage[0].total, answer.usage[0].unit()), (1 << 20, volume_usage::Unit::Bytes));
    assert_eq!(answer.volume_condition.unwrap().message, "scratched");
    assert_eq!(code(clients.node.node_get_volume_stats(stats("some/path")).await), Code::NotFound, "WIRE-C.3.89");
    let expand = NodeExpandVolumeRequest { volume_id: "vol-v".into(), volume_path: "/t".into(), ..Default::default() };
    let expanded = clients.node.node_expand_volume(expand).await.unwrap().into_inner();
    assert_eq!(expanded.capacity_bytes, 1 << 20);
    let unpublish = NodeUnpublishVolumeRequest { volume_id: "vol-v".into(), target_path: "/t".into() };
    let unstage = NodeUnstageVolumeRequest { volume_id: "vol-v".into(), staging_target_path: "/staging".into() };
    for _ in 0..2 {
        assert_eq!(code(clients.node.node_unpublish_volume(unpublish.clone()).await), Code::Ok);
        assert_eq!(code(clients.node.node_unstage_volume(unstage.clone()).await), Code::Ok);
    }
    let vol = model.state().volumes["vol-v"].clone();
    assert!(vol.published.is_empty() && vol.staged.is_none());
}

/// Rule: WIRE-B.9.NodePublishVolume
#[tokio::test(start_paused = true)]
async fn inline_volumes_go_their_own_way() {
    let (model, _, mut clients) = served();
    let mut request = publish("csi-1", "/t");
    request.staging_target_path.clear();
    request.volume_context.insert(keys::EPHEMERAL.into(), "true".into());
    assert_eq!(code(clients.node.node_publish_volume(request).await), Code::Ok);
    assert_eq!((model.count("publish_ephemeral"), model.count("publish")), (1, 0));
    let unpublish = NodeUnpublishVolumeRequest { volume_id: "csi-1".into(), target_path: "/t".into() };
    assert_eq!(code(clients.node.node_unpublish_volume(unpublish.clone()).await), Code::Ok);
    assert!(model.state().volumes.is_empty());
    assert_eq!(model.count("unpublish"), 0);
    // Now it is unknown, and the ordinary way decides.
    assert_eq!(code(clients.node.node_unpublish_volume(unpublish).await), Code::Ok);
    assert_eq!(model.count("unpublish"), 1);
}

/// Rule: WIRE-B.9.NodePublishVolume
#[tokio::test(start_paused = true)]
async fn a_mount_group_is_checked_by_the_driver() {
    let (_, _, mut clients) = served();
    clients.controller.create_volume(create("v")).await.unwrap();
    for (group, want) in [("1000", Code::Ok), ("staff", Code::InvalidArgument)] {
        let mount = MountVolume { volume_mount_group: group.into(), ..Default::default() };
        let mut request = publish("vol-v", &format!("/{group}"));
        request.volume_capability.as_mut().unwrap().access_type = Some(AccessType::Mount(mount));
        assert_eq!(code(clients.node.node_publish_volume(request).await), want);
    }
}

/// Rule: WIRE-B.9.NodeGetInfo
#[tokio::test(start_paused = true)]
async fn the_node_tells_its_name_limit_and_place() {
    let (_, _, mut clients) = served();
    let info = clients.node.node_get_info(NodeGetInfoRequest {}).await.unwrap().into_inner();
    assert_eq!((info.node_id.as_str(), info.max_volumes_per_node), (model::NODE, 8));
    assert_eq!(info.accessible_topology.unwrap().segments["zone"], "a");
}
