//! Everything the server knows about one kind and not about all: defaults, what a write may change, what a field may
//! hold, what a table shows. Pure functions over objects; time, identity and chance come in as arguments.
//!
//! A write passes here in this order: [`Rules::default`] while decoding, mutating admission, [`before_create`] or
//! [`before_update`], validating admission, the store. Texts of errors are part of the contract: tests and people match
//! them, also where the reference is wrong.

pub mod age;
mod cells;
mod claim;
mod csi;
pub mod deletion;
pub mod event;
mod golang;
mod labels;
mod lease;
mod limit_range;
pub mod meta;
pub mod names;
mod namespace;
mod node;
mod persistent_volume;
mod pod;
mod pod_status;
mod pod_volumes;
mod quota;
mod rbac;
pub(crate) mod read;
mod secret_config;
mod service_account;
mod storage_class;
pub mod time;
mod vac;
mod volume_attachment;
mod volume_source;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use cells::Column;
pub(crate) use cells::{BETA_CLASS, as_quantity, class, quantity};
pub use meta::Birth;
pub use names::NameRule;
pub use namespace::finalized as namespace_finalized;
pub(crate) use storage_class::is_default as is_default_class;
pub use time::Timestamp;

use crate::status::{ApiError, FieldErrors, Resource};
use serde_json::Value;

/// Where objects of a kind live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Cluster,
    Namespaced,
}

/// Which finalizers a kind accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finalizers {
    /// Names without a prefix must be standard ones.
    Qualified,
    /// Any label key.
    Any,
}

/// What PUT does to an object that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    NotFound,
    Created,
}

/// What PUT does without a resourceVersion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versionless {
    /// The last write wins.
    Allowed,
    Refused,
}

/// What DELETE answers once the object is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteAnswer {
    Object,
    Status,
}

/// How a kind behaves as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    pub scope: Scope,
    pub names: NameRule,
    pub finalizers: Finalizers,
    pub missing: Missing,
    pub versionless: Versionless,
    pub delete_answer: DeleteAnswer,
}

impl Policy {
    /// A core kind in a namespace: the most common case.
    pub(crate) const NAMESPACED: Self = Self {
        scope: Scope::Namespaced,
        names: NameRule::Subdomain,
        finalizers: Finalizers::Qualified,
        missing: Missing::NotFound,
        versionless: Versionless::Allowed,
        delete_answer: DeleteAnswer::Object,
    };
    pub(crate) const CLUSTER: Self = Self { scope: Scope::Cluster, ..Self::NAMESPACED };
}

/// Which endpoint a write came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    Main,
    Status,
}

/// The rules of one kind.
pub trait Rules: Sync + std::fmt::Debug {
    fn policy(&self) -> Policy;

    /// The columns of its table.
    fn columns(&self) -> &'static [Column];

    /// The cells of its row, one per column.
    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value>;

    /// The conditions of its row, which let kubectl leave finished objects out.
    fn row_conditions(&self, _object: &Value) -> Vec<Value> {
        Vec::new()
    }

    /// Fills absent fields. Runs on everything decoded and on everything read from the store.
    fn default(&self, _object: &mut Value) {}

    /// Resets what a client may not choose at create.
    fn prepare_create(&self, _object: &mut Value, _now: Timestamp) {}

    /// Restores what the main endpoint may not change.
    fn prepare_update(&self, _object: &mut Value, _old: &Value, _now: Timestamp) {}

    /// Restores what the status endpoint may not change.
    fn prepare_status_update(&self, object: &mut Value, old: &Value, _now: Timestamp) {
        read::restore(object, old, "/spec");
    }

    fn validate_create(&self, object: &Value) -> FieldErrors;

    /// The kind's own part; the metadata rules of every kind have run before.
    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors;

    fn validate_status_update(&self, object: &Value, old: &Value) -> FieldErrors {
        meta::validate_core_update(object, old)
    }

