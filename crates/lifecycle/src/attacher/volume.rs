//! When our finalizer may leave a PersistentVolume (ATTACHER-3.8).

use std::fmt;

use api::{Source, Volume};

use super::Attacher;
use crate::decision::{Decision, Reason, Standing};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    RemoveFinalizer,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Because {
    NotHeld,
    /// It stays for the volume's whole life, so that the next attachment has a write less.
    Alive,
    Attached {
        attachment: String,
    },
    Free,
}

pub type Verdict = Decision<Action, Because>;

/// Whether there may be anything to do (ATTACHER-3.3): it is on its way out, or back with an in-tree plugin, and we
/// hold it.
pub fn matters(volume: &Volume, attacher: &Attacher) -> bool {
    volume.meta.has_finalizer(&attacher.finalizer) && (volume.meta.is_deleting() || is_taken_back(volume, attacher))
}

/// An in-tree volume whose plugin does not leave it to our driver (any more).
fn is_taken_back(volume: &Volume, attacher: &Attacher) -> bool {
    !matches!(volume.source, Source::Csi { .. }) && volume.migrated_to() != Some(&attacher.name)
}

/// Says what to do about a volume; `user` is an attachment that names it, attached or not, of whichever driver.
pub fn decide(volume: &Volume, attacher: &Attacher, user: Option<&str>) -> Verdict {
    match (volume.meta.has_finalizer(&attacher.finalizer), matters(volume, attacher), user) {
        (false, _, _) => Decision::rest(Because::NotHeld),
        (true, false, _) => Decision::rest(Because::Alive),
        (true, true, Some(user)) => Decision::rest(Because::Attached { attachment: user.to_owned() }),
        (true, true, None) => Decision::act(Because::Free, Action::RemoveFinalizer),
    }
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHeld => write!(f, "the attacher does not hold the volume"),
            Self::Alive => write!(f, "the volume is in use or may be"),
            Self::Attached { attachment } => write!(f, "VolumeAttachment {attachment} still names the volume"),
            Self::Free => write!(f, "nothing attaches the volume any more"),
        }
    }
}

impl Reason for Because {
    fn code(&self) -> &'static str {
        match self {
            Self::NotHeld => "not_held",
            Self::Alive => "alive",
            Self::Attached { .. } => "attached",
            Self::Free => "free",
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Self::NotHeld | Self::Alive => Standing::Settled,
            Self::Attached { .. } => Standing::Waiting,
            Self::Free => Standing::Moving,
        }
    }
}
