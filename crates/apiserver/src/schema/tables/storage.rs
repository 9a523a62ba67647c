//! storage.k8s.io: classes, attachments, CSI drivers, CSI nodes, capacities.

use super::{API_VERSION, KIND, field, list};
use super::{meta, persistent, scheduling};
use crate::schema::types::Presence::{Always, OmitZero, Pointer};
use crate::schema::types::Type::{Bool, Int32, Int64, Map, Quantity, String, Time};
use crate::schema::types::{Struct, Type};

pub static CSI_DRIVER: Struct = Struct {
    name: "io.k8s.api.storage.v1.CSIDriver",
    doc: "How the cluster should treat the volumes of one CSI driver; its name is the name of the driver.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("spec", Type::Struct(&CSI_DRIVER_SPEC), 2, Always, "The desired state."),
    ],
};

pub static CSI_DRIVER_SPEC: Struct = Struct {
    name: "io.k8s.api.storage.v1.CSIDriverSpec",
    doc: "What the driver needs and can do.",
    atomic: false,
    fields: &[
        field(
            "attachRequired",
            Bool,
            1,
            Pointer,
            "Whether volumes must be attached before they can be mounted; true unless said otherwise.",
        ),
        field(
            "podInfoOnMount",
            Bool,
            2,
            Pointer,
            "Whether the driver wants name, namespace and account of the pod when it publishes.",
        ),
        field("volumeLifecycleModes", list!(String, Set, Replace), 3, OmitZero, "Persistent, Ephemeral or both."),
        field(
            "storageCapacity",
            Bool,
            4,
            Pointer,
            "Whether scheduling should look at the capacity objects of the driver.",
        ),
        field("fsGroupPolicy", String, 5, Pointer, "When ownership of the files is changed to the group of the pod."),
        field(
            "tokenRequests",
            list!(Type::Struct(&TOKEN_REQUEST)),
            6,
            OmitZero,
            "Service account tokens the driver wants when it publishes.",
        ),
        field(
            "requiresRepublish",
            Bool,
            7,
            Pointer,
            "Whether publishing is repeated from time to time to refresh the contents.",
        ),
        field("seLinuxMount", Bool, 8, Pointer, "Whether the driver understands the SELinux context mount option."),
        field(
            "nodeAllocatableUpdatePeriodSeconds",
            Int64,
            9,
            Pointer,
            "How often the number of volumes that fit on a node is asked again.",
        ),
        field(
            "serviceAccountTokenInSecrets",
            Bool,
            10,
            Pointer,
            "Whether tokens are handed over as secrets instead of volume attributes.",
        ),
        field(
            "preventPodSchedulingIfMissing",
            Bool,
            11,
            Pointer,
            "Whether pods avoid nodes on which the driver is not registered.",
        ),
    ],
};

pub static CSI_NODE: Struct = Struct {
    name: "io.k8s.api.storage.v1.CSINode",
    doc: "The CSI drivers that run on one node; its name is the name of the node.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("spec", Type::Struct(&CSI_NODE_SPEC), 2, Always, "The desired state."),
    ],
};

pub static CSI_NODE_DRIVER: Struct = Struct {
    name: "io.k8s.api.storage.v1.CSINodeDriver",
    doc: "One driver on one node.",
    atomic: false,
    fields: &[
        field("name", String, 1, Always, "Name of the CSI driver."),
        field("nodeID", String, 2, Always, "The name by which the driver knows this node."),
        field("topologyKeys", list!(String), 3, Always, "The node labels that tell where this node is for the driver."),
        field(
            "allocatable",
            Type::Struct(&VOLUME_NODE_RESOURCES),
            4,
            Pointer,
            "What the driver can serve on this node.",
        ),
    ],
};

pub static CSI_NODE_SPEC: Struct = Struct {
    name: "io.k8s.api.storage.v1.CSINodeSpec",
    doc: "The drivers registered on the node.",
    atomic: false,
    fields: &[field(
        "drivers",
        list!(Type::Struct(&CSI_NODE_DRIVER), Map(&["name"]), MergeBy("name")),
        1,
        Always,
        "The drivers that have registered on this node.",
    )],
};

pub static CSI_STORAGE_CAPACITY: Struct = Struct {
    name: "io.k8s.api.storage.v1.CSIStorageCapacity",
    doc: "How much a driver can still provision for one class in one part of the topology.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field(
            "nodeTopology",
            Type::Struct(&meta::LABEL_SELECTOR),
            2,
            Pointer,
            "The nodes this capacity can be reached from.",
        ),
        field("storageClassName", String, 3, Always, "The class the capacity was asked for."),
        field("capacity", Quantity, 4, Pointer, "How much is left; absent means unknown."),
        field("maximumVolumeSize", Quantity, 5, Pointer, "The largest single volume that would fit."),
    ],
};

