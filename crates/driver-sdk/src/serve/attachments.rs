//! Attaching volumes to nodes, on the controller side.

use csi::v1::*;

use super::{ControllerService, Result, filled};
use crate::error::Error;
use crate::pipeline::{Key, Plan, Wanted};
use crate::types::{AttachVolume, DetachFrom, NodeId, VolumeId};
use crate::validate;

impl ControllerService {
    pub(super) fn plan_attach(
        &self,
        wire: ControllerPublishVolumeRequest,
    ) -> Result<Plan<ControllerPublishVolumeResponse>> {
        let attacher = filled(&self.table.attachment, "ControllerPublishVolume")?;
        let id = validate::required("volume_id", wire.volume_id)?;
        let node = NodeId::new(validate::node_id("node_id", wire.node_id)?);
        let capability = self.shared.rules.required(wire.volume_capability)?;
        let context = validate::map("volume_context", wire.volume_context)?;
        let secrets = validate::secrets(wire.secrets)?;
        let readonly = match (wire.readonly, &self.table.readonly_attachment) {
            (false, _) => None,
            (true, Some(slot)) => Some(slot.clone()),
            (true, None) => return Err(Error::invalid("readonly", "this driver does not attach read-only")),
        };
        let locks = Wanted::exclusive(Key::Volume(id.clone()));
        let request = AttachVolume { volume: VolumeId::new(id.clone()), node, capability, context, secrets };
        Ok(Plan::change(id, locks, async move {
            let publish_context = match readonly {
                Some(slot) => slot.attach_readonly(request).await?,
                None => attacher.attach(request).await?,
            };
            validate::checked_map("a publish context", &publish_context)?;
            Ok(ControllerPublishVolumeResponse { publish_context })
        }))
    }

    pub(super) fn plan_detach(
        &self,
        wire: ControllerUnpublishVolumeRequest,
    ) -> Result<Plan<ControllerUnpublishVolumeResponse>> {
        let attacher = filled(&self.table.attachment, "ControllerUnpublishVolume")?;
        let id = validate::required("volume_id", wire.volume_id)?;
        let from = match wire.node_id.is_empty() {
            true => DetachFrom::AllNodes,
            false => DetachFrom::Node(NodeId::new(validate::node_id("node_id", wire.node_id)?)),
        };
        let secrets = validate::secrets(wire.secrets)?;
        let locks = Wanted::exclusive(Key::Volume(id.clone()));
        Ok(Plan::change(id.clone(), locks, async move {
            attacher.detach(VolumeId::new(id), from, secrets).await?;
            Ok(ControllerUnpublishVolumeResponse {})
        }))
    }
}
