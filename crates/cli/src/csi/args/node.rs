//! Volumes as one node sees them: the arguments of each command and the request they make.

use ::csi::v1::{
    NodeExpandVolumeRequest, NodeGetVolumeStatsRequest, NodePublishVolumeRequest, NodeStageVolumeRequest,
    NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest,
};

use super::capability::CapabilityArgs;
use super::volume::range;
use crate::csi::keys;
use crate::csi::parse::{DuplicateKey, Pair, Size, map_of};
use crate::csi::secrets::Secrets;

/// What earlier calls answered and this one must hand on.
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct ContextArgs {
    /// Entry of the context that `attach` printed; may be repeated
    #[arg(long, value_name = "K=V")]
    publish_context: Vec<Pair>,
    /// Entry of the volume's context, as `create` printed it; may be repeated
    #[arg(long, value_name = "K=V")]
    volume_context: Vec<Pair>,
}

/// Make a volume ready on this node, once for all its users (NodeStageVolume).
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct Stage {
    /// Id of the volume
    pub(in crate::csi) id: String,
    /// Staging directory: absolute, and it must exist
    #[arg(long, value_name = "DIR")]
    pub(in crate::csi) staging: String,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    capability: CapabilityArgs,
}

impl Stage {
    pub(in crate::csi) fn request(self, secrets: &Secrets) -> Result<NodeStageVolumeRequest, DuplicateKey> {
        let Self { id, staging, context, capability } = self;
        Ok(NodeStageVolumeRequest {
            volume_id: id,
            publish_context: map_of("--publish-context", context.publish_context)?,
            staging_target_path: staging,
            volume_capability: Some(capability.required()),
            secrets: secrets.for_request(),
            volume_context: map_of("--volume-context", context.volume_context)?,
        })
    }
}

/// Undo `stage` (NodeUnstageVolume).
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct Unstage {
    /// Id of the volume
    pub(in crate::csi) id: String,
    /// Staging directory given to `stage`
    #[arg(long, value_name = "DIR")]
    pub(in crate::csi) staging: String,
}

impl Unstage {
    pub(in crate::csi) fn request(self) -> NodeUnstageVolumeRequest {
        NodeUnstageVolumeRequest { volume_id: self.id, staging_target_path: self.staging }
    }
}

/// Show a volume at a path on this node (NodePublishVolume).
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct Publish {
    /// Id of the volume
    pub(in crate::csi) id: String,
    /// Path to show it at: absolute, its parent must exist, the driver makes the path itself
    #[arg(long, value_name = "PATH")]
    pub(in crate::csi) target: String,
    /// Staging directory given to `stage`; needed if the driver can stage
    #[arg(long, value_name = "DIR", conflicts_with = "ephemeral")]
    staging: Option<String>,
    /// Show it read-only
    #[arg(long)]
    readonly: bool,
    /// Make an inline volume that exists only until `unpublish`
    #[arg(long)]
    ephemeral: bool,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    capability: CapabilityArgs,
}

impl Publish {
    pub(in crate::csi) fn request(self, secrets: &Secrets) -> Result<NodePublishVolumeRequest, DuplicateKey> {
        let Self { id, target, staging, readonly, ephemeral, context, capability } = self;
        let mut volume_context = map_of("--volume-context", context.volume_context)?;
        if ephemeral {
            volume_context.insert(keys::EPHEMERAL.to_owned(), "true".to_owned());
        }
        Ok(NodePublishVolumeRequest {
            volume_id: id,
            publish_context: map_of("--publish-context", context.publish_context)?,
            staging_target_path: staging.unwrap_or_default(),
            target_path: target,
            volume_capability: Some(capability.required()),
            readonly,
            secrets: secrets.for_request(),
            volume_context,
        })
    }
}

/// Undo `publish` and remove the path (NodeUnpublishVolume).
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct Unpublish {
    /// Id of the volume
    pub(in crate::csi) id: String,
    /// Path given to `publish`
    #[arg(long, value_name = "PATH")]
    pub(in crate::csi) target: String,
}

impl Unpublish {
    pub(in crate::csi) fn request(self) -> NodeUnpublishVolumeRequest {
        NodeUnpublishVolumeRequest { volume_id: self.id, target_path: self.target }
    }
}

/// Show how full a volume is and how it is (NodeGetVolumeStats).
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct Stats {
    /// Id of the volume
    id: String,
    /// Path at which the volume is published or staged
    #[arg(long, value_name = "PATH")]
    path: String,
    /// Staging directory given to `stage`
    #[arg(long, value_name = "DIR")]
    staging: Option<String>,
}

impl Stats {
    pub(in crate::csi) fn request(self) -> NodeGetVolumeStatsRequest {
        let Self { id, path, staging } = self;
        NodeGetVolumeStatsRequest { volume_id: id, volume_path: path, staging_target_path: staging.unwrap_or_default() }
    }
}

/// Grow the filesystem of an expanded volume (NodeExpandVolume).
#[derive(Debug, clap::Args)]
pub(in crate::csi) struct NodeExpand {
    /// Id of the volume
    id: String,
    /// Path at which the volume is published or staged
    #[arg(long, value_name = "PATH")]
    path: String,
    /// Smallest new size that will do; without it the filesystem fills its device
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Largest new size that will do
    #[arg(long, value_name = "SIZE")]
    limit: Option<Size>,
    /// Staging directory given to `stage`
    #[arg(long, value_name = "DIR")]
    staging: Option<String>,
    #[command(flatten)]
    capability: CapabilityArgs,
}

impl NodeExpand {
    pub(in crate::csi) fn request(self, secrets: &Secrets) -> NodeExpandVolumeRequest {
        let Self { id, path, size, limit, staging, capability } = self;
        NodeExpandVolumeRequest {
            volume_id: id,
            volume_path: path,
            capacity_range: range(size, limit),
            staging_target_path: staging.unwrap_or_default(),
            volume_capability: capability.optional(),
            secrets: secrets.for_request(),
        }
    }
}
