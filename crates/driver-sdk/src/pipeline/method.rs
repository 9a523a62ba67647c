//! The names of all RPCs, as they stand in the request path, in the log and in metric labels.

/// One RPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Method {
    /// `/csi.v1.Node/NodePublishVolume`
    pub(crate) path: &'static str,
    /// `NodePublishVolume`
    pub(crate) name: &'static str,
}

impl Method {
    /// The field of the log that holds what a call is about.
    pub(crate) fn about(&self) -> &'static str {
        match self.name.contains("Volume") && !self.name.contains("Group") {
            true => "volume",
            false => "object",
        }
    }
}

macro_rules! methods {
    ($($constant:ident = $service:literal $name:literal;)*) => {
        $(pub(crate) const $constant: Method =
            Method { path: concat!("/csi.v1.", $service, "/", $name), name: $name };)*
    };
}

methods! {
    GET_PLUGIN_INFO = "Identity" "GetPluginInfo";
    GET_PLUGIN_CAPABILITIES = "Identity" "GetPluginCapabilities";
    PROBE = "Identity" "Probe";
    CREATE_VOLUME = "Controller" "CreateVolume";
    DELETE_VOLUME = "Controller" "DeleteVolume";
    CONTROLLER_PUBLISH_VOLUME = "Controller" "ControllerPublishVolume";
    CONTROLLER_UNPUBLISH_VOLUME = "Controller" "ControllerUnpublishVolume";
    VALIDATE_VOLUME_CAPABILITIES = "Controller" "ValidateVolumeCapabilities";
    LIST_VOLUMES = "Controller" "ListVolumes";
    GET_CAPACITY = "Controller" "GetCapacity";
    CONTROLLER_GET_CAPABILITIES = "Controller" "ControllerGetCapabilities";
    CREATE_SNAPSHOT = "Controller" "CreateSnapshot";
    DELETE_SNAPSHOT = "Controller" "DeleteSnapshot";
    LIST_SNAPSHOTS = "Controller" "ListSnapshots";
    GET_SNAPSHOT = "Controller" "GetSnapshot";
    CONTROLLER_EXPAND_VOLUME = "Controller" "ControllerExpandVolume";
    CONTROLLER_GET_VOLUME = "Controller" "ControllerGetVolume";
    CONTROLLER_MODIFY_VOLUME = "Controller" "ControllerModifyVolume";
    GROUP_CONTROLLER_GET_CAPABILITIES = "GroupController" "GroupControllerGetCapabilities";
    CREATE_VOLUME_GROUP_SNAPSHOT = "GroupController" "CreateVolumeGroupSnapshot";
    DELETE_VOLUME_GROUP_SNAPSHOT = "GroupController" "DeleteVolumeGroupSnapshot";
    GET_VOLUME_GROUP_SNAPSHOT = "GroupController" "GetVolumeGroupSnapshot";
    GET_METADATA_ALLOCATED = "SnapshotMetadata" "GetMetadataAllocated";
    GET_METADATA_DELTA = "SnapshotMetadata" "GetMetadataDelta";
    NODE_STAGE_VOLUME = "Node" "NodeStageVolume";
    NODE_UNSTAGE_VOLUME = "Node" "NodeUnstageVolume";
    NODE_PUBLISH_VOLUME = "Node" "NodePublishVolume";
    NODE_UNPUBLISH_VOLUME = "Node" "NodeUnpublishVolume";
    NODE_GET_VOLUME_STATS = "Node" "NodeGetVolumeStats";
    NODE_EXPAND_VOLUME = "Node" "NodeExpandVolume";
    NODE_GET_CAPABILITIES = "Node" "NodeGetCapabilities";
    NODE_GET_INFO = "Node" "NodeGetInfo";
}
