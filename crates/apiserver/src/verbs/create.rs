//! Create.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::{Core, Effect, OBJECT_BYTES, Outcome, Write, admit, codec, settle, storable};
use crate::catalog::Resource;
use crate::kinds::meta::{self, Birth};
use crate::kinds::{self, read};
use crate::sources;
use crate::status::ApiError;
use crate::store::{self, CommitError, Expect, Held, Stored, UnixMillis};

/// How often a generated name is tried.
const NAME_ATTEMPTS: usize = 8;
/// Events are kept this long after their last write.
const EVENT_TTL_MILLIS: u64 = 60 * 60 * 1000;

/// A new object, with its version unless nothing was stored.
#[derive(Debug)]
pub(crate) struct Created {
    pub(crate) object: Value,
    /// None after a dry run.
    pub(crate) stored: Option<Arc<Stored>>,
}

impl Core {
    /// Creates what a POST sent. `object` is decoded, defaulted and of the right kind.
    pub(crate) async fn create(&self, write: &Write<'_>, mut object: Value) -> Outcome<Created> {
        meta::settle_namespace(&mut object, write.resource.scope(), write.namespace.unwrap_or_default())?;
        write.warn(meta::deduplicate_owners(&mut object, meta::Moment::Sent).into_iter().collect());
        // Nobody owns what the server takes away.
        for field in ["/metadata/deletionTimestamp", "/metadata/deletionGracePeriodSeconds"] {
            read::remove(&mut object, field);
        }
        self.own(write, None, &mut object);
        self.create_owned(write, object).await
    }

    /// As [`Core::create`], for objects whose field owners are settled: apply has done it.
    pub(super) async fn create_owned(&self, write: &Write<'_>, mut object: Value) -> Outcome<Created> {
        let version = read::text(&object, "/metadata/resourceVersion").to_owned();
        let generated =
            meta::wants_generated_name(&object).then(|| read::text(&object, "/metadata/generateName").to_owned());
        // Before admission looks for other volumes with the same handle.
        let volume = self.volumes.enter(write.resource, &object);
        self.admit_create(write, &mut object)?;
        if volume.as_ref().is_some_and(|volume| !volume.is_first()) {
            self.admit_beside_twin(write, read::name(&object))?;
        }
        let held = volume.map(|volume| -> Held { volume });
        let uid = self.uid();
        let mut draft = object;
        for _ in 0..NAME_ATTEMPTS {
            let mut object = match &generated {
                // A name that was not generated is tried once.
                None => std::mem::take(&mut draft),
                Some(prefix) => {
                    let mut object = draft.clone();
                    read::set(&mut object, "/metadata/name", self.invent(prefix));
                    object
                }
            };
            let birth = Birth { now: write.now, uid: &uid };
            let warnings = kinds::before_create(write.rules, write.resource.kind_named(), &mut object, birth);
            write.warn(warnings?);
            settle(write.resource, write.rules, &mut object);
            match self.store_new(write, &mut object, &version, held.as_ref()).await? {
                Inserted::Done(stored) => return Ok(Created { object, stored }),
                Inserted::Taken if generated.is_some() => {}
                Inserted::Taken => {
                    return Err(ApiError::already_exists(write.resource.named(), read::name(&object)).into());
                }
                Inserted::Leaving if generated.is_some() => {}
                Inserted::Leaving => {
                    return Err(ApiError::being_deleted(write.resource.named(), read::name(&object)).into());
                }
            }
        }
        Err(ApiError::names_exhausted(write.resource.named(), generated.as_deref().unwrap_or_default()).into())
    }

    /// Judges a new object and stores it; again while somebody else uses the same quota at the same time.
    async fn store_new(
        &self,
        write: &Write<'_>,
        object: &mut Value,
        version: &str,
        held: Option<&Held>,
    ) -> Outcome<Inserted> {
        loop {
            let charges = self.validate_create(write, object)?;
            if !version.is_empty() {
                return Err(ApiError::version_on_create().into());
            }
            if let Some(inserted) = self.insert(write, object, charges, held).await? {
                return Ok(inserted);
            }
        }
    }

    fn invent(&self, prefix: &str) -> String {
        let mut pick = |limit: usize| {
            let limit = u64::try_from(limit).unwrap_or(u64::MAX);
            usize::try_from(sources::below(&*self.entropy, limit)).unwrap_or_default()
        };
        meta::generate_name(prefix, &mut pick)
    }

    /// Stores a new object and gives it its version. None when a quota has changed meanwhile.
    async fn insert(
        &self,
        write: &Write<'_>,
        object: &mut Value,
        charges: Vec<store::Write>,
        held: Option<&Held>,
    ) -> Outcome<Option<Inserted>> {
        let key = write.key(read::name(object))?;
        codec::clear_version(object);
        if write.effect == Effect::DryRun {
            return Ok(Some(match self.store.get(&key) {
                None => Inserted::Done(None),
                Some(other) => Inserted::beside(&codec::decode(&other)),
            }));
        }
        let mut writes = charges;
        writes.push(self.put(write.resource, key, object, Expect::Absent)?);
        match self.store.commit_holding(writes, held.cloned()).await {
            Ok(mut committed) => {
                // The object is the last of what was written.
                let stored = committed.pop().and_then(|committed| committed.stored);
                codec::set_version(object, stored.as_ref().map(|stored| stored.revision).unwrap_or_default());
                Ok(Some(Inserted::Done(stored)))
            }
            Err(CommitError::Exists { current }) => Ok(Some(Inserted::beside(&codec::decode(&current)))),
            Err(error) if admit::is_about_quota(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The write that stores an object.
    pub(super) fn put(
        &self,
        resource: &Resource,
        key: store::Key,
        object: &Value,
        expect: Expect,
    ) -> Outcome<store::Write> {
        self.put_text(resource, key, codec::encode(&storable(resource, object)), expect)
    }

    /// As [`Core::put`], for an object in its stored form.
    pub(super) fn put_text(
        &self,
        resource: &Resource,
        key: store::Key,
        value: Bytes,
        expect: Expect,
    ) -> Outcome<store::Write> {
        if value.len() > OBJECT_BYTES {
            return Err(ApiError::unclassified("etcdserver: request is too large").into());
        }
        let put = store::Write::put(key, expect, value);
        Ok(match resource.expires() {
            true => put.expiring(UnixMillis(self.clock.now().0 + EVENT_TTL_MILLIS)),
            false => put,
        })
    }
}

/// What came of storing a new object.
#[derive(Debug)]
enum Inserted {
    Done(Option<Arc<Stored>>),
    Taken,
    /// The name belongs to an object that is being deleted.
    Leaving,
}

impl Inserted {
    fn beside(other: &Value) -> Self {
        if read::deleting(other) { Self::Leaving } else { Self::Taken }
    }
}
