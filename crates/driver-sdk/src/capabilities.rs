//! What a driver advertises, as a pure function of its filled slots.
//!
//! # Invariants
//! 1. Nothing else makes capabilities, so advertised and routed cannot differ.
//! 2. Every list comes from the whole definition. A process that serves only one side still tells the same plugin
//!    capabilities as the other (LOCAL-0.27).

use csi::v1::plugin_capability::{Service, VolumeExpansion, service, volume_expansion};
use csi::v1::{
    ControllerServiceCapability, GroupControllerServiceCapability, NodeServiceCapability, PluginCapability,
    controller_service_capability as c, group_controller_service_capability as g, node_service_capability as n,
    plugin_capability,
};

use crate::builder::{ControllerTable, Definition, NodeTable};
use crate::types::ExpansionMode;

/// For GetPluginCapabilities.
pub(crate) fn plugin(definition: &Definition) -> Vec<PluginCapability> {
    let controller = definition.controller.as_ref();
    let services = [
        (controller.is_some(), service::Type::ControllerService),
        (definition.topology.is_some(), service::Type::VolumeAccessibilityConstraints),
        (controller.is_some_and(|t| t.group_snapshots.is_some()), service::Type::GroupControllerService),
        (controller.is_some_and(|t| t.snapshot_metadata.is_some()), service::Type::SnapshotMetadataService),
    ];
    let services = chosen(services).map(|kind| plugin_capability::Type::Service(Service { r#type: kind.into() }));
    let expansion = expansion(definition)
        .map(|kind| plugin_capability::Type::VolumeExpansion(VolumeExpansion { r#type: kind.into() }));
    services.chain(expansion).map(|kind| PluginCapability { r#type: Some(kind) }).collect()
}

/// A node expands what is staged, so a node that expands on its own does it online. OFFLINE needs a controller, and it
/// is the controller's word that counts when there is one (WIRE-B.3).
fn expansion(definition: &Definition) -> Option<volume_expansion::Type> {
    let controller = definition.controller.as_ref().and_then(|table| table.expansion.as_ref());
    let node = definition.node.as_ref().and_then(|table| table.expansion.as_ref());
    match (controller.map(|expander| expander.mode()), node) {
        (Some(ExpansionMode::Online), _) | (None, Some(_)) => Some(volume_expansion::Type::Online),
        (Some(ExpansionMode::Offline), _) => Some(volume_expansion::Type::Offline),
        (None, None) => None,
    }
}

/// For ControllerGetCapabilities.
pub(crate) fn controller(definition: &Definition) -> Vec<ControllerServiceCapability> {
    use c::rpc::Type;
    let Some(table) = &definition.controller else { return Vec::new() };
    let ControllerTable {
        provisioner,
        snapshots,
        clones,
        list_volumes,
        get_volume,
        list_snapshots,
        get_snapshot,
        capacity,
        expansion,
        attachment,
        readonly_attachment,
        list_attachments,
        health,
        modification,
        // These two have services of their own.
        group_snapshots: _,
        snapshot_metadata: _,
    } = table;
    let tracks_writers = definition.node.as_ref().is_some_and(|node| node.writer_tracking.is_some());
    let all = [
        (provisioner.is_some(), Type::CreateDeleteVolume),
        (attachment.is_some(), Type::PublishUnpublishVolume),
        (list_volumes.is_some(), Type::ListVolumes),
        (capacity.is_some(), Type::GetCapacity),
        (snapshots.is_some(), Type::CreateDeleteSnapshot),
        (list_snapshots.is_some(), Type::ListSnapshots),
        (clones.is_some(), Type::CloneVolume),
        (readonly_attachment.is_some(), Type::PublishReadonly),
        (expansion.is_some(), Type::ExpandVolume),
        (list_attachments.is_some(), Type::ListVolumesPublishedNodes),
        (health.is_some(), Type::VolumeCondition),
        (get_volume.is_some(), Type::GetVolume),
        (tracks_writers, Type::SingleNodeMultiWriter),
        (modification.is_some(), Type::ModifyVolume),
        (get_snapshot.is_some(), Type::GetSnapshot),
    ];
    chosen(all)
        .map(|kind| ControllerServiceCapability { r#type: Some(c::Type::Rpc(c::Rpc { r#type: kind.into() })) })
        .collect()
}

/// For NodeGetCapabilities.
pub(crate) fn node(definition: &Definition) -> Vec<NodeServiceCapability> {
    use n::rpc::Type;
    let Some(table) = &definition.node else { return Vec::new() };
    let NodeTable {
        publisher: _,
        staging,
        stats,
        health,
        expansion,
        mount_group,
        writer_tracking,
        // Nothing on the wire tells of inline volumes.
        ephemeral_inline: _,
    } = table;
    let all = [
        (staging.is_some(), Type::StageUnstageVolume),
        (stats.is_some(), Type::GetVolumeStats),
        (expansion.is_some(), Type::ExpandVolume),
        (health.is_some(), Type::VolumeCondition),
        (writer_tracking.is_some(), Type::SingleNodeMultiWriter),
        (mount_group.is_some(), Type::VolumeMountGroup),
    ];
    chosen(all)
        .map(|kind| NodeServiceCapability { r#type: Some(n::Type::Rpc(n::Rpc { r#type: kind.into() })) })
        .collect()
}

/// For GroupControllerGetCapabilities.
pub(crate) fn group(definition: &Definition) -> Vec<GroupControllerServiceCapability> {
    use g::rpc::Type;
    let filled = definition.controller.as_ref().is_some_and(|table| table.group_snapshots.is_some());
    chosen([(filled, Type::CreateDeleteGetVolumeGroupSnapshot)])
        .map(|kind| GroupControllerServiceCapability { r#type: Some(g::Type::Rpc(g::Rpc { r#type: kind.into() })) })
        .collect()
}

fn chosen<T, const N: usize>(all: [(bool, T); N]) -> impl Iterator<Item = T> {
    all.into_iter().filter_map(|(filled, kind)| filled.then_some(kind))
}
