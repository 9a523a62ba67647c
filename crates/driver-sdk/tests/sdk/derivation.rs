//! Advertised and routed are the same, for any choice of slots (LOCAL-E.3).

use std::collections::{BTreeMap, BTreeSet};

use driver_sdk::csi::v1::controller_service_capability::{self as c, rpc::Type as C};
use driver_sdk::csi::v1::node_service_capability::{self as n, rpc::Type as N};
use driver_sdk::csi::v1::plugin_capability::{self as p, service::Type as P};
use driver_sdk::csi::v1::*;
use driver_sdk::testing::Clients;
use driver_sdk::{ControllerSlots, DefinitionError, Driver, Mode, NodeSlots};
use proptest::prelude::*;
use tonic::Code;

use crate::model::{self, Model, code};

/// A driver with the slots that the bits name.
fn chosen(controller: u32, node: u32) -> Result<Driver, DefinitionError> {
    let model = Model::new();
    let mut builder = Driver::builder(model::identity());
    let fill = |bit: u32, slots: ControllerSlots<Model>| match bit {
        0 => slots.provisioner(),
        1 => slots.snapshots(),
        2 => slots.clones(),
        3 => slots.list_volumes(),
        4 => slots.get_volume(),
        5 => slots.list_snapshots(),
        6 => slots.get_snapshot(),
        7 => slots.capacity(),
        8 => slots.expansion(),
        9 => slots.attachment(),
        10 => slots.readonly_attachment(),
        11 => slots.list_attachments(),
        12 => slots.health(),
        13 => slots.modification(),
        14 => slots.group_snapshots(),
        _ => slots.snapshot_metadata(),
    };
    let fill_node = |bit: u32, slots: NodeSlots<Model>| match bit {
        0 => slots.staging(),
        1 => slots.stats(),
        2 => slots.health(),
        3 => slots.expansion(),
        4 => slots.mount_group(),
        5 => slots.writer_tracking(),
        _ => slots.ephemeral_inline(),
    };
    if controller != 0 {
        let bits = (0..16).filter(|bit| controller & (1 << bit) != 0);
        builder = builder.controller(bits.fold(ControllerSlots::new(model.clone()), |slots, bit| fill(bit, slots)));
    }
    if node & (1 << 7) != 0 {
        let bits = (0..7).filter(|bit| node & (1 << bit) != 0);
        builder = builder.node(bits.fold(NodeSlots::new(model.clone()), |slots, bit| fill_node(bit, slots)));
    }
    if node & (1 << 8) != 0 {
        builder = builder.topology(model);
    }
    builder.build()
}

#[derive(Debug, Default, PartialEq)]
struct Advertised {
    plugin: BTreeSet<String>,
    controller: BTreeSet<C>,
    node: BTreeSet<N>,
}

async fn advertised(clients: &mut Clients) -> Advertised {
    let mut told = Advertised::default();
    let plugin = clients.identity.get_plugin_capabilities(GetPluginCapabilitiesRequest {}).await.unwrap();
    for capability in plugin.into_inner().capabilities {
        told.plugin.insert(match capability.r#type.unwrap() {
            p::Type::Service(service) => P::try_from(service.r#type).unwrap().as_str_name().to_owned(),
            p::Type::VolumeExpansion(expansion) => format!("expansion {}", expansion.r#type),
        });
    }
    if let Ok(answer) = clients.controller.controller_get_capabilities(ControllerGetCapabilitiesRequest {}).await {
        let rpc = |capability: ControllerServiceCapability| capability.r#type.map(|c::Type::Rpc(rpc)| rpc.r#type);
        let all = answer.into_inner().capabilities.into_iter().filter_map(rpc);
        told.controller = all.map(|number| C::try_from(number).unwrap()).collect();
    }
    if let Ok(answer) = clients.node.node_get_capabilities(NodeGetCapabilitiesRequest {}).await {
        let rpc = |capability: NodeServiceCapability| capability.r#type.map(|n::Type::Rpc(rpc)| rpc.r#type);
        let all = answer.into_inner().capabilities.into_iter().filter_map(rpc);
        told.node = all.map(|number| N::try_from(number).unwrap()).collect();
    }
    told
}

/// The code of every RPC called with an empty request.
async fn codes(clients: &mut Clients) -> BTreeMap<&'static str, Code> {
    macro_rules! call {
        ($($client:ident.$method:ident($request:ident),)*) => {
            BTreeMap::from([$((stringify!($method), code(clients.$client.$method($request::default()).await))),*])
        };
    }
    call! {
        controller.create_volume(CreateVolumeRequest),
        controller.delete_volume(DeleteVolumeRequest),
        controller.controller_publish_volume(ControllerPublishVolumeRequest),
        controller.controller_unpublish_volume(ControllerUnpublishVolumeRequest),
        controller.validate_volume_capabilities(ValidateVolumeCapabilitiesRequest),
        controller.list_volumes(ListVolumesRequest),
        controller.get_capacity(GetCapacityRequest),
        controller.controller_get_capabilities(ControllerGetCapabilitiesRequest),
        controller.create_snapshot(CreateSnapshotRequest),
        controller.delete_snapshot(DeleteSnapshotRequest),
        controller.list_snapshots(ListSnapshotsRequest),
        controller.get_snapshot(GetSnapshotRequest),
        controller.controller_expand_volume(ControllerExpandVolumeRequest),
        controller.controller_get_volume(ControllerGetVolumeRequest),
        controller.controller_modify_volume(ControllerModifyVolumeRequest),
        group.group_controller_get_capabilities(GroupControllerGetCapabilitiesRequest),
        group.create_volume_group_snapshot(CreateVolumeGroupSnapshotRequest),
        group.delete_volume_group_snapshot(DeleteVolumeGroupSnapshotRequest),
        group.get_volume_group_snapshot(GetVolumeGroupSnapshotRequest),
        metadata.get_metadata_allocated(GetMetadataAllocatedRequest),
        metadata.get_metadata_delta(GetMetadataDeltaRequest),
        node.node_stage_volume(NodeStageVolumeRequest),
        node.node_unstage_volume(NodeUnstageVolumeRequest),
        node.node_publish_volume(NodePublishVolumeRequest),
        node.node_unpublish_volume(NodeUnpublishVolumeRequest),
        node.node_get_volume_stats(NodeGetVolumeStatsRequest),
        node.node_expand_volume(NodeExpandVolumeRequest),
        node.node_get_capabilities(NodeGetCapabilitiesRequest),
        node.node_get_info(NodeGetInfoRequest),
    }
}

