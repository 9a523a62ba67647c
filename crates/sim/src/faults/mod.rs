//! What can happen to a request between a component and the API server.
//!
//! A component's [`Fates`] decide for every request and every event of its watches: from the seed ([`Seeded`]), or from a
//! script, which is any closure from an [`Ask`] to a [`Verdict`]. Each watch meets its own fate, so that one kind can be
//! seen long before another, although it changed later.

mod answer;
mod body;
mod layer;
mod once;
mod seeded;
mod storm;

#[cfg(test)]
mod tests;

pub use body::Body;
pub use layer::Faulty;
pub(crate) use layer::Line;
pub use once::{EVERY_FATE, Once};
pub use seeded::{Faults, Seeded};
pub(crate) use storm::RefusalRates;

use std::fmt;
use std::time::Duration;

use http::Method;

/// A request that is about to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Which request of its component it is; the first is 1.
    pub number: u64,
    pub action: Action,
    pub method: &'a Method,
    pub path: &'a str,
    pub query: &'a str,
}

impl<'a> Ask<'a> {
    pub(crate) fn new(number: u64, method: &'a Method, uri: &'a http::Uri) -> Self {
        let (path, query) = (uri.path(), uri.query().unwrap_or_default());
        let watches = parameter(query, "watch").is_some_and(|value| matches!(value, "1" | "true"));
        let action = match *method {
            Method::POST => Action::Create,
            Method::PUT | Method::PATCH => Action::Update,
            Method::DELETE => Action::Delete,
            _ if watches => Action::Watch,
            _ => Action::Read,
        };
        Self { number, action, method, path, query }
    }

    /// Does it go on from a state that the client saw before: a watch from a revision, or the next page of a list?
    pub fn goes_on(&self) -> bool {
        let has = |name| parameter(self.query, name).is_some_and(|value| !value.is_empty() && value != "0");
        has("continue") || (self.action == Action::Watch && has("resourceVersion"))
    }

    /// Is the client content with any state, however old?
    pub fn takes_any_state(&self) -> bool {
        self.action == Action::Read && parameter(self.query, "resourceVersion") == Some("0")
    }
}

fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// One object, a list, discovery.
    Read,
    Watch,
    Create,
    /// PUT and PATCH.
    Update,
    Delete,
}

/// What becomes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// The server answers.
    Answered,
    /// Somebody answers before the server sees it.
    Refused(Refusal),
    /// The request is lost: it has no effect, and the client gives up waiting.
    RequestLost,
    /// The answer is lost: the request has its effect, and the client gives up waiting all the same.
    AnswerLost,
    /// The server answers from a cache that is so many revisions behind, if the request allows that and history reaches
    /// back so far.
    Stale { revisions: u64 },
    /// The component dies before the request is sent.
    CrashBefore,
    /// The component dies when the request has had its effect, before it learns so.
    CrashAfter,
}

/// Answers that the server gives on bad days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// 409, reason Conflict: somebody else was faster.
    Conflict,
    /// 429 with Retry-After.
    TooManyRequests { seconds: u64 },
    /// 503 with Retry-After.
    Unavailable { seconds: u64 },
    /// 410, reason Expired: history is gone. In a watch it is an event.
    Gone,
    /// 500, as a server answers whose store refused the write.
    InternalError,
    /// 502 of a proxy, which is no Status.
    BadGateway,
    /// 200 with a body that is no JSON, such as the login page of a proxy.
    Garbled,
}

/// The fate of a request and how long everything takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub fate: Fate,
    /// Before the server sees the request.
    pub there: Duration,
    /// Before the client sees the answer.
    pub back: Duration,
    /// After this the client gives up on what is lost.
    pub patience: Duration,
}

impl From<Fate> for Verdict {
    /// At once, and with thirty seconds of patience.
    fn from(fate: Fate) -> Self {
        Self { fate, there: Duration::ZERO, back: Duration::ZERO, patience: Duration::from_secs(30) }
    }
}

/// What becomes of one event of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    Passes,
    /// It and everything behind it comes later.
    Held(Duration),
    /// The stream ends before it, as if the server had closed it.
    Ended,
    /// The connection breaks before it.
    Broken,
}

/// Decides what happens to the requests of one component.
pub trait Fates: Send {
    fn request(&mut self, ask: &Ask<'_>) -> Verdict;

    /// The next event of the watch that the component's request of this number opened.
    fn event(&mut self, _watch: u64) -> Flow {
        Flow::Passes
    }
}

/// A script.
impl<F: FnMut(&Ask<'_>) -> Verdict + Send> Fates for F {
    fn request(&mut self, ask: &Ask<'_>) -> Verdict {
        self(ask)
    }
}

/// Nothing ever happens, and everything happens at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fair;

impl Fates for Fair {
    fn request(&mut self, _: &Ask<'_>) -> Verdict {
        Fate::Answered.into()
    }
}

/// Why a client got no answer, or no more events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// It does not say whether the request had its effect, as a real time-out does not.
    #[error("the request timed out")]
    TimedOut,
    #[error("the connection was closed in the middle of the stream")]
    Broken,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict => f.write_str("409"),
            Self::TooManyRequests { seconds } => write!(f, "429, retry after {seconds} s"),
            Self::Unavailable { seconds } => write!(f, "503, retry after {seconds} s"),
            Self::Gone => f.write_str("410"),
            Self::InternalError => f.write_str("500"),
            Self::BadGateway => f.write_str("502"),
            Self::Garbled => f.write_str("200 with a garbled body"),
        }
    }
}
