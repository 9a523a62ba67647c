//! Between our words and the driver's.

use std::collections::BTreeMap;

use csi::v1;
use csi::v1::controller_service_capability::rpc::Type as Rpc;
use csi::v1::plugin_capability::service::Type as Service;
use csi::v1::volume_capability::access_mode::Mode;
use csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use csi::v1::volume_content_source::{SnapshotSource, Type as ContentType, VolumeSource};
use lifecycle::outcome::{Call, Code, Outcome, Retry, outcome, repeated, without_places};
use lifecycle::provision::csi::access::Access;
use lifecycle::provision::csi::answer::Answer;
use lifecycle::provision::csi::plan::Shape;
use lifecycle::provision::csi::source::Content;
use lifecycle::provision::csi::topology::{Requirement, Term};
use lifecycle::provision::csi::{Abilities, Ability, Plan};
use runtime::csi::{CallError, Capabilities};

use crate::provision::{Attempt, Failed};

/// The values of a secret. They have no `Debug`.
pub(crate) type Values = BTreeMap<String, String>;

pub(crate) fn abilities(says: &Capabilities) -> Abilities {
    let services = [
        (Service::ControllerService, Ability::ControllerService),
        (Service::VolumeAccessibilityConstraints, Ability::Topology),
    ];
    let calls = [
        (Rpc::CreateDeleteVolume, Ability::CreateDelete),
        (Rpc::CreateDeleteSnapshot, Ability::Snapshots),
        (Rpc::CloneVolume, Ability::Clones),
        (Rpc::ModifyVolume, Ability::Modify),
        (Rpc::SingleNodeMultiWriter, Ability::SingleNodeMultiWriter),
        (Rpc::PublishUnpublishVolume, Ability::Publish),
        (Rpc::PublishReadonly, Ability::PublishReadOnly),
        (Rpc::ListVolumes, Ability::ListVolumes),
        (Rpc::ListVolumesPublishedNodes, Ability::ListPublishedNodes),
        (Rpc::GetCapacity, Ability::Capacity),
        (Rpc::GetVolume, Ability::GetVolume),
        (Rpc::VolumeCondition, Ability::VolumeCondition),
    ];
    let services = services.into_iter().filter(|(service, _)| says.serves(*service)).map(|(_, ability)| ability);
    let calls = calls.into_iter().filter(|(rpc, _)| says.controls(*rpc)).map(|(_, ability)| ability);
    services.chain(calls).collect()
}

/// What is known after a deletion that failed, with a sentence that says so.
pub(super) fn not_deleted(error: &CallError) -> Failed {
    let message = error.to_string();
    match error.code().map(|code| outcome(Call::DeleteVolume, Code::from_number(code as i32))) {
        Some(Outcome::Refused(retry)) => Failed::Refused { message, retry },
        Some(Outcome::Done | Outcome::Unknown) | None => Failed::Unknown { message },
    }
}

/// What is known after a creation that failed.
pub(super) fn not_created(attempt: Attempt, error: &CallError, has: &Abilities) -> Failed {
    let message = error.to_string();
    let Some(code) = error.code() else { return not_sent(attempt, message) };
    let code = Code::from_number(code as i32);
    let known = match attempt {
        Attempt::First => outcome(Call::CreateVolume, code),
        Attempt::Repeat => repeated(Call::CreateVolume, code),
    };
    let known = if has.contains(&Ability::Topology) { known } else { without_places(known) };
    match known {
        Outcome::Refused(retry) => Failed::Refused { message, retry },
        Outcome::Done | Outcome::Unknown => Failed::Unknown { message },
    }
}

/// What is known when nothing was sent this time.
pub(super) fn not_sent(attempt: Attempt, message: String) -> Failed {
    match attempt {
        Attempt::First => Failed::Refused { message, retry: Retry::Later },
        Attempt::Repeat => Failed::Unknown { message },
    }
}

pub(super) fn create_request(plan: &Plan, secrets: Values) -> v1::CreateVolumeRequest {
    v1::CreateVolumeRequest {
        name: plan.volume.clone(),
        capacity_range: Some(v1::CapacityRange { required_bytes: plan.bytes, limit_bytes: 0 }),
        volume_capabilities: capabilities(plan),
        parameters: plan.parameters.clone(),
        secrets,
        volume_content_source: plan.content.as_ref().map(content_source),
        accessibility_requirements: plan.topology.as_ref().map(requirement),
        mutable_parameters: plan.mutable.clone(),
    }
}

/// One capability per access mode.
pub(super) fn capabilities(plan: &Plan) -> Vec<v1::VolumeCapability> {
    plan.access.iter().map(|access| capability(&plan.shape, &plan.mount_options, *access)).collect()
}

/// One way to use a volume.
pub(crate) fn capability(shape: &Shape, mount_options: &[String], access: Access) -> v1::VolumeCapability {
    let access_type = match shape {
        Shape::Block => AccessType::Block(BlockVolume {}),
        Shape::Mount { fstype } => AccessType::Mount(MountVolume {
            fs_type: fstype.clone().unwrap_or_default(),
            mount_flags: mount_options.to_vec(),
            ..Default::default()
        }),
    };
    v1::VolumeCapability { access_mode: Some(AccessMode { mode: mode(access).into() }), access_type: Some(access_type) }
}

fn mode(access: Access) -> Mode {
    match access {
        Access::SingleNodeWriter => Mode::SingleNodeWriter,
        Access::SingleNodeSingleWriter => Mode::SingleNodeSingleWriter,
        Access::SingleNodeMultiWriter => Mode::SingleNodeMultiWriter,
        Access::MultiNodeReaderOnly => Mode::MultiNodeReaderOnly,
        Access::MultiNodeMultiWriter => Mode::MultiNodeMultiWriter,
    }
}

fn content_source(content: &Content) -> v1::VolumeContentSource {
    let r#type = match content {
        Content::Volume(id) => ContentType::Volume(VolumeSource { volume_id: id.clone() }),
        Content::Snapshot(id) => ContentType::Snapshot(SnapshotSource { snapshot_id: id.clone() }),
    };
    v1::VolumeContentSource { r#type: Some(r#type) }
}

fn requirement(requirement: &Requirement) -> v1::TopologyRequirement {
    v1::TopologyRequirement {
        requisite: requirement.requisite.iter().map(topology).collect(),
        preferred: requirement.preferred.iter().map(topology).collect(),
    }
}

pub(crate) fn topology(term: &Term) -> v1::Topology {
    v1::Topology { segments: term.0.clone() }
}

/// What the driver said; an answer without a volume is one whose volume has no id.
pub(super) fn answer(response: v1::CreateVolumeResponse) -> Answer {
    let Some(volume) = response.volume else {
        return Answer::default();
    };
    let content = volume.content_source.and_then(|source| source.r#type).map(|source| match source {
        ContentType::Volume(VolumeSource { volume_id }) => Content::Volume(volume_id),
        ContentType::Snapshot(SnapshotSource { snapshot_id }) => Content::Snapshot(snapshot_id),
    });
    Answer {
        id: volume.volume_id,
        bytes: volume.capacity_bytes,
        context: volume.volume_context,
        content,
        places: volume.accessible_topology.into_iter().map(|topology| Term(topology.segments)).collect(),
    }
}
