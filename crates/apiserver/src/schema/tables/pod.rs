//! Pod: its spec and its status.

use super::{API_VERSION, KIND, field, list};
use super::{container, core, meta, scheduling, volume};
use crate::schema::types::Presence::{Always, OmitZero, Pointer};
use crate::schema::types::Type::{AtomicMap, Bool, Int32, Int64, Map, Quantity, String, Time};
use crate::schema::types::{Struct, Type};

pub static CONTAINER_EXTENDED_RESOURCE_REQUEST: Struct = Struct {
    name: "io.k8s.api.core.v1.ContainerExtendedResourceRequest",
    doc: "A container extended resource request.",
    atomic: false,
    fields: &[
        field("containerName", String, 1, Always, "The container name."),
        field("resourceName", String, 2, Always, "The resource name."),
        field("requestName", String, 3, Always, "The request name."),
    ],
};

pub static HOST_ALIAS: Struct = Struct {
    name: "io.k8s.api.core.v1.HostAlias",
    doc: "A host alias.",
    atomic: false,
    fields: &[
        field("ip", String, 1, Always, "The IP."),
        field("hostnames", list!(String), 2, OmitZero, "The hostnames."),
    ],
};

pub static HOST_IP: Struct = Struct {
    name: "io.k8s.api.core.v1.HostIP",
    doc: "A host IP.",
    atomic: false,
    fields: &[field("ip", String, 1, Always, "The IP.")],
};

pub static NODE_ALLOCATABLE_RESOURCE_CLAIM_STATUS: Struct = Struct {
    name: "io.k8s.api.core.v1.NodeAllocatableResourceClaimStatus",
    doc: "The observed state: node allocatable resource claim.",
    atomic: false,
    fields: &[
        field("resourceClaimName", String, 1, Always, "The resource claim name."),
        field("containers", list!(String, Set, Replace), 2, OmitZero, "The containers of the pod."),
        field("resources", Map(&Quantity), 3, Always, "The resources."),
    ],
};

pub static POD: Struct = Struct {
    name: "io.k8s.api.core.v1.Pod",
    doc: "Containers that run together on one node.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("spec", Type::Struct(&POD_SPEC), 2, Always, "The desired state."),
        field("status", Type::Struct(&POD_STATUS), 3, Always, "The observed state."),
    ],
};

pub static POD_CONDITION: Struct = Struct {
    name: "io.k8s.api.core.v1.PodCondition",
    doc: "One observation: pod condition.",
    atomic: false,
    fields: &[
        field("type", String, 1, Always, "Which sort it is."),
        field("observedGeneration", Int64, 7, OmitZero, "The generation this was observed at."),
        field("status", String, 2, Always, "The observed state."),
        field("lastProbeTime", Time, 3, Always, "When it was last looked at."),
        field("lastTransitionTime", Time, 4, Always, "When the status last changed."),
        field("reason", String, 5, OmitZero, "Why, as one word."),
        field("message", String, 6, OmitZero, "Why, for people."),
    ],
};

pub static POD_DNS_CONFIG: Struct = Struct {
    name: "io.k8s.api.core.v1.PodDNSConfig",
    doc: "A pod DNS config.",
    atomic: false,
    fields: &[
        field("nameservers", list!(String), 1, OmitZero, "The nameservers."),
        field("searches", list!(String), 2, OmitZero, "The searches."),
        field("options", list!(Type::Struct(&POD_DNS_CONFIG_OPTION)), 3, OmitZero, "The options."),
    ],
};

pub static POD_DNS_CONFIG_OPTION: Struct = Struct {
    name: "io.k8s.api.core.v1.PodDNSConfigOption",
    doc: "A pod DNS config option.",
    atomic: false,
    fields: &[field("name", String, 1, OmitZero, "Its name."), field("value", String, 2, Pointer, "The value.")],
};

pub static POD_EXTENDED_RESOURCE_CLAIM_STATUS: Struct = Struct {
    name: "io.k8s.api.core.v1.PodExtendedResourceClaimStatus",
    doc: "The observed state: pod extended resource claim.",
    atomic: false,
    fields: &[
        field(
            "requestMappings",
            list!(Type::Struct(&CONTAINER_EXTENDED_RESOURCE_REQUEST)),
            1,
            Always,
            "The request mappings.",
        ),
        field("resourceClaimName", String, 2, Always, "The resource claim name."),
    ],
};

