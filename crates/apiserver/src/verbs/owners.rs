//! Field ownership: which fields an endpoint can own, and the record of each write.

use std::sync::LazyLock;

use serde_json::Value;

use super::{Core, Write};
use crate::apply::{FieldSet, Manager, Shape, Writer};
use crate::catalog::{self, Nature, Resource, Subresource};
use crate::kinds::Endpoint;
use crate::schema::tables::meta::OBJECT_META;
use crate::schema::types::Type;

static NOTHING: LazyLock<FieldSet> = LazyLock::new(FieldSet::new);
static STATUS: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of(&[&["status"]]));
static SPEC: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of(&[&["spec"]]));
static SPEC_AND_OWNERS: LazyLock<FieldSet> =
    LazyLock::new(|| FieldSet::of(&[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]]));
static SPEC_AND_METADATA: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of(&[&["spec"], &["metadata"]]));

/// The fields that writes through an endpoint do not reach, so that nobody owns them through it.
fn reset(resource: &Resource, endpoint: Endpoint) -> &'static FieldSet {
    let guarded = resource.kind == "VolumeAttachment" || resource.custom().is_some();
    match endpoint {
        Endpoint::Main if resource.subresources.contains(&Subresource::Status) => &STATUS,
        Endpoint::Main => &NOTHING,
        Endpoint::Status if guarded => &SPEC_AND_METADATA,
        Endpoint::Status if resource.kind == "Pod" => &SPEC_AND_OWNERS,
        Endpoint::Status => &SPEC,
    }
}

fn shape(resource: &Resource) -> Shape<'_> {
    match &resource.nature {
        Nature::BuiltIn { row, .. } => Shape::Table(Type::Struct(row.schema)),
        Nature::Custom(custom) => Shape::custom_resource(custom.schema(), &OBJECT_META),
    }
}

/// Resources whose objects have another view, too.
static VIEWS: LazyLock<Vec<&'static Resource>> = LazyLock::new(|| {
    let all = || catalog::built_in().all().map(|resource| &**resource);
    let shares = |one: &&Resource| all().any(|other| other.stored_as == one.stored_as && other.group != one.group);
    all().filter(shares).collect()
});

/// The other view of the same objects: only events have one.
fn other_views(resource: &Resource) -> Vec<(&'static str, Shape<'static>)> {
    let same_objects = |other: &&&Resource| other.stored_as == resource.stored_as && other.group != resource.group;
    VIEWS.iter().filter(same_objects).map(|other| (other.api_version.as_str(), shape(other))).collect()
}

/// Runs `task` with the manager of an endpoint's fields.
pub(super) fn with_manager<T>(resource: &Resource, endpoint: Endpoint, task: impl FnOnce(&Manager<'_>) -> T) -> T {
    let others = other_views(resource);
    let manager = Manager {
        api_version: &resource.api_version,
        kind: &resource.kind,
        shape: shape(resource),
        other_versions: &others,
        subresource: match endpoint {
            Endpoint::Main => "",
            Endpoint::Status => "status",
        },
        reset: reset(resource, endpoint),
    };
    task(&manager)
}

impl Core {
    /// Records that the writer owns what it changed.
    pub(super) fn own(&self, write: &Write<'_>, live: Option<&Value>, object: &mut Value) {
        let now = write.now.to_string();
        let writer = Writer { manager: write.manager, now: &now };
        with_manager(write.resource, write.endpoint, |manager| manager.update(live, object, &writer));
    }
}
