//! The storage that a PersistentVolume can stand for, beside the sources pods use directly.

use super::core;
use super::{field, list};
use crate::schema::types::Presence::{Always, OmitZero, Pointer, PointerOrNull};
use crate::schema::types::Type::{Bool, Int32, Map, String};
use crate::schema::types::{Struct, Type};

pub static AZURE_FILE_PERSISTENT_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.AzureFilePersistentVolumeSource",
    doc: "A persistent volume kept in azure file.",
    atomic: false,
    fields: &[
        field("secretName", String, 1, Always, "Name of the secret."),
        field("shareName", String, 2, Always, "The share name."),
        field("readOnly", Bool, 3, OmitZero, "Whether writing is forbidden."),
        field("secretNamespace", String, 4, PointerOrNull, "The secret namespace."),
    ],
};

pub static CSI_PERSISTENT_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.CSIPersistentVolumeSource",
    doc: "A volume that a CSI driver serves.",
    atomic: false,
    fields: &[
        field("driver", String, 1, Always, "Name of the CSI driver."),
        field("volumeHandle", String, 2, Always, "The id by which the driver knows the volume; unique per driver."),
        field("readOnly", Bool, 3, OmitZero, "Whether the volume may only be published read-only."),
        field("fsType", String, 4, OmitZero, "The filesystem to make if the device has none."),
        field(
            "volumeAttributes",
            Map(&String),
            5,
            OmitZero,
            "What the driver said about the volume when it made it; handed back on every call.",
        ),
        field(
            "controllerPublishSecretRef",
            Type::Struct(&core::SECRET_REFERENCE),
            6,
            Pointer,
            "Secret for attaching and detaching.",
        ),
        field("nodeStageSecretRef", Type::Struct(&core::SECRET_REFERENCE), 7, Pointer, "Secret for staging on a node."),
        field(
            "nodePublishSecretRef",
            Type::Struct(&core::SECRET_REFERENCE),
            8,
            Pointer,
            "Secret for publishing to a pod.",
        ),
        field(
            "controllerExpandSecretRef",
            Type::Struct(&core::SECRET_REFERENCE),
            9,
            Pointer,
            "Secret for growing the volume in the backend.",
        ),
        field(
            "nodeExpandSecretRef",
            Type::Struct(&core::SECRET_REFERENCE),
            10,
            Pointer,
            "Secret for growing the volume on a node.",
        ),
    ],
};

pub static CEPH_FS_PERSISTENT_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.CephFSPersistentVolumeSource",
    doc: "A persistent volume kept in ceph fs.",
    atomic: false,
    fields: &[
        field("monitors", list!(String), 1, Always, "Addresses of the monitors."),
        field("path", String, 2, OmitZero, "The path."),
        field("user", String, 3, OmitZero, "The user name."),
        field("secretFile", String, 4, OmitZero, "The secret file."),
        field("secretRef", Type::Struct(&core::SECRET_REFERENCE), 5, Pointer, "The secret with the credentials."),
        field("readOnly", Bool, 6, OmitZero, "Whether writing is forbidden."),
    ],
};

pub static CINDER_PERSISTENT_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.CinderPersistentVolumeSource",
    doc: "A persistent volume kept in cinder.",
    atomic: false,
    fields: &[
        field("volumeID", String, 1, Always, "Id of the volume in the backend."),
        field("fsType", String, 2, OmitZero, "The filesystem to mount."),
        field("readOnly", Bool, 3, OmitZero, "Whether writing is forbidden."),
        field("secretRef", Type::Struct(&core::SECRET_REFERENCE), 4, Pointer, "The secret with the credentials."),
    ],
};

pub static FLEX_PERSISTENT_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.FlexPersistentVolumeSource",
    doc: "A persistent volume kept in flex.",
    atomic: false,
    fields: &[
        field("driver", String, 1, Always, "Name of the driver."),
        field("fsType", String, 2, OmitZero, "The filesystem to mount."),
        field("secretRef", Type::Struct(&core::SECRET_REFERENCE), 3, Pointer, "The secret with the credentials."),
        field("readOnly", Bool, 4, OmitZero, "Whether writing is forbidden."),
        field("options", Map(&String), 5, OmitZero, "The options."),
    ],
};

