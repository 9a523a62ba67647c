//! Volumes of a pod and every source they can come from.

use super::{container, core, meta, persistent};
use super::{field, list};
use crate::schema::types::Presence::{Always, OmitZero, Pointer, PointerOrNull};
use crate::schema::types::Type::{Bool, Int32, Int64, Map, Quantity, String};
use crate::schema::types::{Struct, Type, inside};

pub static AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.AWSElasticBlockStoreVolumeSource",
    doc: "A volume kept in AWS elastic block store.",
    atomic: false,
    fields: &[
        field("volumeID", String, 1, Always, "Id of the volume in the backend."),
        field("fsType", String, 2, OmitZero, "The filesystem to mount."),
        field("partition", Int32, 3, OmitZero, "The partition to mount; zero for the whole disk."),
        field("readOnly", Bool, 4, OmitZero, "Whether writing is forbidden."),
    ],
};

pub static AZURE_DISK_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.AzureDiskVolumeSource",
    doc: "A volume kept in azure disk.",
    atomic: false,
    fields: &[
        field("diskName", String, 1, Always, "The disk name."),
        field("diskURI", String, 2, Always, "The disk uri."),
        field("cachingMode", String, 3, Pointer, "The caching mode."),
        field("fsType", String, 4, Pointer, "The filesystem to mount."),
        field("readOnly", Bool, 5, Pointer, "Whether writing is forbidden."),
        field("kind", String, 6, Pointer, "Kind of the object."),
    ],
};

pub static AZURE_FILE_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.AzureFileVolumeSource",
    doc: "A volume kept in azure file.",
    atomic: false,
    fields: &[
        field("secretName", String, 1, Always, "Name of the secret."),
        field("shareName", String, 2, Always, "The share name."),
        field("readOnly", Bool, 3, OmitZero, "Whether writing is forbidden."),
    ],
};

pub static CSI_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.CSIVolumeSource",
    doc: "An inline volume that a CSI driver makes for one pod.",
    atomic: false,
    fields: &[
        field("driver", String, 1, Always, "Name of the CSI driver."),
        field("readOnly", Bool, 2, Pointer, "Whether writing is forbidden."),
        field("fsType", String, 3, Pointer, "The filesystem to mount."),
        field("volumeAttributes", Map(&String), 4, OmitZero, "Parameters for the driver."),
        field(
            "nodePublishSecretRef",
            Type::Struct(&core::LOCAL_OBJECT_REFERENCE),
            5,
            Pointer,
            "Secret for publishing to the pod.",
        ),
    ],
};

pub static CEPH_FS_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.CephFSVolumeSource",
    doc: "A volume kept in ceph fs.",
    atomic: false,
    fields: &[
        field("monitors", list!(String), 1, Always, "Addresses of the monitors."),
        field("path", String, 2, OmitZero, "The path."),
        field("user", String, 3, OmitZero, "The user name."),
        field("secretFile", String, 4, OmitZero, "The secret file."),
        field("secretRef", Type::Struct(&core::LOCAL_OBJECT_REFERENCE), 5, Pointer, "The secret with the credentials."),
        field("readOnly", Bool, 6, OmitZero, "Whether writing is forbidden."),
    ],
};

pub static CINDER_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.CinderVolumeSource",
    doc: "A volume kept in cinder.",
    atomic: false,
    fields: &[
        field("volumeID", String, 1, Always, "Id of the volume in the backend."),
        field("fsType", String, 2, OmitZero, "The filesystem to mount."),
        field("readOnly", Bool, 3, OmitZero, "Whether writing is forbidden."),
        field("secretRef", Type::Struct(&core::LOCAL_OBJECT_REFERENCE), 4, Pointer, "The secret with the credentials."),
    ],
};

pub static CLUSTER_TRUST_BUNDLE_PROJECTION: Struct = Struct {
    name: "io.k8s.api.core.v1.ClusterTrustBundleProjection",
    doc: "A cluster trust bundle projection.",
    atomic: false,
    fields: &[
        field("name", String, 1, Pointer, "Its name."),
        field("signerName", String, 2, Pointer, "The signer name."),
        field("labelSelector", Type::Struct(&meta::LABEL_SELECTOR), 3, Pointer, "The label selector."),
        field("optional", Bool, 5, Pointer, "Whether it may be missing."),
        field("path", String, 4, Always, "The path."),
    ],
};

