//! Provision: a volume is made for a claim, and deleted when its time is over (PROVISION-2.3 to PROVISION-2.5,
//! PROVISION-2.10, PROVISION-2.11).
//!
//! Three decisions. [`claim`] says whether a claim gets a volume. [`intent`] takes a creation that was begun to its end,
//! whatever became of the claim. [`delete`] says when what a volume is made of may go.
//!
//! # Invariants
//! 1. While an intent is open, only [`intent`] decides about its claim: nothing that a user does to the claim can make
//!    a begun creation forgotten (SIDECAR-P2 to SIDECAR-P6).
//! 2. Nothing is deleted while a claim with the uid that the volume names may still live.

pub mod backing;
pub mod claim;
pub mod csi;
pub mod delete;
pub mod intent;

#[cfg(test)]
mod tests;

use crate::decision::Notice;

/// The event of an attempt that failed (PROVISION-2.5).
pub fn failed(class: &str, message: &str) -> Notice {
    Notice::warning("ProvisioningFailed", format!("failed to provision volume with StorageClass {class:?}: {message}"))
}

/// The event of a deletion that failed (PROVISION-2.11.5).
pub fn delete_failed(message: &str) -> Notice {
    Notice::warning("VolumeFailedDelete", message)
}

/// The names that a provisioner answers to: its own first, then those of plugins it took over from.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a>(pub &'a [String]);

impl Names<'_> {
    /// Its own name.
    pub fn own(&self) -> &str {
        self.0.first().map_or("", String::as_str)
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|held| held == name)
    }
}