/// Which RPCs the advertised capabilities make mandatory (WIRE-A.2).
fn promised(told: &Advertised, has_node: bool) -> BTreeSet<&'static str> {
    let plugin = |name: &str| told.plugin.contains(name);
    let rows: [(bool, &[&str]); 17] = [
        (plugin("CONTROLLER_SERVICE"), &["validate_volume_capabilities", "controller_get_capabilities"]),
        (told.controller.contains(&C::CreateDeleteVolume), &["create_volume", "delete_volume"]),
        (
            told.controller.contains(&C::PublishUnpublishVolume),
            &["controller_publish_volume", "controller_unpublish_volume"],
        ),
        (told.controller.contains(&C::ListVolumes), &["list_volumes"]),
        (told.controller.contains(&C::GetCapacity), &["get_capacity"]),
        (told.controller.contains(&C::CreateDeleteSnapshot), &["create_snapshot", "delete_snapshot"]),
        (told.controller.contains(&C::ListSnapshots), &["list_snapshots"]),
        (told.controller.contains(&C::GetSnapshot), &["get_snapshot"]),
        (told.controller.contains(&C::ExpandVolume), &["controller_expand_volume"]),
        (told.controller.contains(&C::GetVolume), &["controller_get_volume"]),
        (told.controller.contains(&C::ModifyVolume), &["controller_modify_volume"]),
        (
            plugin("GROUP_CONTROLLER_SERVICE"),
            &[
                "group_controller_get_capabilities",
                "create_volume_group_snapshot",
                "delete_volume_group_snapshot",
                "get_volume_group_snapshot",
            ],
        ),
        (plugin("SNAPSHOT_METADATA_SERVICE"), &["get_metadata_allocated", "get_metadata_delta"]),
        (told.node.contains(&N::StageUnstageVolume), &["node_stage_volume", "node_unstage_volume"]),
        (told.node.contains(&N::GetVolumeStats), &["node_get_volume_stats"]),
        (told.node.contains(&N::ExpandVolume), &["node_expand_volume"]),
        (has_node, &["node_publish_volume", "node_unpublish_volume", "node_get_capabilities", "node_get_info"]),
    ];
    rows.into_iter().filter(|(told, _)| *told).flat_map(|(_, rpcs)| rpcs.iter().copied()).collect()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// Rules: LOCAL-0.27, LOCAL-E.3, WIRE-A.2
    #[test]
    fn an_rpc_is_unimplemented_exactly_when_nothing_advertises_it(controller in 0u32..1 << 16, node in 0u32..1 << 9) {
        let Ok(driver) = chosen(controller, node) else { return Ok(()) };
        block_on(async {
            let mut clients = Clients::in_memory(&driver, Mode::All);
            let told = advertised(&mut clients).await;
            let promised = promised(&told, node & (1 << 7) != 0);
            for (rpc, code) in codes(&mut clients).await {
                let routed = code != Code::Unimplemented;
                prop_assert_eq!(routed, promised.contains(rpc), "{} answers {:?}: {:?}", rpc, code, told);
            }
            prop_assert!(driver.self_test(Mode::All).await.is_ok());
            // LOCAL-0.27: what the plugin can do does not depend on what a process serves.
            for mode in [Mode::Controller, Mode::Node] {
                let mut part = Clients::in_memory(&driver, mode);
                prop_assert_eq!(&advertised(&mut part).await.plugin, &told.plugin);
            }
            Ok(())
        })?;
    }
}

/// Rule: LOCAL-E.3
#[test]
fn a_full_driver_advertises_everything_there_is() {
    block_on(async {
        let driver = model::full(&Model::new());
        let told = advertised(&mut Clients::in_memory(&driver, Mode::All)).await;
        assert_eq!(told.controller.len(), 15);
        assert_eq!(told.node.len(), 6);
        let services = ["CONTROLLER_SERVICE", "GROUP_CONTROLLER_SERVICE", "SNAPSHOT_METADATA_SERVICE"];
        let all = services.into_iter().chain(["VOLUME_ACCESSIBILITY_CONSTRAINTS", "expansion 1"]);
        assert_eq!(told.plugin, all.map(str::to_owned).collect());
    });
}

/// Rules: LOCAL-E.3, WIRE-B.3
#[test]
fn rules_that_types_cannot_hold_are_checked_when_building() {
    let node = |bits: u32| bits | 1 << 7;
    assert_eq!(chosen(1 << 9, 0).unwrap_err(), DefinitionError::AttachmentWithoutNode);
    assert_eq!(chosen(1, 1 << 8).unwrap_err(), DefinitionError::TopologyWithoutNode);
    assert_eq!(chosen(1 << 12, node(0)).unwrap_err(), DefinitionError::HealthWithoutReader);
    assert!(chosen(1 << 7, 0).is_ok(), "a controller that only tells capacity");
}