pub static GLUSTERFS_PERSISTENT_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.GlusterfsPersistentVolumeSource",
    doc: "A persistent volume kept in glusterfs.",
    atomic: false,
    fields: &[
        field("endpoints", String, 1, Always, "The endpoints."),
        field("path", String, 2, Always, "The path."),
        field("readOnly", Bool, 3, OmitZero, "Whether writing is forbidden."),
        field("endpointsNamespace", String, 4, Pointer, "The endpoints namespace."),
    ],
};

pub static ISCSI_PERSISTENT_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.ISCSIPersistentVolumeSource",
    doc: "A persistent volume kept in iSCSI.",
    atomic: false,
    fields: &[
        field("targetPortal", String, 1, Always, "The target portal."),
        field("iqn", String, 2, Always, "The IQN."),
        field("lun", Int32, 3, Always, "The logical unit number."),
        field("iscsiInterface", String, 4, OmitZero, "The iSCSI interface."),
        field("fsType", String, 5, OmitZero, "The filesystem to mount."),
        field("readOnly", Bool, 6, OmitZero, "Whether writing is forbidden."),
        field("portals", list!(String), 7, OmitZero, "The portals."),
        field("chapAuthDiscovery", Bool, 8, OmitZero, "Whether discovery uses CHAP."),
        field("chapAuthSession", Bool, 11, OmitZero, "Whether sessions use CHAP."),
        field("secretRef", Type::Struct(&core::SECRET_REFERENCE), 10, Pointer, "The secret with the credentials."),
        field("initiatorName", String, 12, Pointer, "The initiator name."),
    ],
};

pub static LOCAL_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.LocalVolumeSource",
    doc: "A volume kept in local.",
    atomic: false,
    fields: &[
        field("path", String, 1, Always, "The path."),
        field("fsType", String, 2, Pointer, "The filesystem to mount."),
    ],
};

pub static RBD_PERSISTENT_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.RBDPersistentVolumeSource",
    doc: "A persistent volume kept in RBD.",
    atomic: false,
    fields: &[
        field("monitors", list!(String), 1, Always, "Addresses of the monitors."),
        field("image", String, 2, Always, "The image."),
        field("fsType", String, 3, OmitZero, "The filesystem to mount."),
        field("pool", String, 4, OmitZero, "The pool."),
        field("user", String, 5, OmitZero, "The user name."),
        field("keyring", String, 6, OmitZero, "The keyring."),
        field("secretRef", Type::Struct(&core::SECRET_REFERENCE), 7, Pointer, "The secret with the credentials."),
        field("readOnly", Bool, 8, OmitZero, "Whether writing is forbidden."),
    ],
};

pub static SCALE_IO_PERSISTENT_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.ScaleIOPersistentVolumeSource",
    doc: "A persistent volume kept in scale io.",
    atomic: false,
    fields: &[
        field("gateway", String, 1, Always, "The gateway."),
        field("system", String, 2, Always, "The system."),
        field("secretRef", Type::Struct(&core::SECRET_REFERENCE), 3, PointerOrNull, "The secret with the credentials."),
        field("sslEnabled", Bool, 4, OmitZero, "Whether the gateway is spoken to over TLS."),
        field("protectionDomain", String, 5, OmitZero, "The protection domain."),
        field("storagePool", String, 6, OmitZero, "The storage pool."),
        field("storageMode", String, 7, OmitZero, "The storage mode."),
        field("volumeName", String, 8, OmitZero, "Name of the volume."),
        field("fsType", String, 9, OmitZero, "The filesystem to mount."),
        field("readOnly", Bool, 10, OmitZero, "Whether writing is forbidden."),
    ],
};

pub static STORAGE_OS_PERSISTENT_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.StorageOSPersistentVolumeSource",
    doc: "A persistent volume kept in storage OS.",
    atomic: false,
    fields: &[
        field("volumeName", String, 1, OmitZero, "Name of the volume."),
        field("volumeNamespace", String, 2, OmitZero, "The volume namespace."),
        field("fsType", String, 3, OmitZero, "The filesystem to mount."),
        field("readOnly", Bool, 4, OmitZero, "Whether writing is forbidden."),
        field("secretRef", Type::Struct(&core::OBJECT_REFERENCE), 5, Pointer, "The secret with the credentials."),
    ],
};