pub static CONFIG_MAP_PROJECTION: Struct = Struct {
    name: "io.k8s.api.core.v1.ConfigMapProjection",
    doc: "A config map projection.",
    atomic: false,
    fields: &[
        field("name", String, inside(1, 1), OmitZero, "Its name."),
        field("items", list!(Type::Struct(&KEY_TO_PATH)), 2, OmitZero, "The keys to take; all if empty."),
        field("optional", Bool, 4, Pointer, "Whether it may be missing."),
    ],
};

pub static CONFIG_MAP_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.ConfigMapVolumeSource",
    doc: "A volume kept in config map.",
    atomic: false,
    fields: &[
        field("name", String, inside(1, 1), OmitZero, "Its name."),
        field("items", list!(Type::Struct(&KEY_TO_PATH)), 2, OmitZero, "The keys to take; all if empty."),
        field("defaultMode", Int32, 3, Pointer, "Permission bits of files that give none."),
        field("optional", Bool, 4, Pointer, "Whether it may be missing."),
    ],
};

pub static DOWNWARD_API_PROJECTION: Struct = Struct {
    name: "io.k8s.api.core.v1.DownwardAPIProjection",
    doc: "A downward API projection.",
    atomic: false,
    fields: &[field(
        "items",
        list!(Type::Struct(&DOWNWARD_API_VOLUME_FILE)),
        1,
        OmitZero,
        "The keys to take; all if empty.",
    )],
};

pub static DOWNWARD_API_VOLUME_FILE: Struct = Struct {
    name: "io.k8s.api.core.v1.DownwardAPIVolumeFile",
    doc: "A downward API volume file.",
    atomic: false,
    fields: &[
        field("path", String, 1, Always, "The path."),
        field("fieldRef", Type::Struct(&container::OBJECT_FIELD_SELECTOR), 2, Pointer, "The field ref."),
        field(
            "resourceFieldRef",
            Type::Struct(&container::RESOURCE_FIELD_SELECTOR),
            3,
            Pointer,
            "The resource field ref.",
        ),
        field("mode", Int32, 4, Pointer, "Permission bits of the file."),
    ],
};

pub static DOWNWARD_API_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.DownwardAPIVolumeSource",
    doc: "A volume kept in downward API.",
    atomic: false,
    fields: &[
        field("items", list!(Type::Struct(&DOWNWARD_API_VOLUME_FILE)), 1, OmitZero, "The keys to take; all if empty."),
        field("defaultMode", Int32, 2, Pointer, "Permission bits of files that give none."),
    ],
};

pub static EMPTY_DIR_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.EmptyDirVolumeSource",
    doc: "A volume kept in empty dir.",
    atomic: false,
    fields: &[
        field("medium", String, 1, OmitZero, "Where it is kept: on disk or in memory."),
        field("sizeLimit", Quantity, 2, Pointer, "The most it may hold."),
    ],
};

pub static EPHEMERAL_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.EphemeralVolumeSource",
    doc: "A volume kept in ephemeral.",
    atomic: false,
    fields: &[field(
        "volumeClaimTemplate",
        Type::Struct(&persistent::PERSISTENT_VOLUME_CLAIM_TEMPLATE),
        1,
        Pointer,
        "The claim to make.",
    )],
};

pub static FC_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.FCVolumeSource",
    doc: "A volume kept in Fibre Channel.",
    atomic: false,
    fields: &[
        field("targetWWNs", list!(String), 1, OmitZero, "The target ww ns."),
        field("lun", Int32, 2, Pointer, "The logical unit number."),
        field("fsType", String, 3, OmitZero, "The filesystem to mount."),
        field("readOnly", Bool, 4, OmitZero, "Whether writing is forbidden."),
        field("wwids", list!(String), 5, OmitZero, "The WWIDs."),
    ],
};

