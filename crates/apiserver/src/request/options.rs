//! What a reader may say beside the path, sorted into the reads that exist.
//!
//! The order of complaints is the reference's: undecodable values (400), combinations (422), unknown field labels
//! (400), then the version and the token (400; 500 for watches and single objects).

use std::time::Duration;

use super::go_text::{go_quote, parse_duration, parse_int, parse_uint};
use super::{Cause, ContinueToken, FieldLabels, FieldSelector, LabelSelector, Query, Refusal};

/// How recent a state must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// At least as recent as the moment the request arrived.
    Newest,
    Any,
    NotOlderThan(u64),
}

/// A list, and a collection to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListOptions {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
    pub read: ListRead,
    /// Never zero. Absent where the reference ignores it, that is for [`Freshness::Any`].
    pub limit: Option<u64>,
    pub timeout: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListRead {
    At(Freshness),
    /// The state at this revision and no other.
    Exactly(u64),
    Continue(ContinueToken),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchOptions {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
    pub start: WatchStart,
    /// With [`WatchStart::State`] this also asks for the bookmark that ends the initial events.
    pub bookmarks: bool,
    /// Absent means that the server chooses.
    pub timeout: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchStart {
    /// The state as ADDED events, then every later change.
    State(Freshness),
    /// Only changes later than the newest state.
    Now,
    /// Every change with a larger revision.
    After(u64),
}

/// A single object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GetOptions {
    pub read: Freshness,
}

/// Which object stands beside the cells of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncludeObject {
    Metadata,
    Object,
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableOptions {
    pub include: IncludeObject,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Match {
    Exact,
    NotOlderThan,
}

/// The parameters as decoded, before their combinations are judged.
struct Raw<'a> {
    labels: LabelSelector,
    fields: FieldSelector,
    version: &'a str,
    version_match: &'a str,
    limit: Option<i64>,
    timeout: Option<i64>,
    token: &'a str,
    initial_events: Option<bool>,
}

impl<'a> Raw<'a> {
    fn decode(query: &'a Query) -> Result<Self, Refusal> {
        let text = |name| query.get(name).unwrap_or_default();
        let int = |name| query.get(name).map(parse_int).transpose().map_err(Refusal::BadRequest);
        let timeout = int("timeoutSeconds")?;
        let limit = int("limit")?;
        Ok(Self {
            labels: LabelSelector::parse(text("labelSelector")).map_err(Refusal::BadRequest)?,
            fields: FieldSelector::parse(text("fieldSelector")).map_err(Refusal::BadRequest)?,
            version: text("resourceVersion"),
            version_match: text("resourceVersionMatch"),
            limit,
            timeout,
            token: text("continue"),
            initial_events: query.flag("sendInitialEvents"),
        })
    }

    fn version_match(&self) -> Option<Match> {
        match self.version_match {
            "Exact" => Some(Match::Exact),
            "NotOlderThan" => Some(Match::NotOlderThan),
            _ => None,
        }
    }

    /// Zero means that the server chooses; a negative time is over before it begins.
    fn timeout(&self) -> Option<Duration> {
        let seconds = self.timeout.filter(|seconds| *seconds != 0)?;
        Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
    }
}

const MATCH: &str = "resourceVersionMatch";

impl ListOptions {
    /// `known` are the field labels of the listed kind.
    pub fn parse(query: &Query, known: &FieldLabels) -> Result<Self, Refusal> {
        let raw = Raw::decode(query)?;
        Refusal::unless_valid("ListOptions", list_causes(&raw))?;
        let fields = known.check(raw.fields.clone()).map_err(Refusal::BadRequest)?;
        let mut limit = raw.limit.and_then(|limit| u64::try_from(limit).ok()).filter(|limit| *limit > 0);
        let read = list_read(&raw, limit)?;
        if read == ListRead::At(Freshness::Any) {
            limit = None;
        }
        let timeout = raw.timeout();
        Ok(Self { labels: raw.labels, fields, read, limit, timeout })
    }

    /// Whether every object is wanted; only then is the number of remaining ones told.
    pub fn selects_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }
}

