//! Snapshots, groups of them and what they hold: the arguments of each command and the request they make.

use ::csi::v1::{
    CreateSnapshotRequest, CreateVolumeGroupSnapshotRequest, DeleteSnapshotRequest, DeleteVolumeGroupSnapshotRequest,
    GetMetadataAllocatedRequest, GetMetadataDeltaRequest, GetSnapshotRequest, GetVolumeGroupSnapshotRequest,
};

use super::volume::PageArgs;
use crate::csi::parse::{DuplicateKey, Pair, Size, map_of};
use crate::csi::secrets::Secrets;

/// Work with snapshots of single volumes.
#[derive(Debug, clap::Subcommand)]
pub(in crate::csi) enum Snapshot {
    Create(SnapshotCreate),
    Delete(SnapshotDelete),
    List(SnapshotList),
    Get(SnapshotGet),
}

/// Take a snapshot of a volume, or find the one of that name again (CreateSnapshot).
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct SnapshotCreate {
    /// Name of the snapshot; the driver answers with its id
    name: String,
    /// Id of the volume
    #[arg(long, value_name = "ID")]
    volume: String,
    /// Parameter of the driver, as in a snapshot class; may be repeated
    #[arg(long, value_name = "K=V")]
    param: Vec<Pair>,
}

impl SnapshotCreate {
    pub(in crate::csi) fn request(self, secrets: &Secrets) -> Result<CreateSnapshotRequest, DuplicateKey> {
        Ok(CreateSnapshotRequest {
            source_volume_id: self.volume,
            name: self.name,
            secrets: secrets.for_request(),
            parameters: map_of("--param", self.param)?,
        })
    }
}

/// Delete a snapshot (DeleteSnapshot).
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct SnapshotDelete {
    /// Id of the snapshot
    pub(in crate::csi) id: String,
}

impl SnapshotDelete {
    pub(in crate::csi) fn request(self, secrets: &Secrets) -> DeleteSnapshotRequest {
        DeleteSnapshotRequest { snapshot_id: self.id, secrets: secrets.for_request() }
    }
}

/// List the snapshots the driver knows (ListSnapshots).
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct SnapshotList {
    /// Only snapshots of this volume
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    pub(in crate::csi) volume: String,
    /// Only the snapshot with this id
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    pub(in crate::csi) id: String,
    #[command(flatten)]
    pub(in crate::csi) page: PageArgs,
}

/// Show one snapshot (GetSnapshot).
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct SnapshotGet {
    /// Id of the snapshot
    id: String,
}

impl SnapshotGet {
    pub(in crate::csi) fn request(self, secrets: &Secrets) -> GetSnapshotRequest {
        GetSnapshotRequest { snapshot_id: self.id, secrets: secrets.for_request() }
    }
}

/// Work with snapshots of several volumes taken at one moment.
#[derive(Debug, clap::Subcommand)]
pub(in crate::csi) enum Group {
    Create(GroupCreate),
    Delete(GroupDelete),
    Get(GroupGet),
    /// Show what the driver can do with groups (GroupControllerGetCapabilities).
    Capabilities,
}

/// Take a snapshot of several volumes at one moment (CreateVolumeGroupSnapshot).
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct GroupCreate {
    /// Name of the group; the driver answers with its id
    name: String,
    /// Id of a volume of the group; may be repeated
    #[arg(long, value_name = "ID", required = true)]
    volume: Vec<String>,
    /// Parameter of the driver, as in a group snapshot class; may be repeated
    #[arg(long, value_name = "K=V")]
    param: Vec<Pair>,
}

impl GroupCreate {
    pub(in crate::csi) fn request(self, secrets: &Secrets) -> Result<CreateVolumeGroupSnapshotRequest, DuplicateKey> {
        Ok(CreateVolumeGroupSnapshotRequest {
            name: self.name,
            source_volume_ids: self.volume,
            secrets: secrets.for_request(),
            parameters: map_of("--param", self.param)?,
        })
    }
}

/// Delete a group and all its snapshots (DeleteVolumeGroupSnapshot).
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct GroupDelete {
    /// Id of the group
    pub(in crate::csi) id: String,
    /// Id of a snapshot of the group; CSI wants all of them named; may be repeated
    #[arg(long, value_name = "ID")]
    snapshot: Vec<String>,
}

impl GroupDelete {
    pub(in crate::csi) fn request(self, secrets: &Secrets) -> DeleteVolumeGroupSnapshotRequest {
        DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: self.id,
            snapshot_ids: self.snapshot,
            secrets: secrets.for_request(),
        }
    }
}

/// Show one group and its snapshots (GetVolumeGroupSnapshot).
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct GroupGet {
    /// Id of the group
    id: String,
    /// Id of a snapshot of the group; CSI wants all of them named; may be repeated
    #[arg(long, value_name = "ID")]
    snapshot: Vec<String>,
}

impl GroupGet {
    pub(in crate::csi) fn request(self, secrets: &Secrets) -> GetVolumeGroupSnapshotRequest {
        GetVolumeGroupSnapshotRequest {
            group_snapshot_id: self.id,
            snapshot_ids: self.snapshot,
            secrets: secrets.for_request(),
        }
    }
}

/// Show which bytes of a snapshot hold data or differ from another.
#[derive(Debug, clap::Subcommand)]
pub(in crate::csi) enum Metadata {
    Allocated(Allocated),
    Delta(Delta),
}

/// Where in the snapshot to look.
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct RangeArgs {
    /// First byte to look at; after a broken stream, where it stopped
    #[arg(long, value_name = "SIZE", default_value = "0")]
    offset: Size,
    /// At most N ranges in one message of the stream; the driver chooses if it is not given
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(1..))]
    max: Option<i32>,
}

/// Stream the ranges of a snapshot that hold data (GetMetadataAllocated).
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct Allocated {
    /// Id of the snapshot
    snapshot: String,
    #[command(flatten)]
    range: RangeArgs,
}

impl Allocated {
    pub(in crate::csi) fn request(self, secrets: &Secrets) -> GetMetadataAllocatedRequest {
        GetMetadataAllocatedRequest {
            snapshot_id: self.snapshot,
            starting_offset: self.range.offset.bytes(),
            max_results: self.range.max.unwrap_or_default(),
            secrets: secrets.for_request(),
        }
    }
}

/// Stream the ranges that changed between two snapshots of a volume (GetMetadataDelta).
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct Delta {
    /// Id of the older snapshot
    base: String,
    /// Id of the newer snapshot
    target: String,
    #[command(flatten)]
    range: RangeArgs,
}

impl Delta {
    pub(in crate::csi) fn request(self, secrets: &Secrets) -> GetMetadataDeltaRequest {
        GetMetadataDeltaRequest {
            base_snapshot_id: self.base,
            target_snapshot_id: self.target,
            starting_offset: self.range.offset.bytes(),
            max_results: self.range.max.unwrap_or_default(),
            secrets: secrets.for_request(),
        }
    }
}
