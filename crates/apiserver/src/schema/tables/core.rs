//! The small core kinds: Namespace, Secret, ConfigMap, ServiceAccount, Event, quotas, bindings, references.

use super::meta;
use super::{API_VERSION, KIND, field, list};
use crate::schema::types::Presence::{Always, OmitZero, Pointer, PointerOrNull};
use crate::schema::types::Type::{Bool, Bytes, Int32, Map, MicroTime, Quantity, String, Time};
use crate::schema::types::{Struct, Type};

pub static BINDING: Struct = Struct {
    name: "io.k8s.api.core.v1.Binding",
    doc: "The assignment of a pod to a node.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("target", Type::Struct(&OBJECT_REFERENCE), 2, Always, "The node."),
    ],
};

pub static CONFIG_MAP: Struct = Struct {
    name: "io.k8s.api.core.v1.ConfigMap",
    doc: "Plain configuration data by key.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("immutable", Bool, 4, Pointer, "Whether the data is frozen."),
        field("data", Map(&String), 2, OmitZero, "Values as text, by key."),
        field("binaryData", Map(&Bytes), 3, OmitZero, "Values in base64, by key."),
    ],
};

pub static EVENT: Struct = Struct {
    name: "io.k8s.api.core.v1.Event",
    doc: "A report that something happened to an object.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("involvedObject", Type::Struct(&OBJECT_REFERENCE), 2, Always, "What it happened to."),
        field("reason", String, 3, OmitZero, "Why, as one word."),
        field("message", String, 4, OmitZero, "Why, for people."),
        field("source", Type::Struct(&EVENT_SOURCE), 5, Always, "Where it comes from."),
        field("firstTimestamp", Time, 6, Always, "When it first happened."),
        field("lastTimestamp", Time, 7, Always, "When it last happened."),
        field("count", Int32, 8, OmitZero, "How many."),
        field("type", String, 9, OmitZero, "Which sort it is."),
        field("eventTime", MicroTime, 10, Always, "When it happened."),
        field("series", Type::Struct(&EVENT_SERIES), 11, Pointer, "How often it was repeated."),
        field("action", String, 12, OmitZero, "What was done."),
        field("related", Type::Struct(&OBJECT_REFERENCE), 13, Pointer, "Another object that matters."),
        field("reportingComponent", String, 14, Always, "Who reported it."),
        field("reportingInstance", String, 15, Always, "Which copy of the reporter."),
    ],
};

pub static EVENT_SERIES: Struct = Struct {
    name: "io.k8s.api.core.v1.EventSeries",
    doc: "How often an event was repeated.",
    atomic: false,
    fields: &[
        field("count", Int32, 1, OmitZero, "How many."),
        field("lastObservedTime", MicroTime, 2, Always, "When it was last seen."),
    ],
};

pub static EVENT_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.EventSource",
    doc: "Who reported an event.",
    atomic: false,
    fields: &[
        field("component", String, 1, OmitZero, "The component."),
        field("host", String, 2, OmitZero, "The host."),
    ],
};

pub static LIMIT_RANGE: Struct = Struct {
    name: "io.k8s.api.core.v1.LimitRange",
    doc: "Limits on what single objects of a namespace may use.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("spec", Type::Struct(&LIMIT_RANGE_SPEC), 2, Always, "The desired state."),
    ],
};

pub static LIMIT_RANGE_ITEM: Struct = Struct {
    name: "io.k8s.api.core.v1.LimitRangeItem",
    doc: "A limit range item.",
    atomic: false,
    fields: &[
        field("type", String, 1, Always, "Which sort it is."),
        field("max", Map(&Quantity), 2, OmitZero, "The max."),
        field("min", Map(&Quantity), 3, OmitZero, "The min."),
        field("default", Map(&Quantity), 4, OmitZero, "Value for a missing field."),
        field("defaultRequest", Map(&Quantity), 5, OmitZero, "The default request."),
        field("maxLimitRequestRatio", Map(&Quantity), 6, OmitZero, "The max limit request ratio."),
    ],
};

