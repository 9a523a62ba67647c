//! Volumes as the controller sees them: the arguments of each command and the request they make.

use ::csi::v1::volume_content_source::{SnapshotSource, Type as Source, VolumeSource};
use ::csi::v1::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerGetVolumeRequest, ControllerModifyVolumeRequest,
    ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest, CreateVolumeRequest, DeleteVolumeRequest,
    GetCapacityRequest, TopologyRequirement, ValidateVolumeCapabilitiesRequest, VolumeContentSource,
};

use super::capability::CapabilityArgs;
use crate::csi::parse::{DuplicateKey, Pair, Segments, Size, map_of};
use crate::csi::secrets::Secrets;

/// Create a volume, or find the one of that name again (CreateVolume).
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct Create {
    /// Name of the volume; the driver answers with its id
    name: String,
    /// Smallest size that will do, such as 1Gi; the driver chooses if it is not given
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Largest size that will do
    #[arg(long, value_name = "SIZE")]
    limit: Option<Size>,
    /// Parameter of the driver, as in a storage class; may be repeated
    #[arg(long, value_name = "K=V")]
    param: Vec<Pair>,
    /// Parameter that can be changed later with `modify`; may be repeated
    #[arg(long, value_name = "K=V")]
    mutable: Vec<Pair>,
    /// Fill the volume with the content of this snapshot
    #[arg(long, value_name = "ID", conflicts_with = "from_volume")]
    from_snapshot: Option<String>,
    /// Fill the volume with the content of this volume (a clone)
    #[arg(long, value_name = "ID")]
    from_volume: Option<String>,
    /// Place the volume may live in; repeat it for more places, best first
    #[arg(long, value_name = "K=V,K=V")]
    topology: Vec<Segments>,
    #[command(flatten)]
    capability: CapabilityArgs,
}

impl Create {
    pub(in crate::csi) fn request(self, secrets: &Secrets) -> Result<CreateVolumeRequest, DuplicateKey> {
        let Self { name, size, limit, param, mutable, from_snapshot, from_volume, topology, capability } = self;
        let source = from_snapshot
            .map(|snapshot_id| Source::Snapshot(SnapshotSource { snapshot_id }))
            .or_else(|| from_volume.map(|volume_id| Source::Volume(VolumeSource { volume_id })));
        let places: Vec<_> = topology.into_iter().map(Segments::topology).collect();
        Ok(CreateVolumeRequest {
            name,
            capacity_range: range(size, limit),
            volume_capabilities: vec![capability.required()],
            parameters: map_of("--param", param)?,
            secrets: secrets.for_request(),
            volume_content_source: source.map(|source| VolumeContentSource { r#type: Some(source) }),
            // The order of `preferred` is what the driver tries first; `requisite` bounds where it may land at all.
            accessibility_requirements: (!places.is_empty())
                .then(|| TopologyRequirement { requisite: places.clone(), preferred: places }),
            mutable_parameters: map_of("--mutable", mutable)?,
        })
    }
}

/// Delete a volume and its data (DeleteVolume).
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct Delete {
    /// Id of the volume
    pub(in crate::csi) id: String,
}

impl Delete {
    pub(in crate::csi) fn request(self, secrets: &Secrets) -> DeleteVolumeRequest {
        DeleteVolumeRequest { volume_id: self.id, secrets: secrets.for_request() }
    }
}

/// Which part of a list to show.
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct PageArgs {
    /// Ask for one page of at most N entries instead of all pages
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(1..))]
    pub(in crate::csi) max: Option<i32>,
    /// Start where an earlier page ended, at the token it printed
    #[arg(long, value_name = "TOKEN", default_value = "", hide_default_value = true)]
    pub(in crate::csi) token: String,
}

/// List the volumes the driver knows (ListVolumes).
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct List {
    #[command(flatten)]
    pub(in crate::csi) page: PageArgs,
}

/// Show one volume, where it is attached and how it is (ControllerGetVolume).
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct Get {
    /// Id of the volume
    id: String,
}

impl Get {
    pub(in crate::csi) fn request(self) -> ControllerGetVolumeRequest {
        ControllerGetVolumeRequest { volume_id: self.id }
    }
}

/// Ask whether a volume can be used in a given way (ValidateVolumeCapabilities).
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct Validate {
    /// Id of the volume
    id: String,
    /// Entry of the volume's context, as `create` printed it; may be repeated
    #[arg(long, value_name = "K=V")]
    volume_context: Vec<Pair>,
    /// Parameter the volume is supposed to have; may be repeated
    #[arg(long, value_name = "K=V")]
    param: Vec<Pair>,
    /// Mutable parameter the volume is supposed to have; may be repeated
    #[arg(long, value_name = "K=V")]
    mutable: Vec<Pair>,
    #[command(flatten)]
    capability: CapabilityArgs,
}

