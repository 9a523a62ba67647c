//! The Linux layer: everything storage asks of the kernel and of the filesystem tools, and nothing else. The local driver
//! and the node agent stand on it.
//!
//! All of it is synchronous; callers run it on a blocking thread. Nothing here knows about CSI, volumes, records
//! or pools: a module takes paths and open files and says what the kernel answered.
//!
//! # Invariants
//! 1. `unsafe` lives in [`ioctl`] and nowhere else.
//! 2. A failed question is an error, never the harmless answer: a read error is not "empty", an unreadable mount
//!    table is not "not mounted".
//! 3. Targets of mounts are held by file descriptor between check and use, and a symbolic link is refused (LOCAL-R16).
//! 4. External tools run through [`command`]: own process group, `LC_ALL=C`, a deadline, captured output.

pub mod bounded;
pub mod command;
pub mod durable;
pub mod error;
pub mod flush;
pub mod freeze;
pub mod fs;
pub mod holders;
pub mod image;
pub mod ioctl;
pub mod loopdev;
pub mod mountinfo;
pub mod mounts;
pub mod patience;
pub mod statfs;
pub mod subpath;
pub mod tree;

pub use error::SysError;

#[cfg(test)]
mod rig;
