//! Update: PUT, and the loop that PATCH shares with it.

use std::sync::Arc;

use serde_json::Value;

use super::{Core, Created, Effect, Live, Outcome, Write, codec, settle, storable};
use crate::kinds::meta;
use crate::kinds::{self, Missing, Update, Versionless, deletion, read};
use crate::request::go_quote;
use crate::status::{ApiError, Mismatch};
use crate::store::{self, CommitError, Expect, Stored};

/// What a write of an existing object came to.
#[derive(Debug)]
pub(crate) enum Updated {
    Created(Created),
    /// How it is stored now, also when nothing had to be written.
    Stored(Arc<Stored>),
    /// As it was submitted: a dry run stores nothing, and neither does a write that removes the object.
    Submitted(Value),
}

/// How a request makes a new version out of the current one.
pub(crate) trait Change: Sync {
    /// The object as the client wants it, owners settled. Called again when somebody else was faster.
    fn of(&self, core: &Core, write: &Write<'_>, live: &Value) -> Outcome<Value>;

    /// The object to create when there is none, or the 404.
    fn of_nothing(&self, core: &Core, write: &Write<'_>, name: &str) -> Outcome<Value>;

    /// Whether a uid in the object is a condition on the stored one: in a PUT it is, in a PATCH it is a change.
    fn uid_is_condition(&self) -> bool;
}

/// The body of a PUT.
#[derive(Debug)]
pub(crate) struct Replacement(pub(crate) Value);

impl Change for Replacement {
    fn of(&self, core: &Core, write: &Write<'_>, live: &Value) -> Outcome<Value> {
        let mut object = self.0.clone();
        write.warn(meta::deduplicate_owners(&mut object, meta::Moment::Sent).into_iter().collect());
        core.own(write, Some(live), &mut object);
        Ok(object)
    }

    fn of_nothing(&self, core: &Core, write: &Write<'_>, name: &str) -> Outcome<Value> {
        let creates = write.rules.policy().missing == Missing::Created && write.endpoint == kinds::Endpoint::Main;
        if !creates {
            return Err(ApiError::not_found(write.resource.named(), name).into());
        }
        if let Some(wanted) = meta::requested_uid(&self.0) {
            let key = format!("/registry/{}", write.key(name)?);
            let uids = Mismatch { wanted, stored: "" };
            return Err(ApiError::wrong_uid(write.resource.named(), name, &key, uids).into());
        }
        let mut object = self.0.clone();
        // A version of nothing is no condition.
        codec::clear_version(&mut object);
        write.warn(meta::deduplicate_owners(&mut object, meta::Moment::Sent).into_iter().collect());
        core.own(write, None, &mut object);
        Ok(object)
    }

    fn uid_is_condition(&self) -> bool {
        true
    }
}

/// One turn of the loop.
enum Turn {
    Done(Updated),
    /// Somebody else was faster.
    Again,
}

impl Core {
    /// Writes a new version of an object, or creates it where that is allowed.
    pub(crate) async fn update(&self, write: &Write<'_>, name: &str, change: &dyn Change) -> Outcome<Updated> {
        loop {
            let Some(live) = self.load(write.resource, write.namespace, name) else {
                let mut object = change.of_nothing(self, write, name)?;
                self.may_create(write, name)?;
                meta::settle_namespace(&mut object, write.resource.scope(), write.namespace.unwrap_or_default())?;
                meta::check_name(&object, name)?;
                return self.create_owned(write, object).await.map(Updated::Created);
            };
            if let Turn::Done(updated) = self.turn(write, name, &live, change).await? {
                return Ok(updated);
            }
        }
    }

    async fn turn(&self, write: &Write<'_>, name: &str, live: &Live, change: &dyn Change) -> Outcome<Turn> {
        let old = &live.object;
        let mut object = change.of(self, write, old)?;
        meta::settle_namespace(&mut object, write.resource.scope(), write.namespace.unwrap_or_default())?;
        meta::check_name(&object, name)?;
        if change.uid_is_condition() {
            check_uid(write, live, &object)?;
        }
        self.admit_update(write, &mut object, old)?;
        check_version(write, live, &mut object)?;
        let update = Update { old, endpoint: write.endpoint, now: write.now };
        write.warn(kinds::before_update(write.rules, write.resource.kind_named(), &mut object, update)?);
        settle(write.resource, write.rules, &mut object);
        crate::apply::keep_times_if_unchanged(old, &mut object);
        let charges = self.validate_update(write, &object, old)?;
        let leaves = deletion::completed_by(&write.resource.kind, &object);
        let text = codec::encode(&storable(write.resource, &object));
        if !leaves && text == live.stored.value {
            return Ok(Turn::Done(Updated::Stored(Arc::clone(&live.stored))));
        }
        if write.effect == Effect::DryRun {
            return Ok(Turn::Done(Updated::Submitted(object)));
        }
        let (key, expect) = (live.stored.key.clone(), Expect::At(live.stored.revision));
        // The write that takes the last finalizer away is never stored (API-0.7).
        let commit = match leaves {
            true => store::Write::delete(key, expect),
            false => self.put_text(write.resource, key, text, expect)?,
        };
        let mut writes = charges;
        writes.push(commit);
        self.replace(writes, object).await
    }

    /// Writes the new version, or removes an object that only waited for this write to leave.
    async fn replace(&self, writes: Vec<store::Write>, object: Value) -> Outcome<Turn> {
        match self.store.commit_all(writes).await {
            // The object is the last of what was written; one that left has no new version.
            Ok(mut committed) => Ok(Turn::Done(match committed.pop().and_then(|committed| committed.stored) {
                Some(stored) => Updated::Stored(stored),
                None => Updated::Submitted(object),
            })),
            // The object or a quota has changed. A client that named a version is refused in the next turn, where the
            // version does not match any more.
            Err(CommitError::Changed { .. } | CommitError::Missing { .. }) => Ok(Turn::Again),
            Err(error) => Err(error.into()),
        }
    }
}

fn check_uid(write: &Write<'_>, live: &Live, object: &Value) -> Outcome<()> {
    let stored = read::text(&live.object, "/metadata/uid");
    match meta::requested_uid(object) {
        Some(wanted) if wanted != stored => {
            // A dry run does not know where the store keeps things.
            let root = if write.effect == Effect::DryRun { "" } else { "/registry" };
            let key = format!("{root}/{}", live.stored.key);
            let uids = Mismatch { wanted, stored };
            Err(ApiError::wrong_uid(write.resource.named(), live.stored.key.name(), &key, uids).into())
        }
        _ => Ok(()),
    }
}

/// Compares the version the client has seen.
fn check_version(write: &Write<'_>, live: &Live, object: &mut Value) -> Outcome<()> {
    let name = live.stored.key.name();
    let given = read::text(object, "/metadata/resourceVersion").to_owned();
    if given.is_empty() || given == "0" {
        if write.rules.policy().versionless == Versionless::Refused {
            return Err(ApiError::version_required(write.resource.named(), name).into());
        }
        codec::set_version(object, live.stored.revision);
        return Ok(());
    }
    match given.parse::<u64>() {
        Err(_) => {
            let message = format!("strconv.ParseUint: parsing {}: invalid syntax", go_quote(&given));
            Err(ApiError::unclassified(message).into())
        }
        Ok(version) if version != live.stored.revision.0 => {
            Err(ApiError::modified(write.resource.named(), name).into())
        }
        Ok(_) => Ok(()),
    }
}
