//! Release: the volume's side of binding, and what becomes of a volume whose claim is gone.
//!
//! Enters: a volume, and what is known of the claim it names. Leaves: a phase that is true, and a backend volume that is
//! kept, handed back or deleted as its reclaim policy says.
//!
//! # Invariants
//! 1. A claim is gone only when the server said so: a cache that lacks it proves nothing (CTRL-I1).
//! 2. What a user wrote into `claimRef` is never erased, only its uid (CTRL-I5).
//! 3. A volume that was chosen for a claim and never given to it is put back, not reclaimed (CTRL-14.6).
//! 4. Nothing is deleted that a claim points at (CTRL-I6).

pub mod volume;

#[cfg(test)]
mod tests;
