//! Where pods and volumes may go: affinity, node selectors, taints, tolerations, topology.

use super::meta;
use super::{field, list};
use crate::schema::types::Presence::{Always, OmitZero, Pointer};
use crate::schema::types::Type::{Int32, Int64, String, Time};
use crate::schema::types::{Struct, Type};

pub static AFFINITY: Struct = Struct {
    name: "io.k8s.api.core.v1.Affinity",
    doc: "An affinity.",
    atomic: false,
    fields: &[
        field("nodeAffinity", Type::Struct(&NODE_AFFINITY), 1, Pointer, "Rules about nodes."),
        field("podAffinity", Type::Struct(&POD_AFFINITY), 2, Pointer, "Pods to be near to."),
        field("podAntiAffinity", Type::Struct(&POD_ANTI_AFFINITY), 3, Pointer, "Pods to stay away from."),
    ],
};

pub static NODE_AFFINITY: Struct = Struct {
    name: "io.k8s.api.core.v1.NodeAffinity",
    doc: "A node affinity.",
    atomic: false,
    fields: &[
        field(
            "requiredDuringSchedulingIgnoredDuringExecution",
            Type::Struct(&NODE_SELECTOR),
            1,
            Pointer,
            "The required during scheduling ignored during execution.",
        ),
        field(
            "preferredDuringSchedulingIgnoredDuringExecution",
            list!(Type::Struct(&PREFERRED_SCHEDULING_TERM)),
            2,
            OmitZero,
            "The preferred during scheduling ignored during execution.",
        ),
    ],
};

pub static NODE_SELECTOR: Struct = Struct {
    name: "io.k8s.api.core.v1.NodeSelector",
    doc: "Selects nodes: one of the terms must hold.",
    atomic: true,
    fields: &[field(
        "nodeSelectorTerms",
        list!(Type::Struct(&NODE_SELECTOR_TERM)),
        1,
        Always,
        "Terms of which one must hold.",
    )],
};

pub static NODE_SELECTOR_REQUIREMENT: Struct = Struct {
    name: "io.k8s.api.core.v1.NodeSelectorRequirement",
    doc: "One requirement on a label or field of a node.",
    atomic: false,
    fields: &[
        field("key", String, 1, Always, "The key."),
        field("operator", String, 2, Always, "How key and values relate."),
        field("values", list!(String), 3, OmitZero, "The values to compare with."),
    ],
};

pub static NODE_SELECTOR_TERM: Struct = Struct {
    name: "io.k8s.api.core.v1.NodeSelectorTerm",
    doc: "Requirements on a node that must all hold.",
    atomic: true,
    fields: &[
        field(
            "matchExpressions",
            list!(Type::Struct(&NODE_SELECTOR_REQUIREMENT)),
            1,
            OmitZero,
            "Requirements that must all hold.",
        ),
        field(
            "matchFields",
            list!(Type::Struct(&NODE_SELECTOR_REQUIREMENT)),
            2,
            OmitZero,
            "Requirements on fields that must all hold.",
        ),
    ],
};

pub static POD_AFFINITY: Struct = Struct {
    name: "io.k8s.api.core.v1.PodAffinity",
    doc: "A pod affinity.",
    atomic: false,
    fields: &[
        field(
            "requiredDuringSchedulingIgnoredDuringExecution",
            list!(Type::Struct(&POD_AFFINITY_TERM)),
            1,
            OmitZero,
            "The required during scheduling ignored during execution.",
        ),
        field(
            "preferredDuringSchedulingIgnoredDuringExecution",
            list!(Type::Struct(&WEIGHTED_POD_AFFINITY_TERM)),
            2,
            OmitZero,
            "The preferred during scheduling ignored during execution.",
        ),
    ],
};

pub static POD_AFFINITY_TERM: Struct = Struct {
    name: "io.k8s.api.core.v1.PodAffinityTerm",
    doc: "A pod affinity term.",
    atomic: false,
    fields: &[
        field("labelSelector", Type::Struct(&meta::LABEL_SELECTOR), 1, Pointer, "The label selector."),
        field("namespaces", list!(String), 2, OmitZero, "The namespaces."),
        field("topologyKey", String, 3, Always, "The topology key."),
        field("namespaceSelector", Type::Struct(&meta::LABEL_SELECTOR), 4, Pointer, "The namespace selector."),
        field("matchLabelKeys", list!(String), 5, OmitZero, "The match label keys."),
        field("mismatchLabelKeys", list!(String), 6, OmitZero, "The mismatch label keys."),
    ],
};

