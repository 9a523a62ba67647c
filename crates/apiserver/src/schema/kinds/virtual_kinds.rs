//! Rows of the kinds that are answered and never stored.

use super::{CREATE, Kind, Persistence, Scope};
use crate::schema::tables::{authentication, authorization};

pub(super) static SELF_SUBJECT_REVIEW: Kind = Kind {
    group: "authentication.k8s.io",
    version: "v1",
    kind: "SelfSubjectReview",
    list_kind: "SelfSubjectReview",
    resource: "selfsubjectreviews",
    singular: "selfsubjectreview",
    short_names: &[],
    categories: &[],
    scope: Scope::Cluster,
    schema: &authentication::SELF_SUBJECT_REVIEW,
    verbs: CREATE,
    subresources: &[],
    persistence: Persistence::Virtual,
};

pub(super) static TOKEN_REVIEW: Kind = Kind {
    group: "authentication.k8s.io",
    version: "v1",
    kind: "TokenReview",
    list_kind: "TokenReview",
    resource: "tokenreviews",
    singular: "tokenreview",
    short_names: &[],
    categories: &[],
    scope: Scope::Cluster,
    schema: &authentication::TOKEN_REVIEW,
    verbs: CREATE,
    subresources: &[],
    persistence: Persistence::Virtual,
};

pub(super) static LOCAL_SUBJECT_ACCESS_REVIEW: Kind = Kind {
    group: "authorization.k8s.io",
    version: "v1",
    kind: "LocalSubjectAccessReview",
    list_kind: "LocalSubjectAccessReview",
    resource: "localsubjectaccessreviews",
    singular: "localsubjectaccessreview",
    short_names: &[],
    categories: &[],
    scope: Scope::Namespaced,
    schema: &authorization::LOCAL_SUBJECT_ACCESS_REVIEW,
    verbs: CREATE,
    subresources: &[],
    persistence: Persistence::Virtual,
};

pub(super) static SELF_SUBJECT_ACCESS_REVIEW: Kind = Kind {
    group: "authorization.k8s.io",
    version: "v1",
    kind: "SelfSubjectAccessReview",
    list_kind: "SelfSubjectAccessReview",
    resource: "selfsubjectaccessreviews",
    singular: "selfsubjectaccessreview",
    short_names: &[],
    categories: &[],
    scope: Scope::Cluster,
    schema: &authorization::SELF_SUBJECT_ACCESS_REVIEW,
    verbs: CREATE,
    subresources: &[],
    persistence: Persistence::Virtual,
};

pub(super) static SELF_SUBJECT_RULES_REVIEW: Kind = Kind {
    group: "authorization.k8s.io",
    version: "v1",
    kind: "SelfSubjectRulesReview",
    list_kind: "SelfSubjectRulesReview",
    resource: "selfsubjectrulesreviews",
    singular: "selfsubjectrulesreview",
    short_names: &[],
    categories: &[],
    scope: Scope::Cluster,
    schema: &authorization::SELF_SUBJECT_RULES_REVIEW,
    verbs: CREATE,
    subresources: &[],
    persistence: Persistence::Virtual,
};

pub(super) static SUBJECT_ACCESS_REVIEW: Kind = Kind {
    group: "authorization.k8s.io",
    version: "v1",
    kind: "SubjectAccessReview",
    list_kind: "SubjectAccessReview",
    resource: "subjectaccessreviews",
    singular: "subjectaccessreview",
    short_names: &[],
    categories: &[],
    scope: Scope::Cluster,
    schema: &authorization::SUBJECT_ACCESS_REVIEW,
    verbs: CREATE,
    subresources: &[],
    persistence: Persistence::Virtual,
};