pub static FLEX_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.FlexVolumeSource",
    doc: "A volume kept in flex.",
    atomic: false,
    fields: &[
        field("driver", String, 1, Always, "Name of the driver."),
        field("fsType", String, 2, OmitZero, "The filesystem to mount."),
        field("secretRef", Type::Struct(&core::LOCAL_OBJECT_REFERENCE), 3, Pointer, "The secret with the credentials."),
        field("readOnly", Bool, 4, OmitZero, "Whether writing is forbidden."),
        field("options", Map(&String), 5, OmitZero, "The options."),
    ],
};

pub static FLOCKER_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.FlockerVolumeSource",
    doc: "A volume kept in flocker.",
    atomic: false,
    fields: &[
        field("datasetName", String, 1, OmitZero, "The dataset name."),
        field("datasetUUID", String, 2, OmitZero, "The dataset UUID."),
    ],
};

pub static GCE_PERSISTENT_DISK_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.GCEPersistentDiskVolumeSource",
    doc: "A volume kept in GCE persistent disk.",
    atomic: false,
    fields: &[
        field("pdName", String, 1, Always, "The pd name."),
        field("fsType", String, 2, OmitZero, "The filesystem to mount."),
        field("partition", Int32, 3, OmitZero, "The partition to mount; zero for the whole disk."),
        field("readOnly", Bool, 4, OmitZero, "Whether writing is forbidden."),
    ],
};

pub static GIT_REPO_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.GitRepoVolumeSource",
    doc: "A volume kept in git repo.",
    atomic: false,
    fields: &[
        field("repository", String, 1, Always, "The repository."),
        field("revision", String, 2, OmitZero, "The revision."),
        field("directory", String, 3, OmitZero, "The directory."),
    ],
};

pub static GLUSTERFS_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.GlusterfsVolumeSource",
    doc: "A volume kept in glusterfs.",
    atomic: false,
    fields: &[
        field("endpoints", String, 1, Always, "The endpoints."),
        field("path", String, 2, Always, "The path."),
        field("readOnly", Bool, 3, OmitZero, "Whether writing is forbidden."),
    ],
};

pub static HOST_PATH_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.HostPathVolumeSource",
    doc: "A volume kept in host path.",
    atomic: false,
    fields: &[field("path", String, 1, Always, "The path."), field("type", String, 2, Pointer, "Which sort it is.")],
};

pub static ISCSI_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.ISCSIVolumeSource",
    doc: "A volume kept in iSCSI.",
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
        field(
            "secretRef",
            Type::Struct(&core::LOCAL_OBJECT_REFERENCE),
            10,
            Pointer,
            "The secret with the credentials.",
        ),
        field("initiatorName", String, 12, Pointer, "The initiator name."),
    ],
};

pub static IMAGE_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.ImageVolumeSource",
    doc: "A volume kept in image.",
    atomic: false,
    fields: &[
        field("reference", String, 1, OmitZero, "The reference."),
        field("pullPolicy", String, 2, OmitZero, "The pull policy."),
    ],
};

pub static KEY_TO_PATH: Struct = Struct {
    name: "io.k8s.api.core.v1.KeyToPath",
    doc: "A key to path.",
    atomic: false,
    fields: &[
        field("key", String, 1, Always, "The key."),
        field("path", String, 2, Always, "The path."),
        field("mode", Int32, 3, Pointer, "Permission bits of the file."),
    ],
};

pub static NFS_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.NFSVolumeSource",
    doc: "A volume kept in NFS.",
    atomic: false,
    fields: &[
        field("server", String, 1, Always, "Name or address of the server."),
        field("path", String, 2, Always, "The path."),
        field("readOnly", Bool, 3, OmitZero, "Whether writing is forbidden."),
    ],
};

pub static PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.PersistentVolumeClaimVolumeSource",
    doc: "A volume kept in persistent volume claim.",
    atomic: false,
    fields: &[
        field("claimName", String, 1, Always, "Name of the claim."),
        field("readOnly", Bool, 2, OmitZero, "Whether writing is forbidden."),
    ],
};

pub static PHOTON_PERSISTENT_DISK_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.PhotonPersistentDiskVolumeSource",
    doc: "A volume kept in photon persistent disk.",
    atomic: false,
    fields: &[
        field("pdID", String, 1, Always, "The pd id."),
        field("fsType", String, 2, OmitZero, "The filesystem to mount."),
    ],
};

