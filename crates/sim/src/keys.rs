//! Names with a domain in front.

/// The model driver.
pub const DRIVER: &str = "driver.sim.orlop.dev";
/// A driver that nobody runs: volumes made by hand say that they are its.
pub const FOREIGN_DRIVER: &str = "foreign.sim.orlop.dev";
/// Where the model driver's volumes are, and its nodes.
pub const ZONE: &str = "sim.orlop.dev/zone";
/// Which ConfigMaps hold the intents of a driver.
pub const INTENTS: &str = "orlop.dev/intents";
/// The condition of a pod that says whether its volumes are there.
pub const VOLUMES_READY: &str = "orlop.dev/VolumesReady";
