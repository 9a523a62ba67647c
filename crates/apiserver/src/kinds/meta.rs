//! Metadata rules every kind shares: what the server fills in, what a client may not change, what names, labels,
//! annotations, finalizers and owners may look like.

use super::labels::{invalid_each, total_size, validate_labels};
use super::names::{self, Part};
use super::read::{
    Ordered, copy, deleting, list, name, namespace, number, optional_text, pairs, present, remove, restore, same, set,
    text, texts,
};
use super::time::Timestamp;
use super::{Finalizers, Policy, Scope};
use crate::status::{ApiError, FieldError, FieldErrors, quote};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// How much of a prefix a generated name keeps.
const PREFIX: usize = 58;
const SUFFIX: usize = 5;
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const ANNOTATIONS: usize = 256 * 1024;

/// What the server gives a new object.
#[derive(Debug, Clone, Copy)]
pub struct Birth<'a> {
    pub now: Timestamp,
    pub uid: &'a str,
}

/// Fills `metadata.namespace` from the URL; another value in the object is refused. Cluster-scoped kinds lose it.
pub fn settle_namespace(object: &mut Value, scope: Scope, url: &str) -> Result<(), ApiError> {
    match (scope, namespace(object)) {
        (Scope::Cluster, _) => {
            remove(object, "/metadata/namespace");
        }
        (Scope::Namespaced, "") => set(object, "/metadata/namespace", url),
        (Scope::Namespaced, given) if given == url => {}
        (Scope::Namespaced, _) => {
            let message = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(ApiError::bad_request(message));
        }
    }
    Ok(())
}

/// The object's name must be the one in the URL of a PUT or PATCH.
pub fn check_name(object: &Value, url: &str) -> Result<(), ApiError> {
    match name(object) {
        given if given == url => Ok(()),
        "" => {
            let message =
                format!("the name of the object ({url} based on URL) was undeterminable: name must be provided");
            Err(ApiError::bad_request(message))
        }
        given => {
            let message = format!("the name of the object ({given}) does not match the name on the URL ({url})");
            Err(ApiError::bad_request(message))
        }
    }
}

/// A name from a prefix. `pick` answers a random number below its argument.
pub fn generate_name(prefix: &str, pick: &mut dyn FnMut(usize) -> usize) -> String {
    let mut end = prefix.len().min(PREFIX);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    let suffix = (0..SUFFIX).map(|_| char::from(ALPHABET[pick(ALPHABET.len()) % ALPHABET.len()]));
    prefix[..end].chars().chain(suffix).collect()
}

/// Whether a create has to invent the name.
pub fn wants_generated_name(object: &Value) -> bool {
    name(object).is_empty() && !text(object, "/metadata/generateName").is_empty()
}

/// Takes away what only the server sets; a client's generation stays (API-C025).
pub(crate) fn clear_for_create(object: &mut Value, scope: Scope) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "uid", "creationTimestamp"] {
            metadata.remove(field);
        }
    }
    if scope == Scope::Cluster {
        remove(object, "/metadata/namespace");
    }
    if number(object, "/metadata/generation") == Some(0) {
        remove(object, "/metadata/generation");
    }
}

pub(crate) fn fill_for_create(object: &mut Value, birth: Birth<'_>) {
    set(object, "/metadata/uid", birth.uid);
    set(object, "/metadata/creationTimestamp", birth.now.to_string());
}

/// Keeps what an update cannot change and what a client may leave out.
pub(crate) fn keep_for_update(object: &mut Value, old: &Value) {
    remove(object, "/metadata/selfLink");
    restore(object, old, "/metadata/creationTimestamp");
    if text(object, "/metadata/uid").is_empty() {
        restore(object, old, "/metadata/uid");
    }
    if deleting(old) {
        restore(object, old, "/metadata/deletionTimestamp");
    }
    if present(object, "/metadata/deletionGracePeriodSeconds").is_none() {
        restore(object, old, "/metadata/deletionGracePeriodSeconds");
    }
    if text(object, "/metadata/resourceVersion").is_empty() {
        restore(object, old, "/metadata/resourceVersion");
    }
}

