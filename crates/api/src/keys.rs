//! Names that users, controllers and drivers write into objects, each declared once with its type.
//!
//! A key has one type per place it may stand in, so that a finalizer cannot be looked up among annotations. The texts are
//! a contract with every other program in a cluster: they never change.

use std::fmt;

macro_rules! key_types {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub &'static str);

        impl $name {
            pub const fn text(self) -> &'static str {
                self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.0)
            }
        }
    )*};
}

key_types! {
    /// A key under `metadata.annotations`.
    Annotation;
    /// A key under `metadata.labels`.
    Label;
    /// An entry of `metadata.finalizers`.
    Finalizer;
    /// A key of a StorageClass' `parameters` that the provisioner reads itself.
    Parameter;
    /// A taint on a node.
    Taint;
}

/// What a presence-only annotation is written with.
pub const YES: &str = "yes";

/// Annotations (CTRL-2.1, PROVISION-2.10).
pub mod annotation {
    use super::Annotation;

    /// On a pod that stands for a machine: the path there.
    pub const HOST_MOUNT_PATH: Annotation = Annotation("orlop.dev/host-mount-path");
    /// On a Node: the objects are those of a backup, and the node's agent has not said since then what it uses. On a
    /// VolumeAttachment: its status does not say whether the volume is attached. `orlop restore` and `orlop salvage` write it.
    pub const RESTORED: Annotation = Annotation("orlop.dev/restored");
    /// On a Node with [`RESTORED`]: which volumes its agent found there after the restore.
    pub const RESTORED_VOLUMES: Annotation = Annotation("orlop.dev/restored-volumes");
    /// On a pod that stands for a machine: its node.
    pub const HOST_MOUNT_NODE: Annotation = Annotation("orlop.dev/host-mount-node");
    /// On a pod that stands for a machine: which filesystem is shown at the path, as `MAJOR:MINOR ROOT` of the mount table.
    pub const HOST_MOUNT_SHOWS: Annotation = Annotation("orlop.dev/host-mount-shows");
    /// The first binding of a claim finished. Presence only.
    pub const BIND_COMPLETED: Annotation = Annotation("pv.kubernetes.io/bind-completed");
    /// The pointer on this object was chosen by the system, not by a user. Presence only.
    pub const BOUND_BY_CONTROLLER: Annotation = Annotation("pv.kubernetes.io/bound-by-controller");
    /// The node chosen for a claim with delayed binding; taking it away means "schedule again".
    pub const SELECTED_NODE: Annotation = Annotation("volume.kubernetes.io/selected-node");
    pub const ALPHA_SELECTED_NODE: Annotation = Annotation("volume.alpha.kubernetes.io/selected-node");
    /// The provisioner that must act on a claim.
    pub const STORAGE_PROVISIONER: Annotation = Annotation("volume.kubernetes.io/storage-provisioner");
    /// Its twin from before it was stable: always written with it, read when it is missing.
    pub const BETA_STORAGE_PROVISIONER: Annotation = Annotation("volume.beta.kubernetes.io/storage-provisioner");
    /// The plugin or driver that made a volume.
    pub const PROVISIONED_BY: Annotation = Annotation("pv.kubernetes.io/provisioned-by");
    /// The CSI driver that took over from an in-tree plugin.
    pub const MIGRATED_TO: Annotation = Annotation("pv.kubernetes.io/migrated-to");
    /// Wins over `spec.storageClassName` wherever it is present, even when it is empty.
    pub const BETA_STORAGE_CLASS: Annotation = Annotation("volume.beta.kubernetes.io/storage-class");
    pub const DEFAULT_CLASS: Annotation = Annotation("storageclass.kubernetes.io/is-default-class");
    pub const BETA_DEFAULT_CLASS: Annotation = Annotation("storageclass.beta.kubernetes.io/is-default-class");
    /// A claim's capacity before a resize whose filesystem step is pending. On volumes.
    pub const PRE_RESIZE_CAPACITY: Annotation = Annotation("volume.alpha.kubernetes.io/pre-resize-capacity");
    pub const STORAGE_RESIZER: Annotation = Annotation("volume.kubernetes.io/storage-resizer");
    pub const DELETION_SECRET_NAME: Annotation = Annotation("volume.kubernetes.io/provisioner-deletion-secret-name");
    pub const DELETION_SECRET_NAMESPACE: Annotation =
        Annotation("volume.kubernetes.io/provisioner-deletion-secret-namespace");
    pub const MODIFY_SECRET_NAME: Annotation = Annotation("volume.kubernetes.io/controller-modify-secret-name");
    pub const MODIFY_SECRET_NAMESPACE: Annotation =
        Annotation("volume.kubernetes.io/controller-modify-secret-namespace");
    /// The node leaves attaching and detaching to the controller. On nodes; presence only.
    pub const MANAGED_ATTACH: Annotation = Annotation("volumes.kubernetes.io/controller-managed-attach-detach");
    pub const CREATED_BY: Annotation = Annotation("kubernetes.io/createdby");
    pub const MIGRATED_PLUGINS: Annotation = Annotation("storage.alpha.kubernetes.io/migrated-plugins");
    pub const ALLOW_VOLUME_MODE_CHANGE: Annotation =
        Annotation("snapshot.storage.kubernetes.io/allow-volume-mode-change");
    pub const AZURE_FILE_RESOURCE_GROUP: Annotation = Annotation("kubernetes.io/azure-file-resource-group");
    pub const PORTWORX_SECRET_NAME: Annotation = Annotation("openstorage.io/auth-secret-name");
    pub const PORTWORX_SECRET_NAMESPACE: Annotation = Annotation("openstorage.io/auth-secret-namespace");
    /// A group that every pod with the volume belongs to.
    pub const VOLUME_GID: Annotation = Annotation("pv.beta.kubernetes.io/gid");
    /// On a claim: no other node has to grow its filesystem.
    pub const NODE_EXPANSION_NOT_REQUIRED: Annotation = Annotation("volume.kubernetes.io/node-expansion-not-required");
    pub const MOUNT_OPTIONS: Annotation = Annotation("volume.beta.kubernetes.io/mount-options");
    /// On a node: what each driver calls it, as a JSON map.
    pub const NODE_IDS: Annotation = Annotation("csi.volume.kubernetes.io/nodeid");
    /// On a node: the topology labels that the agent put there, as a JSON map, so that it may take them away again.
    pub const TOPOLOGY_LABELS: Annotation = Annotation("orlop.dev/topology-labels");
    /// On an attachment: how the driver calls the node that the volume was published to.
    pub const NODE_ID: Annotation = Annotation("csi.alpha.kubernetes.io/node-id");
    /// On an attachment: the driver's name of the volume that was published, so that it can be taken back without the
    /// PersistentVolume.
    pub const PUBLISHED_HANDLE: Annotation = Annotation("orlop.dev/published-handle");
    /// On an attachment: the secret that taking it back needs, as `NAMESPACE/NAME`.
    pub const PUBLISH_SECRET: Annotation = Annotation("orlop.dev/publish-secret");
    /// On a lease: a mark that its holder gives to each renewal, so that the holder can tell its own renewals from those of
    /// a copy of its machine.
    pub const LEASE_RENEWAL: Annotation = Annotation("orlop.dev/renewal");
    /// What kubectl keeps of an earlier `apply`. Never read by us, often larger than the rest of the object.
    pub const LAST_APPLIED: Annotation = Annotation("kubectl.kubernetes.io/last-applied-configuration");
}