pub static LIMIT_RANGE_SPEC: Struct = Struct {
    name: "io.k8s.api.core.v1.LimitRangeSpec",
    doc: "The desired state: limit range.",
    atomic: false,
    fields: &[field("limits", list!(Type::Struct(&LIMIT_RANGE_ITEM)), 1, Always, "The most that may be used.")],
};

pub static LOCAL_OBJECT_REFERENCE: Struct = Struct {
    name: "io.k8s.api.core.v1.LocalObjectReference",
    doc: "A reference to an object of the same namespace by name.",
    atomic: true,
    fields: &[field("name", String, 1, OmitZero, "Its name.")],
};

pub static NAMESPACE: Struct = Struct {
    name: "io.k8s.api.core.v1.Namespace",
    doc: "A scope for names.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("spec", Type::Struct(&NAMESPACE_SPEC), 2, Always, "The desired state."),
        field("status", Type::Struct(&NAMESPACE_STATUS), 3, Always, "The observed state."),
    ],
};

pub static NAMESPACE_CONDITION: Struct = Struct {
    name: "io.k8s.api.core.v1.NamespaceCondition",
    doc: "One observation: namespace condition.",
    atomic: false,
    fields: &[
        field("type", String, 1, Always, "Which sort it is."),
        field("status", String, 2, Always, "The observed state."),
        field("lastTransitionTime", Time, 4, Always, "When the status last changed."),
        field("reason", String, 5, OmitZero, "Why, as one word."),
        field("message", String, 6, OmitZero, "Why, for people."),
    ],
};

pub static NAMESPACE_SPEC: Struct = Struct {
    name: "io.k8s.api.core.v1.NamespaceSpec",
    doc: "The desired state: namespace.",
    atomic: false,
    fields: &[field("finalizers", list!(String), 1, OmitZero, "Names that hold up deletion.")],
};

pub static NAMESPACE_STATUS: Struct = Struct {
    name: "io.k8s.api.core.v1.NamespaceStatus",
    doc: "The observed state: namespace.",
    atomic: false,
    fields: &[
        field("phase", String, 1, OmitZero, "Short summary of the state."),
        field(
            "conditions",
            list!(Type::Struct(&NAMESPACE_CONDITION), Map(&["type"]), MergeBy("type")),
            2,
            OmitZero,
            "Observations about the object.",
        ),
    ],
};

pub static OBJECT_REFERENCE: Struct = Struct {
    name: "io.k8s.api.core.v1.ObjectReference",
    doc: "A reference to some object.",
    atomic: true,
    fields: &[
        field("kind", String, 1, OmitZero, "Kind of the object."),
        field("namespace", String, 2, OmitZero, "The namespace."),
        field("name", String, 3, OmitZero, "Its name."),
        field("uid", String, 4, OmitZero, "The unique id."),
        field("apiVersion", String, 5, OmitZero, "Group and version this object is written in."),
        field("resourceVersion", String, 6, OmitZero, "The revision."),
        field("fieldPath", String, 7, OmitZero, "Which part of the object."),
    ],
};

/// As [`OBJECT_REFERENCE`], where server-side apply owns each field by itself.
pub static OBJECT_REFERENCE_GRANULAR: Struct =
    Struct { name: OBJECT_REFERENCE.name, doc: OBJECT_REFERENCE.doc, atomic: false, fields: OBJECT_REFERENCE.fields };

pub static RESOURCE_QUOTA: Struct = Struct {
    name: "io.k8s.api.core.v1.ResourceQuota",
    doc: "Limits on what a namespace may use in total.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("spec", Type::Struct(&RESOURCE_QUOTA_SPEC), 2, Always, "The desired state."),
        field("status", Type::Struct(&RESOURCE_QUOTA_STATUS), 3, Always, "The observed state."),
    ],
};

pub static RESOURCE_QUOTA_SPEC: Struct = Struct {
    name: "io.k8s.api.core.v1.ResourceQuotaSpec",
    doc: "The desired state: resource quota.",
    atomic: false,
    fields: &[
        field("hard", Map(&Quantity), 1, OmitZero, "The limit for each name."),
        field("scopes", list!(String), 2, OmitZero, "Which objects count."),
        field("scopeSelector", Type::Struct(&SCOPE_SELECTOR), 3, Pointer, "Which objects count, by rules."),
    ],
};

