//! PersistentVolume and PersistentVolumeClaim.

use super::{API_VERSION, KIND, field, list};
use super::{core, meta, scheduling, sources, volume};
use crate::schema::types::Presence::{Always, OmitZero, Pointer};
use crate::schema::types::Type::{Map, Quantity, String, Time};
use crate::schema::types::{Struct, Type, inside};

pub static MODIFY_VOLUME_STATUS: Struct = Struct {
    name: "io.k8s.api.core.v1.ModifyVolumeStatus",
    doc: "Where a change of the attributes class stands.",
    atomic: false,
    fields: &[
        field("targetVolumeAttributesClassName", String, 1, OmitZero, "The class the volume is changing to."),
        field("status", String, 2, Always, "Pending, InProgress or Infeasible."),
    ],
};

pub static PERSISTENT_VOLUME: Struct = Struct {
    name: "io.k8s.api.core.v1.PersistentVolume",
    doc: "A piece of storage that the cluster knows, made by an administrator or by a provisioner, and usable by one claim.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("spec", Type::Struct(&PERSISTENT_VOLUME_SPEC), 2, Always, "What the volume is and who owns it."),
        field(
            "status",
            Type::Struct(&PERSISTENT_VOLUME_STATUS),
            3,
            Always,
            "Where the volume stands; written by controllers.",
        ),
    ],
};

pub static PERSISTENT_VOLUME_CLAIM: Struct = Struct {
    name: "io.k8s.api.core.v1.PersistentVolumeClaim",
    doc: "A request for storage by a user of a namespace, and after binding the name under which pods use it.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("spec", Type::Struct(&PERSISTENT_VOLUME_CLAIM_SPEC), 2, Always, "What is asked for."),
        field(
            "status",
            Type::Struct(&PERSISTENT_VOLUME_CLAIM_STATUS),
            3,
            Always,
            "What the claim has got; written by controllers.",
        ),
    ],
};

pub static PERSISTENT_VOLUME_CLAIM_CONDITION: Struct = Struct {
    name: "io.k8s.api.core.v1.PersistentVolumeClaimCondition",
    doc: "One observation about a claim, such as a resize under way.",
    atomic: false,
    fields: &[
        field("type", String, 1, Always, "Which sort it is."),
        field("status", String, 2, Always, "The observed state."),
        field("lastProbeTime", Time, 3, Always, "When it was last looked at."),
        field("lastTransitionTime", Time, 4, Always, "When the status last changed."),
        field("reason", String, 5, OmitZero, "Why, as one word."),
        field("message", String, 6, OmitZero, "Why, for people."),
    ],
};

pub static PERSISTENT_VOLUME_CLAIM_SPEC: Struct = Struct {
    name: "io.k8s.api.core.v1.PersistentVolumeClaimSpec",
    doc: "What the user asks for.",
    atomic: false,
    fields: &[
        field("accessModes", list!(String), 1, OmitZero, "The ways in which the volume must be mountable."),
        field(
            "selector",
            Type::Struct(&meta::LABEL_SELECTOR),
            4,
            Pointer,
            "Restricts binding to volumes with these labels.",
        ),
        field(
            "resources",
            Type::Struct(&VOLUME_RESOURCE_REQUIREMENTS),
            2,
            Always,
            "The least size the volume must have; may grow on a bound claim.",
        ),
        field("volumeName", String, 3, OmitZero, "The volume the claim is bound to."),
        field(
            "storageClassName",
            String,
            5,
            Pointer,
            "The class to provision from; absent means the default class, empty means no class at all.",
        ),
        field("volumeMode", String, 6, Pointer, "Filesystem (the default) or Block for a raw device."),
        field(
            "dataSource",
            Type::Struct(&core::TYPED_LOCAL_OBJECT_REFERENCE),
            7,
            Pointer,
            "A snapshot or claim of this namespace whose contents the new volume starts with.",
        ),
        field(
            "dataSourceRef",
            Type::Struct(&core::TYPED_OBJECT_REFERENCE),
            8,
            Pointer,
            "As dataSource, for any kind of source.",
        ),
        field(
            "volumeAttributesClassName",
            String,
            9,
            Pointer,
            "The attributes class the volume should have; may be changed on a bound claim.",
        ),
    ],
};