pub static POD_CERTIFICATE_PROJECTION: Struct = Struct {
    name: "io.k8s.api.core.v1.PodCertificateProjection",
    doc: "A pod certificate projection.",
    atomic: false,
    fields: &[
        field("signerName", String, 1, OmitZero, "The signer name."),
        field("keyType", String, 2, OmitZero, "The key type."),
        field("maxExpirationSeconds", Int32, 3, Pointer, "The longest lifetime."),
        field("credentialBundlePath", String, 4, OmitZero, "The credential bundle path."),
        field("keyPath", String, 5, OmitZero, "The key path."),
        field("certificateChainPath", String, 6, OmitZero, "The certificate chain path."),
        field("userAnnotations", Map(&String), 7, OmitZero, "The user annotations."),
    ],
};

pub static PORTWORX_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.PortworxVolumeSource",
    doc: "A volume kept in portworx.",
    atomic: false,
    fields: &[
        field("volumeID", String, 1, Always, "Id of the volume in the backend."),
        field("fsType", String, 2, OmitZero, "The filesystem to mount."),
        field("readOnly", Bool, 3, OmitZero, "Whether writing is forbidden."),
    ],
};

pub static PROJECTED_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.ProjectedVolumeSource",
    doc: "A volume kept in projected.",
    atomic: false,
    fields: &[
        field("sources", list!(Type::Struct(&VOLUME_PROJECTION)), 1, Always, "The sources."),
        field("defaultMode", Int32, 2, Pointer, "Permission bits of files that give none."),
    ],
};

pub static QUOBYTE_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.QuobyteVolumeSource",
    doc: "A volume kept in quobyte.",
    atomic: false,
    fields: &[
        field("registry", String, 1, Always, "The registry."),
        field("volume", String, 2, Always, "The volume."),
        field("readOnly", Bool, 3, OmitZero, "Whether writing is forbidden."),
        field("user", String, 4, OmitZero, "The user name."),
        field("group", String, 5, OmitZero, "The API group."),
        field("tenant", String, 6, OmitZero, "The tenant."),
    ],
};

pub static RBD_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.RBDVolumeSource",
    doc: "A volume kept in RBD.",
    atomic: false,
    fields: &[
        field("monitors", list!(String), 1, Always, "Addresses of the monitors."),
        field("image", String, 2, Always, "The image."),
        field("fsType", String, 3, OmitZero, "The filesystem to mount."),
        field("pool", String, 4, OmitZero, "The pool."),
        field("user", String, 5, OmitZero, "The user name."),
        field("keyring", String, 6, OmitZero, "The keyring."),
        field("secretRef", Type::Struct(&core::LOCAL_OBJECT_REFERENCE), 7, Pointer, "The secret with the credentials."),
        field("readOnly", Bool, 8, OmitZero, "Whether writing is forbidden."),
    ],
};

pub static SCALE_IO_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.ScaleIOVolumeSource",
    doc: "A volume kept in scale io.",
    atomic: false,
    fields: &[
        field("gateway", String, 1, Always, "The gateway."),
        field("system", String, 2, Always, "The system."),
        field(
            "secretRef",
            Type::Struct(&core::LOCAL_OBJECT_REFERENCE),
            3,
            PointerOrNull,
            "The secret with the credentials.",
        ),
        field("sslEnabled", Bool, 4, OmitZero, "Whether the gateway is spoken to over TLS."),
        field("protectionDomain", String, 5, OmitZero, "The protection domain."),
        field("storagePool", String, 6, OmitZero, "The storage pool."),
        field("storageMode", String, 7, OmitZero, "The storage mode."),
        field("volumeName", String, 8, OmitZero, "Name of the volume."),
        field("fsType", String, 9, OmitZero, "The filesystem to mount."),
        field("readOnly", Bool, 10, OmitZero, "Whether writing is forbidden."),
    ],
};

pub static SECRET_PROJECTION: Struct = Struct {
    name: "io.k8s.api.core.v1.SecretProjection",
    doc: "A secret projection.",
    atomic: false,
    fields: &[
        field("name", String, inside(1, 1), OmitZero, "Its name."),
        field("items", list!(Type::Struct(&KEY_TO_PATH)), 2, OmitZero, "The keys to take; all if empty."),
        field("optional", Bool, 4, Pointer, "Whether it may be missing."),
    ],
};

