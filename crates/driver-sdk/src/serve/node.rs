//! The Node service.

use std::path::PathBuf;
use std::sync::Arc;

use csi::v1::node_server::Node;
use csi::v1::*;
use tonic::{Request, Response, Status};

use super::volumes::wire_condition;
use super::{NodeService, Result, filled};
use crate::error::Error;
use crate::pipeline::{Key, Plan, Wanted, method};
use crate::slots::{EphemeralInline, NodePublisher, WriterTracking};
use crate::types::{
    Inline, NodeExpand, PublishEphemeral, PublishVolume, StageVolume, StatsQuery, Unit, Usage, VolumeId,
};
use crate::writers::{self, fingerprint};
use crate::{capabilities, keys, validate};

type Answer<T> = std::result::Result<Response<T>, Status>;

#[tonic::async_trait]
impl Node for NodeService {
    async fn node_stage_volume(&self, request: Request<NodeStageVolumeRequest>) -> Answer<NodeStageVolumeResponse> {
        self.shared.pipeline.handle(method::NODE_STAGE_VOLUME, request, |wire| self.plan_stage(wire)).await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Answer<NodeUnstageVolumeResponse> {
        self.shared.pipeline.handle(method::NODE_UNSTAGE_VOLUME, request, |wire| self.plan_unstage(wire)).await
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Answer<NodePublishVolumeResponse> {
        self.shared.pipeline.handle(method::NODE_PUBLISH_VOLUME, request, |wire| self.plan_publish(wire)).await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Answer<NodeUnpublishVolumeResponse> {
        self.shared.pipeline.handle(method::NODE_UNPUBLISH_VOLUME, request, |wire| self.plan_unpublish(wire)).await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Answer<NodeGetVolumeStatsResponse> {
        self.shared.pipeline.handle(method::NODE_GET_VOLUME_STATS, request, |wire| self.plan_stats(wire)).await
    }

    async fn node_expand_volume(&self, request: Request<NodeExpandVolumeRequest>) -> Answer<NodeExpandVolumeResponse> {
        self.shared.pipeline.handle(method::NODE_EXPAND_VOLUME, request, |wire| self.plan_expand(wire)).await
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Answer<NodeGetCapabilitiesResponse> {
        self.shared.pipeline.inline(method::NODE_GET_CAPABILITIES, || {
            Ok(NodeGetCapabilitiesResponse { capabilities: capabilities::node(&self.shared.definition) })
        })
    }

    async fn node_get_info(&self, _: Request<NodeGetInfoRequest>) -> Answer<NodeGetInfoResponse> {
        self.shared.pipeline.inline(method::NODE_GET_INFO, || self.info())
    }
}

impl NodeService {
    fn info(&self) -> Result<NodeGetInfoResponse> {
        let info = filled(&self.table.publisher, "NodeGetInfo")?.info();
        let max_volumes_per_node = i64::try_from(info.max_volumes.unwrap_or(0)).unwrap_or(i64::MAX);
        let node_id = info.id.into_string();
        if node_id.is_empty() || node_id.len() > 256 {
            return Err(validate::bug(format!("the node id has {} bytes, not 1 to 256", node_id.len())));
        }
        let segments = self.shared.definition.topology.as_ref().map(|topology| topology.node_segments());
        segments.as_ref().map(validate::checked_segments).transpose()?;
        let accessible_topology = segments.map(|segments| Topology { segments });
        Ok(NodeGetInfoResponse { node_id, max_volumes_per_node, accessible_topology })
    }

    fn plan_stage(&self, wire: NodeStageVolumeRequest) -> Result<Plan<NodeStageVolumeResponse>> {
        let stager = filled(&self.table.staging, "NodeStageVolume")?;
        let id = validate::required("volume_id", wire.volume_id)?;
        let request = StageVolume {
            volume: VolumeId::new(id.clone()),
            staging: validate::absolute_path("staging_target_path", wire.staging_target_path)?,
            capability: self.shared.rules.required(wire.volume_capability)?,
            publish_context: validate::map("publish_context", wire.publish_context)?,
            volume_context: validate::map("volume_context", wire.volume_context)?,
            secrets: validate::secrets(wire.secrets)?,
        };
        let locks = Wanted::exclusive(Key::Volume(id.clone()));
        Ok(Plan::change(id, locks, async move {
            stager.stage(request).await?;
            Ok(NodeStageVolumeResponse {})
        }))
    }

    fn plan_unstage(&self, wire: NodeUnstageVolumeRequest) -> Result<Plan<NodeUnstageVolumeResponse>> {
        let stager = filled(&self.table.staging, "NodeUnstageVolume")?;
        let id = validate::required("volume_id", wire.volume_id)?;
        let staging = validate::absolute_path("staging_target_path", wire.staging_target_path)?;
        let locks = Wanted::exclusive(Key::Volume(id.clone()));
        Ok(Plan::change(id.clone(), locks, async move {
            stager.unstage(VolumeId::new(id), &staging).await?;
            Ok(NodeUnstageVolumeResponse {})
        }))
    }

    fn plan_publish(&self, wire: NodePublishVolumeRequest) -> Result<Plan<NodePublishVolumeResponse>> {
        let publisher = filled(&self.table.publisher, "NodePublishVolume")?;
        let fingerprint = fingerprint(&wire);
        let id = validate::required("volume_id", wire.volume_id)?;
        let request = PublishVolume {
            volume: VolumeId::new(id.clone()),
            target: validate::absolute_path("target_path", wire.target_path)?,
            staging: validate::optional_absolute_path("staging_target_path", wire.staging_target_path)?,
            capability: self.shared.rules.required(wire.volume_capability)?,
            readonly: wire.readonly,
            publish_context: validate::map("publish_context", wire.publish_context)?,
            volume_context: validate::map("volume_context", wire.volume_context)?,
            secrets: validate::secrets(wire.secrets)?,
            fingerprint,
        };
        let locks = Wanted::exclusive(Key::Volume(id.clone()));
        if request.volume_context.get(keys::EPHEMERAL).is_some_and(|value| value == "true") {
            let Some(inline) = self.table.ephemeral_inline.clone() else {
                return Err(Error::invalid("volume_context", "this driver has no inline volumes"));
            };
            return Ok(Plan::change(id, locks, publish_inline(inline, request)));
        }
        if self.table.staging.is_some() && request.staging.is_none() {
            return Err(Error::precondition("staging_target_path is missing: stage the volume first"));
        }
        let tracking = self.table.writer_tracking.clone();
        Ok(Plan::change(id, locks, publish(publisher, tracking, request)))
    }

    fn plan_unpublish(&self, wire: NodeUnpublishVolumeRequest) -> Result<Plan<NodeUnpublishVolumeResponse>> {
        let publisher = filled(&self.table.publisher, "NodeUnpublishVolume")?;
        let id = validate::required("volume_id", wire.volume_id)?;
        let target: PathBuf = validate::absolute_path("target_path", wire.target_path)?;
        let inline = self.table.ephemeral_inline.clone();
        let locks = Wanted::exclusive(Key::Volume(id.clone()));
        Ok(Plan::change(id.clone(), locks, async move {
            let volume = VolumeId::new(id);
            // Nothing in this request tells an inline volume from another, so the driver is asked.
            if let Some(inline) = inline
                && inline.unpublish_ephemeral(volume.clone(), &target).await? == Inline::Gone
            {
                return Ok(NodeUnpublishVolumeResponse {});
            }
            publisher.unpublish(volume, &target).await?;
            Ok(NodeUnpublishVolumeResponse {})
        }))
    }

    fn plan_stats(&self, wire: NodeGetVolumeStatsRequest) -> Result<Plan<NodeGetVolumeStatsResponse>> {
        let stats = filled(&self.table.stats, "NodeGetVolumeStats")?;
        let id = validate::required("volume_id", wire.volume_id)?;
        let query = StatsQuery {
            volume: VolumeId::new(id.clone()),
            path: validate::any_path("volume_path", wire.volume_path)?,
            staging: validate::optional_path("staging_target_path", wire.staging_target_path)?,
        };
        let health = self.table.health.clone();
        let plan = Plan::read(id, async move {
            let usage = stats.stats(query.clone()).await?;
            let usage = usage.into_iter().map(wire_usage).collect::<Result<Vec<_>>>()?;
            let volume_condition = match health {
                None => None,
                Some(health) => Some(wire_condition(health.node_condition(&query.volume, &query.path).await?)),
            };
            if usage.is_empty() && volume_condition.is_none() {
                return Err(validate::bug("stats without any usage"));
            }
            Ok(NodeGetVolumeStatsResponse { usage, volume_condition })
        });
        // Kubelet asks every minute. On a filesystem that hangs, one call hangs and not one more each minute.
        Ok(plan.joining())
    }

    fn plan_expand(&self, wire: NodeExpandVolumeRequest) -> Result<Plan<NodeExpandVolumeResponse>> {
        let expander = filled(&self.table.expansion, "NodeExpandVolume")?;
        let id = validate::required("volume_id", wire.volume_id)?;
        let request = NodeExpand {
            volume: VolumeId::new(id.clone()),
            path: validate::any_path("volume_path", wire.volume_path)?,
            staging: validate::optional_path("staging_target_path", wire.staging_target_path)?,
            capacity: wire.capacity_range.map(validate::range).transpose()?,
            capability: self.shared.rules.optional(wire.volume_capability)?,
            secrets: validate::secrets(wire.secrets)?,
        };
        let locks = Wanted::exclusive(Key::Volume(id.clone()));
        Ok(Plan::change(id, locks, async move {
            let size = expander.node_expand(request).await?.unwrap_or(0);
            Ok(NodeExpandVolumeResponse { capacity_bytes: validate::bytes("the expanded volume", size)? })
        }))
    }
}

async fn publish(
    publisher: Arc<dyn NodePublisher>,
    tracking: Option<Arc<dyn WriterTracking>>,
    request: PublishVolume,
) -> Result<NodePublishVolumeResponse> {
    if let Some(tracking) = tracking {
        let existing = tracking.published(&request.volume).await?;
        let PublishVolume { target, capability, fingerprint, .. } = &request;
        let wanted = writers::Wanted { target, mode: capability.mode, fingerprint };
        writers::decide(&existing, &wanted).into_result()?;
    }
    publisher.publish(request).await?;
    Ok(NodePublishVolumeResponse {})
}

async fn publish_inline(inline: Arc<dyn EphemeralInline>, request: PublishVolume) -> Result<NodePublishVolumeResponse> {
    let PublishVolume { volume, target, capability, readonly, volume_context, secrets, .. } = request;
    let request = PublishEphemeral { volume, target, capability, readonly, attributes: volume_context, secrets };
    inline.publish_ephemeral(request).await?;
    Ok(NodePublishVolumeResponse {})
}

fn wire_usage(usage: Usage) -> Result<VolumeUsage> {
    let Usage { unit, total, used, available } = usage;
    let unit = match unit {
        Unit::Bytes => volume_usage::Unit::Bytes,
        Unit::Inodes => volume_usage::Unit::Inodes,
    };
    Ok(VolumeUsage {
        available: validate::bytes("available", available)?,
        total: validate::bytes("total", total)?,
        used: validate::bytes("used", used)?,
        unit: unit.into(),
    })
}
