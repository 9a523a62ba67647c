//! Names that clients and controllers write into objects: labels, annotations, finalizers, secret types. Declared once.

pub(crate) const ACCOUNT_MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
pub(crate) const APPROVED: &str = "api-approved.kubernetes.io";
pub(crate) const ARCH: &str = "kubernetes.io/arch";
pub(crate) const AUTHENTICATION_PREFIX: &str = "authentication.kubernetes.io/";
pub(crate) const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
pub(crate) const BETA_ARCH: &str = "beta.kubernetes.io/arch";
pub(crate) const BETA_DEFAULT_CLASS: &str = "storageclass.beta.kubernetes.io/is-default-class";
pub(crate) const BETA_INSTANCE_TYPE: &str = "beta.kubernetes.io/instance-type";
pub(crate) const BETA_MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";
pub(crate) const BETA_OS: &str = "beta.kubernetes.io/os";
pub(crate) const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
pub(crate) const BETA_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
pub(crate) const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
pub(crate) const BOOTSTRAPPING: &str = "kubernetes.io/bootstrapping";
pub(crate) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
pub(crate) const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";
/// On what the server installed by itself: a digest of the spec as it was then.
pub(crate) const INSTALLED_SPEC: &str = "orlop.dev/installed-spec";
pub(crate) const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// On a Secret that holds a join token, and its type.
pub const JOIN_TOKEN: &str = "orlop.dev/join-token";
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// On a Node: the hash of the key of the machine that joined under its name. Of a user: the hash of the key that such a
/// machine has.
pub const MACHINE_KEY: &str = "orlop.dev/machine-key";
/// The driver of machines that join, of which each has its own.
pub const MACHINE_DRIVER: &str = "local.csi.orlop.dev";
/// The topology of that driver: the name of the one node from which a volume can be reached.
pub const MACHINE_TOPOLOGY: &str = "topology.local.csi.orlop.dev/node";
pub(crate) const MIRROR_POD: &str = "kubernetes.io/config.mirror";
pub(crate) const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
pub(crate) const NATIVE_PART: &str = "kubernetes.io/";
pub(crate) const NODE_NOT_READY: &str = "node.kubernetes.io/not-ready";
pub(crate) const NODE_UNREACHABLE: &str = "node.kubernetes.io/unreachable";
pub(crate) const NODE_ROLE: &str = "kubernetes.io/role";
pub(crate) const NODE_ROLE_PREFIX: &str = "node-role.kubernetes.io/";
pub(crate) const OS: &str = "kubernetes.io/os";
pub(crate) const PVC_PROTECTION: &str = "kubernetes.io/pvc-protection";
pub(crate) const PV_PROTECTION: &str = "kubernetes.io/pv-protection";
pub(crate) const REGION: &str = "topology.kubernetes.io/region";
/// On a ConfigMap that notes the key of a machine that is let in no more.
pub(crate) const REVOKED_KEY: &str = "orlop.dev/revoked-key";
pub(crate) const SECRET_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
pub(crate) const SECRET_ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";
pub(crate) const SECRET_BASIC_AUTH: &str = "kubernetes.io/basic-auth";
pub(crate) const SECRET_DOCKERCFG: &str = "kubernetes.io/dockercfg";
pub(crate) const SECRET_DOCKERCONFIGJSON: &str = "kubernetes.io/dockerconfigjson";
pub(crate) const SECRET_SSH: &str = "kubernetes.io/ssh-auth";
pub(crate) const SECRET_TLS: &str = "kubernetes.io/tls";
pub(crate) const VAC_PROTECTION: &str = "kubernetes.io/vac-protection";
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