pub static POD_IP: Struct = Struct {
    name: "io.k8s.api.core.v1.PodIP",
    doc: "A pod IP.",
    atomic: false,
    fields: &[field("ip", String, 1, Always, "The IP.")],
};

pub static POD_OS: Struct = Struct {
    name: "io.k8s.api.core.v1.PodOS",
    doc: "A pod OS.",
    atomic: false,
    fields: &[field("name", String, 1, Always, "Its name.")],
};

pub static POD_READINESS_GATE: Struct = Struct {
    name: "io.k8s.api.core.v1.PodReadinessGate",
    doc: "A pod readiness gate.",
    atomic: false,
    fields: &[field("conditionType", String, 1, Always, "The condition type.")],
};

pub static POD_RESOURCE_CLAIM: Struct = Struct {
    name: "io.k8s.api.core.v1.PodResourceClaim",
    doc: "A pod resource claim.",
    atomic: false,
    fields: &[
        field("name", String, 1, Always, "Its name."),
        field("resourceClaimName", String, 3, Pointer, "The resource claim name."),
        field("resourceClaimTemplateName", String, 4, Pointer, "The resource claim template name."),
    ],
};

pub static POD_RESOURCE_CLAIM_STATUS: Struct = Struct {
    name: "io.k8s.api.core.v1.PodResourceClaimStatus",
    doc: "The observed state: pod resource claim.",
    atomic: false,
    fields: &[
        field("name", String, 1, Always, "Its name."),
        field("resourceClaimName", String, 2, Pointer, "The resource claim name."),
    ],
};

pub static POD_SCHEDULING_GATE: Struct = Struct {
    name: "io.k8s.api.core.v1.PodSchedulingGate",
    doc: "A pod scheduling gate.",
    atomic: false,
    fields: &[field("name", String, 1, Always, "Its name.")],
};

pub static POD_SCHEDULING_GROUP: Struct = Struct {
    name: "io.k8s.api.core.v1.PodSchedulingGroup",
    doc: "A pod scheduling group.",
    atomic: false,
    fields: &[field("podGroupName", String, 1, Pointer, "The pod group name.")],
};

pub static POD_SECURITY_CONTEXT: Struct = Struct {
    name: "io.k8s.api.core.v1.PodSecurityContext",
    doc: "A pod security context.",
    atomic: false,
    fields: &[
        field("seLinuxOptions", Type::Struct(&container::SE_LINUX_OPTIONS), 1, Pointer, "The se linux options."),
        field(
            "windowsOptions",
            Type::Struct(&container::WINDOWS_SECURITY_CONTEXT_OPTIONS),
            8,
            Pointer,
            "The windows options.",
        ),
        field("runAsUser", Int64, 2, Pointer, "The user id to run as."),
        field("runAsGroup", Int64, 6, Pointer, "The group id to run as."),
        field("runAsNonRoot", Bool, 3, Pointer, "Whether running as root is refused."),
        field("supplementalGroups", list!(Int64), 4, OmitZero, "The supplemental groups."),
        field("supplementalGroupsPolicy", String, 12, Pointer, "How groups of the image count."),
        field("fsGroup", Int64, 5, Pointer, "The group that owns the files of volumes."),
        field("sysctls", list!(Type::Struct(&SYSCTL)), 7, OmitZero, "The sysctls."),
        field("fsGroupChangePolicy", String, 9, Pointer, "The fs group change policy."),
        field("seccompProfile", Type::Struct(&container::SECCOMP_PROFILE), 10, Pointer, "The seccomp profile."),
        field("appArmorProfile", Type::Struct(&container::APP_ARMOR_PROFILE), 11, Pointer, "The app armor profile."),
        field("seLinuxChangePolicy", String, 13, Pointer, "The se linux change policy."),
    ],
};

