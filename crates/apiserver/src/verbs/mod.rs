//! The verbs: what create, get, list, watch, update, patch and delete do to the store (API-2 to API-4).
//!
//! Every write of an existing object is a loop: read, change, admit, reset, validate, commit if nobody was faster. A
//! client that named a resourceVersion is told when somebody was; all others never see the race.

mod admit;
mod bind;
mod bodies;
mod codec;
mod create;
mod delete;
mod failure;
mod list;
mod owners;
mod patch;
mod update;
mod view;
mod volumes;
mod watch;

pub(crate) use failure::{Failure, Outcome};

pub(crate) use bodies::{BodyKind, Given, delete_options};
pub(crate) use codec::{TypeFields, copy_metadata, decode, decode_outline, decode_unowned, print_escaped};
pub(crate) use create::Created;
pub(crate) use delete::{Deleted, Deletion};
pub(crate) use list::{Collection, Listed};
pub(crate) use patch::{PatchBody, Patching};
pub(crate) use update::{Replacement, Updated};
pub(crate) use view::{Headings, PARTIAL_HEAD, TableForm, list as list_view, partial, partial_list};
pub(crate) use volumes::VolumesInCreation;
pub(crate) use watch::{EventForm, OpenWatches, Watching};

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

use crate::auth::User;
use crate::catalog::{Catalog, Resource, Snapshot};
use crate::kinds::{Endpoint, Rules, Timestamp};
use crate::relations::Relations;
use crate::request::FieldValidation;
use crate::rights::Rights;
use crate::sources::{self, Clock, Entropy};
use crate::status::ApiError;
use crate::store::{Key, Revision, Store, Stored};

/// How long a read waits for a version that is not there yet.
const FRESHNESS_WAIT: Duration = Duration::from_secs(3);
/// What the store takes for one object.
const OBJECT_BYTES: usize = 1_572_864;

/// What every verb works with.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) rights: Rights,
    pub(crate) relations: Relations,
    pub(crate) volumes: VolumesInCreation,
    pub(crate) catalog: Catalog,
    /// Watches end when this becomes true.
    pub(crate) stopping: tokio::sync::watch::Sender<bool>,
    pub(crate) watches: OpenWatches,
}

/// An object as stored and as its resource shows it.
#[derive(Debug, Clone)]
pub(crate) struct Live {
    pub(crate) stored: Arc<Stored>,
    pub(crate) object: Value,
}

/// Whether a write reaches the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Stored,
    DryRun,
}

/// What all writes of one request share.
#[derive(Debug)]
pub(crate) struct Write<'a> {
    pub(crate) resource: &'a Arc<Resource>,
    pub(crate) rules: &'a dyn Rules,
    pub(crate) endpoint: Endpoint,
    /// Of namespaced kinds.
    pub(crate) namespace: Option<&'a str>,
    pub(crate) user: &'a User,
    pub(crate) effect: Effect,
    /// Who owns the fields that the write changes.
    pub(crate) manager: &'a str,
    pub(crate) validation: FieldValidation,
    pub(crate) now: Timestamp,
    pub(crate) warnings: Warnings,
}

/// What to tell the client although the request succeeds, or besides why it failed. Each text once.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<WarningTexts>);

#[derive(Debug, Default)]
struct WarningTexts {
    in_order: Vec<String>,
    known: BTreeSet<String>,
}

/// Warnings that are kept for one answer: its headers have room for far fewer.
const MOST_WARNINGS: usize = 1_000;

impl Warnings {
    pub(crate) fn add(&self, text: impl Into<String>) {
        let (text, mut texts) = (text.into(), self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if texts.in_order.len() < MOST_WARNINGS && texts.known.insert(text.clone()) {
            texts.in_order.push(text);
        }
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).in_order
    }
}

impl Core {
    /// What is served at this moment.
    pub(crate) fn served(&self) -> Arc<Snapshot> {
        self.catalog.snapshot(&self.store)
    }

