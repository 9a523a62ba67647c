//! The few keys that kubelet puts into CSI maps and a driver SDK has to understand. The only place that names them.

/// In `volume_context` of NodePublishVolume: "true" says that this is an inline volume, without any other call.
pub const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";

/// In `volume_context`, when the driver asks for it: the pod that uses the volume.
pub const POD_NAME: &str = "csi.storage.k8s.io/pod.name";
pub const POD_NAMESPACE: &str = "csi.storage.k8s.io/pod.namespace";
pub const POD_UID: &str = "csi.storage.k8s.io/pod.uid";
pub const SERVICE_ACCOUNT: &str = "csi.storage.k8s.io/serviceAccount.name";