impl Validate {
    pub(in crate::csi) fn request(self, secrets: &Secrets) -> Result<ValidateVolumeCapabilitiesRequest, DuplicateKey> {
        let Self { id, volume_context, param, mutable, capability } = self;
        Ok(ValidateVolumeCapabilitiesRequest {
            volume_id: id,
            volume_context: map_of("--volume-context", volume_context)?,
            volume_capabilities: vec![capability.required()],
            parameters: map_of("--param", param)?,
            secrets: secrets.for_request(),
            mutable_parameters: map_of("--mutable", mutable)?,
        })
    }
}

/// Show how much space is left for new volumes (GetCapacity).
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct Capacity {
    /// Count only space that volumes with this parameter can use; may be repeated
    #[arg(long, value_name = "K=V")]
    param: Vec<Pair>,
    /// Count only space in this place
    #[arg(long, value_name = "K=V,K=V")]
    topology: Option<Segments>,
    #[command(flatten)]
    capability: CapabilityArgs,
}

impl Capacity {
    pub(in crate::csi) fn request(self) -> Result<GetCapacityRequest, DuplicateKey> {
        let Self { param, topology, capability } = self;
        Ok(GetCapacityRequest {
            volume_capabilities: capability.optional().into_iter().collect(),
            parameters: map_of("--param", param)?,
            accessible_topology: topology.map(Segments::topology),
        })
    }
}

/// Attach a volume to a node (ControllerPublishVolume).
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct Attach {
    /// Id of the volume
    id: String,
    /// Id of the node, as `node-info` prints it there
    #[arg(long, value_name = "NODE")]
    node: String,
    /// Attach it read-only
    #[arg(long)]
    readonly: bool,
    /// Entry of the volume's context, as `create` printed it; may be repeated
    #[arg(long, value_name = "K=V")]
    volume_context: Vec<Pair>,
    #[command(flatten)]
    capability: CapabilityArgs,
}

impl Attach {
    pub(in crate::csi) fn request(self, secrets: &Secrets) -> Result<ControllerPublishVolumeRequest, DuplicateKey> {
        let Self { id, node, readonly, volume_context, capability } = self;
        Ok(ControllerPublishVolumeRequest {
            volume_id: id,
            node_id: node,
            volume_capability: Some(capability.required()),
            readonly,
            secrets: secrets.for_request(),
            volume_context: map_of("--volume-context", volume_context)?,
        })
    }
}

/// Detach a volume from one node or from all (ControllerUnpublishVolume).
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct Detach {
    /// Id of the volume
    pub(in crate::csi) id: String,
    /// Id of the node; without it the volume is detached from every node
    #[arg(long, value_name = "NODE")]
    pub(in crate::csi) node: Option<String>,
}

impl Detach {
    pub(in crate::csi) fn request(self, secrets: &Secrets) -> ControllerUnpublishVolumeRequest {
        let Self { id, node } = self;
        ControllerUnpublishVolumeRequest {
            volume_id: id,
            node_id: node.unwrap_or_default(),
            secrets: secrets.for_request(),
        }
    }
}

/// Make a volume larger (ControllerExpandVolume).
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct Expand {
    /// Id of the volume
    id: String,
    /// Smallest new size that will do
    #[arg(long, value_name = "SIZE")]
    size: Size,
    /// Largest new size that will do
    #[arg(long, value_name = "SIZE")]
    limit: Option<Size>,
    #[command(flatten)]
    capability: CapabilityArgs,
}

impl Expand {
    pub(in crate::csi) fn request(self, secrets: &Secrets) -> ControllerExpandVolumeRequest {
        let Self { id, size, limit, capability } = self;
        ControllerExpandVolumeRequest {
            volume_id: id,
            capacity_range: range(Some(size), limit),
            secrets: secrets.for_request(),
            volume_capability: capability.optional(),
        }
    }
}

/// Change mutable parameters of a volume (ControllerModifyVolume).
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct Modify {
    /// Id of the volume
    pub(in crate::csi) id: String,
    /// Parameter to change; keys that are not named stay as they are; may be repeated
    #[arg(long, value_name = "K=V", required = true)]
    mutable: Vec<Pair>,
}

impl Modify {
    pub(in crate::csi) fn request(self, secrets: &Secrets) -> Result<ControllerModifyVolumeRequest, DuplicateKey> {
        Ok(ControllerModifyVolumeRequest {
            volume_id: self.id,
            secrets: secrets.for_request(),
            mutable_parameters: map_of("--mutable", self.mutable)?,
        })
    }
}

/// `None` when neither bound is given: an absent range means that the driver chooses.
pub(super) fn range(size: Option<Size>, limit: Option<Size>) -> Option<CapacityRange> {
    let bytes = |size: Option<Size>| size.map_or(0, Size::bytes);
    (size.is_some() || limit.is_some())
        .then(|| CapacityRange { required_bytes: bytes(size), limit_bytes: bytes(limit) })
}
