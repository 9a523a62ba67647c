//! Keys that callers of a driver put into CSI maps. The only place of this module that names them.

/// In `volume_context` of NodePublishVolume: "true" marks an inline volume, for which no other call is ever made.
pub(super) const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";
