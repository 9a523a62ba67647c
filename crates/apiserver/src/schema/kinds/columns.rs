//! Columns of the Table form, in the order they are printed.

use super::Column;

const fn column(name: &'static str, ty: &'static str, priority: i32, doc: &'static str) -> Column {
    Column { name, ty, format: "", priority, doc }
}

const NAME: Column = Column { name: "Name", ty: "string", format: "name", priority: 0, doc: "Name of the object." };
const AGE: Column = column("Age", "string", 0, "Time since creation.");
const CREATED_AT: Column = column("Created At", "date", 0, "When the object was created.");

pub(super) const NAME_CREATED: &[Column] = &[NAME, CREATED_AT];

pub(super) const NAME_AGE: &[Column] = &[NAME, AGE];

pub(super) const NAMESPACE: &[Column] = &[NAME, column("Status", "string", 0, "Active or Terminating."), AGE];

pub(super) const NODE: &[Column] = &[
    NAME,
    column("Status", "string", 0, "Whether pods can run here."),
    column("Roles", "string", 0, "Roles from labels."),
    AGE,
    column("Version", "string", 0, "Version of the kubelet."),
    column("Internal-IP", "string", 1, "Address inside the cluster."),
    column("External-IP", "string", 1, "Address outside the cluster."),
    column("OS-Image", "string", 1, "Operating system."),
    column("Kernel-Version", "string", 1, "Version of the kernel."),
    column("Container-Runtime", "string", 1, "Runtime and its version."),
];

pub(super) const POD: &[Column] = &[
    NAME,
    column("Ready", "string", 0, "Containers ready and in total."),
    column("Status", "string", 0, "What the pod is doing."),
    column("Restarts", "string", 0, "Restarts of its containers."),
    AGE,
    column("IP", "string", 1, "Address of the pod."),
    column("Node", "string", 1, "Node it runs on."),
    column("Nominated Node", "string", 1, "Node it may get by preemption."),
    column("Readiness Gates", "string", 1, "Further conditions met and in total."),
];

pub(super) const PERSISTENT_VOLUME: &[Column] = &[
    NAME,
    column("Capacity", "string", 0, "Size of the volume."),
    column("Access Modes", "string", 0, "Ways to mount it."),
    column("Reclaim Policy", "string", 0, "What happens after release."),
    column("Status", "string", 0, "Phase, or Terminating."),
    column("Claim", "string", 0, "Claim it is bound to."),
    column("StorageClass", "string", 0, "Class it belongs to."),
    column("VolumeAttributesClass", "string", 0, "Attributes class it has."),
    column("Reason", "string", 0, "Why it is in this phase."),
    AGE,
    column("VolumeMode", "string", 1, "Filesystem or Block."),
];

pub(super) const PERSISTENT_VOLUME_CLAIM: &[Column] = &[
    NAME,
    column("Status", "string", 0, "Phase, or Terminating."),
    column("Volume", "string", 0, "Volume it is bound to."),
    column("Capacity", "string", 0, "Size of that volume."),
    column("Access Modes", "string", 0, "Ways to mount it."),
    column("StorageClass", "string", 0, "Class it asks for."),
    column("VolumeAttributesClass", "string", 0, "Attributes class it asks for."),
    AGE,
    column("VolumeMode", "string", 1, "Filesystem or Block."),
];

pub(super) const SECRET: &[Column] = &[
    NAME,
    column("Type", "string", 0, "What the secret is for."),
    column("Data", "string", 0, "Number of keys."),
    AGE,
];

pub(super) const CONFIG_MAP: &[Column] = &[NAME, column("Data", "string", 0, "Number of keys."), AGE];

pub(super) const EVENT: &[Column] = &[
    column("Last Seen", "string", 0, "Time since it last happened."),
    column("Type", "string", 0, "Normal or Warning."),
    column("Reason", "string", 0, "What happened, as one word."),
    column("Object", "string", 0, "What it happened to."),
    column("Subobject", "string", 1, "Part of the object."),
    column("Source", "string", 1, "Who reported it."),
    column("Message", "string", 0, "What happened."),
    column("First Seen", "string", 1, "Time since it first happened."),
    column("Count", "string", 1, "How often it happened."),
    Column { name: "Name", ty: "string", format: "name", priority: 1, doc: "Name of the event." },
];

pub(super) const LEASE: &[Column] = &[NAME, column("Holder", "string", 0, "Who holds the lease."), AGE];

pub(super) const RESOURCE_QUOTA: &[Column] = &[
    NAME,
    column("Request", "string", 0, "Used and allowed requests."),
    column("Limit", "string", 0, "Used and allowed limits."),
    AGE,
];

pub(super) const STORAGE_CLASS: &[Column] = &[
    NAME,
    column("Provisioner", "string", 0, "Who makes the volumes."),
    column("ReclaimPolicy", "string", 0, "What happens after release."),
    column("VolumeBindingMode", "string", 0, "When volumes are made."),
    column("AllowVolumeExpansion", "string", 0, "Whether claims may grow."),
    AGE,
];

pub(super) const VOLUME_ATTACHMENT: &[Column] = &[
    NAME,
    Column { name: "Attacher", ty: "string", format: "name", priority: 0, doc: "Driver that must act." },
    column("PV", "string", 0, "Volume to attach."),
    column("Node", "string", 0, "Node to attach it to."),
    column("Attached", "boolean", 0, "Whether it is attached."),
    AGE,
];

pub(super) const CSI_DRIVER: &[Column] = &[
    NAME,
    column("AttachRequired", "boolean", 0, "Whether volumes are attached first."),
    column("PodInfoOnMount", "boolean", 0, "Whether the driver wants to know the pod."),
    column("StorageCapacity", "boolean", 0, "Whether scheduling looks at its capacity."),
    column("TokenRequests", "string", 0, "Audiences of the tokens it wants."),
    column("RequiresRepublish", "boolean", 0, "Whether publishing is repeated."),
    column("Modes", "string", 0, "Lifecycle modes of its volumes."),
    AGE,
];

pub(super) const CSI_NODE: &[Column] = &[NAME, column("Drivers", "integer", 0, "Number of drivers on the node."), AGE];

pub(super) const VOLUME_ATTRIBUTES_CLASS: &[Column] =
    &[NAME, column("DriverName", "string", 0, "Driver the class is for."), AGE];

pub(super) const BINDING: &[Column] = &[
    NAME,
    column("Role", "string", 0, "Role that is granted."),
    AGE,
    column("Users", "string", 1, "Users who get it."),
    column("Groups", "string", 1, "Groups that get it."),
    column("ServiceAccounts", "string", 1, "Service accounts that get it."),
];
