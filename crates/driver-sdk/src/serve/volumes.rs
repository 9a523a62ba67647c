//! Volumes on the controller side: create, delete, validate, expand, modify, list, get, capacity.

use std::sync::Arc;

use csi::v1::validate_volume_capabilities_response::Confirmed;
use csi::v1::volume_content_source::{self, SnapshotSource as WireSnapshot, VolumeSource as WireVolume};
use csi::v1::*;

use super::page::{cut, fit, page_size, parse_token};
use super::{ControllerService, Result, filled};
use crate::error::{Error, Reason};
use crate::pipeline::{Hold, Key, Plan, Redactor, Wanted};
use crate::slots::{self, CloneSource, ControllerHealth, Provisioner, SnapshotSource};
use crate::types::{
    CapacityQuery, CapacityRange, Condition, CreateVolume, ExpandVolume, ModifyVolume, Page, Parameters, SnapshotId,
    Source, StringMap, Support, ValidateVolume, VolumeId,
};
use crate::{types, validate};

/// Where a new volume's data comes from, with the object that can make it.
enum Origin {
    Nothing(Arc<dyn Provisioner>),
    Snapshot(Arc<dyn SnapshotSource>, SnapshotId),
    Volume(Arc<dyn CloneSource>, VolumeId),
}

impl Origin {
    fn source(&self) -> Option<Source> {
        match self {
            Self::Nothing(_) => None,
            Self::Snapshot(_, id) => Some(Source::Snapshot(id.clone())),
            Self::Volume(_, id) => Some(Source::Volume(id.clone())),
        }
    }

    async fn create(self, request: CreateVolume) -> Result<types::Volume> {
        match self {
            Self::Nothing(slot) => slot.create(request).await,
            Self::Snapshot(slot, id) => slot.create_from_snapshot(request, id).await,
            Self::Volume(slot, id) => slot.create_from_volume(request, id).await,
        }
    }
}

impl ControllerService {
    pub(super) fn plan_create_volume(&self, wire: CreateVolumeRequest) -> Result<Plan<CreateVolumeResponse>> {
        let provisioner = filled(&self.table.provisioner, "CreateVolume")?;
        let name = validate::name("name", wire.name)?;
        let capabilities = self.shared.rules.at_least_one(wire.volume_capabilities)?;
        let capacity = wire.capacity_range.map(validate::range).transpose()?.unwrap_or_default();
        let secrets = validate::secrets(wire.secrets)?;
        let parameters = self.parameters(wire.parameters, wire.mutable_parameters)?;
        if let Some(modifier) = self.table.modification.as_ref().filter(|_| !parameters.mutable.is_empty()) {
            modifier.check(&parameters.mutable)?;
        }
        let topology = validate::requirement("accessibility_requirements", wire.accessibility_requirements)?;
        // A driver without topology says that every place reaches its volumes, so any requirement is met.
        let topology = topology.filter(|_| self.shared.definition.topology.is_some());
        let origin = self.origin(&provisioner, wire.volume_content_source)?;

        let key = match provisioner.volume_id(&name) {
            Some(id) => Key::Volume(id.into_string()),
            None => Key::VolumeName(name.clone()),
        };
        let locks = match origin.source() {
            None => Wanted::exclusive(key),
            Some(Source::Snapshot(id)) => Wanted::exclusive(key).and(Key::Snapshot(id.into_string()), Hold::Shared),
            Some(Source::Volume(id)) => Wanted::exclusive(key).and(Key::Volume(id.into_string()), Hold::Shared),
        };
        let request = CreateVolume { name, capacity, capabilities, parameters, secrets, topology };
        let places = self.shared.definition.topology.clone();
        Ok(Plan::change(request.name.clone(), locks, async move {
            let source = origin.source();
            let mut volume = origin.create(request).await?;
            check_created(&volume, capacity, source.as_ref())?;
            volume.source = source;
            // The volume is there now: failing to say where must not look as if it were not.
            let volume = wire_volume(volume, places.as_deref()).await.map_err(Error::leaving_residue)?;
            Ok(CreateVolumeResponse { volume: Some(volume) })
        }))
    }