    pub(crate) fn now(&self) -> Timestamp {
        let millis = i64::try_from(self.clock.now().0).unwrap_or(i64::MAX / 1000);
        Timestamp::from_micros(millis.saturating_mul(1000))
    }

    pub(crate) fn uid(&self) -> String {
        sources::uuid(&*self.entropy)
    }

    pub(crate) fn find(&self, resource: &Resource, namespace: Option<&str>, name: &str) -> Option<Arc<Stored>> {
        // A name that cannot be a key names nothing.
        self.store.get(&Key::new(&resource.stored_as, namespace, name).ok()?)
    }

    pub(crate) fn load(&self, resource: &Resource, namespace: Option<&str>, name: &str) -> Option<Live> {
        let stored = self.find(resource, namespace, name)?;
        let object = shown(resource, codec::decode(&stored));
        Some(Live { stored, object })
    }

    /// As [`Core::load`], or the 404.
    pub(crate) fn load_or_404(&self, resource: &Resource, namespace: Option<&str>, name: &str) -> Outcome<Live> {
        self.load(resource, namespace, name).ok_or_else(|| ApiError::not_found(resource.named(), name).into())
    }
}

impl<'a> Write<'a> {
    /// A write of the server itself, of a cluster-scoped object.
    pub(crate) fn own(
        core: &Core,
        (resource, rules): (&'a Arc<Resource>, &'a dyn Rules),
        endpoint: Endpoint,
        user: &'a User,
    ) -> Self {
        Self {
            resource,
            rules,
            endpoint,
            namespace: None,
            user,
            effect: Effect::Stored,
            manager: "kube-apiserver",
            validation: FieldValidation::Ignore,
            now: core.now(),
            warnings: Warnings::default(),
        }
    }

    fn key(&self, name: &str) -> Outcome<Key> {
        Key::new(&self.resource.stored_as, self.namespace, name)
            .map_err(|error| ApiError::bad_request(error.to_string()).into())
    }

    fn warn(&self, texts: Vec<String>) {
        texts.into_iter().for_each(|text| self.warnings.add(text));
    }
}

/// A stored object as its resource shows it: events have two views, custom resources one per version.
pub(crate) fn shown(resource: &Resource, mut object: Value) -> Value {
    if resource.group == "events.k8s.io" {
        return crate::kinds::event::from_core(&object);
    }
    if resource.custom().is_some() {
        resource.label(&mut object);
    }
    object
}

/// Adds the text of a stored object to `out`, as its resource shows it.
pub(crate) fn print_shown(out: &mut Vec<u8>, resource: &Resource, stored: &Stored, as_of: Revision, types: TypeFields) {
    // Exactly where `shown` changes nothing, the stored text can be copied.
    if resource.group != "events.k8s.io" && resource.custom().is_none() {
        return codec::copy(out, stored, as_of, types);
    }
    let mut object = shown(resource, codec::decode_at(stored, as_of));
    if types == TypeFields::Left {
        codec::clear_types(&mut object);
    }
    codec::print_escaped(out, &object);
}

/// The form of a resource's object that is stored.
fn storable<'a>(resource: &Resource, object: &'a Value) -> Cow<'a, Value> {
    if resource.group == "events.k8s.io" {
        return Cow::Owned(crate::kinds::event::to_core(object));
    }
    let Some(custom) = resource.custom() else { return Cow::Borrowed(object) };
    let mut object = object.clone();
    object["apiVersion"] = custom.stored_version().into();
    Cow::Owned(object)
}

/// Brings an object into the form that is compared, stored and answered: defaults filled, nothing empty.
pub(crate) fn settle(resource: &Resource, rules: &dyn Rules, object: &mut Value) {
    rules.default(object);
    match resource.table() {
        Some(table) => crate::schema::encode::complete(table, object),
        // Everything of a custom object but its metadata is as it was sent.
        None => {
            if let Some(metadata) = object.get_mut("metadata") {
                crate::schema::encode::complete(&crate::schema::tables::meta::OBJECT_META, metadata);
            }
        }
    }
    resource.label(object);
}