/// Finalizers (CTRL-2.2, PROVISION-2.8).
pub mod finalizer {
    use super::Finalizer;

    /// A machine shows the pod's volume at a path of its own: `orlop umount` takes it off.
    pub const HOST_MOUNT: Finalizer = Finalizer("orlop.dev/host-mount");
    pub const PVC_PROTECTION: Finalizer = Finalizer("kubernetes.io/pvc-protection");
    pub const PV_PROTECTION: Finalizer = Finalizer("kubernetes.io/pv-protection");
    pub const VAC_PROTECTION: Finalizer = Finalizer("kubernetes.io/vac-protection");
    /// The binder still has to delete what an in-tree plugin made.
    pub const PV_CONTROLLER: Finalizer = Finalizer("kubernetes.io/pv-controller");
    /// The provisioner still has to delete what the driver made.
    pub const EXTERNAL_PROVISIONER: Finalizer = Finalizer("external-provisioner.volume.kubernetes.io/finalizer");
    pub const CLONING_PROTECTION: Finalizer = Finalizer("provisioner.storage.kubernetes.io/cloning-protection");
    pub const SNAPSHOT_SOURCE_PROTECTION: Finalizer =
        Finalizer("provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection");
    /// A snapshot is being taken of the claim.
    pub const CLAIM_AS_SOURCE_PROTECTION: Finalizer =
        Finalizer("snapshot.storage.kubernetes.io/pvc-as-source-protection");
    /// How the finalizers of attachers begin; the driver's name follows.
    pub const EXTERNAL_ATTACHER_PREFIX: &str = "external-attacher/";
}