    fn origin(&self, provisioner: &Arc<dyn Provisioner>, wire: Option<VolumeContentSource>) -> Result<Origin> {
        const FIELD: &str = "volume_content_source";
        let Some(wire) = wire else { return Ok(Origin::Nothing(provisioner.clone())) };
        match wire.r#type {
            None => Err(Error::invalid(FIELD, "says neither snapshot nor volume")),
            Some(volume_content_source::Type::Snapshot(source)) => {
                let id = validate::required("volume_content_source.snapshot_id", source.snapshot_id)?;
                let slot = self.table.snapshots.clone();
                let slot = slot.ok_or_else(|| Error::invalid(FIELD, "this driver has no snapshots"))?;
                Ok(Origin::Snapshot(slot, SnapshotId::new(id)))
            }
            Some(volume_content_source::Type::Volume(source)) => {
                let id = validate::required("volume_content_source.volume_id", source.volume_id)?;
                let slot = self.table.clones.clone();
                let slot = slot.ok_or_else(|| Error::invalid(FIELD, "this driver does not clone volumes"))?;
                Ok(Origin::Volume(slot, VolumeId::new(id)))
            }
        }
    }

    /// Class parameters; the mutable ones only for drivers that can change volumes in place.
    fn parameters(&self, fixed: StringMap, mutable: StringMap) -> Result<Parameters> {
        let parameters =
            Parameters { fixed: validate::map("parameters", fixed)?, mutable: mutable_parameters(mutable)? };
        if !parameters.mutable.is_empty() && self.table.modification.is_none() {
            return Err(Error::invalid("mutable_parameters", "this driver does not change volumes in place"));
        }
        Ok(parameters)
    }

    pub(super) fn plan_delete_volume(&self, wire: DeleteVolumeRequest) -> Result<Plan<DeleteVolumeResponse>> {
        let provisioner = filled(&self.table.provisioner, "DeleteVolume")?;
        let id = validate::required("volume_id", wire.volume_id)?;
        let secrets = validate::secrets(wire.secrets)?;
        let locks = Wanted::exclusive(Key::Volume(id.clone()));
        Ok(Plan::change(id.clone(), locks, async move {
            provisioner.delete(VolumeId::new(id), secrets).await?;
            Ok(DeleteVolumeResponse {})
        }))
    }

    /// Confirms all or nothing (WIRE-B.8.ValidateVolumeCapabilities). A driver that makes no volumes knows none, so it
    /// can confirm none.
    pub(super) fn plan_validate(
        &self,
        wire: ValidateVolumeCapabilitiesRequest,
    ) -> Result<Plan<ValidateVolumeCapabilitiesResponse>> {
        let redactor = Redactor::of(&wire);
        let volume = VolumeId::new(validate::required("volume_id", wire.volume_id)?);
        let capabilities = self.shared.rules.at_least_one(wire.volume_capabilities)?;
        let context = validate::map("volume_context", wire.volume_context)?;
        let parameters = self.parameters(wire.parameters, wire.mutable_parameters)?;
        let secrets = validate::secrets(wire.secrets)?;
        let (provisioner, modifier) = (self.table.provisioner.clone(), self.table.modification.clone());
        let object = volume.to_string();
        let request = ValidateVolume { volume, context, capabilities, parameters, secrets };
        Ok(Plan::read(object, async move {
            let Some(provisioner) = provisioner else {
                return Ok(unconfirmed("this driver makes no volumes and cannot check them".to_owned()));
            };
            let ValidateVolume { context, capabilities, parameters, .. } = request.clone();
            if let Support::No(why) = provisioner.validate(request).await? {
                return Ok(unconfirmed(redactor.clean(why)));
            }
            if let Some(modifier) = modifier.filter(|_| !parameters.mutable.is_empty())
                && let Err(error) = modifier.check(&parameters.mutable)
            {
                return Ok(unconfirmed(redactor.clean(error.chain())));
            }
            let confirmed = Confirmed {
                volume_context: context,
                volume_capabilities: capabilities.into_iter().map(Into::into).collect(),
                parameters: parameters.fixed,
                mutable_parameters: parameters.mutable,
            };
            Ok(ValidateVolumeCapabilitiesResponse { confirmed: Some(confirmed), message: String::new() })
        }))
    }

    pub(super) fn plan_expand(
        &self,
        wire: ControllerExpandVolumeRequest,
    ) -> Result<Plan<ControllerExpandVolumeResponse>> {
        let expander = filled(&self.table.expansion, "ControllerExpandVolume")?;
        let id = validate::required("volume_id", wire.volume_id)?;
        let capacity = validate::required_range(wire.capacity_range)?;
        let capability = self.shared.rules.optional(wire.volume_capability)?;
        let secrets = validate::secrets(wire.secrets)?;
        let locks = Wanted::exclusive(Key::Volume(id.clone()));
        let request = ExpandVolume { volume: VolumeId::new(id.clone()), capacity, capability, secrets };
        Ok(Plan::change(id, locks, async move {
            let expanded = expander.expand_volume(request).await?;
            Ok(ControllerExpandVolumeResponse {
                capacity_bytes: validate::bytes("the expanded volume", expanded.capacity)?,
                node_expansion_required: expanded.node_must_expand,
            })
        }))
    }

    pub(super) fn plan_modify(
        &self,
        wire: ControllerModifyVolumeRequest,
    ) -> Result<Plan<ControllerModifyVolumeResponse>> {
        let modifier = filled(&self.table.modification, "ControllerModifyVolume")?;
        let id = validate::required("volume_id", wire.volume_id)?;
        let changes = mutable_parameters(wire.mutable_parameters)?;
        if changes.is_empty() {
            return Err(validate::missing("mutable_parameters"));
        }
        let secrets = validate::secrets(wire.secrets)?;
        modifier.check(&changes)?;
        let locks = Wanted::exclusive(Key::Volume(id.clone()));
        let request = ModifyVolume { volume: VolumeId::new(id.clone()), changes, secrets };
        Ok(Plan::change(id, locks, async move {
            modifier.modify(request).await?;
            Ok(ControllerModifyVolumeResponse {})
        }))
    }

    pub(super) fn plan_capacity(&self, wire: GetCapacityRequest) -> Result<Plan<GetCapacityResponse>> {
        let reporter = filled(&self.table.capacity, "GetCapacity")?;
        let capabilities = self.shared.rules.any(wire.volume_capabilities)?;
        let parameters = validate::map("parameters", wire.parameters)?;
        let place = wire.accessible_topology.map(|t| validate::segments("accessible_topology", t.segments));
        let topology = place.transpose()?.filter(|_| self.shared.definition.topology.is_some());
        let query = CapacityQuery { capabilities, parameters, topology };
        Ok(Plan::read("", async move {
            let capacity = reporter.capacity(query).await?;
            let size = |size: Option<u64>| size.map(|size| validate::bytes("a volume size", size)).transpose();
            Ok(GetCapacityResponse {
                available_capacity: validate::bytes("the available capacity", capacity.available)?,
                maximum_volume_size: size(capacity.largest_volume)?,
                minimum_volume_size: size(capacity.smallest_volume)?,
            })
        }))
    }

    pub(super) fn plan_list_volumes(&self, wire: ListVolumesRequest) -> Result<Plan<ListVolumesResponse>> {
        let lister = filled(&self.table.list_volumes, "ListVolumes")?;
        let size = page_size(validate::max_entries("max_entries", wire.max_entries)?);
        let after = parse_token(&wire.starting_token)?;
        let details = Details::of(self);
        Ok(Plan::read("", async move {
            let page = Page { after: after.clone().map(VolumeId::new), limit: size + 1 };
            let found = lister.list_volumes(page).await?;
            let page = cut(found, size, after.as_deref(), |volume| volume.id.as_str())?;
            let mut entries = Vec::with_capacity(page.entries.len());
            for volume in page.entries {
                let id = volume.id.clone();
                match details.entry(volume).await {
                    Ok(entry) => entries.push((id.into_string(), entry)),
                    // Deleted since the driver listed it: it is no longer part of the list.
                    Err(error) if matches!(error.reason(), Reason::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            let (entries, next_token) = fit(entries, page.next_token);
            Ok(ListVolumesResponse { entries, next_token })
        }))
    }

    pub(super) fn plan_get_volume(
        &self,
        wire: ControllerGetVolumeRequest,
    ) -> Result<Plan<ControllerGetVolumeResponse>> {
        let getter = filled(&self.table.get_volume, "ControllerGetVolume")?;
        let id = validate::required("volume_id", wire.volume_id)?;
        let details = Details::of(self);
        Ok(Plan::read(id.clone(), async move {
            let volume = getter.get_volume(VolumeId::new(id)).await?;
            let entry = details.entry(volume).await?;
            let status = entry.status.unwrap_or_default();
            Ok(ControllerGetVolumeResponse {
                volume: entry.volume,
                status: Some(controller_get_volume_response::VolumeStatus {
                    published_node_ids: status.published_node_ids,
                    volume_condition: status.volume_condition,
                }),
            })
        }))
    }
}

fn mutable_parameters(map: StringMap) -> Result<StringMap> {
    validate::map("mutable_parameters", map)
}

fn unconfirmed(message: String) -> ValidateVolumeCapabilitiesResponse {
    ValidateVolumeCapabilitiesResponse { confirmed: None, message }
}

/// Is what the driver made, or found under that name, what was asked for?
fn check_created(volume: &types::Volume, wanted: CapacityRange, source: Option<&Source>) -> Result<()> {
    if let Some(actual) = &volume.source
        && Some(actual) != source
    {
        return Err(Error::exists("a volume of that name exists and was made from another source"));
    }
    // Zero means that the size is unknown.
    let fits = volume.capacity >= wanted.required && wanted.limit.is_none_or(|limit| volume.capacity <= limit);
    match volume.capacity == 0 || fits {
        true => Ok(()),
        false => Err(Error::exists(format!(
            "a volume of that name exists with {} bytes, which is not in the range asked for",
            volume.capacity
        ))),
    }
}

/// Everything about a volume that comes from other slots than the one that found it.
struct Details {
    places: Option<Arc<dyn slots::Topology>>,
    attachments: Option<Arc<dyn slots::AttachmentLister>>,
    health: Option<Arc<dyn ControllerHealth>>,
}

impl Details {
    fn of(service: &ControllerService) -> Self {
        Self {
            places: service.shared.definition.topology.clone(),
            attachments: service.table.list_attachments.clone(),
            health: service.table.health.clone(),
        }
    }

    async fn entry(&self, volume: types::Volume) -> Result<list_volumes_response::Entry> {
        let mut status = list_volumes_response::VolumeStatus::default();
        if let Some(slot) = &self.attachments {
            let nodes = slot.attached_nodes(&volume.id).await?;
            status.published_node_ids = nodes.into_iter().map(|node| node.into_string()).collect();
        }
        if let Some(slot) = &self.health {
            status.volume_condition = Some(wire_condition(slot.volume_condition(&volume.id).await?));
        }
        let known = self.attachments.is_some() || self.health.is_some();
        let volume = wire_volume(volume, self.places.as_deref()).await?;
        Ok(list_volumes_response::Entry { volume: Some(volume), status: known.then_some(status) })
    }
}

pub(super) fn wire_condition(condition: Condition) -> VolumeCondition {
    match condition {
        Condition::Normal(message) => VolumeCondition { abnormal: false, message },
        Condition::Abnormal(message) => VolumeCondition { abnormal: true, message },
    }
}

async fn wire_volume(volume: types::Volume, places: Option<&dyn slots::Topology>) -> Result<Volume> {
    validate::checked_id("a volume id", volume.id.as_str())?;
    validate::checked_map("a volume context", &volume.context)?;
    let mut accessible_topology = Vec::new();
    if let Some(places) = places {
        for segments in places.volume_segments(&volume.id).await? {
            validate::checked_segments(&segments)?;
            accessible_topology.push(Topology { segments });
        }
    }
    Ok(Volume {
        capacity_bytes: validate::bytes("a volume", volume.capacity)?,
        volume_id: volume.id.into_string(),
        volume_context: volume.context,
        content_source: volume.source.map(wire_source),
        accessible_topology,
    })
}

fn wire_source(source: Source) -> VolumeContentSource {
    let kind = match source {
        Source::Snapshot(id) => volume_content_source::Type::Snapshot(WireSnapshot { snapshot_id: id.into_string() }),
        Source::Volume(id) => volume_content_source::Type::Volume(WireVolume { volume_id: id.into_string() }),
    };
    VolumeContentSource { r#type: Some(kind) }
}
