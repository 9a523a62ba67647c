//! When a node is told what was attached to it: at once, or together with what is attached next (CTRL-14.43).
//!
//! A node's status is one object, written whole, and many volumes may be on their way to it. News that only adds to the
//! list waits for a moment while more is coming ([`node::Pace::Soon`]); the last volume that comes is told at once, with
//! all that waited. On a server that is slow the moment is longer, in proportion to what a write takes there, so that
//! statuses are a small share of its work however busy it is.
//!
//! Nothing here is needed after a restart: what a node was not told is seen from its status.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lifecycle::attach::node;
use tokio::time::Instant;

/// News is collected for so many times what the last write took.
const SHARE: u32 = 4;
/// Never longer than this, whatever a write takes.
const LONGEST: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Paces {
    window: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Since when nodes wait to be told.
    waiting: BTreeMap<Box<str>, Instant>,
    /// What the last write of a node's status took.
    took: Duration,
}

impl Paces {
    /// No window means that nothing waits.
    pub(super) fn new(window: Duration) -> Self {
        Self { window, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long news for a node waits yet; `None` if it is to be written now.
    pub(super) fn wait(&self, node: &str, pace: node::Pace) -> Option<Duration> {
        let mut state = self.lock();
        match pace {
            node::Pace::Soon if !self.window.is_zero() => {
                let window = self.window.max(state.took.saturating_mul(SHARE).min(LONGEST));
                let since = *state.waiting.entry(node.into()).or_insert_with(Instant::now);
                Some(window.saturating_sub(since.elapsed())).filter(|left| !left.is_zero())
            }
            node::Pace::Soon | node::Pace::Now => None,
        }
    }

    /// A write of a node's status was answered, after this long.
    pub(super) fn told(&self, node: &str, took: Duration) {
        let mut state = self.lock();
        state.waiting.remove(node);
        state.took = took;
    }

    /// There is no news for a node.
    pub(super) fn rest(&self, node: &str) {
        self.lock().waiting.remove(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use node::Pace::{Now, Soon};

    const WINDOW: Duration = Duration::from_millis(40);

    #[tokio::test(start_paused = true)]
    async fn news_waits_for_more_of_it_once_and_not_again_with_each_piece() {
        let paces = Paces::new(WINDOW);
        assert_eq!(paces.wait("a", Soon), Some(WINDOW));
        tokio::time::advance(WINDOW / 2).await;
        assert_eq!(paces.wait("a", Soon), Some(WINDOW / 2));
        assert_eq!(paces.wait("b", Soon), Some(WINDOW), "each node has its own moment");
        tokio::time::advance(WINDOW / 2).await;
        assert_eq!(paces.wait("a", Soon), None);
        paces.told("a", Duration::ZERO);
        assert_eq!(paces.wait("a", Soon), Some(WINDOW));
    }

    /// Rule: ATTACH-6.7
    #[tokio::test(start_paused = true)]
    async fn what_cannot_wait_is_written_at_once() {
        let paces = Paces::new(WINDOW);
        assert_eq!(paces.wait("a", Soon), Some(WINDOW));
        assert_eq!(paces.wait("a", Now), None);
        assert_eq!(Paces::new(Duration::ZERO).wait("a", Soon), None, "nothing waits without a window");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_server_is_written_to_less_often_but_nobody_waits_for_ever() {
        let paces = Paces::new(WINDOW);
        paces.told("a", Duration::from_millis(50));
        assert_eq!(paces.wait("a", Soon), Some(Duration::from_millis(200)));
        paces.told("a", Duration::from_secs(60));
        assert_eq!(paces.wait("a", Soon), Some(LONGEST));
    }

    #[tokio::test(start_paused = true)]
    async fn news_that_went_away_leaves_nothing_behind() {
        let paces = Paces::new(WINDOW);
        assert_eq!(paces.wait("a", Soon), Some(WINDOW));
        paces.rest("a");
        assert!(paces.lock().waiting.is_empty());
    }
}
