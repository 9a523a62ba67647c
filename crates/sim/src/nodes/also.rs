//! Kinds of misfortune that can be switched on one by one: what a world does besides its usual faults.
//!
//! [`USUAL`] is the one place that says which of them every world has. A kind that still leads to violations is left out of
//! it and played with `orlop-sim --world nodes --also KIND` until the program can cope with it; then it moves into
//! [`USUAL`], and its lines of the journal into `FAULTS` of the tests ([`Also::shown_as`]).

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
    /// The objects of attachments and the lists in the nodes' status come back as an older backup has them.
    Restores,
}

/// What every world does.
pub const USUAL: &[Also] = &[];

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
        }
    }
}