pub static PERSISTENT_VOLUME_CLAIM_STATUS: Struct = Struct {
    name: "io.k8s.api.core.v1.PersistentVolumeClaimStatus",
    doc: "What the claim has got so far.",
    atomic: false,
    fields: &[
        field("phase", String, 1, OmitZero, "Pending, Bound or Lost."),
        field("accessModes", list!(String), 2, OmitZero, "The ways in which the bound volume can be mounted."),
        field("capacity", Map(&Quantity), 3, OmitZero, "Size of the bound volume."),
        field(
            "conditions",
            list!(Type::Struct(&PERSISTENT_VOLUME_CLAIM_CONDITION), Map(&["type"]), MergeBy("type")),
            4,
            OmitZero,
            "Observations about the claim, such as a resize under way.",
        ),
        field("allocatedResources", Map(&Quantity), 5, OmitZero, "The size a resize is working towards."),
        field("allocatedResourceStatuses", Map(&String), 7, OmitZero, "How far a resize has come."),
        field("currentVolumeAttributesClassName", String, 8, Pointer, "The attributes class the volume has now."),
        field(
            "modifyVolumeStatus",
            Type::Struct(&MODIFY_VOLUME_STATUS),
            9,
            Pointer,
            "Where a change of the attributes class stands.",
        ),
    ],
};

pub static PERSISTENT_VOLUME_CLAIM_TEMPLATE: Struct = Struct {
    name: "io.k8s.api.core.v1.PersistentVolumeClaimTemplate",
    doc: "The claim that is made for an ephemeral volume.",
    atomic: false,
    fields: &[
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("spec", Type::Struct(&PERSISTENT_VOLUME_CLAIM_SPEC), 2, Always, "The desired state."),
    ],
};

