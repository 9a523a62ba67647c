//! Bind: join one claim to one volume, for good.
//!
//! Enters: a claim without a volume, and the volumes that are free or reserved. Leaves: each points at the other, both
//! phases say Bound, and the claim carries the mark that binding completed.
//!
//! # Invariants
//! 1. The volume is written first; a crash between two writes is finished later, never rolled back.
//! 2. A volume whose owner has a uid belongs to that uid, not to a newer claim of the same name.
//! 3. Missing from the cache is not missing: see [`crate::Lookup::NotCached`].
//!
//! # Not here
//! Making volumes (`provision`), and what happens once a claim is gone (`release`).

pub mod claim;
pub mod compatible;
pub mod shelf;
pub mod status;

#[cfg(test)]
pub(crate) mod tests;