pub static RESOURCE_QUOTA_STATUS: Struct = Struct {
    name: "io.k8s.api.core.v1.ResourceQuotaStatus",
    doc: "The observed state: resource quota.",
    atomic: false,
    fields: &[
        field("hard", Map(&Quantity), 1, OmitZero, "The limit for each name."),
        field("used", Map(&Quantity), 2, OmitZero, "What is used of each name."),
    ],
};

pub static SCOPE_SELECTOR: Struct = Struct {
    name: "io.k8s.api.core.v1.ScopeSelector",
    doc: "A scope selector.",
    atomic: true,
    fields: &[field(
        "matchExpressions",
        list!(Type::Struct(&SCOPED_RESOURCE_SELECTOR_REQUIREMENT)),
        1,
        OmitZero,
        "Requirements that must all hold.",
    )],
};

pub static SCOPED_RESOURCE_SELECTOR_REQUIREMENT: Struct = Struct {
    name: "io.k8s.api.core.v1.ScopedResourceSelectorRequirement",
    doc: "A scoped resource selector requirement.",
    atomic: false,
    fields: &[
        field("scopeName", String, 1, Always, "The scope name."),
        field("operator", String, 2, Always, "How key and values relate."),
        field("values", list!(String), 3, OmitZero, "The values to compare with."),
    ],
};

pub static SECRET: Struct = Struct {
    name: "io.k8s.api.core.v1.Secret",
    doc: "Confidential data by key.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("immutable", Bool, 5, Pointer, "Whether the data is frozen."),
        field("data", Map(&Bytes), 2, OmitZero, "Values in base64, by key."),
        field(
            "stringData",
            Map(&String),
            4,
            OmitZero,
            "Values as plain text, merged into data when written and never returned.",
        ),
        field("type", String, 3, OmitZero, "What the secret is for."),
    ],
};

pub static SECRET_REFERENCE: Struct = Struct {
    name: "io.k8s.api.core.v1.SecretReference",
    doc: "A reference to a secret by name and namespace.",
    atomic: true,
    fields: &[
        field("name", String, 1, OmitZero, "Its name."),
        field("namespace", String, 2, OmitZero, "The namespace."),
    ],
};

pub static SERVICE_ACCOUNT: Struct = Struct {
    name: "io.k8s.api.core.v1.ServiceAccount",
    doc: "An identity for programs in a namespace.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field(
            "secrets",
            list!(Type::Struct(&OBJECT_REFERENCE), Map(&["name"]), MergeBy("name")),
            2,
            OmitZero,
            "Secrets of the account.",
        ),
        field(
            "imagePullSecrets",
            list!(Type::Struct(&LOCAL_OBJECT_REFERENCE)),
            3,
            OmitZero,
            "Secrets for pulling images.",
        ),
        field("automountServiceAccountToken", Bool, 4, Pointer, "Whether a token is mounted."),
    ],
};

pub static TYPED_LOCAL_OBJECT_REFERENCE: Struct = Struct {
    name: "io.k8s.api.core.v1.TypedLocalObjectReference",
    doc: "A reference to an object of the same namespace by kind and name.",
    atomic: true,
    fields: &[
        field("apiGroup", String, 1, PointerOrNull, "The API group."),
        field("kind", String, 2, Always, "Kind of the object."),
        field("name", String, 3, Always, "Its name."),
    ],
};

pub static TYPED_OBJECT_REFERENCE: Struct = Struct {
    name: "io.k8s.api.core.v1.TypedObjectReference",
    doc: "A reference to an object by kind and name, possibly in another namespace.",
    atomic: false,
    fields: &[
        field("apiGroup", String, 1, PointerOrNull, "The API group."),
        field("kind", String, 2, Always, "Kind of the object."),
        field("name", String, 3, Always, "Its name."),
        field("namespace", String, 4, Pointer, "The namespace."),
    ],
};
