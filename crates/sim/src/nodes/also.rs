//! Kinds of misfortune that can be switched on one by one: what a world does besides its usual faults.
//!
//! [`USUAL`] is the one place that says which of them worlds have by themselves. A kind that still leads to violations is left out of
//! it and played with `orlop-sim --world nodes --also KIND` until the program can cope with it; then it moves into
//! [`USUAL`], and its lines of the journal into `FAULTS` of the tests ([`Also::shown_as`]).

use std::collections::BTreeSet;

use super::Mutation;
use crate::random::{Odds, Random};

/// One kind of misfortune.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Also {
    /// An administrator takes objects away by hand and makes others of the same handles.
    HandOvers,
    /// Machines are suspended and resumed.
    Suspensions,
    /// Wall clocks are skewed and step.
    WrongClocks,
    /// For some time there are two machines with one name, one machine id and one disk content, each with its own boot.
    Clones,
    /// The backend takes a machine's volumes away when the machine goes off: its attachments still say that it has them.
    LostAttachments,
    /// The controller is told to detach by force from nodes that are not ready for long, and wall clocks are wrong.
    ForceDetach,
    /// The API server's own wall clock steps.
    ServerClock,
    /// The objects of attachments and nodes come back as `orlop restore` brings them back from an older backup.
    Restores,
    /// For some time there is an empty directory in the place of the driver's pool.
    MissingPools,
    /// A person mounts something over a volume.
    Overmounts,
    /// The pool is full for some time: what is in the page cache is lost at writeback.
    LostWrites,
}

/// What worlds do by themselves, each of them a few of these.
pub const USUAL: &[Also] = &[
    Also::HandOvers,
    Also::Suspensions,
    Also::WrongClocks,
    Also::Clones,
    Also::LostAttachments,
    Also::ForceDetach,
    Also::ServerClock,
    Also::MissingPools,
    Also::LostWrites,
    Also::Overmounts,
    Also::Restores,
];

/// How often a world does one of [`USUAL`].
const OFTEN: Odds = Odds::of_10_000(2_500);

/// The kinds of one world: those that are demanded, or else some of [`USUAL`]. A mutation is looked for in a world that has only
/// what it needs.
pub(super) fn draw(random: &mut Random, mutation: Mutation, demanded: &[Also]) -> BTreeSet<Also> {
    if mutation != Mutation::None || !demanded.is_empty() {
        return demanded.iter().copied().collect();
    }
    let mut drawn: BTreeSet<Also> = USUAL.iter().filter(|_| random.happens(OFTEN)).copied().collect();
    // Only Nodes and VolumeAttachments are restored here: an attachment would name a volume that was handed over since.
    if drawn.contains(&Also::HandOvers) {
        drawn.remove(&Also::Restores);
    }
    drawn
}

impl Also {
    /// What the journal shows when it happens.
    pub fn shown_as(self) -> &'static str {
        match self {
            Self::HandOvers => "from now on, for claim",
            Self::Suspensions => "resumed",
            Self::WrongClocks => "wall clock is off by",
            Self::Clones => "a clone runs",
            Self::LostAttachments => "the backend takes the volumes of",
            Self::ForceDetach => "wall clock is off by",
            Self::ServerClock => "server's wall clock is off by",
            Self::Restores => "restores a backup",
            Self::MissingPools => "an empty directory is in the place of the pool",
            Self::Overmounts => "mounts something over",
            Self::LostWrites => "are lost at writeback",
        }
    }
}
