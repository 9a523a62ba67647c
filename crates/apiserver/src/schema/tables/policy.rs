//! policy: eviction of pods.

use super::meta;
use super::{API_VERSION, KIND, field};
use crate::schema::types::Presence::{Always, Pointer};
use crate::schema::types::{Struct, Type};

pub static EVICTION: Struct = Struct {
    name: "io.k8s.api.policy.v1.Eviction",
    doc: "A polite request to delete a pod.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("deleteOptions", Type::Struct(&meta::DELETE_OPTIONS), 2, Pointer, "How to delete the pod."),
    ],
};