    /// What to tell the client although the write is accepted.
    fn warnings(&self, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// The generation after an update of the main endpoint; most kinds have none.
    fn next_generation(&self, _object: &Value, old: &Value) -> Option<i64> {
        read::number(old, "/metadata/generation")
    }
}

/// The rules of a built-in kind; `None` for kinds that only custom resources have.
pub fn rules_for(group: &str, kind: &str) -> Option<&'static dyn Rules> {
    Some(match (group, kind) {
        ("", "Namespace") => &namespace::NamespaceRules,
        ("", "Node") => &node::NodeRules,
        ("", "Pod") => &pod::PodRules,
        ("", "PersistentVolume") => &persistent_volume::VolumeRules,
        ("", "PersistentVolumeClaim") => &claim::ClaimRules,
        ("", "Secret") => &secret_config::SecretRules,
        ("", "ConfigMap") => &secret_config::ConfigMapRules,
        ("", "ServiceAccount") => &service_account::ServiceAccountRules,
        ("", "Event") => &event::CoreEventRules,
        ("events.k8s.io", "Event") => &event::EventRules,
        ("", "ResourceQuota") => &quota::QuotaRules,
        ("", "LimitRange") => &limit_range::LimitRangeRules,
        ("coordination.k8s.io", "Lease") => &lease::LeaseRules,
        ("storage.k8s.io", "StorageClass") => &storage_class::StorageClassRules,
        ("storage.k8s.io", "VolumeAttachment") => &volume_attachment::AttachmentRules,
        ("storage.k8s.io", "CSIDriver") => &csi::DriverRules,
        ("storage.k8s.io", "CSINode") => &csi::NodeRules,
        ("storage.k8s.io", "CSIStorageCapacity") => &csi::CapacityRules,
        ("storage.k8s.io", "VolumeAttributesClass") => &vac::AttributesClassRules,
        ("rbac.authorization.k8s.io", "Role") => &rbac::ROLE,
        ("rbac.authorization.k8s.io", "ClusterRole") => &rbac::CLUSTER_ROLE,
        ("rbac.authorization.k8s.io", "RoleBinding") => &rbac::ROLE_BINDING,
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => &rbac::CLUSTER_ROLE_BINDING,
        _ => return None,
    })
}

/// The strategy part of a create: resets, identity, validation, warnings. The name is generated already
/// ([`meta::generate_name`]); `kind` names the kind in errors.
pub fn before_create(
    rules: &dyn Rules,
    kind: Resource<'_>,
    object: &mut Value,
    birth: Birth<'_>,
) -> Result<Vec<String>, ApiError> {
    meta::clear_for_create(object, rules.policy().scope);
    rules.prepare_create(object, birth.now);
    meta::fill_for_create(object, birth);
    let mut errors = rules.validate_create(object);
    if errors.is_empty() {
        // Kinds that say nothing about metadata still get the shared rules, with any path segment as a name.
        let policy = Policy { names: NameRule::PathSegment, finalizers: Finalizers::Any, ..rules.policy() };
        errors = meta::validate_create(object, &policy);
    }
    if errors.is_empty() {
        Ok(rules.warnings(object, None))
    } else {
        Err(ApiError::invalid(kind, read::name(object), &errors))
    }
}

/// An update on its way to the store.
#[derive(Debug, Clone, Copy)]
pub struct Update<'a> {
    pub old: &'a Value,
    pub endpoint: Endpoint,
    pub now: Timestamp,
}

/// The strategy part of an update: what stays, validation, warnings.
pub fn before_update(
    rules: &dyn Rules,
    kind: Resource<'_>,
    object: &mut Value,
    update: Update<'_>,
) -> Result<Vec<String>, ApiError> {
    let Update { old, endpoint, now } = update;
    read::restore(object, old, "/metadata/generation");
    match endpoint {
        Endpoint::Main => {
            rules.prepare_update(object, old, now);
            if let Some(generation) = rules.next_generation(object, old) {
                read::set(object, "/metadata/generation", generation);
            }
        }
        Endpoint::Status => rules.prepare_status_update(object, old, now),
    }
    meta::keep_for_update(object, old);
    // The shared rules for any object, with any path segment as a name, and then those for a change.
    let policy = Policy { names: NameRule::PathSegment, finalizers: Finalizers::Any, ..rules.policy() };
    let mut errors = meta::validate_create(object, &policy);
    errors.extend(meta::validate_update(object, old));
    errors.extend(match endpoint {
        Endpoint::Main => rules.validate_update(object, old),
        Endpoint::Status => rules.validate_status_update(object, old),
    });
    match endpoint {
        _ if !errors.is_empty() => Err(ApiError::invalid(kind, read::name(object), &errors)),
        Endpoint::Main => Ok(rules.warnings(object, Some(old))),
        Endpoint::Status => Ok(Vec::new()),
    }
}
