//! What keeps an attachment from being carried out before anybody is called.

use crate::migration::Untranslatable;
use crate::provision::csi::access::BadAccess;

/// Why the driver is not asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("the attachment names no volume")]
    NoSource,
    #[error("the attachment names a PersistentVolume and holds an inline volume; only one of the two may be")]
    TwoSources,
    #[error("PersistentVolume {name:?} does not exist")]
    VolumeMissing { name: String },
    #[error("PersistentVolume {name:?} is marked for deletion")]
    VolumeGoing { name: String },
    #[error("{what} is not a volume of a CSI driver")]
    NotCsi { what: String },
    #[error("{what} is of the driver {driver:?}")]
    OtherDriver { what: String, driver: String },
    #[error("{what} cannot be read: {why}")]
    Malformed { what: String, why: String },
    #[error("{0}")]
    Untranslatable(Untranslatable),
    #[error("{0}")]
    Access(BadAccess),
    #[error("{what} has a controllerPublishSecretRef without a name or a namespace")]
    SecretUnnamed { what: String },
    /// The sentence says which and why, and nothing of what is in it.
    #[error("{why}")]
    Secret { why: String },
    #[error("CSINode {node:?} does not exist: no driver is registered on that node")]
    NodeMissing { node: String },
    #[error("CSINode {node:?} does not list driver {driver:?}: it is not registered on that node")]
    DriverNotOnNode { node: String, driver: String },
    /// Detaching, and neither the volume nor the attachment tells what was published.
    #[error(
        "PersistentVolume {name:?} does not exist, so that nobody knows what the driver calls the volume; create it again, \
         or detach it by hand and take the finalizer {finalizer:?} off the attachment"
    )]
    HandleUnknown { name: String, finalizer: String },
}
