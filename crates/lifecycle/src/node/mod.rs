//! On a node: what to do with one volume and the pods that want it, from the claim to the mount and all the way back.
//!
//! Two decisions follow each other. [`claim`] says which volume a pod's claim stands for, or why there is none yet. [`volume`]
//! looks at one volume on this machine, at the pods that want it and at those that have it, and says what comes next:
//! stage, publish, publish again, grow, unpublish, unstage, forget. [`state`] says what is known after a call failed, [`terms`]
//! how a driver is asked, [`selinux`] with which context, [`expand`] whether a node may grow a filesystem now, and [`slots`]
//! what becomes of a pod whose volumes find no slot.
//!
//! # Invariants
//! 1. Nothing is staged before the server stored that this node uses the volume, and the controller says that it is
//!    attached (NODE-9, ATTACH-6.7).
//! 2. Nothing is taken away before every pod of this node is known, and nothing that a pod still wants, but what is dead.
//! 3. What may be there is treated as there: it is asked for again while it is wanted, and taken away when it is not.

pub mod because;
pub mod claim;
pub mod expand;
pub mod selinux;
pub mod slots;
pub mod state;
pub mod terms;
#[cfg(test)]
mod tests;
pub mod volume;

pub use because::Because;
pub use state::{Class, Held, Origin};
pub use volume::{
    Alone, Attach, Attachment, Due, Holder, Observed, Removal, Sharing, Staging, Step, Wanted, Wish, decide, standing,
};
