//! When the stages of a way were reached, and how that is known.

use std::collections::BTreeMap;

use api::Uid;
use api::object::UnixSeconds;
use serde::Serialize;

/// What can be seen to happen to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// It appeared.
    Created,
    /// A claim became Bound.
    Bound,
    /// A pod got its node.
    Scheduled,
    /// An attachment was confirmed.
    Attached,
    /// A pod's volumes were mounted.
    Mounted,
}

/// What a watcher saw happen, in milliseconds since 1970 by its own clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Moments(BTreeMap<(Uid, Moment), i64>);

impl Moments {
    /// Notes that something happened now; the first time counts.
    pub fn note(&mut self, uid: &Uid, moment: Moment, millis: i64) {
        self.0.entry((uid.clone(), moment)).or_insert(millis);
    }

    /// Forgets an object that is gone.
    pub fn forget(&mut self, uid: &Uid) {
        for moment in [Moment::Created, Moment::Bound, Moment::Scheduled, Moment::Attached, Moment::Mounted] {
            self.0.remove(&(uid.clone(), moment));
        }
    }

    fn of(&self, uid: &Uid, moment: Moment) -> Option<i64> {
        self.0.get(&(uid.clone(), moment)).copied()
    }

    /// The best that is known. The API's times are whole seconds; whoever saw it happen within that second or shortly after
    /// knows better, and whoever came later knows worse.
    pub(super) fn when(&self, uid: &Uid, moment: Moment, told: Option<UnixSeconds>) -> When {
        let told = told.filter(|at| at.0 > 0).map(|at| at.0.saturating_mul(1000));
        match (told, self.of(uid, moment)) {
            (Some(told), Some(seen)) if (told..told.saturating_add(CLOSE)).contains(&seen) => When::Seen { at: seen },
            (Some(told), _) => When::Told { at: told },
            (None, Some(seen)) => When::Seen { at: seen },
            (None, None) => When::Unknown,
        }
    }
}

/// How long after the API's second a watcher may have seen something that happened in it.
const CLOSE: i64 = 2_000;

/// A time, and who says it. In milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "by", rename_all = "lowercase")]
pub enum When {
    /// The watcher saw it happen.
    Seen { at: i64 },
    /// The API says so, to the second.
    Told { at: i64 },
    /// It happened, and nobody who could be asked knows when.
    Unknown,
    /// It has not happened.
    Ahead,
}

/// A stage of a way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stage {
    /// A past participle, such as `bound`.
    pub name: &'static str,
    /// Whose stage it is, such as `claim data`.
    pub of: String,
    pub when: When,
}
