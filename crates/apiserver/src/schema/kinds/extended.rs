//! Rows of the stored kinds outside the core group.

use super::{ALL_VERBS, Kind, Persistence, STATUS, Scope};
use crate::schema::tables::{apiextensions, coordination, events, rbac, storage};

pub(super) static CUSTOM_RESOURCE_DEFINITION: Kind = Kind {
    group: "apiextensions.k8s.io",
    version: "v1",
    kind: "CustomResourceDefinition",
    list_kind: "CustomResourceDefinitionList",
    resource: "customresourcedefinitions",
    singular: "customresourcedefinition",
    short_names: &["crd", "crds"],
    categories: &["api-extensions"],
    scope: Scope::Cluster,
    schema: &apiextensions::CUSTOM_RESOURCE_DEFINITION,
    verbs: ALL_VERBS,
    subresources: &[STATUS],
    persistence: Persistence::Stored,
};

pub(super) static LEASE: Kind = Kind {
    group: "coordination.k8s.io",
    version: "v1",
    kind: "Lease",
    list_kind: "LeaseList",
    resource: "leases",
    singular: "lease",
    short_names: &[],
    categories: &[],
    scope: Scope::Namespaced,
    schema: &coordination::LEASE,
    verbs: ALL_VERBS,
    subresources: &[],
    persistence: Persistence::Stored,
};

pub(super) static EVENT: Kind = Kind {
    group: "events.k8s.io",
    version: "v1",
    kind: "Event",
    list_kind: "EventList",
    resource: "events",
    singular: "event",
    short_names: &["ev"],
    categories: &[],
    scope: Scope::Namespaced,
    schema: &events::EVENT,
    verbs: ALL_VERBS,
    subresources: &[],
    persistence: Persistence::Expiring,
};

pub(super) static ROLE: Kind = Kind {
    group: "rbac.authorization.k8s.io",
    version: "v1",
    kind: "Role",
    list_kind: "RoleList",
    resource: "roles",
    singular: "role",
    short_names: &[],
    categories: &[],
    scope: Scope::Namespaced,
    schema: &rbac::ROLE,
    verbs: ALL_VERBS,
    subresources: &[],
    persistence: Persistence::Stored,
};

pub(super) static CLUSTER_ROLE: Kind = Kind {
    group: "rbac.authorization.k8s.io",
    version: "v1",
    kind: "ClusterRole",
    list_kind: "ClusterRoleList",
    resource: "clusterroles",
    singular: "clusterrole",
    short_names: &[],
    categories: &[],
    scope: Scope::Cluster,
    schema: &rbac::CLUSTER_ROLE,
    verbs: ALL_VERBS,
    subresources: &[],
    persistence: Persistence::Stored,
};

pub(super) static ROLE_BINDING: Kind = Kind {
    group: "rbac.authorization.k8s.io",
    version: "v1",
    kind: "RoleBinding",
    list_kind: "RoleBindingList",
    resource: "rolebindings",
    singular: "rolebinding",
    short_names: &[],
    categories: &[],
    scope: Scope::Namespaced,
    schema: &rbac::ROLE_BINDING,
    verbs: ALL_VERBS,
    subresources: &[],
    persistence: Persistence::Stored,
};

pub(super) static CLUSTER_ROLE_BINDING: Kind = Kind {
    group: "rbac.authorization.k8s.io",
    version: "v1",
    kind: "ClusterRoleBinding",
    list_kind: "ClusterRoleBindingList",
    resource: "clusterrolebindings",
    singular: "clusterrolebinding",
    short_names: &[],
    categories: &[],
    scope: Scope::Cluster,
    schema: &rbac::CLUSTER_ROLE_BINDING,
    verbs: ALL_VERBS,
    subresources: &[],
    persistence: Persistence::Stored,
};

pub(super) static STORAGE_CLASS: Kind = Kind {
    group: "storage.k8s.io",
    version: "v1",
    kind: "StorageClass",
    list_kind: "StorageClassList",
    resource: "storageclasses",
    singular: "storageclass",
    short_names: &["sc"],
    categories: &[],
    scope: Scope::Cluster,
    schema: &storage::STORAGE_CLASS,
    verbs: ALL_VERBS,
    subresources: &[],
    persistence: Persistence::Stored,
};

pub(super) static VOLUME_ATTACHMENT: Kind = Kind {
    group: "storage.k8s.io",
    version: "v1",
    kind: "VolumeAttachment",
    list_kind: "VolumeAttachmentList",
    resource: "volumeattachments",
    singular: "volumeattachment",
    short_names: &[],
    categories: &[],
    scope: Scope::Cluster,
    schema: &storage::VOLUME_ATTACHMENT,
    verbs: ALL_VERBS,
    subresources: &[STATUS],
    persistence: Persistence::Stored,
};

pub(super) static CSI_DRIVER: Kind = Kind {
    group: "storage.k8s.io",
    version: "v1",
    kind: "CSIDriver",
    list_kind: "CSIDriverList",
    resource: "csidrivers",
    singular: "csidriver",
    short_names: &[],
    categories: &[],
    scope: Scope::Cluster,
    schema: &storage::CSI_DRIVER,
    verbs: ALL_VERBS,
    subresources: &[],
    persistence: Persistence::Stored,
};

pub(super) static CSI_NODE: Kind = Kind {
    group: "storage.k8s.io",
    version: "v1",
    kind: "CSINode",
    list_kind: "CSINodeList",
    resource: "csinodes",
    singular: "csinode",
    short_names: &[],
    categories: &[],
    scope: Scope::Cluster,
    schema: &storage::CSI_NODE,
    verbs: ALL_VERBS,
    subresources: &[],
    persistence: Persistence::Stored,
};

pub(super) static CSI_STORAGE_CAPACITY: Kind = Kind {
    group: "storage.k8s.io",
    version: "v1",
    kind: "CSIStorageCapacity",
    list_kind: "CSIStorageCapacityList",
    resource: "csistoragecapacities",
    singular: "csistoragecapacity",
    short_names: &[],
    categories: &[],
    scope: Scope::Namespaced,
    schema: &storage::CSI_STORAGE_CAPACITY,
    verbs: ALL_VERBS,
    subresources: &[],
    persistence: Persistence::Stored,
};

pub(super) static VOLUME_ATTRIBUTES_CLASS: Kind = Kind {
    group: "storage.k8s.io",
    version: "v1",
    kind: "VolumeAttributesClass",
    list_kind: "VolumeAttributesClassList",
    resource: "volumeattributesclasses",
    singular: "volumeattributesclass",
    short_names: &["vac"],
    categories: &[],
    scope: Scope::Cluster,
    schema: &storage::VOLUME_ATTRIBUTES_CLASS,
    verbs: ALL_VERBS,
    subresources: &[],
    persistence: Persistence::Stored,
};
