//! Node.

use super::{API_VERSION, KIND, field, list};
use super::{meta, scheduling};
use crate::schema::types::Presence::{Always, OmitZero, Pointer};
use crate::schema::types::Type::{Bool, Int32, Int64, Map, Quantity, String, Time};
use crate::schema::types::{Struct, Type};

pub static ATTACHED_VOLUME: Struct = Struct {
    name: "io.k8s.api.core.v1.AttachedVolume",
    doc: "An attached volume.",
    atomic: false,
    fields: &[
        field("name", String, 1, Always, "Its name."),
        field("devicePath", String, 2, Always, "Where the device shows."),
    ],
};

pub static CONFIG_MAP_NODE_CONFIG_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.ConfigMapNodeConfigSource",
    doc: "A config map node config source.",
    atomic: false,
    fields: &[
        field("namespace", String, 1, Always, "The namespace."),
        field("name", String, 2, Always, "Its name."),
        field("uid", String, 3, OmitZero, "The unique id."),
        field("resourceVersion", String, 4, OmitZero, "The revision."),
        field("kubeletConfigKey", String, 5, Always, "The kubelet config key."),
    ],
};

pub static CONTAINER_IMAGE: Struct = Struct {
    name: "io.k8s.api.core.v1.ContainerImage",
    doc: "A container image.",
    atomic: false,
    fields: &[
        field("names", list!(String), 1, Always, "Names of the kind."),
        field("sizeBytes", Int64, 2, OmitZero, "Size in bytes."),
    ],
};

pub static DAEMON_ENDPOINT: Struct = Struct {
    name: "io.k8s.api.core.v1.DaemonEndpoint",
    doc: "A daemon endpoint.",
    atomic: false,
    fields: &[field("Port", Int32, 1, Always, "The port.")],
};

pub static NODE: Struct = Struct {
    name: "io.k8s.api.core.v1.Node",
    doc: "A machine that runs pods.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("spec", Type::Struct(&NODE_SPEC), 2, Always, "The desired state."),
        field("status", Type::Struct(&NODE_STATUS), 3, Always, "The observed state."),
    ],
};

pub static NODE_ADDRESS: Struct = Struct {
    name: "io.k8s.api.core.v1.NodeAddress",
    doc: "A node address.",
    atomic: false,
    fields: &[
        field("type", String, 1, Always, "Which sort it is."),
        field("address", String, 2, Always, "The address."),
    ],
};

pub static NODE_CONDITION: Struct = Struct {
    name: "io.k8s.api.core.v1.NodeCondition",
    doc: "One observation: node condition.",
    atomic: false,
    fields: &[
        field("type", String, 1, Always, "Which sort it is."),
        field("status", String, 2, Always, "The observed state."),
        field("lastHeartbeatTime", Time, 3, Always, "When the node last said so."),
        field("lastTransitionTime", Time, 4, Always, "When the status last changed."),
        field("reason", String, 5, OmitZero, "Why, as one word."),
        field("message", String, 6, OmitZero, "Why, for people."),
    ],
};

pub static NODE_CONFIG_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.NodeConfigSource",
    doc: "A node config source.",
    atomic: false,
    fields: &[field("configMap", Type::Struct(&CONFIG_MAP_NODE_CONFIG_SOURCE), 2, Pointer, "A config map.")],
};

pub static NODE_CONFIG_STATUS: Struct = Struct {
    name: "io.k8s.api.core.v1.NodeConfigStatus",
    doc: "The observed state: node config.",
    atomic: false,
    fields: &[
        field("assigned", Type::Struct(&NODE_CONFIG_SOURCE), 1, Pointer, "The assigned."),
        field("active", Type::Struct(&NODE_CONFIG_SOURCE), 2, Pointer, "The active."),
        field("lastKnownGood", Type::Struct(&NODE_CONFIG_SOURCE), 3, Pointer, "The last known good."),
        field("error", String, 4, OmitZero, "The error."),
    ],
};

pub static NODE_DAEMON_ENDPOINTS: Struct = Struct {
    name: "io.k8s.api.core.v1.NodeDaemonEndpoints",
    doc: "The node daemon endpoints.",
    atomic: false,
    fields: &[field("kubeletEndpoint", Type::Struct(&DAEMON_ENDPOINT), 1, Always, "The kubelet endpoint.")],
};

pub static NODE_FEATURES: Struct = Struct {
    name: "io.k8s.api.core.v1.NodeFeatures",
    doc: "The node features.",
    atomic: false,
    fields: &[field("supplementalGroupsPolicy", Bool, 1, Pointer, "How groups of the image count.")],
};

pub static NODE_RUNTIME_HANDLER: Struct = Struct {
    name: "io.k8s.api.core.v1.NodeRuntimeHandler",
    doc: "A node runtime handler.",
    atomic: false,
    fields: &[
        field("name", String, 1, Always, "Its name."),
        field("features", Type::Struct(&NODE_RUNTIME_HANDLER_FEATURES), 2, Pointer, "The features."),
    ],
};