pub static SECRET_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.SecretVolumeSource",
    doc: "A volume kept in secret.",
    atomic: false,
    fields: &[
        field("secretName", String, 1, OmitZero, "Name of the secret."),
        field("items", list!(Type::Struct(&KEY_TO_PATH)), 2, OmitZero, "The keys to take; all if empty."),
        field("defaultMode", Int32, 3, Pointer, "Permission bits of files that give none."),
        field("optional", Bool, 4, Pointer, "Whether it may be missing."),
    ],
};

pub static SERVICE_ACCOUNT_TOKEN_PROJECTION: Struct = Struct {
    name: "io.k8s.api.core.v1.ServiceAccountTokenProjection",
    doc: "A service account token projection.",
    atomic: false,
    fields: &[
        field("audience", String, 1, OmitZero, "The audience."),
        field("expirationSeconds", Int64, 2, Pointer, "How long it is valid."),
        field("path", String, 3, Always, "The path."),
    ],
};

pub static STORAGE_OS_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.StorageOSVolumeSource",
    doc: "A volume kept in storage OS.",
    atomic: false,
    fields: &[
        field("volumeName", String, 1, OmitZero, "Name of the volume."),
        field("volumeNamespace", String, 2, OmitZero, "The volume namespace."),
        field("fsType", String, 3, OmitZero, "The filesystem to mount."),
        field("readOnly", Bool, 4, OmitZero, "Whether writing is forbidden."),
        field("secretRef", Type::Struct(&core::LOCAL_OBJECT_REFERENCE), 5, Pointer, "The secret with the credentials."),
    ],
};