pub static POD_SPEC: Struct = Struct {
    name: "io.k8s.api.core.v1.PodSpec",
    doc: "The desired state: pod.",
    atomic: false,
    fields: &[
        field(
            "volumes",
            list!(Type::Struct(&volume::VOLUME), Map(&["name"]), MergeByRetainKeys("name")),
            1,
            OmitZero,
            "The volumes of the pod.",
        ),
        field(
            "initContainers",
            list!(Type::Struct(&container::CONTAINER), Map(&["name"]), MergeBy("name")),
            20,
            OmitZero,
            "Containers that run to their end before the others start.",
        ),
        field(
            "containers",
            list!(Type::Struct(&container::CONTAINER), Map(&["name"]), MergeBy("name")),
            2,
            Always,
            "The containers of the pod.",
        ),
        field(
            "ephemeralContainers",
            list!(Type::Struct(&container::EPHEMERAL_CONTAINER), Map(&["name"]), MergeBy("name")),
            34,
            OmitZero,
            "The ephemeral containers.",
        ),
        field("restartPolicy", String, 3, OmitZero, "When containers are restarted."),
        field("terminationGracePeriodSeconds", Int64, 4, Pointer, "How long it may take to end."),
        field("activeDeadlineSeconds", Int64, 5, Pointer, "How long the pod may run."),
        field("dnsPolicy", String, 6, OmitZero, "The DNS policy."),
        field("nodeSelector", AtomicMap(&String), 7, OmitZero, "Labels the node must have."),
        field("serviceAccountName", String, 8, OmitZero, "The service account the pod runs as."),
        field("serviceAccount", String, 9, OmitZero, "Older name of serviceAccountName."),
        field("automountServiceAccountToken", Bool, 21, Pointer, "Whether a token is mounted."),
        field("nodeName", String, 10, OmitZero, "Name of the node."),
        field("hostNetwork", Bool, 11, OmitZero, "Whether the pod uses the network of the node."),
        field("hostPID", Bool, 12, OmitZero, "Whether the pod sees the processes of the node."),
        field("hostIPC", Bool, 13, OmitZero, "Whether the pod uses the IPC of the node."),
        field("shareProcessNamespace", Bool, 27, Pointer, "Whether containers see the processes of each other."),
        field("securityContext", Type::Struct(&POD_SECURITY_CONTEXT), 14, Pointer, "Users, groups and rights."),
        field(
            "imagePullSecrets",
            list!(Type::Struct(&core::LOCAL_OBJECT_REFERENCE), Map(&["name"]), MergeBy("name")),
            15,
            OmitZero,
            "Secrets for pulling images.",
        ),
        field("hostname", String, 16, OmitZero, "The hostname."),
        field("subdomain", String, 17, OmitZero, "The subdomain."),
        field("affinity", Type::Struct(&scheduling::AFFINITY), 18, Pointer, "Rules for where the pod may run."),
        field("schedulerName", String, 19, OmitZero, "Who chooses the node."),
        field("tolerations", list!(Type::Struct(&scheduling::TOLERATION)), 22, OmitZero, "Taints the pod accepts."),
        field(
            "hostAliases",
            list!(Type::Struct(&HOST_ALIAS), Map(&["ip"]), MergeBy("ip")),
            23,
            OmitZero,
            "The host aliases.",
        ),
        field("priorityClassName", String, 24, OmitZero, "The priority class name."),
        field("priority", Int32, 25, Pointer, "Importance; in tables, zero means always shown."),
        field("dnsConfig", Type::Struct(&POD_DNS_CONFIG), 26, Pointer, "The DNS config."),
        field("readinessGates", list!(Type::Struct(&POD_READINESS_GATE)), 28, OmitZero, "The readiness gates."),
        field("runtimeClassName", String, 29, Pointer, "The runtime class name."),
        field("enableServiceLinks", Bool, 30, Pointer, "Whether services show as environment variables."),
        field("preemptionPolicy", String, 31, Pointer, "The preemption policy."),
        field("overhead", Map(&Quantity), 32, OmitZero, "The overhead."),
        field(
            "topologySpreadConstraints",
            list!(
                Type::Struct(&scheduling::TOPOLOGY_SPREAD_CONSTRAINT),
                Map(&["topologyKey", "whenUnsatisfiable"]),
                MergeBy("topologyKey")
            ),
            33,
            OmitZero,
            "The topology spread constraints.",
        ),
        field("setHostnameAsFQDN", Bool, 35, Pointer, "Whether the host name is the full name."),
        field("os", Type::Struct(&POD_OS), 36, Pointer, "The OS."),
        field("hostUsers", Bool, 37, Pointer, "Whether the pod uses the users of the node."),
        field(
            "schedulingGates",
            list!(Type::Struct(&POD_SCHEDULING_GATE), Map(&["name"]), MergeBy("name")),
            38,
            OmitZero,
            "The scheduling gates.",
        ),
        field(
            "resourceClaims",
            list!(Type::Struct(&POD_RESOURCE_CLAIM), Map(&["name"]), MergeByRetainKeys("name")),
            39,
            OmitZero,
            "The resource claims.",
        ),
        field("resources", Type::Struct(&container::RESOURCE_REQUIREMENTS), 40, Pointer, "The resources."),
        field("hostnameOverride", String, 41, Pointer, "The hostname override."),
        field("schedulingGroup", Type::Struct(&POD_SCHEDULING_GROUP), 43, Pointer, "The scheduling group."),
    ],
};