/// Labels.
pub mod label {
    use super::Label;

    pub const HOSTNAME: Label = Label("kubernetes.io/hostname");
    pub const OS: Label = Label("kubernetes.io/os");
    pub const ARCH: Label = Label("kubernetes.io/arch");
    pub const ZONE: Label = Label("topology.kubernetes.io/zone");
    pub const REGION: Label = Label("topology.kubernetes.io/region");
    pub const BETA_ZONE: Label = Label("failure-domain.beta.kubernetes.io/zone");
    pub const BETA_REGION: Label = Label("failure-domain.beta.kubernetes.io/region");
    pub const CAPACITY_DRIVER: Label = Label("csi.storage.k8s.io/drivername");
    pub const CAPACITY_MANAGED_BY: Label = Label("csi.storage.k8s.io/managed-by");
    /// On a ConfigMap that holds volumes whose creation was begun: whose they are.
    pub const INTENTS: Label = Label("orlop.dev/intents");
    /// Of several provisioners of one name, one per node: which one.
    pub const INTENTS_INSTANCE: Label = Label("orlop.dev/intents-instance");
    /// On a Node that has the annotation of the same name, so that such nodes can be selected.
    pub const RESTORED: Label = Label("orlop.dev/restored");
    /// On a pod that stands for a machine: `orlop mount` made it, for one path.
    pub const HOST_MOUNT: Label = Label("orlop.dev/host-mount");
}

/// Parameters of a StorageClass (PROVISION-2.7). The secret kinds are stems: `-name` and `-namespace` follow.
pub mod parameter {
    use super::Parameter;

    pub const PREFIX: &str = "csi.storage.k8s.io/";
    pub const FSTYPE: Parameter = Parameter("csi.storage.k8s.io/fstype");
    /// Its name before there was a prefix; any mix of cases counts.
    pub const PLAIN_FSTYPE: Parameter = Parameter("fstype");
    pub const DEFAULT_SECRET: Parameter = Parameter("csi.storage.k8s.io/secret");
    pub const PROVISIONER_SECRET: Parameter = Parameter("csi.storage.k8s.io/provisioner-secret");
    pub const CONTROLLER_PUBLISH_SECRET: Parameter = Parameter("csi.storage.k8s.io/controller-publish-secret");
    pub const NODE_STAGE_SECRET: Parameter = Parameter("csi.storage.k8s.io/node-stage-secret");
    pub const NODE_PUBLISH_SECRET: Parameter = Parameter("csi.storage.k8s.io/node-publish-secret");
    pub const CONTROLLER_EXPAND_SECRET: Parameter = Parameter("csi.storage.k8s.io/controller-expand-secret");
    pub const NODE_EXPAND_SECRET: Parameter = Parameter("csi.storage.k8s.io/node-expand-secret");
    pub const CONTROLLER_MODIFY_SECRET: Parameter = Parameter("csi.storage.k8s.io/controller-modify-secret");
    /// Names of secrets from before there was a prefix: `Name` and `Namespace` follow.
    pub const OLD_PROVISIONER_SECRET: Parameter = Parameter("csiProvisionerSecret");
    pub const OLD_CONTROLLER_PUBLISH_SECRET: Parameter = Parameter("csiControllerPublishSecret");
    pub const OLD_NODE_STAGE_SECRET: Parameter = Parameter("csiNodeStageSecret");
    pub const OLD_NODE_PUBLISH_SECRET: Parameter = Parameter("csiNodePublishSecret");
    pub const CLAIM_NAME: Parameter = Parameter("csi.storage.k8s.io/pvc/name");
    pub const CLAIM_NAMESPACE: Parameter = Parameter("csi.storage.k8s.io/pvc/namespace");
    pub const VOLUME_NAME: Parameter = Parameter("csi.storage.k8s.io/pv/name");
    /// Written into a volume's attributes, so that one can tell which run of a provisioner made it.
    pub const PROVISIONER_IDENTITY: &str = "storage.kubernetes.io/csiProvisionerIdentity";
}

