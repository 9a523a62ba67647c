//! The reference CSI driver, `local.csi.orlop.dev`: volumes as image files on loop devices, raw block devices and plain
//! directories, in pools that are ordinary directories.
//!
//! # How it keeps data
//! 1. Every volume, snapshot and group is one directory that holds its record and its data. It is built under `.tmp`
//!    and appears by one rename; it leaves by one rename into `.trash`. There is no state between "absent" and "ready"
//!    for a crash to find, and no index that could disagree with the directories.
//! 2. Truth about the node is what the kernel says (mountinfo, loop status). Notes kept on disk are hints.
//! 3. A device is formatted only if its record says that it never was, and a probe says that it is empty.
//! 4. A volume is synced before it is let go, and one that lost writes is marked on disk before anything else is done with it.
//! 5. Only a volume's own filesystem is ever frozen, and a second process thaws it should we die.
//!
//! # Must never know
//! Kubernetes, gRPC codes, sockets. It implements the slots of `driver-sdk`; the SDK does the talking.
//!
//! The driver's work is synchronous ([`core::Core`]); [`driver::LocalDriver`] runs it on blocking threads.

pub mod config;
pub mod core;
pub mod driver;
pub mod fault;
pub mod keys;
pub mod loss;
pub mod params;
pub mod pool;
pub mod record;
pub mod space;

mod controller;
mod node;
mod raw_devices;

pub use config::{Config, ConfigError, PoolConfig};
pub use driver::LocalDriver;
