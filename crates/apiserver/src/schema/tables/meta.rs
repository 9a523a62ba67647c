//! What all objects share: metadata, owner references, selectors, delete options and the Status answer.

use super::{API_VERSION, KIND, field, list};
use crate::schema::types::Presence::{Always, OmitZero, Pointer};
use crate::schema::types::Type::{Any, Bool, Int32, Int64, Map, String, Time};
use crate::schema::types::{Struct, Type};

pub static DELETE_OPTIONS: Struct = Struct {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    doc: "How an object is to be deleted.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("gracePeriodSeconds", Int64, 1, Pointer, "How long the object may take to end; zero means at once."),
        field("preconditions", Type::Struct(&PRECONDITIONS), 2, Pointer, "What must hold for the deletion to happen."),
        field("orphanDependents", Bool, 3, Pointer, "Old form of propagationPolicy."),
        field("propagationPolicy", String, 4, Pointer, "Orphan, Background or Foreground."),
        field("dryRun", list!(String), 5, OmitZero, "All: check everything and store nothing."),
        field(
            "ignoreStoreReadErrorWithClusterBreakingPotential",
            Bool,
            6,
            Pointer,
            "Whether to delete an object that cannot be read.",
        ),
    ],
};

pub static FIELD_SELECTOR_REQUIREMENT: Struct = Struct {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.FieldSelectorRequirement",
    doc: "A field selector requirement.",
    atomic: false,
    fields: &[
        field("key", String, 1, Always, "The key."),
        field("operator", String, 2, Always, "How key and values relate."),
        field("values", list!(String), 3, OmitZero, "The values to compare with."),
    ],
};

pub static LABEL_SELECTOR: Struct = Struct {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
    doc: "Selects objects by their labels; all parts must hold and an empty selector selects everything.",
    atomic: true,
    fields: &[
        field("matchLabels", Map(&String), 1, OmitZero, "Labels that must have exactly these values."),
        field(
            "matchExpressions",
            list!(Type::Struct(&LABEL_SELECTOR_REQUIREMENT)),
            2,
            OmitZero,
            "Requirements on labels that must all hold.",
        ),
    ],
};

pub static LABEL_SELECTOR_REQUIREMENT: Struct = Struct {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelectorRequirement",
    doc: "A label selector requirement.",
    atomic: false,
    fields: &[
        field("key", String, 1, Always, "The key."),
        field("operator", String, 2, Always, "How key and values relate."),
        field("values", list!(String), 3, OmitZero, "The values to compare with."),
    ],
};

pub static LIST_META: Struct = Struct {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta",
    doc: "What every list has.",
    atomic: false,
    fields: &[
        field("selfLink", String, 1, OmitZero, "No longer filled."),
        field("resourceVersion", String, 2, OmitZero, "The revision."),
        field("continue", String, 3, OmitZero, "Where the next page starts."),
        field("remainingItemCount", Int64, 4, Pointer, "How many objects are left after this page."),
        field("shardInfo", Type::Struct(&SHARD_INFO), 5, Pointer, "The shard info."),
    ],
};

pub static MANAGED_FIELDS_ENTRY: Struct = Struct {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry",
    doc: "The fields that one manager of the object has set.",
    atomic: false,
    fields: &[
        field("manager", String, 1, OmitZero, "Who set the fields."),
        field("operation", String, 2, OmitZero, "Apply or Update."),
        field("apiVersion", String, 3, OmitZero, "Group and version this object is written in."),
        field("time", Time, 4, Pointer, "When the entry last changed."),
        field("fieldsType", String, 6, OmitZero, "How the fields are written."),
        field("fieldsV1", Any, 7, Pointer, "The fields."),
        field("subresource", String, 8, OmitZero, "The subresource."),
    ],
};

