//! coordination.k8s.io: leases.

use super::meta;
use super::{API_VERSION, KIND, field};
use crate::schema::types::Presence::{Always, Pointer};
use crate::schema::types::Type::{Int32, MicroTime, String};
use crate::schema::types::{Struct, Type};

pub static LEASE: Struct = Struct {
    name: "io.k8s.api.coordination.v1.Lease",
    doc: "A claim to a role that expires unless it is renewed.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("spec", Type::Struct(&LEASE_SPEC), 2, Always, "The desired state."),
    ],
};

pub static LEASE_SPEC: Struct = Struct {
    name: "io.k8s.api.coordination.v1.LeaseSpec",
    doc: "Who holds the lease and until when.",
    atomic: false,
    fields: &[
        field("holderIdentity", String, 1, Pointer, "Who holds the lease."),
        field("leaseDurationSeconds", Int32, 2, Pointer, "How long others must wait after the last renewal."),
        field("acquireTime", MicroTime, 3, Pointer, "When the holder got the lease."),
        field("renewTime", MicroTime, 4, Pointer, "When the holder last renewed it."),
        field("leaseTransitions", Int32, 5, Pointer, "How often the lease has changed hands."),
        field("strategy", String, 6, Pointer, "How the holder is chosen."),
        field("preferredHolder", String, 7, Pointer, "Who should take the lease over."),
    ],
};
