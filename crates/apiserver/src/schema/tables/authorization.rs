//! authorization.k8s.io: questions about permissions.

use super::meta;
use super::{API_VERSION, KIND, field, list};
use crate::schema::types::Presence::{Always, OmitZero, Pointer};
use crate::schema::types::Type::{Bool, Map, String};
use crate::schema::types::{Struct, Type};

pub static FIELD_SELECTOR_ATTRIBUTES: Struct = Struct {
    name: "io.k8s.api.authorization.v1.FieldSelectorAttributes",
    doc: "The field selector attributes.",
    atomic: false,
    fields: &[
        field("rawSelector", String, 1, OmitZero, "The raw selector."),
        field("requirements", list!(Type::Struct(&meta::FIELD_SELECTOR_REQUIREMENT)), 2, OmitZero, "The requirements."),
    ],
};

pub static LABEL_SELECTOR_ATTRIBUTES: Struct = Struct {
    name: "io.k8s.api.authorization.v1.LabelSelectorAttributes",
    doc: "The label selector attributes.",
    atomic: false,
    fields: &[
        field("rawSelector", String, 1, OmitZero, "The raw selector."),
        field("requirements", list!(Type::Struct(&meta::LABEL_SELECTOR_REQUIREMENT)), 2, OmitZero, "The requirements."),
    ],
};

pub static LOCAL_SUBJECT_ACCESS_REVIEW: Struct = Struct {
    name: "io.k8s.api.authorization.v1.LocalSubjectAccessReview",
    doc: "Asks whether some user may do something in one namespace.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("spec", Type::Struct(&SUBJECT_ACCESS_REVIEW_SPEC), 2, Always, "The desired state."),
        field("status", Type::Struct(&SUBJECT_ACCESS_REVIEW_STATUS), 3, Always, "The observed state."),
    ],
};

pub static NON_RESOURCE_ATTRIBUTES: Struct = Struct {
    name: "io.k8s.api.authorization.v1.NonResourceAttributes",
    doc: "The non resource attributes.",
    atomic: false,
    fields: &[field("path", String, 1, OmitZero, "The path."), field("verb", String, 2, OmitZero, "The verb.")],
};

pub static NON_RESOURCE_RULE: Struct = Struct {
    name: "io.k8s.api.authorization.v1.NonResourceRule",
    doc: "A non resource rule.",
    atomic: false,
    fields: &[
        field("verbs", list!(String), 1, Always, "The verbs."),
        field("nonResourceURLs", list!(String), 2, OmitZero, "Paths the rule is about."),
    ],
};

pub static RESOURCE_ATTRIBUTES: Struct = Struct {
    name: "io.k8s.api.authorization.v1.ResourceAttributes",
    doc: "The resource attributes.",
    atomic: false,
    fields: &[
        field("namespace", String, 1, OmitZero, "The namespace."),
        field("verb", String, 2, OmitZero, "The verb."),
        field("group", String, 3, OmitZero, "The API group."),
        field("version", String, 4, OmitZero, "The version."),
        field("resource", String, 5, OmitZero, "The resource."),
        field("subresource", String, 6, OmitZero, "The subresource."),
        field("name", String, 7, OmitZero, "Its name."),
        field("fieldSelector", Type::Struct(&FIELD_SELECTOR_ATTRIBUTES), 8, Pointer, "The field selector."),
        field("labelSelector", Type::Struct(&LABEL_SELECTOR_ATTRIBUTES), 9, Pointer, "The label selector."),
    ],
};

pub static RESOURCE_RULE: Struct = Struct {
    name: "io.k8s.api.authorization.v1.ResourceRule",
    doc: "A resource rule.",
    atomic: false,
    fields: &[
        field("verbs", list!(String), 1, Always, "The verbs."),
        field("apiGroups", list!(String), 2, OmitZero, "The API groups."),
        field("resources", list!(String), 3, OmitZero, "The resources."),
        field("resourceNames", list!(String), 4, OmitZero, "Names the rule is about; all if empty."),
    ],
};

