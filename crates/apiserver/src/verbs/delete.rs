//! Delete: removes an object, or notes that it is to go and waits for its finalizers (API-2.1).

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::{Core, Live, Outcome, codec, settle};
use crate::auth::User;
use crate::catalog::Resource;
use crate::crd;
use crate::kinds::deletion::{self, Departure, Options};
use crate::kinds::{Rules, read};
use crate::request::{DeleteOptions, DryRun, Propagation};
use crate::store::{self, CommitError, Expect, Stored};

/// What a DELETE came to.
#[derive(Debug)]
pub(crate) enum Deleted {
    Removed(Value),
    /// Something keeps the object; it says since when it is dying.
    Marked(Arc<Stored>),
    /// As [`Deleted::Marked`], in a dry run.
    WouldMark(Value),
}

/// One DELETE, or one of many.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deletion<'a> {
    pub(crate) resource: &'a Arc<Resource>,
    pub(crate) rules: &'a dyn Rules,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) user: &'a User,
    pub(crate) options: &'a DeleteOptions,
}

/// What a turn of the loop wants to do.
enum Step {
    Done(Deleted),
    Commit(Box<store::Write>, Value),
}

impl Core {
    pub(crate) async fn delete(&self, deletion: &Deletion<'_>, name: &str) -> Outcome<Deleted> {
        let mut found = self.load(deletion.resource, deletion.namespace, name);
        self.admit_delete(deletion, name, found.as_ref().map(|live| &live.object))?;
        loop {
            let live = match found.take() {
                Some(live) => live,
                None => self.load_or_404(deletion.resource, deletion.namespace, name)?,
            };
            let (commit, object) = match self.step(deletion, &live)? {
                Step::Done(deleted) => return Ok(deleted),
                Step::Commit(commit, object) => (commit, object),
            };
            match self.store.commit(*commit).await {
                Ok(committed) => {
                    let mut object = object;
                    return Ok(match committed.stored {
                        Some(stored) => Deleted::Marked(stored),
                        None => {
                            codec::set_version(&mut object, committed.revision);
                            Deleted::Removed(object)
                        }
                    });
                }
                // Somebody else was faster; the new version is looked at again.
                Err(CommitError::Changed { .. } | CommitError::Missing { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn step(&self, deletion: &Deletion<'_>, live: &Live) -> Outcome<Step> {
        let Deletion { resource, rules, options, .. } = *deletion;
        let wishes = Options {
            grace_seconds: options.grace_period_seconds,
            propagation: propagation(options),
            uid: options.preconditions.uid.as_deref(),
            resource_version: options.preconditions.resource_version.as_deref(),
        };
        deletion::check_preconditions(resource.kind_named(), &live.object, wishes)?;
        let departure = Departure::of(&resource.kind);
        let object = kept_for_cleanup(resource, &live.object);
        let (key, expect) = (live.stored.key.clone(), Expect::At(live.stored.revision));
        let dry = options.dry_run == DryRun::All;
        Ok(match deletion::decide(departure, &object, wishes, self.now()) {
            deletion::Outcome::Unchanged => Step::Done(Deleted::Marked(Arc::clone(&live.stored))),
            deletion::Outcome::Remove(last) if dry => Step::Done(Deleted::Removed(last)),
            deletion::Outcome::Remove(last) => Step::Commit(Box::new(store::Write::delete(key, expect)), last),
            deletion::Outcome::Mark(mut marked) => {
                settle(resource, rules, &mut marked);
                if dry {
                    return Ok(Step::Done(Deleted::WouldMark(marked)));
                }
                Step::Commit(Box::new(self.put(resource, key, &marked, expect)?), marked)
            }
        })
    }
}

/// A definition stays until its objects are gone.
fn kept_for_cleanup<'a>(resource: &Resource, object: &'a Value) -> Cow<'a, Value> {
    if resource.stored_as != crd::DEFINITIONS || read::deleting(object) {
        return Cow::Borrowed(object);
    }
    let mut object = object.clone();
    crate::kinds::meta::add_finalizer(&mut object, crd::CLEANUP);
    Cow::Owned(object)
}

/// The old flag and the new policy say the same things.
fn propagation(options: &DeleteOptions) -> Option<deletion::Propagation> {
    match (options.propagation, options.orphan_dependents) {
        (Some(Propagation::Background), _) | (None, Some(false)) => Some(deletion::Propagation::Background),
        (Some(Propagation::Foreground), _) => Some(deletion::Propagation::Foreground),
        (Some(Propagation::Orphan), _) | (None, Some(true)) => Some(deletion::Propagation::Orphan),
        (None, None) => None,
    }
}
