//! What a DELETE does to an object: remove it, or note that it is to be removed and wait for its finalizers or its grace
//! period. Removal itself, and deleting dependents, happen elsewhere.

use super::read::{deleting, list, name, number, set, text, texts};
use super::time::Timestamp;
use crate::status::{ApiError, Mismatch, Resource};
use serde_json::Value;

/// What happens to dependents; asked for by adding a finalizer for the garbage collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// What a client may say with a DELETE.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options<'a> {
    pub grace_seconds: Option<i64>,
    pub propagation: Option<Propagation>,
    pub uid: Option<&'a str>,
    pub resource_version: Option<&'a str>,
}

/// How a kind leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    Plain,
    /// Nothing depends on it: propagation is ignored.
    Event,
    /// It waits until its content is gone.
    Namespace,
    /// It gets time to stop.
    Pod,
}

impl Departure {
    pub fn of(kind: &str) -> Self {
        match kind {
            "Event" => Self::Event,
            "Namespace" => Self::Namespace,
            "Pod" => Self::Pod,
            _ => Self::Plain,
        }
    }
}

/// What to do with the stored object.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Take it away; this is what the client is shown.
    Remove(Value),
    /// Store this instead.
    Mark(Value),
    /// It is on its way out already.
    Unchanged,
}

/// Refuses a DELETE that means another object or another version. `kind` is the Kind, not the plural.
pub fn check_preconditions(kind: Resource<'_>, object: &Value, options: Options<'_>) -> Result<(), ApiError> {
    let stored = text(object, "/metadata/uid");
    if let Some(wanted) = options.uid.filter(|uid| *uid != stored) {
        return Err(ApiError::delete_wrong_uid(kind, name(object), Mismatch { wanted, stored }));
    }
    let stored = text(object, "/metadata/resourceVersion");
    if let Some(wanted) = options.resource_version.filter(|version| *version != stored) {
        return Err(ApiError::delete_wrong_version(kind, name(object), Mismatch { wanted, stored }));
    }
    Ok(())
}

/// Decides one DELETE.
pub fn decide(departure: Departure, object: &Value, options: Options<'_>, now: Timestamp) -> Outcome {
    let propagation = options.propagation.filter(|_| departure != Departure::Event);
    let finalizers = finalizers_for(object, propagation);
    let plain = matches!(departure, Departure::Plain | Departure::Event);
    if plain && finalizers.is_empty() && !deleting(object) {
        // Nothing keeps it, so it need not be marked first.
        return Outcome::Remove(object.clone());
    }
    let mut marked = object.clone();
    set_finalizers(&mut marked, finalizers);
    match departure {
        Departure::Namespace => mark_namespace(&mut marked, now),
        Departure::Pod => mark_pod(&mut marked, options.grace_seconds, now),
        Departure::Plain | Departure::Event => mark(&mut marked, 0, now),
    }
    let first = !deleting(object);
    if may_go(departure, &marked, first) {
        // A pod is marked before it goes, also when it goes at once; the others leave as they are.
        Outcome::Remove(if departure == Departure::Pod { marked } else { object.clone() })
    } else if &marked == object {
        Outcome::Unchanged
    } else {
        Outcome::Mark(marked)
    }
}

/// Whether an update has taken away the last thing that kept a dying object of `kind`: then it is removed instead.
pub fn completed_by(kind: &str, object: &Value) -> bool {
    deleting(object) && may_go(Departure::of(kind), object, false)
}

fn may_go(departure: Departure, marked: &Value, first: bool) -> bool {
    let free = list(marked, "/metadata/finalizers").is_empty()
        && number(marked, "/metadata/deletionGracePeriodSeconds").unwrap_or(0) == 0;
    match departure {
        // The first DELETE of a namespace only announces it.
        Departure::Namespace => free && !first && list(marked, "/spec/finalizers").is_empty(),
        Departure::Plain | Departure::Event | Departure::Pod => free,
    }
}

/// The finalizers after a propagation policy was applied; without one they stay.
fn finalizers_for(object: &Value, propagation: Option<Propagation>) -> Vec<String> {
    const ORPHAN: &str = "orphan";
    const FOREGROUND: &str = "foregroundDeletion";
    let mut finalizers: Vec<String> = texts(object, "/metadata/finalizers").into_iter().map(String::from).collect();
    let (wanted, unwanted): (Option<&str>, &[&str]) = match propagation {
        None => return finalizers,
        Some(Propagation::Background) => (None, &[ORPHAN, FOREGROUND]),
        Some(Propagation::Foreground) => (Some(FOREGROUND), &[ORPHAN]),
        Some(Propagation::Orphan) => (Some(ORPHAN), &[FOREGROUND]),
    };
    finalizers.retain(|finalizer| !unwanted.contains(&finalizer.as_str()));
    if let Some(wanted) = wanted.filter(|wanted| !finalizers.iter().any(|finalizer| finalizer == wanted)) {
        finalizers.push(wanted.into());
    }
    finalizers
}

fn set_finalizers(object: &mut Value, finalizers: Vec<String>) {
    if finalizers.is_empty() {
        super::read::remove(object, "/metadata/finalizers");
    } else {
        set(object, "/metadata/finalizers", finalizers);
    }
}

/// Notes that the object is to go, unless that was noted before.
fn mark(object: &mut Value, grace: i64, now: Timestamp) {
    if deleting(object) {
        return;
    }
    set(object, "/metadata/deletionTimestamp", now.plus_seconds(grace).to_string());
    set(object, "/metadata/deletionGracePeriodSeconds", grace);
    if let Some(generation) = number(object, "/metadata/generation").filter(|generation| *generation > 0) {
        set(object, "/metadata/generation", generation + 1);
    }
}

fn mark_namespace(namespace: &mut Value, now: Timestamp) {
    if !deleting(namespace) {
        set(namespace, "/metadata/deletionTimestamp", now.to_string());
        set(namespace, "/status/phase", "Terminating");
    }
}

/// A pod that never ran or has ended needs no grace; a second DELETE may only shorten it.
fn mark_pod(pod: &mut Value, asked: Option<i64>, now: Timestamp) {
    let idle = text(pod, "/spec/nodeName").is_empty() || ["Succeeded", "Failed"].contains(&text(pod, "/status/phase"));
    let given = asked.or_else(|| number(pod, "/spec/terminationGracePeriodSeconds")).unwrap_or(30);
    let grace = match given {
        _ if idle => 0,
        ..0 => 1,
        grace => grace,
    };
    if !deleting(pod) {
        mark(pod, grace, now);
        return;
    }
    let before = number(pod, "/metadata/deletionGracePeriodSeconds").unwrap_or(0);
    if asked.is_some() && grace < before {
        if let Some(deadline) = Timestamp::parse(text(pod, "/metadata/deletionTimestamp")) {
            set(pod, "/metadata/deletionTimestamp", deadline.plus_seconds(grace - before).to_string());
        }
        set(pod, "/metadata/deletionGracePeriodSeconds", grace);
    }
}
