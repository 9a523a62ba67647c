//! What can happen to a call, drawn from the seed.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use csi::v1::node_service_capability::rpc::Type as NodeRpc;
use tonic::Code;

use super::{Call, Found, Inner};
use crate::random::Odds;

/// How bad a driver is.
#[derive(Debug, Clone)]
pub struct Habits {
    /// Before anything happens.
    pub latency: RangeInclusive<Duration>,
    /// A code before the effect, which then never comes.
    pub refused: Odds,
    /// A code after the effect.
    pub broken: Odds,
    /// No answer after the effect.
    pub lost: Odds,
    /// The effect comes after the caller has given up.
    pub slow: Odds,
    pub slowness: RangeInclusive<Duration>,
    /// The same call arrives twice.
    pub twice: Odds,
    /// How long it listens, and how long it is gone then.
    pub up: RangeInclusive<Duration>,
    pub down: RangeInclusive<Duration>,
    /// Whether it knows places.
    pub places: Places,
    /// Whether volumes are published to a node before it can use them.
    pub attach: Attach,
    /// Whether a node stages a volume before pods get it.
    pub staging: Staging,
    /// How many volumes a node may have; 0 is as many as there are.
    pub per_node: u32,
    /// Whether it guards what only one node may have.
    pub backend: Backend,
    /// What else its node side can do.
    pub node: BTreeSet<NodeRpc>,
}

/// Whether a driver attaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attach {
    Required,
    Not,
}

/// Whether a backend refuses to publish a single-node volume to a second node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    Strict,
    /// It does whatever it is told: whoever tells has to know.
    Lenient,
}

/// Whether a driver stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Staging {
    Required,
    Not,
}

/// Whether volumes are in a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Places {
    /// They are everywhere.
    None,
    /// They are in one zone.
    Zones,
}

impl Habits {
    /// A good driver.
    pub fn fair() -> Self {
        let second = Duration::from_secs(1);
        Self {
            latency: Duration::from_millis(1)..=Duration::from_millis(50),
            refused: Odds::NEVER,
            broken: Odds::NEVER,
            lost: Odds::NEVER,
            slow: Odds::NEVER,
            slowness: second..=second,
            twice: Odds::NEVER,
            up: 100_000 * second..=100_000 * second,
            down: second..=second,
            places: Places::None,
            attach: Attach::Not,
            staging: Staging::Required,
            per_node: 0,
            backend: Backend::Strict,
            node: [NodeRpc::GetVolumeStats, NodeRpc::ExpandVolume].into(),
        }
    }

    /// Every fault, each often enough to meet the others.
    pub fn rough() -> Self {
        let second = Duration::from_secs(1);
        Self {
            latency: Duration::from_millis(1)..=Duration::from_millis(400),
            refused: Odds::of_10_000(1_200),
            broken: Odds::of_10_000(800),
            lost: Odds::of_10_000(600),
            slow: Odds::of_10_000(800),
            slowness: 5 * second..=180 * second,
            twice: Odds::of_10_000(800),
            up: 20 * second..=240 * second,
            down: second..=60 * second,
            places: Places::None,
            attach: Attach::Not,
            staging: Staging::Required,
            per_node: 0,
            backend: Backend::Strict,
            node: [NodeRpc::GetVolumeStats, NodeRpc::ExpandVolume].into(),
        }
    }
}

/// How a call departs from what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bent {
    Not,
    Refused(Code),
    Broken(Code),
    Lost,
    Slow(Duration),
    Twice,
}

impl fmt::Display for Bent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Not => Ok(()),
            Self::Refused(code) => write!(f, " (to be refused with {code:?})"),
            Self::Broken(code) => write!(f, " (to be done and answered {code:?})"),
            Self::Lost => write!(f, " (to be done, answer lost)"),
            Self::Twice => write!(f, " (delivered twice)"),
            Self::Slow(time) => write!(f, " (takes {} s more)", time.as_secs()),
        }
    }
}

/// Codes that leave open whether something happened: any driver may answer them at any time.
const OPEN: [Code; 7] = [
    Code::Cancelled,
    Code::Unknown,
    Code::DeadlineExceeded,
    Code::Aborted,
    Code::Internal,
    Code::Unavailable,
    Code::DataLoss,
];

/// Codes of what a driver looks at before it looks for what exists: credentials, preconditions, sources.
const DOOR: [Code; 4] = [Code::PermissionDenied, Code::Unauthenticated, Code::FailedPrecondition, Code::NotFound];

/// Codes that judge the request itself, and so say that there is nothing.
const FINAL: [Code; 5] =
    [Code::InvalidArgument, Code::AlreadyExists, Code::ResourceExhausted, Code::OutOfRange, Code::Unimplemented];

impl Inner {
    pub(super) fn draw(&mut self, habits: &Habits, call: &Call) -> Bent {
        let open = *self.random.pick(&OPEN).unwrap_or(&Code::Internal);
        if self.random.happens(habits.refused) {
            let all = OPEN.len() + DOOR.len() + FINAL.len();
            let at = usize::try_from(self.random.below(all as u64)).unwrap_or_default();
            let code = *OPEN.iter().chain(&DOOR).chain(&FINAL).nth(at).unwrap_or(&open);
            let any = match call.found {
                Found::Nothing => !self.busy.contains(&call.object),
                Found::Something => false,
                Found::Whatever => true,
            };
            return Bent::Refused(if any || !FINAL.contains(&code) { code } else { open });
        }
        if self.random.happens(habits.broken) {
            return Bent::Broken(open);
        }
        if self.random.happens(habits.lost) {
            return Bent::Lost;
        }
        if self.random.happens(habits.slow) {
            return Bent::Slow(self.random.between(&habits.slowness));
        }
        if self.random.happens(habits.twice) {
            return Bent::Twice;
        }
        Bent::Not
    }
}
