//! Names that users and callers write: driver name, parameters, context keys. Declared once, here.

/// The driver's name unless configured otherwise.
pub const DRIVER_NAME: &str = "local.csi.orlop.dev";

/// Class parameter: the pool to use, by name. Default: the pool with the most free space.
pub const POOL: &str = "pool";
/// Class parameter: `image` (default where loop devices work) or `directory`.
pub const KIND: &str = "kind";
/// Class parameter: filesystem of an image volume: `ext4` (default), `xfs` or `btrfs`.
pub const FS_TYPE: &str = "fsType";
/// Mutable parameter: `thin` or `thick`. Default: the pool's, thick where others use its filesystem.
pub const PROVISIONING: &str = "provisioning";
/// Mutable parameter: `true` (default) or `false`; whether the loop device bypasses the page cache.
pub const DIRECT_IO: &str = "directIo";
/// Mutable parameter: read-ahead of the volume's device, in KiB.
pub const READ_AHEAD_KIB: &str = "readAheadKiB";
/// Attribute of an inline volume: its size, such as `64Mi`.
pub const SIZE: &str = "size";

/// Parameters that may be changed while a volume lives.
pub const MUTABLE: [&str; 3] = [PROVISIONING, DIRECT_IO, READ_AHEAD_KIB];
/// Every parameter a class may set.
pub const CLASS: [&str; 6] = [POOL, KIND, FS_TYPE, PROVISIONING, DIRECT_IO, READ_AHEAD_KIB];

/// Sidecars add parameters under this prefix (claim name and the like); they say nothing about the volume itself.
pub const CALLER_PREFIX: &str = "csi.storage.k8s.io/";
/// Some callers pass the filesystem as a parameter of this name.
pub const CALLER_FS_TYPE: &str = "csi.storage.k8s.io/fstype";

/// Publish context: set when the volume is attached read-only.
pub const ATTACHED_READ_ONLY: &str = "attachedReadOnly";

/// The topology key of a driver: its one segment names the node.
pub fn topology_key(driver_name: &str) -> String {
    format!("topology.{driver_name}/node")
}