pub static OBJECT_META: Struct = Struct {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
    doc: "What every stored object has: its name, its identity and its history.",
    atomic: false,
    fields: &[
        field("name", String, 1, OmitZero, "Unique among objects of the kind in the namespace; cannot be changed."),
        field("generateName", String, 2, OmitZero, "A prefix to which the server adds letters when no name is given."),
        field("namespace", String, 3, OmitZero, "The namespace that holds the object; empty for cluster-wide kinds."),
        field("selfLink", String, 4, OmitZero, "No longer filled."),
        field(
            "uid",
            String,
            5,
            OmitZero,
            "Identity in time and space, made by the server: a new object of the same name gets another one.",
        ),
        field(
            "resourceVersion",
            String,
            6,
            OmitZero,
            "The revision of the last change, to be sent back unread for safe updates.",
        ),
        field("generation", Int64, 7, OmitZero, "Counts changes of the desired state, for kinds that keep it."),
        field("creationTimestamp", Time, 8, OmitZero, "When the object was created."),
        field(
            "deletionTimestamp",
            Time,
            9,
            Pointer,
            "When deletion was asked for; the object goes away once its finalizers are gone.",
        ),
        field("deletionGracePeriodSeconds", Int64, 10, Pointer, "How long the object may take to end."),
        field("labels", Map(&String), 11, OmitZero, "Keys and values to select objects by."),
        field("annotations", Map(&String), 12, OmitZero, "Keys and values that tools keep with the object."),
        field(
            "ownerReferences",
            list!(Type::Struct(&OWNER_REFERENCE), Map(&["uid"]), MergeBy("uid")),
            13,
            OmitZero,
            "Objects without which this one should not exist.",
        ),
        field(
            "finalizers",
            list!(String, Set, MergeScalars),
            14,
            OmitZero,
            "Names that keep a deleted object until each has been removed.",
        ),
        field(
            "managedFields",
            list!(Type::Struct(&MANAGED_FIELDS_ENTRY)),
            17,
            OmitZero,
            "Which manager has set which fields.",
        ),
    ],
};

pub static OWNER_REFERENCE: Struct = Struct {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference",
    doc: "An object without which this one should not exist.",
    atomic: true,
    fields: &[
        field("apiVersion", String, 5, Always, "Group and version this object is written in."),
        field("kind", String, 1, Always, "Kind of the object."),
        field("name", String, 3, Always, "Its name."),
        field("uid", String, 4, Always, "The unique id."),
        field("controller", Bool, 6, Pointer, "Whether this owner manages the object."),
        field("blockOwnerDeletion", Bool, 7, Pointer, "Whether the owner waits for the object in foreground deletion."),
    ],
};

pub static PRECONDITIONS: Struct = Struct {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.Preconditions",
    doc: "The preconditions.",
    atomic: false,
    fields: &[
        field("uid", String, 1, Pointer, "The unique id."),
        field("resourceVersion", String, 2, Pointer, "The revision."),
    ],
};

pub static SHARD_INFO: Struct = Struct {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.ShardInfo",
    doc: "A shard info.",
    atomic: false,
    fields: &[field("selector", String, 1, Always, "The selector.")],
};

pub static STATUS: Struct = Struct {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
    doc: "The outcome of a request that returns no object.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&LIST_META), 1, Always, "Name, identity and labels."),
        field("status", String, 2, OmitZero, "The observed state."),
        field("message", String, 3, OmitZero, "Why, for people."),
        field("reason", String, 4, OmitZero, "Why, as one word."),
        field("details", Type::Struct(&STATUS_DETAILS), 5, Pointer, "What the answer is about."),
        field("code", Int32, 6, OmitZero, "The HTTP status code."),
    ],
};

pub static STATUS_CAUSE: Struct = Struct {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.StatusCause",
    doc: "A status cause.",
    atomic: false,
    fields: &[
        field("reason", String, 1, OmitZero, "Why, as one word."),
        field("message", String, 2, OmitZero, "Why, for people."),
        field("field", String, 3, OmitZero, "The field at fault."),
    ],
};

pub static STATUS_DETAILS: Struct = Struct {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.StatusDetails",
    doc: "The status details.",
    atomic: false,
    fields: &[
        field("name", String, 1, OmitZero, "Its name."),
        field("group", String, 2, OmitZero, "The API group."),
        field("kind", String, 3, OmitZero, "Kind of the object."),
        field("uid", String, 6, OmitZero, "The unique id."),
        field("causes", list!(Type::Struct(&STATUS_CAUSE)), 4, OmitZero, "The single faults."),
        field("retryAfterSeconds", Int32, 5, OmitZero, "When to try again."),
    ],
};
