//! Server-side apply and field ownership (API-4.6), as pure functions over JSON values and their types.
//!
//! Every write goes through a [`Manager`]: an apply merges a configuration and refuses to change what others own; any
//! other write takes over the fields it changes. Who owns what is kept in `metadata.managedFields` of the object.
//!
//! Invariants: the same inputs give the same object, time included (it is an argument); objects are taken in the form
//! they are printed in the endpoint's version, and given back before defaulting; nothing here panics on any input.

mod compare;
mod conflict;
mod extract;
mod last_applied;
mod managed;
mod merge;
mod ownership;
mod path;
mod prune;
mod set;
mod shape;
#[cfg(test)]
mod tests;
mod validate;

use serde_json::Value;
use thiserror::Error;

pub use compare::{Comparison, compare};
pub use conflict::{Conflict, Conflicts};
pub use extract::fields_of;
pub use managed::{Entry, ManagedError, Managers, Operation, clear, keep_times_if_unchanged};
pub use merge::merge;
pub(crate) use path::compare as order;
pub use path::{Json, Name, Path, Step, StepError, path_text, same};
pub use prune::remove;
pub use set::{FieldSet, FieldsError};
pub use shape::{Custom, Shape};
pub use validate::Misfits;

use ownership::{Applier, Failure};
use validate::{Duplicates, check};

/// Owner of the fields that an object had before anybody was tracked.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// A manager that did not say its name.
const UNKNOWN: &str = "unknown";

/// Fields of one endpoint: the object itself or one of its subresources.
#[derive(Debug, Clone, Copy)]
pub struct Manager<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub shape: Shape<'a>,
    /// The other versions of the kind that are served, with their types.
    pub other_versions: &'a [(&'a str, Shape<'a>)],
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// Fields that this endpoint does not write and so nobody owns through it: `status` on the object, `spec` and
    /// perhaps `metadata` on `/status`.
    pub reset: &'a FieldSet,
}

/// Who writes, and when.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    pub manager: &'a str,
    /// RFC 3339 in UTC with whole seconds.
    pub now: &'a str,
}

/// What to do about fields that others own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    Refuse,
    TakeOver,
}

/// Why an apply was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ApplyError {
    /// 409, with a cause per field.
    #[error("{0}")]
    Conflict(Conflicts),
    /// 400: the configuration is of another type than the endpoint.
    #[error("invalid object type: {0}")]
    WrongType(String),
    /// 400.
    #[error("metadata.managedFields must be nil")]
    ManagedFieldsGiven,
    /// 500: the configuration does not fit the type.
    #[error("failed to create typed patch object ({object}): {misfits}")]
    Misfit { object: String, misfits: Misfits },
    /// 500: the stored object does not fit its type.
    #[error("failed to create typed live object ({object}): {misfits}")]
    LiveMisfit { object: String, misfits: Misfits },
    /// 500: the stored owners cannot be read.
    #[error("failed to decode managed fields: {0}")]
    Managed(ManagedError),
    /// 500: the configuration cannot be merged into the stored object.
    #[error("failed to merge config: {0}")]
    Merge(Misfits),
}

impl<'a> Manager<'a> {
    /// Records the owners of a create, update or patch in the new object. `live` is `None` for a create.
    ///
    /// Owners named in the request replace the stored ones when they can be read; an empty list forgets all owners, and
    /// then nobody is tracked until the next apply.
    pub fn update(&self, live: Option<&Value>, new: &mut Value, who: &Writer<'_>) {
        let managers = self.owners_for_update(live, new);
        clear(new);
        let tracked = !managers.is_empty() || live.is_none_or(|live| uid(live).is_empty());
        if !tracked {
            return;
        }
        let blank;
        let live = match live {
            Some(live) => live,
            None => {
                blank = self.shape.blank(self.api_version, self.kind);
                &blank
            }
        };
        // An object that does not fit its type has no owners: the write itself must not fail for it.
        if let Ok(mut managers) = self.taken_over(live, new, managers, who) {
            managers.cap();
            managers.store(new);
        }
    }

