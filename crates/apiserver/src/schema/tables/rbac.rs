//! rbac.authorization.k8s.io: roles and bindings.

use super::meta;
use super::{API_VERSION, KIND, field, list};
use crate::schema::types::Presence::{Always, OmitZero, Pointer};
use crate::schema::types::Type::String;
use crate::schema::types::{Struct, Type};

pub static AGGREGATION_RULE: Struct = Struct {
    name: "io.k8s.api.rbac.v1.AggregationRule",
    doc: "An aggregation rule.",
    atomic: false,
    fields: &[field(
        "clusterRoleSelectors",
        list!(Type::Struct(&meta::LABEL_SELECTOR)),
        1,
        OmitZero,
        "Labels of the roles to collect.",
    )],
};

pub static CLUSTER_ROLE: Struct = Struct {
    name: "io.k8s.api.rbac.v1.ClusterRole",
    doc: "Permissions in the whole cluster or to be bound in any namespace.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("rules", list!(Type::Struct(&POLICY_RULE)), 2, Always, "What is allowed."),
        field("aggregationRule", Type::Struct(&AGGREGATION_RULE), 3, Pointer, "Roles whose rules are collected here."),
    ],
};

pub static CLUSTER_ROLE_BINDING: Struct = Struct {
    name: "io.k8s.api.rbac.v1.ClusterRoleBinding",
    doc: "Grants a cluster role to subjects everywhere.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("subjects", list!(Type::Struct(&SUBJECT)), 2, OmitZero, "Who gets the role."),
        field("roleRef", Type::Struct(&ROLE_REF), 3, Always, "The role."),
    ],
};

pub static POLICY_RULE: Struct = Struct {
    name: "io.k8s.api.rbac.v1.PolicyRule",
    doc: "Which verbs are allowed on which resources.",
    atomic: false,
    fields: &[
        field("verbs", list!(String), 1, Always, "The verbs."),
        field("apiGroups", list!(String), 2, OmitZero, "The API groups."),
        field("resources", list!(String), 3, OmitZero, "The resources."),
        field("resourceNames", list!(String), 4, OmitZero, "Names the rule is about; all if empty."),
        field("nonResourceURLs", list!(String), 5, OmitZero, "Paths the rule is about."),
    ],
};

pub static ROLE: Struct = Struct {
    name: "io.k8s.api.rbac.v1.Role",
    doc: "Permissions inside one namespace.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("rules", list!(Type::Struct(&POLICY_RULE)), 2, Always, "What is allowed."),
    ],
};

pub static ROLE_BINDING: Struct = Struct {
    name: "io.k8s.api.rbac.v1.RoleBinding",
    doc: "Grants a role to subjects inside one namespace.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("subjects", list!(Type::Struct(&SUBJECT)), 2, OmitZero, "Who gets the role."),
        field("roleRef", Type::Struct(&ROLE_REF), 3, Always, "The role."),
    ],
};

pub static ROLE_REF: Struct = Struct {
    name: "io.k8s.api.rbac.v1.RoleRef",
    doc: "A role ref.",
    atomic: true,
    fields: &[
        field("apiGroup", String, 1, Always, "The API group."),
        field("kind", String, 2, Always, "Kind of the object."),
        field("name", String, 3, Always, "Its name."),
    ],
};

pub static SUBJECT: Struct = Struct {
    name: "io.k8s.api.rbac.v1.Subject",
    doc: "A subject.",
    atomic: true,
    fields: &[
        field("kind", String, 1, Always, "Kind of the object."),
        field("apiGroup", String, 2, OmitZero, "The API group."),
        field("name", String, 3, Always, "Its name."),
        field("namespace", String, 4, OmitZero, "The namespace."),
    ],
};
