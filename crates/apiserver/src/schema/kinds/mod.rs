//! The kinds the server has built in: where each is served and what may be done to it.
//!
//! Facts only, no behaviour: how objects of a kind are written, checked and printed is in [`crate::kinds`], and what they
//! can be selected by in [`crate::request::FieldLabels`]. Custom resources make rows of the same shape at run
//! time, so nothing outside may assume that a row is one of [`ALL`].

mod core;
mod extended;
mod virtual_kinds;

#[cfg(test)]
mod tests;

use super::types::Struct;

/// One kind at one group-version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// Empty for the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub list_kind: &'static str,
    /// Lower-case plural, as in paths.
    pub resource: &'static str,
    pub singular: &'static str,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub scope: Scope,
    pub schema: &'static Struct,
    pub verbs: &'static [Verb],
    pub subresources: &'static [Subresource],
    pub persistence: Persistence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Cluster,
    Namespaced,
}

/// In alphabetical order, as discovery prints them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    Create,
    Delete,
    DeleteCollection,
    Get,
    List,
    Patch,
    Update,
    Watch,
}

/// Something under an object's own path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subresource {
    pub name: &'static str,
    /// The kind its bodies have, where that is not the kind of the resource.
    pub body: Option<Foreign>,
    pub verbs: &'static [Verb],
}

/// A kind of another group-version, served under this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Foreign {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub schema: &'static Struct,
}

/// What becomes of an object that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    Stored,
    /// Removed by the store an hour after its last write.
    Expiring,
    /// Answered and forgotten: reviews and bindings.
    Virtual,
}

/// Everything an ordinary resource can do.
pub const ALL_VERBS: &[Verb] = &[
    Verb::Create,
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Update,
    Verb::Watch,
];
const CREATE: &[Verb] = &[Verb::Create];
const STATUS: Subresource = Subresource { name: "status", body: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] };

/// Every kind, core first, then by group.
pub static ALL: &[&Kind] = &[
    &core::BINDING,
    &core::CONFIG_MAP,
    &core::EVENT,
    &core::LIMIT_RANGE,
    &core::NAMESPACE,
    &core::NODE,
    &core::PERSISTENT_VOLUME_CLAIM,
    &core::PERSISTENT_VOLUME,
    &core::POD,
    &core::RESOURCE_QUOTA,
    &core::SECRET,
    &core::SERVICE_ACCOUNT,
    &extended::CUSTOM_RESOURCE_DEFINITION,
    &virtual_kinds::SELF_SUBJECT_REVIEW,
    &virtual_kinds::TOKEN_REVIEW,
    &virtual_kinds::LOCAL_SUBJECT_ACCESS_REVIEW,
    &virtual_kinds::SELF_SUBJECT_ACCESS_REVIEW,
    &virtual_kinds::SELF_SUBJECT_RULES_REVIEW,
    &virtual_kinds::SUBJECT_ACCESS_REVIEW,
    &extended::LEASE,
    &extended::EVENT,
    &extended::CLUSTER_ROLE_BINDING,
    &extended::CLUSTER_ROLE,
    &extended::ROLE_BINDING,
    &extended::ROLE,
    &extended::CSI_DRIVER,
    &extended::CSI_NODE,
    &extended::CSI_STORAGE_CAPACITY,
    &extended::STORAGE_CLASS,
    &extended::VOLUME_ATTACHMENT,
    &extended::VOLUME_ATTRIBUTES_CLASS,
];

/// The kind a path names.
pub fn by_resource(group: &str, version: &str, resource: &str) -> Option<&'static Kind> {
    ALL.iter().copied().find(|kind| kind.group == group && kind.version == version && kind.resource == resource)
}

/// The kind a body names.
pub fn by_kind(group: &str, version: &str, name: &str) -> Option<&'static Kind> {
    ALL.iter().copied().find(|kind| kind.group == group && kind.version == version && kind.kind == name)
}

impl Kind {
    /// `v1` or `storage.k8s.io/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The name in messages: `volumeattachments.storage.k8s.io`.
    pub fn qualified_resource(&self) -> String {
        if self.group.is_empty() { self.resource.to_owned() } else { format!("{}.{}", self.resource, self.group) }
    }

    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    pub fn allows(&self, verb: Verb) -> bool {
        self.verbs.contains(&verb)
    }

    /// The directory the reference keeps the kind under; visible in one precondition message only.
    pub fn registry_name(&self) -> &'static str {
        if self.group.is_empty() && self.resource == "nodes" { "minions" } else { self.resource }
    }
}

impl Verb {
    pub const fn name(self) -> &'static str {
        match self {
            Verb::Create => "create",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Patch => "patch",
            Verb::Update => "update",
            Verb::Watch => "watch",
        }
    }
}