pub static VOLUME: Struct = Struct {
    name: "io.k8s.api.core.v1.Volume",
    doc: "Storage of a pod under a name its containers can mount.",
    atomic: false,
    fields: &[
        field("name", String, 1, Always, "Its name."),
        field(
            "hostPath",
            Type::Struct(&HOST_PATH_VOLUME_SOURCE),
            inside(2, 1),
            Pointer,
            "A directory or file of the node.",
        ),
        field(
            "emptyDir",
            Type::Struct(&EMPTY_DIR_VOLUME_SOURCE),
            inside(2, 2),
            Pointer,
            "An empty directory that lives as long as the pod.",
        ),
        field(
            "gcePersistentDisk",
            Type::Struct(&GCE_PERSISTENT_DISK_VOLUME_SOURCE),
            inside(2, 3),
            Pointer,
            "The GCE persistent disk.",
        ),
        field(
            "awsElasticBlockStore",
            Type::Struct(&AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE),
            inside(2, 4),
            Pointer,
            "The AWS elastic block store.",
        ),
        field("gitRepo", Type::Struct(&GIT_REPO_VOLUME_SOURCE), inside(2, 5), Pointer, "The git repo."),
        field("secret", Type::Struct(&SECRET_VOLUME_SOURCE), inside(2, 6), Pointer, "A secret."),
        field(
            "nfs",
            Type::Struct(&NFS_VOLUME_SOURCE),
            inside(2, 7),
            Pointer,
            "A directory that an NFS server exports.",
        ),
        field("iscsi", Type::Struct(&ISCSI_VOLUME_SOURCE), inside(2, 8), Pointer, "The iSCSI."),
        field("glusterfs", Type::Struct(&GLUSTERFS_VOLUME_SOURCE), inside(2, 9), Pointer, "The glusterfs."),
        field(
            "persistentVolumeClaim",
            Type::Struct(&PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE),
            inside(2, 10),
            Pointer,
            "A claim of the same namespace.",
        ),
        field("rbd", Type::Struct(&RBD_VOLUME_SOURCE), inside(2, 11), Pointer, "The RBD."),
        field("flexVolume", Type::Struct(&FLEX_VOLUME_SOURCE), inside(2, 12), Pointer, "The flex volume."),
        field("cinder", Type::Struct(&CINDER_VOLUME_SOURCE), inside(2, 13), Pointer, "The cinder."),
        field("cephfs", Type::Struct(&CEPH_FS_VOLUME_SOURCE), inside(2, 14), Pointer, "The cephfs."),
        field("flocker", Type::Struct(&FLOCKER_VOLUME_SOURCE), inside(2, 15), Pointer, "The flocker."),
        field(
            "downwardAPI",
            Type::Struct(&DOWNWARD_API_VOLUME_SOURCE),
            inside(2, 16),
            Pointer,
            "Facts about the pod as files.",
        ),
        field("fc", Type::Struct(&FC_VOLUME_SOURCE), inside(2, 17), Pointer, "The Fibre Channel."),
        field("azureFile", Type::Struct(&AZURE_FILE_VOLUME_SOURCE), inside(2, 18), Pointer, "The azure file."),
        field("configMap", Type::Struct(&CONFIG_MAP_VOLUME_SOURCE), inside(2, 19), Pointer, "A config map."),
        field(
            "vsphereVolume",
            Type::Struct(&VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE),
            inside(2, 20),
            Pointer,
            "The vsphere volume.",
        ),
        field("quobyte", Type::Struct(&QUOBYTE_VOLUME_SOURCE), inside(2, 21), Pointer, "The quobyte."),
        field("azureDisk", Type::Struct(&AZURE_DISK_VOLUME_SOURCE), inside(2, 22), Pointer, "The azure disk."),
        field(
            "photonPersistentDisk",
            Type::Struct(&PHOTON_PERSISTENT_DISK_VOLUME_SOURCE),
            inside(2, 23),
            Pointer,
            "The photon persistent disk.",
        ),
        field(
            "projected",
            Type::Struct(&PROJECTED_VOLUME_SOURCE),
            inside(2, 26),
            Pointer,
            "Several sources in one directory.",
        ),
        field("portworxVolume", Type::Struct(&PORTWORX_VOLUME_SOURCE), inside(2, 24), Pointer, "The portworx volume."),
        field("scaleIO", Type::Struct(&SCALE_IO_VOLUME_SOURCE), inside(2, 25), Pointer, "The scale io."),
        field("storageos", Type::Struct(&STORAGE_OS_VOLUME_SOURCE), inside(2, 27), Pointer, "The storageos."),
        field("csi", Type::Struct(&CSI_VOLUME_SOURCE), inside(2, 28), Pointer, "An inline volume of a CSI driver."),
        field(
            "ephemeral",
            Type::Struct(&EPHEMERAL_VOLUME_SOURCE),
            inside(2, 29),
            Pointer,
            "A claim that is made for this pod and deleted with it.",
        ),
        field("image", Type::Struct(&IMAGE_VOLUME_SOURCE), inside(2, 30), Pointer, "The image."),
    ],
};

pub static VOLUME_PROJECTION: Struct = Struct {
    name: "io.k8s.api.core.v1.VolumeProjection",
    doc: "A volume projection.",
    atomic: false,
    fields: &[
        field("secret", Type::Struct(&SECRET_PROJECTION), 1, Pointer, "A secret."),
        field("downwardAPI", Type::Struct(&DOWNWARD_API_PROJECTION), 2, Pointer, "Facts about the pod as files."),
        field("configMap", Type::Struct(&CONFIG_MAP_PROJECTION), 3, Pointer, "A config map."),
        field(
            "serviceAccountToken",
            Type::Struct(&SERVICE_ACCOUNT_TOKEN_PROJECTION),
            4,
            Pointer,
            "The service account token.",
        ),
        field(
            "clusterTrustBundle",
            Type::Struct(&CLUSTER_TRUST_BUNDLE_PROJECTION),
            5,
            Pointer,
            "The cluster trust bundle.",
        ),
        field("podCertificate", Type::Struct(&POD_CERTIFICATE_PROJECTION), 6, Pointer, "The pod certificate."),
    ],
};

pub static VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE: Struct = Struct {
    name: "io.k8s.api.core.v1.VsphereVirtualDiskVolumeSource",
    doc: "A volume kept in vsphere virtual disk.",
    atomic: false,
    fields: &[
        field("volumePath", String, 1, Always, "The volume path."),
        field("fsType", String, 2, OmitZero, "The filesystem to mount."),
        field("storagePolicyName", String, 3, OmitZero, "The storage policy name."),
        field("storagePolicyID", String, 4, OmitZero, "The storage policy id."),
    ],
};