pub static PERSISTENT_VOLUME_SPEC: Struct = Struct {
    name: "io.k8s.api.core.v1.PersistentVolumeSpec",
    doc: "What the volume is, how it may be used, and which claim owns it.",
    atomic: false,
    fields: &[
        field("capacity", Map(&Quantity), 1, OmitZero, "Size of the volume, under the key storage."),
        field(
            "gcePersistentDisk",
            Type::Struct(&volume::GCE_PERSISTENT_DISK_VOLUME_SOURCE),
            inside(2, 1),
            Pointer,
            "The GCE persistent disk.",
        ),
        field(
            "awsElasticBlockStore",
            Type::Struct(&volume::AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE),
            inside(2, 2),
            Pointer,
            "The AWS elastic block store.",
        ),
        field(
            "hostPath",
            Type::Struct(&volume::HOST_PATH_VOLUME_SOURCE),
            inside(2, 3),
            Pointer,
            "A directory of the node; for tests on a single node.",
        ),
        field(
            "glusterfs",
            Type::Struct(&sources::GLUSTERFS_PERSISTENT_VOLUME_SOURCE),
            inside(2, 4),
            Pointer,
            "The glusterfs.",
        ),
        field(
            "nfs",
            Type::Struct(&volume::NFS_VOLUME_SOURCE),
            inside(2, 5),
            Pointer,
            "A directory that an NFS server exports.",
        ),
        field("rbd", Type::Struct(&sources::RBD_PERSISTENT_VOLUME_SOURCE), inside(2, 6), Pointer, "The RBD."),
        field("iscsi", Type::Struct(&sources::ISCSI_PERSISTENT_VOLUME_SOURCE), inside(2, 7), Pointer, "The iSCSI."),
        field("cinder", Type::Struct(&sources::CINDER_PERSISTENT_VOLUME_SOURCE), inside(2, 8), Pointer, "The cinder."),
        field("cephfs", Type::Struct(&sources::CEPH_FS_PERSISTENT_VOLUME_SOURCE), inside(2, 9), Pointer, "The cephfs."),
        field("fc", Type::Struct(&volume::FC_VOLUME_SOURCE), inside(2, 10), Pointer, "The Fibre Channel."),
        field("flocker", Type::Struct(&volume::FLOCKER_VOLUME_SOURCE), inside(2, 11), Pointer, "The flocker."),
        field(
            "flexVolume",
            Type::Struct(&sources::FLEX_PERSISTENT_VOLUME_SOURCE),
            inside(2, 12),
            Pointer,
            "The flex volume.",
        ),
        field(
            "azureFile",
            Type::Struct(&sources::AZURE_FILE_PERSISTENT_VOLUME_SOURCE),
            inside(2, 13),
            Pointer,
            "The azure file.",
        ),
        field(
            "vsphereVolume",
            Type::Struct(&volume::VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE),
            inside(2, 14),
            Pointer,
            "The vsphere volume.",
        ),
        field("quobyte", Type::Struct(&volume::QUOBYTE_VOLUME_SOURCE), inside(2, 15), Pointer, "The quobyte."),
        field("azureDisk", Type::Struct(&volume::AZURE_DISK_VOLUME_SOURCE), inside(2, 16), Pointer, "The azure disk."),
        field(
            "photonPersistentDisk",
            Type::Struct(&volume::PHOTON_PERSISTENT_DISK_VOLUME_SOURCE),
            inside(2, 17),
            Pointer,
            "The photon persistent disk.",
        ),
        field(
            "portworxVolume",
            Type::Struct(&volume::PORTWORX_VOLUME_SOURCE),
            inside(2, 18),
            Pointer,
            "The portworx volume.",
        ),
        field(
            "scaleIO",
            Type::Struct(&sources::SCALE_IO_PERSISTENT_VOLUME_SOURCE),
            inside(2, 19),
            Pointer,
            "The scale io.",
        ),
        field(
            "local",
            Type::Struct(&sources::LOCAL_VOLUME_SOURCE),
            inside(2, 20),
            Pointer,
            "A disk or directory of one node; needs nodeAffinity.",
        ),
        field(
            "storageos",
            Type::Struct(&sources::STORAGE_OS_PERSISTENT_VOLUME_SOURCE),
            inside(2, 21),
            Pointer,
            "The storageos.",
        ),
        field(
            "csi",
            Type::Struct(&sources::CSI_PERSISTENT_VOLUME_SOURCE),
            inside(2, 22),
            Pointer,
            "A volume that a CSI driver serves.",
        ),
        field("accessModes", list!(String), 3, OmitZero, "All the ways in which the volume can be mounted."),
        field(
            "claimRef",
            Type::Struct(&core::OBJECT_REFERENCE_GRANULAR),
            4,
            Pointer,
            "The claim this volume is bound or reserved to; the uid in it makes the choice final.",
        ),
        field(
            "persistentVolumeReclaimPolicy",
            String,
            5,
            OmitZero,
            "What happens to the storage when its claim is gone: Retain, Delete or the old Recycle.",
        ),
        field("storageClassName", String, 6, OmitZero, "The class the volume belongs to; empty means none."),
        field(
            "mountOptions",
            list!(String),
            7,
            OmitZero,
            "Options given to mount, unchecked; a bad one makes the mount fail.",
        ),
        field("volumeMode", String, 8, Pointer, "Filesystem (the default) or Block for a raw device."),
        field(
            "nodeAffinity",
            Type::Struct(&VOLUME_NODE_AFFINITY),
            9,
            Pointer,
            "The nodes from which the volume can be reached; all if absent.",
        ),
        field("volumeAttributesClassName", String, 10, Pointer, "The attributes class the volume was last given."),
    ],
};

pub static PERSISTENT_VOLUME_STATUS: Struct = Struct {
    name: "io.k8s.api.core.v1.PersistentVolumeStatus",
    doc: "Where the volume stands in its life.",
    atomic: false,
    fields: &[
        field("phase", String, 1, OmitZero, "Pending, Available, Bound, Released or Failed."),
        field("message", String, 2, OmitZero, "Why the volume is in this phase, for people."),
        field("reason", String, 3, OmitZero, "Why the volume is in this phase, as one word."),
        field("lastPhaseTransitionTime", Time, 4, Pointer, "When the phase last changed."),
    ],
};

pub static VOLUME_NODE_AFFINITY: Struct = Struct {
    name: "io.k8s.api.core.v1.VolumeNodeAffinity",
    doc: "The nodes from which the volume can be reached.",
    atomic: false,
    fields: &[field(
        "required",
        Type::Struct(&scheduling::NODE_SELECTOR),
        1,
        Pointer,
        "What must hold for a node to reach the volume.",
    )],
};

pub static VOLUME_RESOURCE_REQUIREMENTS: Struct = Struct {
    name: "io.k8s.api.core.v1.VolumeResourceRequirements",
    doc: "How much storage is asked for.",
    atomic: false,
    fields: &[
        field("limits", Map(&Quantity), 1, OmitZero, "The most that may be provisioned, under the key storage."),
        field("requests", Map(&Quantity), 2, OmitZero, "The least amount, under the key storage."),
    ],
};