pub static NODE_RUNTIME_HANDLER_FEATURES: Struct = Struct {
    name: "io.k8s.api.core.v1.NodeRuntimeHandlerFeatures",
    doc: "The node runtime handler features.",
    atomic: false,
    fields: &[
        field("recursiveReadOnlyMounts", Bool, 1, Pointer, "Whether mounts below a read-only mount are read-only too."),
        field("userNamespaces", Bool, 2, Pointer, "Whether user namespaces are supported."),
    ],
};

pub static NODE_SPEC: Struct = Struct {
    name: "io.k8s.api.core.v1.NodeSpec",
    doc: "The desired state: node.",
    atomic: false,
    fields: &[
        field("podCIDR", String, 1, OmitZero, "Addresses for pods of the node."),
        field("podCIDRs", list!(String, Set, MergeScalars), 7, OmitZero, "Addresses for pods of the node, by family."),
        field("providerID", String, 3, OmitZero, "The machine at the cloud provider."),
        field("unschedulable", Bool, 4, OmitZero, "Whether new pods stay away."),
        field("taints", list!(Type::Struct(&scheduling::TAINT)), 5, OmitZero, "What keeps pods away."),
        field("configSource", Type::Struct(&NODE_CONFIG_SOURCE), 6, Pointer, "The config source."),
        field("externalID", String, 2, OmitZero, "The external id."),
    ],
};

pub static NODE_STATUS: Struct = Struct {
    name: "io.k8s.api.core.v1.NodeStatus",
    doc: "The observed state: node.",
    atomic: false,
    fields: &[
        field("capacity", Map(&Quantity), 1, OmitZero, "What there is in total."),
        field("allocatable", Map(&Quantity), 2, OmitZero, "What pods may use."),
        field("phase", String, 3, OmitZero, "Short summary of the state."),
        field(
            "conditions",
            list!(Type::Struct(&NODE_CONDITION), Map(&["type"]), MergeBy("type")),
            4,
            OmitZero,
            "Observations about the object.",
        ),
        field(
            "addresses",
            list!(Type::Struct(&NODE_ADDRESS), Map(&["type"]), MergeBy("type")),
            5,
            OmitZero,
            "Addresses of the node.",
        ),
        field("daemonEndpoints", Type::Struct(&NODE_DAEMON_ENDPOINTS), 6, Always, "Ports of the node agents."),
        field("nodeInfo", Type::Struct(&NODE_SYSTEM_INFO), 7, Always, "Versions of the software on the node."),
        field("images", list!(Type::Struct(&CONTAINER_IMAGE)), 8, OmitZero, "Images on the node."),
        field("volumesInUse", list!(String), 9, OmitZero, "Attachable volumes the node may have mounted."),
        field(
            "volumesAttached",
            list!(Type::Struct(&ATTACHED_VOLUME)),
            10,
            OmitZero,
            "Volumes that are attached to the node.",
        ),
        field("config", Type::Struct(&NODE_CONFIG_STATUS), 11, Pointer, "The config."),
        field("runtimeHandlers", list!(Type::Struct(&NODE_RUNTIME_HANDLER)), 12, OmitZero, "The runtime handlers."),
        field("features", Type::Struct(&NODE_FEATURES), 13, Pointer, "The features."),
        field("declaredFeatures", list!(String), 14, OmitZero, "The declared features."),
    ],
};

pub static NODE_SWAP_STATUS: Struct = Struct {
    name: "io.k8s.api.core.v1.NodeSwapStatus",
    doc: "The observed state: node swap.",
    atomic: false,
    fields: &[field("capacity", Int64, 1, Pointer, "What there is in total.")],
};

pub static NODE_SYSTEM_INFO: Struct = Struct {
    name: "io.k8s.api.core.v1.NodeSystemInfo",
    doc: "A node system info.",
    atomic: false,
    fields: &[
        field("machineID", String, 1, Always, "The machine id."),
        field("systemUUID", String, 2, Always, "The system UUID."),
        field("bootID", String, 3, Always, "The boot id."),
        field("kernelVersion", String, 4, Always, "The kernel version."),
        field("osImage", String, 5, Always, "The OS image."),
        field("containerRuntimeVersion", String, 6, Always, "The container runtime version."),
        field("kubeletVersion", String, 7, Always, "The kubelet version."),
        field("kubeProxyVersion", String, 8, Always, "The kube proxy version."),
        field("operatingSystem", String, 9, Always, "The operating system."),
        field("architecture", String, 10, Always, "The architecture."),
        field("swap", Type::Struct(&NODE_SWAP_STATUS), 11, Pointer, "The swap."),
    ],
};
