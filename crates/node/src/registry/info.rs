//! What drivers say of this node, asked again: after they were restarted, from time to time, and on demand (NODE-4.4).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ::csi::v1;
use api::{CsiDriver, Key};
use lifecycle::registration::announce::Said;
use runtime::Verdict;
use runtime::csi::{CallError, Driver};
use tokio::time::Instant;

use super::{AnnounceError, Registry};

/// As upstream's.
const NODE_GET_INFO: Duration = Duration::from_secs(120);
/// No driver is asked more often, whatever its object says; the API refuses less, too.
const SHORTEST: Duration = Duration::from_secs(10);
/// The API takes any number, and no clock goes that far.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

/// A driver to ask again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ask {
    /// Everything: it was restarted.
    All(String),
    /// Only how many volumes fit, when its time has come.
    Limit(String),
    /// Only how many volumes fit, and at once: one found no slot.
    Full(String),
}

impl Ask {
    pub(super) fn all(driver: &str) -> Self {
        Self::All(driver.to_owned())
    }

    pub(super) fn limit(driver: &str) -> Self {
        Self::Limit(driver.to_owned())
    }
}

/// When each driver with a period is asked next.
#[derive(Debug, Default)]
pub(super) struct Tickers(Mutex<BTreeMap<String, Ticker>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ticker {
    period: Duration,
    due: Instant,
}

/// What to do about a driver's period.
#[derive(Debug, PartialEq, Eq)]
enum Tick {
    Idle,
    Wait(Duration),
    Due(Duration),
}

impl Tickers {
    /// The first time comes after one full period; another period starts anew.
    fn look(&self, driver: &str, period: Option<Duration>, now: Instant) -> Tick {
        let mut tickers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(period) = period else {
            tickers.remove(driver);
            return Tick::Idle;
        };
        match tickers.get_mut(driver) {
            Some(ticker) if ticker.period == period && ticker.due <= now => {
                ticker.due = now + period;
                Tick::Due(period)
            }
            Some(ticker) if ticker.period == period => Tick::Wait(ticker.due - now),
            Some(_) | None => {
                tickers.insert(driver.to_owned(), Ticker { period, due: now + period });
                Tick::Wait(period)
            }
        }
    }
}

/// Why a driver's limit was not refreshed.
#[derive(Debug, thiserror::Error)]
pub enum RefreshError {
    #[error("driver {driver:?} is not registered on this node")]
    NotRegistered { driver: String },
    #[error("asking the driver about the node: {0}")]
    Driver(#[source] CallError),
    #[error("{0}")]
    Announce(#[from] AnnounceError),
}

/// A period as a driver's object says it; `None` if it is none.
fn period(seconds: i64) -> Option<Duration> {
    Some(Duration::from_secs(u64::try_from(seconds).ok()?).clamp(SHORTEST, LONGEST))
}

/// NodeGetInfo.
pub(super) async fn ask(driver: &Driver, name: &str) -> Result<Said, CallError> {
    let answer = driver.node_get_info(v1::NodeGetInfoRequest {}, NODE_GET_INFO).await?;
    if answer.max_volumes_per_node < 0 {
        tracing::warn!(driver = name, limit = answer.max_volumes_per_node, "a limit below zero counts as none");
    }
    let topology = answer.accessible_topology.map(|topology| topology.segments.into_iter().collect());
    Ok(Said {
        driver: name.to_owned(),
        node_id: answer.node_id,
        topology: topology.unwrap_or_default(),
        limit: Said::limit_of(answer.max_volumes_per_node),
    })
}

impl Registry {
    /// Asks a driver how many volumes fit on this node, and says so in CSINode: for when it had no room left.
    ///
    /// Gives the limit; `None` if the driver has none.
    pub async fn refresh(&self, driver: &str) -> Result<Option<i32>, RefreshError> {
        let missing = || RefreshError::NotRegistered { driver: driver.to_owned() };
        let said = self.state().chosen(driver).and_then(|held| held.said.clone()).ok_or_else(missing)?;
        let connected = self.state().chosen(driver).map(|held| held.driver.clone()).ok_or_else(missing)?;
        let now = ask(&connected, driver).await.map_err(RefreshError::Driver)?;
        // Only the limit: id and topology are the business of a registration (NODE-32.5).
        self.state().say(&Said { limit: now.limit, ..Said::clone(&said) });
        self.announce(None).await?;
        Ok(now.limit)
    }

    pub(super) async fn ask_again(&self, ask: Ask) -> Verdict {
        match ask {
            Ask::Limit(driver) => {
                let registered = self.state().chosen(&driver).is_some();
                let period = if registered { self.period(&driver) } else { None };
                match self.tickers.look(&driver, period, Instant::now()) {
                    Tick::Idle => Verdict::Done,
                    Tick::Wait(wait) => Verdict::Again(wait),
                    Tick::Due(period) => {
                        if let Err(error) = self.refresh(&driver).await {
                            tracing::warn!(driver, %error, "how many volumes fit could not be refreshed");
                        }
                        Verdict::Again(period)
                    }
                }
            }
            Ask::Full(driver) => self.ask_full(&driver).await,
            Ask::All(driver) => self.ask_everything(&driver).await,
        }
    }

    /// Puts drivers that had no slot left on the queue.
    pub(super) async fn follow_full(&self) {
        loop {
            for driver in self.drivers.without_slot().await {
                self.infos.add(Ask::Full(driver));
            }
        }
    }

    /// A driver without a period said once for all how many volumes fit (NODE-4.4).
    async fn ask_full(&self, driver: &str) -> Verdict {
        if self.period(driver).is_none() {
            return Verdict::Done;
        }
        match self.refresh(driver).await {
            Ok(limit) => {
                tracing::info!(driver, ?limit, "a volume found no slot; how many volumes fit was read again");
                Verdict::Done
            }
            Err(RefreshError::NotRegistered { .. }) => Verdict::Done,
            Err(error) => Verdict::Failed(error.to_string()),
        }
    }

    /// How often the driver wants to be asked.
    fn period(&self, driver: &str) -> Option<Duration> {
        let object = self.context.cache::<CsiDriver>().get(&Key::cluster(driver))?;
        let seconds = object.spec.node_allocatable_update_period_seconds?;
        period(seconds)
    }

    /// A driver that was restarted may be another version, on another place.
    async fn ask_everything(&self, driver: &str) -> Verdict {
        let Some(connected) = self.state().chosen(driver).map(|held| held.driver.clone()) else { return Verdict::Done };
        let said = match ask(&connected, driver).await {
            Ok(said) => said,
            // It went again; its next connection asks again.
            Err(CallError::NotConnected { .. }) => return Verdict::Done,
            Err(error) => return Verdict::Failed(error.to_string()),
        };
        self.state().say(&said);
        self.rechoose(driver);
        match self.announce(None).await {
            Ok(verdict) => match verdict.refused.get(driver) {
                None => Verdict::Done,
                Some(refusal) => {
                    tracing::warn!(driver, %refusal, "the driver cannot be announced as it is now");
                    Verdict::Failed(refusal.to_string())
                }
            },
            Err(error) => Verdict::Failed(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule: NODE-4.4
    #[test]
    fn a_period_that_no_clock_can_count_is_a_long_one() {
        assert_eq!((period(-1), period(3)), (None, Some(SHORTEST)));
        let ticker = Tickers::default();
        assert_eq!(ticker.look("d", period(i64::MAX), Instant::now()), Tick::Wait(LONGEST));
    }

    /// Rule: NODE-4.4
    #[test]
    fn the_first_refresh_comes_after_a_full_period_and_another_period_starts_anew() {
        let (tickers, start) = (Tickers::default(), Instant::now());
        let period = |seconds: u64| Some(Duration::from_secs(seconds));
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(tickers.look("d", period(60), after(0)), Tick::Wait(Duration::from_secs(60)));
        assert_eq!(tickers.look("d", period(60), after(20)), Tick::Wait(Duration::from_secs(40)));
        assert_eq!(tickers.look("d", period(60), after(60)), Tick::Due(Duration::from_secs(60)));
        assert_eq!(tickers.look("d", period(30), after(70)), Tick::Wait(Duration::from_secs(30)));
        assert_eq!(tickers.look("d", None, after(80)), Tick::Idle);
        assert_eq!(tickers.look("d", period(30), after(90)), Tick::Wait(Duration::from_secs(30)));
    }
}
