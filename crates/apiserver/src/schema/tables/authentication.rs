//! authentication.k8s.io: tokens and who the caller is.

use super::meta;
use super::{API_VERSION, KIND, field, list};
use crate::schema::types::Presence::{Always, OmitZero, PointerOrNull};
use crate::schema::types::Type::{Bool, Int64, Map, String, Time};
use crate::schema::types::{Struct, Type};

pub static BOUND_OBJECT_REFERENCE: Struct = Struct {
    name: "io.k8s.api.authentication.v1.BoundObjectReference",
    doc: "A bound object reference.",
    atomic: false,
    fields: &[
        field("kind", String, 1, OmitZero, "Kind of the object."),
        field("apiVersion", String, 2, OmitZero, "Group and version this object is written in."),
        field("name", String, 3, OmitZero, "Its name."),
        field("uid", String, 4, OmitZero, "The unique id."),
    ],
};

pub static SELF_SUBJECT_REVIEW: Struct = Struct {
    name: "io.k8s.api.authentication.v1.SelfSubjectReview",
    doc: "Asks who the caller is.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("status", Type::Struct(&SELF_SUBJECT_REVIEW_STATUS), 2, Always, "The observed state."),
    ],
};

pub static SELF_SUBJECT_REVIEW_STATUS: Struct = Struct {
    name: "io.k8s.api.authentication.v1.SelfSubjectReviewStatus",
    doc: "The observed state: self subject review.",
    atomic: false,
    fields: &[field("userInfo", Type::Struct(&USER_INFO), 1, Always, "Who the caller is.")],
};

pub static TOKEN_REQUEST: Struct = Struct {
    name: "io.k8s.api.authentication.v1.TokenRequest",
    doc: "A service account token: what is asked for and what was issued.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("spec", Type::Struct(&TOKEN_REQUEST_SPEC), 2, Always, "The desired state."),
        field("status", Type::Struct(&TOKEN_REQUEST_STATUS), 3, Always, "The observed state."),
    ],
};

pub static TOKEN_REQUEST_SPEC: Struct = Struct {
    name: "io.k8s.api.authentication.v1.TokenRequestSpec",
    doc: "The desired state: token request.",
    atomic: false,
    fields: &[
        field("audiences", list!(String), 1, Always, "Whom the token is for."),
        field("expirationSeconds", Int64, 4, PointerOrNull, "How long it is valid."),
        field(
            "boundObjectRef",
            Type::Struct(&BOUND_OBJECT_REFERENCE),
            3,
            PointerOrNull,
            "Object whose end ends the token.",
        ),
    ],
};

pub static TOKEN_REQUEST_STATUS: Struct = Struct {
    name: "io.k8s.api.authentication.v1.TokenRequestStatus",
    doc: "The observed state: token request.",
    atomic: false,
    fields: &[
        field("token", String, 1, Always, "The token."),
        field("expirationTimestamp", Time, 2, Always, "When the token expires."),
    ],
};

pub static TOKEN_REVIEW: Struct = Struct {
    name: "io.k8s.api.authentication.v1.TokenReview",
    doc: "Asks whether a token is valid and whose it is.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("spec", Type::Struct(&TOKEN_REVIEW_SPEC), 2, Always, "The desired state."),
        field("status", Type::Struct(&TOKEN_REVIEW_STATUS), 3, Always, "The observed state."),
    ],
};

pub static TOKEN_REVIEW_SPEC: Struct = Struct {
    name: "io.k8s.api.authentication.v1.TokenReviewSpec",
    doc: "The desired state: token review.",
    atomic: false,
    fields: &[
        field("token", String, 1, OmitZero, "The token."),
        field("audiences", list!(String), 2, OmitZero, "Whom the token is for."),
    ],
};

pub static TOKEN_REVIEW_STATUS: Struct = Struct {
    name: "io.k8s.api.authentication.v1.TokenReviewStatus",
    doc: "The observed state: token review.",
    atomic: false,
    fields: &[
        field("authenticated", Bool, 1, OmitZero, "Whether the token is valid."),
        field("user", Type::Struct(&USER_INFO), 2, Always, "The user name."),
        field("audiences", list!(String), 4, OmitZero, "Whom the token is for."),
        field("error", String, 3, OmitZero, "The error."),
    ],
};

pub static USER_INFO: Struct = Struct {
    name: "io.k8s.api.authentication.v1.UserInfo",
    doc: "A user info.",
    atomic: false,
    fields: &[
        field("username", String, 1, OmitZero, "The user name."),
        field("uid", String, 2, OmitZero, "The unique id."),
        field("groups", list!(String), 3, OmitZero, "The groups."),
        field("extra", Map(&list!(String)), 4, OmitZero, "Further facts about the user."),
    ],
};
