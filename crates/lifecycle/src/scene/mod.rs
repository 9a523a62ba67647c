//! Scene: a cluster's storage as it is drawn, one *way* per claim: claim, volume, attachment, node, pod.
//!
//! Everything follows from a [`Picture`] of the cluster and from the [`Moments`] that somebody who watched it noted. Why
//! something waits is [`crate::explain`]'s sentence, word for word.
//!
//! # Invariants
//! 1. Nothing of a Secret, of a pod's environment or of a volume's attributes is in a scene: none of it is in a picture.
//! 2. A time that the API does not tell is said to be the watcher's, and one that nobody knows is left open ([`When`]).
//! 3. What could not be looked at is not drawn as absent; the explanation names it.

mod branch;
mod moment;
mod room;
mod said;
mod station;
mod way;
mod why;

#[cfg(test)]
mod tests;

pub use branch::Branch;
pub use moment::{Moment, Moments, Stage, When};
pub use room::{Machine, Pool, Room, machines, pools};
pub use said::{Saying, sayings};
pub use station::{Station, Tone};
pub use way::{Way, WayId, way, ways};
pub use why::{Reason, Why, explain};

pub use crate::explain::Picture;
