//! The pool below the driver: it can be missing for a while, as one whose disk is not mounted and whose place is an empty
//! directory. The driver remembers that it had a pool there and answers UNAVAILABLE, also to DeleteVolume: a volume that it
//! does not see may exist.

use std::time::Duration;

use tokio::time::sleep;
use tonic::Status;

use super::serve::DELETE;
use super::{Call, Model};
use crate::random::{Odds, Random};

const SECOND: Duration = Duration::from_secs(1);
/// How many worlds lose their pool at all.
const LOST: Odds = Odds::of_10_000(3_000);

/// Whether the pool is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PoolState {
    Here,
    Missing,
}

/// A mistake in the driver, for mutations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DriverFlaw {
    None,
    /// A missing pool is taken for an empty one: deletions are acknowledged.
    EmptyPool,
    /// Volumes are unmounted without a sync.
    NoSync,
    /// What is synced is what lies on top of the mount point.
    SyncOnTop,
    /// `.tmp` and `.trash` are never cleared.
    KeepLeftovers,
}

impl Model {
    /// Makes the mistake from now on.
    pub(crate) fn set_flaw(&self, flaw: DriverFlaw) {
        self.lock().flaw = flaw;
    }

    /// The pool goes and comes back until the world is calm.
    pub(crate) async fn lose_pool(&self, mut random: Random) {
        if random.happens(LOST) {
            self.lose_pool_for_sure(random).await;
        }
        std::future::pending().await
    }

    /// The same in every world.
    pub(crate) async fn lose_pool_for_sure(&self, mut random: Random) {
        while !self.shared.weather.is_calm() {
            sleep(random.between(&(10 * SECOND..=60 * SECOND))).await;
            if self.shared.weather.is_calm() {
                break;
            }
            self.note("an empty directory is in the place of the pool");
            self.lock().pool = PoolState::Missing;
            sleep(random.between(&(5 * SECOND..=40 * SECOND))).await;
            self.note("the pool is back");
            self.lock().pool = PoolState::Here;
        }
        std::future::pending().await
    }

    /// While the pool is missing nothing is known of any volume.
    pub(super) fn pool_is_there(&self, call: &Call) -> Result<(), Status> {
        let inner = self.lock();
        let ignores = inner.flaw == DriverFlaw::EmptyPool && call.method == DELETE;
        match inner.pool {
            PoolState::Missing if !ignores => Err(Status::unavailable("the pool is missing; is its disk mounted?")),
            PoolState::Missing | PoolState::Here => Ok(()),
        }
    }

    /// Whether the driver believes that it sees all volumes, although its pool is missing.
    pub(super) fn takes_the_pool_for_empty(&self) -> bool {
        let inner = self.lock();
        inner.flaw == DriverFlaw::EmptyPool && inner.pool == PoolState::Missing
    }

    /// Whether the driver may die in the middle of a call.
    pub(super) fn may_die_halfway(&self) -> bool {
        !self.shared.weather.is_calm() && self.shared.habits.refused != Odds::NEVER
    }
}