/// When owners are looked at, for the warning about those that are named twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// As the client sent them.
    Sent,
    /// In the object that a patch led to.
    Patched,
}

/// Drops owners that are named twice, word for word, and says so.
pub fn deduplicate_owners(object: &mut Value, moment: Moment) -> Option<String> {
    let owners = list(object, "/metadata/ownerReferences");
    let mut kept: Vec<&Value> = Vec::new();
    let mut seen: BTreeSet<Ordered<'_>> = BTreeSet::new();
    let mut duplicates: Vec<String> = Vec::new();
    for owner in owners {
        if seen.insert(Ordered(owner)) {
            kept.push(owner);
        } else {
            duplicates.push(text(owner, "/uid").into());
        }
    }
    if duplicates.is_empty() {
        return None;
    }
    let kept: Vec<Value> = kept.into_iter().cloned().collect();
    set(object, "/metadata/ownerReferences", kept);
    let when = match moment {
        Moment::Sent => "",
        Moment::Patched => " after mutating admission happens",
    };
    Some(format!(
        ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may \
         reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        duplicates.join(", ")
    ))
}

/// The metadata of a new object, after the name was generated.
pub(crate) fn validate_create(object: &Value, policy: &Policy) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let prefix = text(object, "/metadata/generateName");
    if !prefix.is_empty() {
        errors.extend(invalid_each("metadata.generateName", prefix, policy.names.complaints(prefix, Part::Prefix)));
    }
    match name(object) {
        "" => errors.push(FieldError::required("metadata.name", "name or generateName is required")),
        name => errors.extend(invalid_each("metadata.name", name, policy.names.complaints(name, Part::Whole))),
    }
    errors.extend(validate_namespace(object, policy.scope));
    if number(object, "/metadata/generation").is_some_and(|generation| generation < 0) {
        let generation = copy(object, "/metadata/generation");
        errors.push(FieldError::invalid("metadata.generation", generation, "must be greater than or equal to 0"));
    }
    errors.extend(validate_labels(object, "/metadata/labels", "metadata.labels"));
    errors.extend(validate_annotations(object));
    errors.extend(validate_owners(object));
    errors.extend(validate_finalizers(object));
    if policy.finalizers == Finalizers::Qualified {
        errors.extend(validate_finalizers_qualified(object));
    }
    errors
}

fn validate_namespace(object: &Value, scope: Scope) -> FieldErrors {
    match (scope, namespace(object)) {
        (Scope::Namespaced, "") => FieldError::required("metadata.namespace", "").into(),
        (Scope::Namespaced, namespace) => invalid_each("metadata.namespace", namespace, names::label(namespace)),
        (Scope::Cluster, "") => FieldErrors::new(),
        (Scope::Cluster, _) => FieldError::forbidden("metadata.namespace", "not allowed on this type").into(),
    }
}

fn validate_annotations(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for (key, _) in pairs(object, "/metadata/annotations") {
        errors.extend(invalid_each("metadata.annotations", key, names::qualified(&key.to_lowercase())));
    }
    if total_size(object, "/metadata/annotations") > ANNOTATIONS {
        errors.push(FieldError::too_long("metadata.annotations", ANNOTATIONS));
    }
    errors
}

fn validate_owners(object: &Value) -> FieldErrors {
    const FIELD: &str = "metadata.ownerReferences";
    let mut errors = FieldErrors::new();
    let mut controller: Option<String> = None;
    // Each further controller is reported with the whole list, which is written once.
    let mut whole_list: Option<FieldError> = None;
    for owner in list(object, "/metadata/ownerReferences") {
        // The errors about a second controller show the whole list: no more of them are made than are reported.
        if errors.is_full() {
            return errors;
        }
        let (version, kind) = (text(owner, "/apiVersion"), text(owner, "/kind"));
        if version.is_empty() || version.ends_with('/') || version.matches('/').count() > 1 {
            errors.push(FieldError::invalid(format!("{FIELD}.apiVersion"), version, "version must not be empty"));
        }
        for field in ["kind", "name", "uid"] {
            if text(owner, &format!("/{field}")).is_empty() {
                errors.push(FieldError::invalid(format!("{FIELD}.{field}"), "", "must not be empty"));
            }
        }
        if version == "v1" && kind == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(FIELD, owner.clone(), detail));
        }
        if owner["controller"] == json!(true) {
            let this = format!("{kind}/{}", text(owner, "/name"));
            match &controller {
                Some(first) => {
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} \
                         and {this}"
                    );
                    let whole_list = whole_list.get_or_insert_with(|| {
                        FieldError::invalid(FIELD, copy(object, "/metadata/ownerReferences"), "")
                    });
                    errors.push(whole_list.with_detail(detail));
                }
                None => controller = Some(this),
            }
        }
    }
    errors
}