pub static POD_STATUS: Struct = Struct {
    name: "io.k8s.api.core.v1.PodStatus",
    doc: "The observed state: pod.",
    atomic: false,
    fields: &[
        field("observedGeneration", Int64, 17, OmitZero, "The generation this was observed at."),
        field("phase", String, 1, OmitZero, "Short summary of the state."),
        field(
            "conditions",
            list!(Type::Struct(&POD_CONDITION), Map(&["type"]), MergeBy("type")),
            2,
            OmitZero,
            "Observations about the object.",
        ),
        field("message", String, 3, OmitZero, "Why, for people."),
        field("reason", String, 4, OmitZero, "Why, as one word."),
        field("nominatedNodeName", String, 11, OmitZero, "The node the pod may get by preemption."),
        field("hostIP", String, 5, OmitZero, "Address of the node."),
        field("hostIPs", list!(Type::Struct(&HOST_IP), Atomic, MergeBy("ip")), 16, OmitZero, "The host i ps."),
        field("podIP", String, 6, OmitZero, "Address of the pod."),
        field(
            "podIPs",
            list!(Type::Struct(&POD_IP), Map(&["ip"]), MergeBy("ip")),
            12,
            OmitZero,
            "Addresses of the pod, by family.",
        ),
        field("startTime", Time, 7, Pointer, "When the node took the pod on."),
        field(
            "initContainerStatuses",
            list!(Type::Struct(&container::CONTAINER_STATUS)),
            10,
            OmitZero,
            "State of each init container.",
        ),
        field(
            "containerStatuses",
            list!(Type::Struct(&container::CONTAINER_STATUS)),
            8,
            OmitZero,
            "State of each container.",
        ),
        field("qosClass", String, 9, OmitZero, "Quality of service class."),
        field(
            "ephemeralContainerStatuses",
            list!(Type::Struct(&container::CONTAINER_STATUS)),
            13,
            OmitZero,
            "The ephemeral container statuses.",
        ),
        field("resize", String, 14, OmitZero, "The resize."),
        field(
            "resourceClaimStatuses",
            list!(Type::Struct(&POD_RESOURCE_CLAIM_STATUS), Map(&["name"]), MergeByRetainKeys("name")),
            15,
            OmitZero,
            "The resource claim statuses.",
        ),
        field(
            "extendedResourceClaimStatus",
            Type::Struct(&POD_EXTENDED_RESOURCE_CLAIM_STATUS),
            18,
            Pointer,
            "The extended resource claim status.",
        ),
        field("allocatedResources", Map(&Quantity), 19, OmitZero, "The allocated resources."),
        field("resources", Type::Struct(&container::RESOURCE_REQUIREMENTS), 20, Pointer, "The resources."),
        field(
            "nodeAllocatableResourceClaimStatuses",
            list!(Type::Struct(&NODE_ALLOCATABLE_RESOURCE_CLAIM_STATUS)),
            21,
            OmitZero,
            "The node allocatable resource claim statuses.",
        ),
    ],
};

pub static SYSCTL: Struct = Struct {
    name: "io.k8s.api.core.v1.Sysctl",
    doc: "A sysctl.",
    atomic: false,
    fields: &[field("name", String, 1, Always, "Its name."), field("value", String, 2, Always, "The value.")],
};