fn list_causes(raw: &Raw<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if !raw.version_match.is_empty() {
        if raw.version.is_empty() {
            causes.push(Cause::forbidden(MATCH, format!("{MATCH} is forbidden unless resourceVersion is provided")));
        }
        if !raw.token.is_empty() {
            causes.push(Cause::forbidden(MATCH, format!("{MATCH} is forbidden when continue is provided")));
        }
        if raw.version_match().is_none() {
            let value = go_quote(raw.version_match);
            causes.push(Cause::not_supported(MATCH, value, &["Exact", "NotOlderThan", ""]));
        }
        if raw.version_match() == Some(Match::Exact) && raw.version == "0" {
            let why = format!("{MATCH} \"exact\" is forbidden for resourceVersion \"0\"");
            causes.push(Cause::forbidden(MATCH, why));
        }
    }
    if raw.initial_events.is_some() {
        causes.push(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    causes
}

fn list_read(raw: &Raw<'_>, limit: Option<u64>) -> Result<ListRead, Refusal> {
    if !raw.token.is_empty() {
        let token = ContinueToken::decode(raw.token)?;
        if !matches!(raw.version, "" | "0") {
            let why = "specifying resource version is not allowed when using continue";
            return Err(Refusal::BadRequest(why.into()));
        }
        return Ok(ListRead::Continue(token));
    }
    let read =
        freshness(raw.version).map_err(|error| Refusal::BadRequest(format!("invalid resource version: {error}")))?;
    Ok(match (read, raw.version_match(), limit) {
        (Freshness::NotOlderThan(revision), Some(Match::Exact), _)
        | (Freshness::NotOlderThan(revision), None, Some(_)) => ListRead::Exactly(revision),
        (read, _, _) => ListRead::At(read),
    })
}

impl WatchOptions {
    /// `name` is the one of the deprecated watch of a single object; `known` are the field labels of the watched kind.
    pub fn parse(query: &Query, known: &FieldLabels, name: Option<&str>) -> Result<Self, Refusal> {
        let mut raw = Raw::decode(query)?;
        // A watch from no particular version always began with the state; it just had no name for it.
        if raw.initial_events.is_none() && raw.version_match.is_empty() && matches!(raw.version, "" | "0") {
            raw.initial_events = Some(true);
            raw.version_match = "NotOlderThan";
        }
        Refusal::unless_valid("ListOptions", watch_causes(&raw))?;
        let mut fields = known.check(raw.fields.clone()).map_err(Refusal::BadRequest)?;
        if let Some(name) = name {
            if fields.is_empty() {
                fields = FieldSelector::named(name);
            } else if fields.requires_exact("metadata.name") != Some(name) {
                let why = "fieldSelector metadata.name doesn't match requested name";
                return Err(Refusal::BadRequest(why.into()));
            }
        }
        let read = freshness(raw.version).map_err(Refusal::Internal)?;
        let start = match (raw.initial_events, read) {
            (Some(true), read) => WatchStart::State(read),
            (_, Freshness::NotOlderThan(revision)) => WatchStart::After(revision),
            (_, Freshness::Newest | Freshness::Any) => WatchStart::Now,
        };
        let bookmarks = query.flag("allowWatchBookmarks") == Some(true);
        let timeout = raw.timeout();
        Ok(Self { labels: raw.labels, fields, start, bookmarks, timeout })
    }

    /// Whether the client waits for the bookmark that ends the initial events.
    pub fn wants_initial_bookmark(&self) -> bool {
        self.bookmarks && matches!(self.start, WatchStart::State(_))
    }
}

fn watch_causes(raw: &Raw<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let not_older = raw.version_match() == Some(Match::NotOlderThan);
    if raw.initial_events.is_some() && !not_older {
        let why = format!("sendInitialEvents requires setting {MATCH} to NotOlderThan");
        causes.push(Cause::forbidden(MATCH, why));
    }
    if !raw.version_match.is_empty() {
        if raw.initial_events.is_none() {
            let why = format!("{MATCH} is forbidden for watch unless sendInitialEvents is provided");
            causes.push(Cause::forbidden(MATCH, why));
        }
        if !not_older {
            causes.push(Cause::not_supported(MATCH, go_quote(raw.version_match), &["NotOlderThan"]));
        }
        if !raw.token.is_empty() {
            causes.push(Cause::forbidden(MATCH, format!("{MATCH} is forbidden when continue is provided")));
        }
    }
    causes
}

impl GetOptions {
    pub fn parse(query: &Query) -> Result<Self, Refusal> {
        let read = freshness(query.get("resourceVersion").unwrap_or_default()).map_err(Refusal::Internal)?;
        Ok(Self { read })
    }
}

fn freshness(version: &str) -> Result<Freshness, String> {
    if version.is_empty() {
        return Ok(Freshness::Newest);
    }
    match parse_uint(version) {
        Ok(0) => Ok(Freshness::Any),
        Ok(revision) => Ok(Freshness::NotOlderThan(revision)),
        Err(error) => Err(format!("resourceVersion: Invalid value: {}: {error}", go_quote(version))),
    }
}

impl TableOptions {
    pub fn parse(query: &Query) -> Result<Self, Refusal> {
        let include = match query.get("includeObject").unwrap_or_default() {
            "" | "Metadata" => IncludeObject::Metadata,
            "Object" => IncludeObject::Object,
            "None" => IncludeObject::None,
            other => {
                let why = "must be 'Metadata', 'Object', 'None', or empty";
                let cause = Cause::invalid("includeObject", go_quote(other), why);
                return Err(Refusal::BadRequest(format!("Unable to convert to Table as requested: {cause}")));
            }
        };
        Ok(Self { include })
    }
}

/// How long a request that is no watch may take: `timeout` may only shorten `most`.
pub fn request_timeout(query: &Query, most: Duration) -> Result<Duration, Refusal> {
    let Some(text) = query.get("timeout").filter(|text| !text.is_empty()) else { return Ok(most) };
    match parse_duration(text.strip_prefix('-').unwrap_or(text)) {
        Some(asked) if !text.starts_with('-') && !asked.is_zero() => Ok(asked.min(most)),
        Some(_) => Ok(most),
        None => {
            let why = format!("time: invalid duration {}", go_quote(text));
            Err(Refusal::BadRequest(format!("invalid timeout specified in the request URL - {why}")))
        }
    }
}
