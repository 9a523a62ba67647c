//! How owners change with a write: the heart of server-side apply (API-4.6).
//!
//! A manager's fields are read in the version they were written in. Versions differ in their types, not in the values
//! of an object, so an object needs no conversion; fields of a version that is no longer served have no owner.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::compare::{Comparison, compare};
use super::conflict::Conflicts;
use super::extract::fields_of;
use super::managed::{Entry, Managers};
use super::merge::merge;
use super::path::same;
use super::prune::{reconcile, remove, with_named_parents};
use super::set::FieldSet;
use super::validate::Misfits;
use super::{Force, Manager};

/// Why owners could not be changed.
pub(super) enum Failure {
    Conflict(Conflicts),
    Misfit(Misfits),
}

impl From<Misfits> for Failure {
    fn from(misfits: Misfits) -> Self {
        Failure::Misfit(misfits)
    }
}

/// Who applies, and what it does about conflicts.
pub(super) struct Applier {
    pub(super) entry: Entry,
    pub(super) force: Force,
}

/// Fields that identify the object or that the server maintains: nobody owns them.
static NEVER_OWNED: LazyLock<FieldSet> = LazyLock::new(|| {
    FieldSet::of(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
});

/// Gives every field that a write changed to its writer; the others keep their owners.
pub(super) fn update(
    kind: &Manager<'_>,
    live: &Value,
    new: &Value,
    managers: Managers,
    mut writer: Entry,
) -> Result<Managers, Misfits> {
    let managers = reconciled(kind, managers);
    let mut changes = changes_of(kind, live, new, &managers)?;
    let mut managers = take_away(managers, &changes, None);
    let Some(own) = changes.remove(kind.api_version) else { return Ok(managers) };
    let mut taken = own.modified;
    taken.absorb(own.added);
    taken.subtract_below(kind.reset);
    taken.subtract(&NEVER_OWNED);
    if taken.is_empty() {
        return Ok(managers);
    }
    writer.fields = taken;
    let identity = writer.identity();
    if let Some(before) = managers.0.remove(&identity) {
        writer.fields.absorb(before.fields);
    }
    managers.0.insert(identity, writer);
    Ok(managers)
}

/// Merges a configuration into the live object and gives its fields to the applier.
pub(super) fn apply(
    kind: &Manager<'_>,
    live: &Value,
    config: &Value,
    managers: Managers,
    applier: Applier,
) -> Result<(Value, Managers), Failure> {
    let Applier { entry: mut applier, force } = applier;
    let identity = applier.identity();
    // An apply that changes nothing leaves the applier's time alone.
    let time_before = managers.0.get(&identity).and_then(|before| before.time.clone());
    let now = std::mem::replace(&mut applier.time, time_before);
    let mut managers = reconciled(kind, managers);
    let merged = merge(live, config, kind.shape)?;
    applier.fields = fields_of(config, kind.shape).without_below(kind.reset);
    let before = managers.0.remove(&identity);
    managers.insert(applier);
    let object = match &before {
        Some(before) if !before.fields.is_empty() => prune(kind, merged, &managers, before),
        _ => merged,
    };
    let changes = changes_of(kind, live, &object, &managers)?;
    if force == Force::Refuse {
        let conflicts = conflicts_of(&managers, &changes, &identity);
        if !conflicts.0.is_empty() {
            return Err(Failure::Conflict(conflicts));
        }
    }
    let mut managers = take_away(managers, &changes, Some(&identity));
    let changed = !same(live, &object);
    if let Some(entry) = managers.0.get_mut(&identity) {
        entry.fields.subtract(&NEVER_OWNED);
        if changed {
            entry.time = now;
        }
        if entry.fields.is_empty() {
            managers.0.remove(&identity);
        }
    }
    Ok((if changed { object } else { live.clone() }, managers))
}

/// What a write changes, by version.
type Changes = BTreeMap<String, Comparison>;

/// Owned fields in line with the types of today; owners in versions that are gone are forgotten.
fn reconciled(kind: &Manager<'_>, managers: Managers) -> Managers {
    let known = managers.0.into_iter().filter_map(|(identity, mut entry)| {
        reconcile(&mut entry.fields, kind.shape_in(&entry.api_version)?);
        Some((identity, entry))
    });
    Managers(known.collect())
}

fn changes_of(kind: &Manager<'_>, live: &Value, new: &Value, managers: &Managers) -> Result<Changes, Misfits> {
    let mut changes = Changes::new();
    changes.insert(kind.api_version.to_owned(), compare(live, new, kind.shape)?.without(kind.reset));
    for entry in managers.entries() {
        if let (false, Some(shape)) = (changes.contains_key(&entry.api_version), kind.shape_in(&entry.api_version)) {
            changes.insert(entry.api_version.clone(), compare(live, new, shape)?.without(kind.reset));
        }
    }
    Ok(changes)
}

fn conflicts_of(managers: &Managers, changes: &Changes, writer: &str) -> Conflicts {
    let changed: BTreeMap<&str, FieldSet> =
        changes.iter().map(|(version, own)| (version.as_str(), own.modified.union(&own.added))).collect();
    // The fields of an entry that the write would change.
    let contested = |entry: &Entry| {
        changed.get(entry.api_version.as_str()).map_or_else(FieldSet::new, |own| entry.fields.intersection(own))
    };
    let others = managers.0.iter().filter(|(identity, _)| *identity != writer);
    let contested = others.map(|(identity, entry)| (identity.clone(), (entry.clone(), contested(entry))));
    Conflicts::of(&contested.filter(|(_, (_, fields))| !fields.is_empty()).collect())
}

/// Takes what was changed or removed away from everybody but the writer.
fn take_away(managers: Managers, changes: &Changes, writer: Option<&str>) -> Managers {
    let left = managers.0.into_iter().filter_map(|(identity, mut entry)| {
        if writer != Some(identity.as_str()) {
            let own = changes.get(&entry.api_version)?;
            for changed in [&own.modified, &own.added, &own.removed] {
                entry.fields.subtract(changed);
            }
        }
        (!entry.fields.is_empty()).then_some((identity, entry))
    });
    Managers(left.collect())
}

/// Removes what the applier owned before, does not apply any more, and nobody else owns.
fn prune(kind: &Manager<'_>, merged: Value, managers: &Managers, before: &Entry) -> Value {
    let Some(shape) = kind.shape_in(&before.api_version) else { return merged };
    let named = |set: &FieldSet| with_named_parents(set, Some(shape));
    let had = named(&before.fields);
    let mut pruned = remove(&merged, &had, shape);
    let mut owned_in: BTreeMap<&str, FieldSet> = BTreeMap::new();
    for entry in managers.entries() {
        owned_in.entry(&entry.api_version).or_default().absorb(entry.fields.clone());
    }
    // The applier's version first, then the others: each pass gives back what somebody owns in that version.
    let first = owned_in.remove_entry(before.api_version.as_str());
    for (version, owned) in first.into_iter().chain(owned_in) {
        let Some(shape) = kind.shape_in(version) else { continue };
        let named = |set: &FieldSet| with_named_parents(set, Some(shape));
        let keep = named(&fields_of(&pruned, shape)).union(&named(&owned));
        pruned = remove(&merged, &named(&fields_of(&merged, shape)).difference(&keep), shape);
    }
    // What fell with its parent but was not the applier's own is nobody's: it stays.
    let lost = named(&fields_of(&merged, shape)).difference(&named(&fields_of(&pruned, shape)));
    remove(&merged, &lost.intersection(&had), shape)
}