pub static POD_ANTI_AFFINITY: Struct = Struct {
    name: "io.k8s.api.core.v1.PodAntiAffinity",
    doc: "A pod anti affinity.",
    atomic: false,
    fields: &[
        field(
            "requiredDuringSchedulingIgnoredDuringExecution",
            list!(Type::Struct(&POD_AFFINITY_TERM)),
            1,
            OmitZero,
            "The required during scheduling ignored during execution.",
        ),
        field(
            "preferredDuringSchedulingIgnoredDuringExecution",
            list!(Type::Struct(&WEIGHTED_POD_AFFINITY_TERM)),
            2,
            OmitZero,
            "The preferred during scheduling ignored during execution.",
        ),
    ],
};

pub static PREFERRED_SCHEDULING_TERM: Struct = Struct {
    name: "io.k8s.api.core.v1.PreferredSchedulingTerm",
    doc: "A preferred scheduling term.",
    atomic: false,
    fields: &[
        field("weight", Int32, 1, Always, "How much it counts."),
        field("preference", Type::Struct(&NODE_SELECTOR_TERM), 2, Always, "The preference."),
    ],
};

pub static TAINT: Struct = Struct {
    name: "io.k8s.api.core.v1.Taint",
    doc: "A taint.",
    atomic: false,
    fields: &[
        field("key", String, 1, Always, "The key."),
        field("value", String, 2, OmitZero, "The value."),
        field("effect", String, 3, Always, "The effect."),
        field("timeAdded", Time, 4, Pointer, "When the taint was added."),
    ],
};

pub static TOLERATION: Struct = Struct {
    name: "io.k8s.api.core.v1.Toleration",
    doc: "A toleration.",
    atomic: false,
    fields: &[
        field("key", String, 1, OmitZero, "The key."),
        field("operator", String, 2, OmitZero, "How key and values relate."),
        field("value", String, 3, OmitZero, "The value."),
        field("effect", String, 4, OmitZero, "The effect."),
        field("tolerationSeconds", Int64, 5, Pointer, "How long the taint is tolerated."),
    ],
};

pub static TOPOLOGY_SELECTOR_LABEL_REQUIREMENT: Struct = Struct {
    name: "io.k8s.api.core.v1.TopologySelectorLabelRequirement",
    doc: "The values that one topology label may have.",
    atomic: false,
    fields: &[
        field("key", String, 1, Always, "The key."),
        field("values", list!(String), 2, Always, "The values to compare with."),
    ],
};

pub static TOPOLOGY_SELECTOR_TERM: Struct = Struct {
    name: "io.k8s.api.core.v1.TopologySelectorTerm",
    doc: "A part of the topology: all requirements must hold.",
    atomic: true,
    fields: &[field(
        "matchLabelExpressions",
        list!(Type::Struct(&TOPOLOGY_SELECTOR_LABEL_REQUIREMENT)),
        1,
        OmitZero,
        "Requirements on topology labels.",
    )],
};

pub static TOPOLOGY_SPREAD_CONSTRAINT: Struct = Struct {
    name: "io.k8s.api.core.v1.TopologySpreadConstraint",
    doc: "A topology spread constraint.",
    atomic: false,
    fields: &[
        field("maxSkew", Int32, 1, Always, "The largest difference allowed."),
        field("topologyKey", String, 2, Always, "The topology key."),
        field("whenUnsatisfiable", String, 3, Always, "The when unsatisfiable."),
        field("labelSelector", Type::Struct(&meta::LABEL_SELECTOR), 4, Pointer, "The label selector."),
        field("minDomains", Int32, 5, Pointer, "The fewest domains that count."),
        field("nodeAffinityPolicy", String, 6, Pointer, "The node affinity policy."),
        field("nodeTaintsPolicy", String, 7, Pointer, "The node taints policy."),
        field("matchLabelKeys", list!(String), 8, OmitZero, "The match label keys."),
    ],
};

pub static WEIGHTED_POD_AFFINITY_TERM: Struct = Struct {
    name: "io.k8s.api.core.v1.WeightedPodAffinityTerm",
    doc: "A weighted pod affinity term.",
    atomic: false,
    fields: &[
        field("weight", Int32, 1, Always, "How much it counts."),
        field("podAffinityTerm", Type::Struct(&POD_AFFINITY_TERM), 2, Always, "The pod affinity term."),
    ],
};