    /// The live object with a configuration applied to it, owners included, before defaulting. `live` is `None` when
    /// the object does not exist yet.
    pub fn apply(
        &self,
        live: Option<&Value>,
        config: &Value,
        who: &Writer<'_>,
        force: Force,
    ) -> Result<Value, ApplyError> {
        self.check_config(config)?;
        let mut live = live.cloned().unwrap_or_else(|| self.shape.blank(self.api_version, self.kind));
        let mut managers = Managers::of(&live).map_err(ApplyError::Managed)?;
        clear(&mut live);
        if managers.is_empty() {
            let blank = self.shape.blank(self.api_version, self.kind);
            let before = Writer { manager: BEFORE_FIRST_APPLY, now: who.now };
            managers = self
                .taken_over(&blank, &live, managers, &before)
                .map_err(|misfits| ApplyError::LiveMisfit { object: self.name_of(&live), misfits })?;
            managers.cap();
        }
        let applier = |force| Applier { entry: self.entry(who, Operation::Apply), force };
        let mut outcome = self.applied(&live, config, managers.clone(), applier(force));
        if let (Err(ApplyError::Conflict(conflicts)), last_applied::KUBECTL) = (&outcome, who.manager)
            && let Some(own) = last_applied::still_as_applied(&live, self.api_version, self.shape)
        {
            let left = conflicts.clone().without(&own);
            outcome = match left.0.is_empty() {
                true => self.applied(&live, config, managers, applier(Force::TakeOver)),
                false => Err(ApplyError::Conflict(left)),
            };
        }
        let (mut object, managers) = outcome?;
        if who.manager == last_applied::KUBECTL {
            last_applied::follow(&mut object, config);
        }
        managers.store(&mut object);
        Ok(object)
    }

    fn check_config(&self, config: &Value) -> Result<(), ApplyError> {
        let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or("");
        if (text("apiVersion"), text("kind")) != (self.api_version, self.kind) {
            return Err(ApplyError::WrongType(kind_text(text("apiVersion"), text("kind"))));
        }
        if managed::stored(config).is_some_and(Value::is_array) {
            return Err(ApplyError::ManagedFieldsGiven);
        }
        check(config, self.shape, Duplicates::Refused)
            .map_err(|misfits| ApplyError::Misfit { object: self.name_of(config), misfits })
    }

    /// Applies, or refuses to.
    fn applied(
        &self,
        live: &Value,
        config: &Value,
        managers: Managers,
        applier: Applier,
    ) -> Result<(Value, Managers), ApplyError> {
        check(live, self.shape, Duplicates::Allowed)
            .map_err(|misfits| ApplyError::LiveMisfit { object: self.name_of(live), misfits })?;
        ownership::apply(self, live, config, managers, applier).map_err(|failure| match failure {
            Failure::Conflict(conflicts) => ApplyError::Conflict(conflicts),
            Failure::Misfit(misfits) => ApplyError::Merge(misfits),
        })
    }

    /// The owners after an update.
    fn taken_over(&self, live: &Value, new: &Value, managers: Managers, who: &Writer<'_>) -> Result<Managers, Misfits> {
        check(new, self.shape, Duplicates::Allowed)?;
        check(live, self.shape, Duplicates::Allowed)?;
        ownership::update(self, live, new, managers, self.entry(who, Operation::Update))
    }

    fn owners_for_update(&self, live: Option<&Value>, new: &Value) -> Managers {
        let stored = || live.map(Managers::of).and_then(Result::ok).unwrap_or_default();
        if !self.subresource.is_empty() {
            return stored();
        }
        if managed::asks_to_forget(new) {
            return Managers::default();
        }
        match Managers::of(new) {
            Ok(given) if !given.is_empty() => given,
            _ => stored(),
        }
    }

    fn entry(&self, who: &Writer<'_>, operation: Operation) -> Entry {
        Entry {
            manager: if who.manager.is_empty() { UNKNOWN } else { who.manager }.to_owned(),
            operation,
            api_version: self.api_version.to_owned(),
            subresource: self.subresource.to_owned(),
            time: Some(who.now.to_owned()),
            fields: FieldSet::new(),
        }
    }

    /// The type of the kind in a version, when it is served.
    fn shape_in(&self, api_version: &str) -> Option<Shape<'a>> {
        if api_version == self.api_version {
            return Some(self.shape);
        }
        self.other_versions.iter().find(|(version, _)| *version == api_version).map(|(_, shape)| *shape)
    }

    fn name_of(&self, object: &Value) -> String {
        let meta = |name: &str| object.get("metadata").and_then(|meta| meta.get(name)).and_then(Value::as_str);
        let kind = kind_text(self.api_version, self.kind);
        format!("{}/{}; {kind}", meta("namespace").unwrap_or(""), meta("name").unwrap_or(""))
    }
}

/// `/v1, Kind=Secret` or `storage.k8s.io/v1, Kind=CSINode`.
fn kind_text(api_version: &str, kind: &str) -> String {
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{slash}{api_version}, Kind={kind}")
}

fn uid(object: &Value) -> &str {
    object.get("metadata").and_then(|meta| meta.get("uid")).and_then(Value::as_str).unwrap_or("")
}
