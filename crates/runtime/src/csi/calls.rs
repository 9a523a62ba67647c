//! The calls by name.

use std::time::Duration;

use ::csi::v1;
use lifecycle::driver_limits;
use v1::controller_client::ControllerClient;
use v1::group_controller_client::GroupControllerClient;
use v1::node_client::NodeClient;

use super::{CallError, Driver};

macro_rules! calls {
    ($($client:ident, $name:ident, $method:literal, $request:ident => $response:ident;)*) => {
        impl Driver {
            $(
                #[doc = concat!("`", $method, "`, for at most `wait`.")]
                pub async fn $name(&self, request: v1::$request, wait: Duration) -> Result<v1::$response, CallError> {
                    let call = |channel, request| async move {
                        $client::new(channel).max_decoding_message_size(driver_limits::ANSWER).$name(request).await
                    };
                    self.call($method, wait, request, call).await
                }
            )*
        }
    };
}

calls! {
    ControllerClient, create_volume, "/csi.v1.Controller/CreateVolume", CreateVolumeRequest => CreateVolumeResponse;
    ControllerClient, delete_volume, "/csi.v1.Controller/DeleteVolume", DeleteVolumeRequest => DeleteVolumeResponse;
    ControllerClient, controller_publish_volume, "/csi.v1.Controller/ControllerPublishVolume", ControllerPublishVolumeRequest => ControllerPublishVolumeResponse;
    ControllerClient, controller_unpublish_volume, "/csi.v1.Controller/ControllerUnpublishVolume", ControllerUnpublishVolumeRequest => ControllerUnpublishVolumeResponse;
    ControllerClient, validate_volume_capabilities, "/csi.v1.Controller/ValidateVolumeCapabilities", ValidateVolumeCapabilitiesRequest => ValidateVolumeCapabilitiesResponse;
    ControllerClient, list_volumes, "/csi.v1.Controller/ListVolumes", ListVolumesRequest => ListVolumesResponse;
    ControllerClient, get_capacity, "/csi.v1.Controller/GetCapacity", GetCapacityRequest => GetCapacityResponse;
    ControllerClient, controller_get_volume, "/csi.v1.Controller/ControllerGetVolume", ControllerGetVolumeRequest => ControllerGetVolumeResponse;
    ControllerClient, controller_expand_volume, "/csi.v1.Controller/ControllerExpandVolume", ControllerExpandVolumeRequest => ControllerExpandVolumeResponse;
    ControllerClient, controller_modify_volume, "/csi.v1.Controller/ControllerModifyVolume", ControllerModifyVolumeRequest => ControllerModifyVolumeResponse;
    ControllerClient, create_snapshot, "/csi.v1.Controller/CreateSnapshot", CreateSnapshotRequest => CreateSnapshotResponse;
    ControllerClient, delete_snapshot, "/csi.v1.Controller/DeleteSnapshot", DeleteSnapshotRequest => DeleteSnapshotResponse;
    ControllerClient, list_snapshots, "/csi.v1.Controller/ListSnapshots", ListSnapshotsRequest => ListSnapshotsResponse;
    ControllerClient, get_snapshot, "/csi.v1.Controller/GetSnapshot", GetSnapshotRequest => GetSnapshotResponse;
    GroupControllerClient, create_volume_group_snapshot, "/csi.v1.GroupController/CreateVolumeGroupSnapshot", CreateVolumeGroupSnapshotRequest => CreateVolumeGroupSnapshotResponse;
    GroupControllerClient, delete_volume_group_snapshot, "/csi.v1.GroupController/DeleteVolumeGroupSnapshot", DeleteVolumeGroupSnapshotRequest => DeleteVolumeGroupSnapshotResponse;
    GroupControllerClient, get_volume_group_snapshot, "/csi.v1.GroupController/GetVolumeGroupSnapshot", GetVolumeGroupSnapshotRequest => GetVolumeGroupSnapshotResponse;
    NodeClient, node_stage_volume, "/csi.v1.Node/NodeStageVolume", NodeStageVolumeRequest => NodeStageVolumeResponse;
    NodeClient, node_unstage_volume, "/csi.v1.Node/NodeUnstageVolume", NodeUnstageVolumeRequest => NodeUnstageVolumeResponse;
    NodeClient, node_publish_volume, "/csi.v1.Node/NodePublishVolume", NodePublishVolumeRequest => NodePublishVolumeResponse;
    NodeClient, node_unpublish_volume, "/csi.v1.Node/NodeUnpublishVolume", NodeUnpublishVolumeRequest => NodeUnpublishVolumeResponse;
    NodeClient, node_expand_volume, "/csi.v1.Node/NodeExpandVolume", NodeExpandVolumeRequest => NodeExpandVolumeResponse;
    NodeClient, node_get_volume_stats, "/csi.v1.Node/NodeGetVolumeStats", NodeGetVolumeStatsRequest => NodeGetVolumeStatsResponse;
    NodeClient, node_get_info, "/csi.v1.Node/NodeGetInfo", NodeGetInfoRequest => NodeGetInfoResponse;
}
