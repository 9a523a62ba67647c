//! Rows of the core group.

use super::{ALL_VERBS, CREATE, Foreign, Kind, Persistence, STATUS, Scope, Subresource, Verb};
use crate::schema::tables::{authentication, core as table, node, persistent, pod, policy};

/// Namespaces are never deleted by the dozen.
const NAMESPACE_VERBS: &[Verb] =
    &[Verb::Create, Verb::Delete, Verb::Get, Verb::List, Verb::Patch, Verb::Update, Verb::Watch];
const FINALIZE: Subresource = Subresource { name: "finalize", body: None, verbs: &[Verb::Update] };
const POD_BINDING: Subresource = Subresource {
    name: "binding",
    body: Some(Foreign { group: "", version: "v1", kind: "Binding", schema: &table::BINDING }),
    verbs: CREATE,
};
const POD_EVICTION: Subresource = Subresource {
    name: "eviction",
    body: Some(Foreign { group: "policy", version: "v1", kind: "Eviction", schema: &policy::EVICTION }),
    verbs: CREATE,
};
const TOKEN: Subresource = Subresource {
    name: "token",
    body: Some(Foreign {
        group: "authentication.k8s.io",
        version: "v1",
        kind: "TokenRequest",
        schema: &authentication::TOKEN_REQUEST,
    }),
    verbs: CREATE,
};

pub(super) static BINDING: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Binding",
    list_kind: "Binding",
    resource: "bindings",
    singular: "binding",
    short_names: &[],
    categories: &[],
    scope: Scope::Namespaced,
    schema: &table::BINDING,
    verbs: CREATE,
    subresources: &[],
    persistence: Persistence::Virtual,
};

pub(super) static CONFIG_MAP: Kind = Kind {
    group: "",
    version: "v1",
    kind: "ConfigMap",
    list_kind: "ConfigMapList",
    resource: "configmaps",
    singular: "configmap",
    short_names: &["cm"],
    categories: &[],
    scope: Scope::Namespaced,
    schema: &table::CONFIG_MAP,
    verbs: ALL_VERBS,
    subresources: &[],
    persistence: Persistence::Stored,
};

pub(super) static EVENT: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Event",
    list_kind: "EventList",
    resource: "events",
    singular: "event",
    short_names: &["ev"],
    categories: &[],
    scope: Scope::Namespaced,
    schema: &table::EVENT,
    verbs: ALL_VERBS,
    subresources: &[],
    persistence: Persistence::Expiring,
};

pub(super) static LIMIT_RANGE: Kind = Kind {
    group: "",
    version: "v1",
    kind: "LimitRange",
    list_kind: "LimitRangeList",
    resource: "limitranges",
    singular: "limitrange",
    short_names: &["limits"],
    categories: &[],
    scope: Scope::Namespaced,
    schema: &table::LIMIT_RANGE,
    verbs: ALL_VERBS,
    subresources: &[],
    persistence: Persistence::Stored,
};

pub(super) static NAMESPACE: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Namespace",
    list_kind: "NamespaceList",
    resource: "namespaces",
    singular: "namespace",
    short_names: &["ns"],
    categories: &[],
    scope: Scope::Cluster,
    schema: &table::NAMESPACE,
    verbs: NAMESPACE_VERBS,
    subresources: &[FINALIZE, STATUS],
    persistence: Persistence::Stored,
};

pub(super) static NODE: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Node",
    list_kind: "NodeList",
    resource: "nodes",
    singular: "node",
    short_names: &["no"],
    categories: &[],
    scope: Scope::Cluster,
    schema: &node::NODE,
    verbs: ALL_VERBS,
    subresources: &[STATUS],
    persistence: Persistence::Stored,
};

pub(super) static PERSISTENT_VOLUME: Kind = Kind {
    group: "",
    version: "v1",
    kind: "PersistentVolume",
    list_kind: "PersistentVolumeList",
    resource: "persistentvolumes",
    singular: "persistentvolume",
    short_names: &["pv"],
    categories: &[],
    scope: Scope::Cluster,
    schema: &persistent::PERSISTENT_VOLUME,
    verbs: ALL_VERBS,
    subresources: &[STATUS],
    persistence: Persistence::Stored,
};

pub(super) static PERSISTENT_VOLUME_CLAIM: Kind = Kind {
    group: "",
    version: "v1",
    kind: "PersistentVolumeClaim",
    list_kind: "PersistentVolumeClaimList",
    resource: "persistentvolumeclaims",
    singular: "persistentvolumeclaim",
    short_names: &["pvc"],
    categories: &[],
    scope: Scope::Namespaced,
    schema: &persistent::PERSISTENT_VOLUME_CLAIM,
    verbs: ALL_VERBS,
    subresources: &[STATUS],
    persistence: Persistence::Stored,
};

pub(super) static POD: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Pod",
    list_kind: "PodList",
    resource: "pods",
    singular: "pod",
    short_names: &["po"],
    categories: &["all"],
    scope: Scope::Namespaced,
    schema: &pod::POD,
    verbs: ALL_VERBS,
    subresources: &[POD_BINDING, POD_EVICTION, STATUS],
    persistence: Persistence::Stored,
};

pub(super) static RESOURCE_QUOTA: Kind = Kind {
    group: "",
    version: "v1",
    kind: "ResourceQuota",
    list_kind: "ResourceQuotaList",
    resource: "resourcequotas",
    singular: "resourcequota",
    short_names: &["quota"],
    categories: &[],
    scope: Scope::Namespaced,
    schema: &table::RESOURCE_QUOTA,
    verbs: ALL_VERBS,
    subresources: &[STATUS],
    persistence: Persistence::Stored,
};

pub(super) static SECRET: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Secret",
    list_kind: "SecretList",
    resource: "secrets",
    singular: "secret",
    short_names: &[],
    categories: &[],
    scope: Scope::Namespaced,
    schema: &table::SECRET,
    verbs: ALL_VERBS,
    subresources: &[],
    persistence: Persistence::Stored,
};

pub(super) static SERVICE_ACCOUNT: Kind = Kind {
    group: "",
    version: "v1",
    kind: "ServiceAccount",
    list_kind: "ServiceAccountList",
    resource: "serviceaccounts",
    singular: "serviceaccount",
    short_names: &["sa"],
    categories: &[],
    scope: Scope::Namespaced,
    schema: &table::SERVICE_ACCOUNT,
    verbs: ALL_VERBS,
    subresources: &[TOKEN],
    persistence: Persistence::Stored,
};