fn validate_finalizers(object: &Value) -> FieldErrors {
    const FIELD: &str = "metadata.finalizers";
    let finalizers = texts(object, "/metadata/finalizers");
    let mut errors: FieldErrors =
        finalizers.iter().flat_map(|name| invalid_each(FIELD, name, names::qualified(name))).collect();
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(FIELD, copy(object, "/metadata/finalizers"), detail));
    }
    errors
}

/// Names without a prefix are reserved for the three standard finalizers.
fn validate_finalizers_qualified(object: &Value) -> FieldErrors {
    let finalizers = texts(object, "/metadata/finalizers");
    let each = finalizers.into_iter().enumerate();
    each.filter(|(_, name)| !name.contains('/') && !["orphan", "foregroundDeletion", "kubernetes"].contains(name))
        .map(|(index, name)| {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            FieldError::invalid(format!("metadata.finalizers[{index}]"), name, detail)
        })
        .collect()
}

/// The metadata of an update, without the rule about finalizer names: every kind passes this once, most a second time.
pub(crate) fn validate_update(object: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if deleting(old) {
        errors.extend(validate_no_new_finalizers(object, old));
    }
    if text(object, "/metadata/resourceVersion").is_empty() {
        errors.push(FieldError::invalid("metadata.resourceVersion", "", "must be specified for an update"));
    }
    let generation = |object: &Value| number(object, "/metadata/generation").unwrap_or(0);
    if generation(object) < generation(old) {
        errors.push(FieldError::invalid("metadata.generation", generation(object), "must not be decremented"));
    }
    for field in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (new, before) = (metadata(object, field), metadata(old, field));
        if !same(new, before) {
            errors.push(FieldError::immutable(format!("metadata.{field}"), new.cloned().unwrap_or_default()));
        }
    }
    errors.extend(validate_labels(object, "/metadata/labels", "metadata.labels"));
    errors.extend(validate_annotations(object));
    errors.extend(validate_owners(object));
    errors
}

fn metadata<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get("metadata").and_then(|metadata| metadata.get(field))
}

/// As [`validate_update`], with the finalizer names: what the core kinds run.
pub(crate) fn validate_core_update(object: &Value, old: &Value) -> FieldErrors {
    let mut errors = validate_update(object, old);
    errors.extend(validate_finalizers_qualified(object));
    errors
}

fn validate_no_new_finalizers(object: &Value, old: &Value) -> Option<FieldError> {
    let before: BTreeSet<&str> = texts(old, "/metadata/finalizers").into_iter().collect();
    let mut added = texts(object, "/metadata/finalizers");
    added.retain(|name| !before.contains(name));
    added.sort_unstable();
    added.dedup();
    if added.is_empty() {
        return None;
    }
    let shown: Vec<String> = added.into_iter().map(quote).collect();
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        shown.join(", ")
    );
    Some(FieldError::forbidden("metadata.finalizers", detail))
}

/// Adds a finalizer unless it is there.
pub(crate) fn add_finalizer(object: &mut Value, finalizer: &str) {
    if texts(object, "/metadata/finalizers").contains(&finalizer) {
        return;
    }
    let mut finalizers = list(object, "/metadata/finalizers").to_vec();
    finalizers.push(finalizer.into());
    set(object, "/metadata/finalizers", finalizers);
}

/// A PUT's uid, when the client named one: it must be the stored one.
pub fn requested_uid(object: &Value) -> Option<&str> {
    optional_text(object, "/metadata/uid").filter(|uid| !uid.is_empty())
}