/// Keys that tell a driver about the pod that gets a volume (NODE-11).
pub mod context {
    pub const POD_NAME: &str = "csi.storage.k8s.io/pod.name";
    pub const POD_NAMESPACE: &str = "csi.storage.k8s.io/pod.namespace";
    pub const POD_UID: &str = "csi.storage.k8s.io/pod.uid";
    pub const SERVICE_ACCOUNT: &str = "csi.storage.k8s.io/serviceAccount.name";
    pub const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";
    pub const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";
}

/// Conditions of pods.
pub mod condition {
    /// Whether a pod's volumes are mounted, on a machine whose agent runs no containers.
    pub const VOLUMES_READY: &str = "orlop.dev/VolumesReady";
    /// Of a claim: its driver says that something is wrong with its volume.
    pub const VOLUME_ABNORMAL: &str = "orlop.dev/VolumeAbnormal";
}

/// Values of labels.
pub mod value {
    /// Who keeps capacity objects, for [`super::label::CAPACITY_MANAGED_BY`]; a node's own provisioner adds its name.
    pub const CAPACITY_MANAGER: &str = "external-provisioner";
}

/// Taints.
pub mod taint {
    use super::Taint;

    pub const OUT_OF_SERVICE: Taint = Taint("node.kubernetes.io/out-of-service");
    pub const UNSCHEDULABLE: Taint = Taint("node.kubernetes.io/unschedulable");
    pub const NOT_READY: Taint = Taint("node.kubernetes.io/not-ready");
    pub const UNREACHABLE: Taint = Taint("node.kubernetes.io/unreachable");
}

/// Names of provisioners.
pub mod provisioner {
    /// The prefix of plugins that live in the binder itself; an unknown name with it is an error.
    pub const IN_TREE_PREFIX: &str = "kubernetes.io/";
    /// The class has no provisioner; its volumes are made by hand.
    pub const NONE: &str = "kubernetes.io/no-provisioner";
    pub const HOST_PATH: &str = "kubernetes.io/host-path";
    pub const NFS: &str = "kubernetes.io/nfs";
    pub const CSI: &str = "kubernetes.io/csi";
    pub const LOCAL: &str = "kubernetes.io/local-volume";
}

/// Names of the kubelet's volume plugins, which directories and unique volume names are made of (NODE-2).
pub mod plugin {
    pub const CSI: &str = super::provisioner::CSI;
    pub const HOST_PATH: &str = super::provisioner::HOST_PATH;
    pub const NFS: &str = super::provisioner::NFS;
    pub const LOCAL: &str = super::provisioner::LOCAL;
    pub const EMPTY_DIR: &str = "kubernetes.io/empty-dir";
    pub const SECRET: &str = "kubernetes.io/secret";
    pub const CONFIG_MAP: &str = "kubernetes.io/configmap";
    pub const DOWNWARD_API: &str = "kubernetes.io/downward-api";
    pub const PROJECTED: &str = "kubernetes.io/projected";
}
