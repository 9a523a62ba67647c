//! Attach: a VolumeAttachment is carried out by its driver, and taken back (ATTACHER-3).
//!
//! [`attachment`] decides about one VolumeAttachment; [`volume`] says when a PersistentVolume may go; [`publication`] is
//! what the driver is asked; [`listing`] compares what the driver says with what attachments say.
//!
//! # Invariants
//! 1. Before the driver is asked to publish, our finalizer is stored on the volume and on the attachment, and the attachment
//!    says what was published where: handle, node id, and the secret's name. What was begun can therefore be taken back
//!    without the volume, the node and the process that began it.
//! 2. Our finalizer leaves an attachment only after the driver said that the volume is not published there.
//! 3. Nothing is written about an attachment that cannot be carried out but the reason: it can be deleted freely.
//! 4. Secrets are named, never held.

pub mod attachment;
mod because;
pub mod listing;
pub mod publication;
#[cfg(test)]
mod tests;
mod unfit;
pub mod volume;

use api::keys::finalizer;

use crate::provision::csi::{Abilities, Ability};

pub use because::Because;
pub use publication::{Publication, Target};
pub use unfit::Unfit;

/// The driver that attachments are carried out by.
#[derive(Debug, Clone)]
pub struct Attacher {
    pub name: String,
    /// What we put on attachments and volumes: [`finalizer_of`] its name.
    pub finalizer: String,
    /// The filesystem of volumes that name none: `--default-fstype`.
    pub default_fstype: String,
}

impl Attacher {
    pub fn new(name: &str, default_fstype: &str) -> Self {
        Self { name: name.to_owned(), finalizer: finalizer_of(name), default_fstype: default_fstype.to_owned() }
    }
}

/// How a driver's attachments are carried out (ATTACHER-3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handler {
    /// The driver has nothing to do with attaching: every attachment is attached at once (ATTACHER-3.5).
    Trivial,
    Csi,
}

impl Handler {
    pub fn of(has: &Abilities) -> Self {
        match has.contains(&Ability::ControllerService) && has.contains(&Ability::Publish) {
            true => Self::Csi,
            false => Self::Trivial,
        }
    }
}

/// Whether the driver can say what is published where (ATTACHER-3.2, ATTACHER-3.9).
pub fn lists_publications(has: &Abilities) -> bool {
    let needed = [Ability::ListVolumes, Ability::ListPublishedNodes];
    Handler::of(has) == Handler::Csi && needed.iter().all(|ability| has.contains(ability))
}

/// The finalizer of a driver's attacher (ATTACHER-3.4).
pub fn finalizer_of(driver: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
    let mut name: String = driver.chars().map(plain).collect();
    if name.ends_with('-') {
        name.push('X');
    }
    format!("{}{name}", finalizer::EXTERNAL_ATTACHER_PREFIX)
}