pub static STORAGE_CLASS: Struct = Struct {
    name: "io.k8s.api.storage.v1.StorageClass",
    doc: "A kind of storage that claims can ask for by name: which provisioner makes volumes and with what parameters.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field(
            "provisioner",
            String,
            2,
            Always,
            "Who makes the volumes: the name of a CSI driver or of another provisioner.",
        ),
        field("parameters", Map(&String), 3, OmitZero, "Settings for the provisioner; it alone knows what they mean."),
        field(
            "reclaimPolicy",
            String,
            4,
            Pointer,
            "The reclaim policy of volumes made from this class: Delete (the default) or Retain.",
        ),
        field("mountOptions", list!(String), 5, OmitZero, "Mount options of volumes made from this class, unchecked."),
        field("allowVolumeExpansion", Bool, 6, Pointer, "Whether claims of this class may grow."),
        field(
            "volumeBindingMode",
            String,
            7,
            Pointer,
            "Immediate (the default), or WaitForFirstConsumer to provision where the first pod lands.",
        ),
        field(
            "allowedTopologies",
            list!(Type::Struct(&scheduling::TOPOLOGY_SELECTOR_TERM)),
            8,
            OmitZero,
            "Where volumes of this class may be made.",
        ),
    ],
};

pub static TOKEN_REQUEST: Struct = Struct {
    name: "io.k8s.api.storage.v1.TokenRequest",
    doc: "A service account token: what is asked for and what was issued.",
    atomic: false,
    fields: &[
        field("audience", String, 1, Always, "Who the token is for."),
        field("expirationSeconds", Int64, 2, Pointer, "How long the token is valid."),
    ],
};

pub static VOLUME_ATTACHMENT: Struct = Struct {
    name: "io.k8s.api.storage.v1.VolumeAttachment",
    doc: "The wish that a volume be attached to a node, and what became of it.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field(
            "spec",
            Type::Struct(&VOLUME_ATTACHMENT_SPEC),
            2,
            Always,
            "Which volume is to be attached where; cannot be changed.",
        ),
        field("status", Type::Struct(&VOLUME_ATTACHMENT_STATUS), 3, Always, "What the attacher reports."),
    ],
};

pub static VOLUME_ATTACHMENT_SOURCE: Struct = Struct {
    name: "io.k8s.api.storage.v1.VolumeAttachmentSource",
    doc: "The volume to attach: exactly one of the fields is set.",
    atomic: false,
    fields: &[
        field("persistentVolumeName", String, 1, Pointer, "Name of the persistent volume."),
        field(
            "inlineVolumeSpec",
            Type::Struct(&persistent::PERSISTENT_VOLUME_SPEC),
            2,
            Pointer,
            "A volume described in place, for migrated inline volumes.",
        ),
    ],
};

pub static VOLUME_ATTACHMENT_SPEC: Struct = Struct {
    name: "io.k8s.api.storage.v1.VolumeAttachmentSpec",
    doc: "Which volume is to be attached where, and by whom.",
    atomic: false,
    fields: &[
        field("attacher", String, 1, Always, "The CSI driver that must act."),
        field("source", Type::Struct(&VOLUME_ATTACHMENT_SOURCE), 2, Always, "The volume to attach."),
        field("nodeName", String, 3, Always, "The node to attach it to."),
    ],
};

pub static VOLUME_ATTACHMENT_STATUS: Struct = Struct {
    name: "io.k8s.api.storage.v1.VolumeAttachmentStatus",
    doc: "What the attacher reports.",
    atomic: false,
    fields: &[
        field("attached", Bool, 1, Always, "Whether the volume is attached; only the attacher sets it."),
        field(
            "attachmentMetadata",
            Map(&String),
            2,
            OmitZero,
            "What the driver returned and wants to see again when staging.",
        ),
        field("attachError", Type::Struct(&VOLUME_ERROR), 3, Pointer, "The last failed attach; cleared by a success."),
        field("detachError", Type::Struct(&VOLUME_ERROR), 4, Pointer, "The last failed detach."),
    ],
};

pub static VOLUME_ATTRIBUTES_CLASS: Struct = Struct {
    name: "io.k8s.api.storage.v1.VolumeAttributesClass",
    doc: "A set of volume attributes that can be changed while the volume is in use.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("driverName", String, 2, Always, "The CSI driver this class is for."),
        field("parameters", Map(&String), 3, OmitZero, "The attributes, as the driver names them."),
    ],
};

pub static VOLUME_ERROR: Struct = Struct {
    name: "io.k8s.api.storage.v1.VolumeError",
    doc: "A failed attach or detach.",
    atomic: false,
    fields: &[
        field("time", Time, 1, Always, "When it failed."),
        field("message", String, 2, OmitZero, "What went wrong; must not contain secrets."),
        field("errorCode", Int32, 3, Pointer, "The gRPC code of the failure."),
    ],
};

pub static VOLUME_NODE_RESOURCES: Struct = Struct {
    name: "io.k8s.api.storage.v1.VolumeNodeResources",
    doc: "How many volumes of a driver fit on a node.",
    atomic: false,
    fields: &[field(
        "count",
        Int32,
        1,
        Pointer,
        "The most volumes of the driver that can be in use on the node; absent means no limit.",
    )],
};