pub static SELF_SUBJECT_ACCESS_REVIEW: Struct = Struct {
    name: "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
    doc: "Asks whether the caller may do something.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("spec", Type::Struct(&SELF_SUBJECT_ACCESS_REVIEW_SPEC), 2, Always, "The desired state."),
        field("status", Type::Struct(&SUBJECT_ACCESS_REVIEW_STATUS), 3, Always, "The observed state."),
    ],
};

pub static SELF_SUBJECT_ACCESS_REVIEW_SPEC: Struct = Struct {
    name: "io.k8s.api.authorization.v1.SelfSubjectAccessReviewSpec",
    doc: "The desired state: self subject access review.",
    atomic: false,
    fields: &[
        field("resourceAttributes", Type::Struct(&RESOURCE_ATTRIBUTES), 1, Pointer, "The request for a resource."),
        field("nonResourceAttributes", Type::Struct(&NON_RESOURCE_ATTRIBUTES), 2, Pointer, "The request for a path."),
    ],
};

pub static SELF_SUBJECT_RULES_REVIEW: Struct = Struct {
    name: "io.k8s.api.authorization.v1.SelfSubjectRulesReview",
    doc: "Asks what the caller may do in one namespace.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("spec", Type::Struct(&SELF_SUBJECT_RULES_REVIEW_SPEC), 2, Always, "The desired state."),
        field("status", Type::Struct(&SUBJECT_RULES_REVIEW_STATUS), 3, Always, "The observed state."),
    ],
};

pub static SELF_SUBJECT_RULES_REVIEW_SPEC: Struct = Struct {
    name: "io.k8s.api.authorization.v1.SelfSubjectRulesReviewSpec",
    doc: "The desired state: self subject rules review.",
    atomic: false,
    fields: &[field("namespace", String, 1, OmitZero, "The namespace.")],
};

pub static SUBJECT_ACCESS_REVIEW: Struct = Struct {
    name: "io.k8s.api.authorization.v1.SubjectAccessReview",
    doc: "Asks whether some user may do something.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("spec", Type::Struct(&SUBJECT_ACCESS_REVIEW_SPEC), 2, Always, "The desired state."),
        field("status", Type::Struct(&SUBJECT_ACCESS_REVIEW_STATUS), 3, Always, "The observed state."),
    ],
};

pub static SUBJECT_ACCESS_REVIEW_SPEC: Struct = Struct {
    name: "io.k8s.api.authorization.v1.SubjectAccessReviewSpec",
    doc: "The desired state: subject access review.",
    atomic: false,
    fields: &[
        field("resourceAttributes", Type::Struct(&RESOURCE_ATTRIBUTES), 1, Pointer, "The request for a resource."),
        field("nonResourceAttributes", Type::Struct(&NON_RESOURCE_ATTRIBUTES), 2, Pointer, "The request for a path."),
        field("user", String, 3, OmitZero, "The user name."),
        field("groups", list!(String), 4, OmitZero, "The groups."),
        field("extra", Map(&list!(String)), 5, OmitZero, "Further facts about the user."),
        field("uid", String, 6, OmitZero, "The unique id."),
    ],
};

pub static SUBJECT_ACCESS_REVIEW_STATUS: Struct = Struct {
    name: "io.k8s.api.authorization.v1.SubjectAccessReviewStatus",
    doc: "The observed state: subject access review.",
    atomic: false,
    fields: &[
        field("allowed", Bool, 1, Always, "Whether it is allowed."),
        field("denied", Bool, 4, OmitZero, "Whether it is refused for certain."),
        field("reason", String, 2, OmitZero, "Why, as one word."),
        field("evaluationError", String, 3, OmitZero, "What went wrong while deciding."),
    ],
};

pub static SUBJECT_RULES_REVIEW_STATUS: Struct = Struct {
    name: "io.k8s.api.authorization.v1.SubjectRulesReviewStatus",
    doc: "The observed state: subject rules review.",
    atomic: false,
    fields: &[
        field("resourceRules", list!(Type::Struct(&RESOURCE_RULE)), 1, Always, "The resource rules."),
        field("nonResourceRules", list!(Type::Struct(&NON_RESOURCE_RULE)), 2, Always, "The non resource rules."),
        field("incomplete", Bool, 3, Always, "Whether rules may be missing."),
        field("evaluationError", String, 4, OmitZero, "What went wrong while deciding."),
    ],
};
