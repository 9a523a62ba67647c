//! The one write of each action, as a patch that says what it expects to find.

use api::keys::{Finalizer, annotation};
use api::{Claim, Kind, Meta, Volume, Word};
use lifecycle::bind::claim::Target;
use lifecycle::bind::status::{Field, Status};
use lifecycle::migration::Mark;
use runtime::Patch;
use serde_json::{Map, Value, json};

/// What binder-made annotations say; only their presence counts.
const YES: &str = "yes";

/// A merge patch of an object as it was judged.
fn expecting(revision: impl ToString, uid: &str) -> Value {
    let mut patch = json!({"metadata": {"resourceVersion": revision.to_string()}});
    if !uid.is_empty() {
        patch["metadata"]["uid"] = uid.into();
    }
    patch
}

fn of(meta: &Meta) -> Value {
    expecting(meta.revision, meta.uid.as_str())
}

/// BIND-W1: the volume points at the claim.
pub(crate) fn reserve(claim: &Claim, target: &Target, chosen: bool) -> Patch {
    let mut patch = expecting(target.revision, "");
    patch["spec"] = json!({"claimRef": {
        "apiVersion": Kind::CLAIM.api_version(),
        "kind": Kind::CLAIM.kind,
        "namespace": claim.namespace(),
        "name": claim.name(),
        "uid": claim.uid().as_str(),
        "resourceVersion": claim.meta.revision.to_string(),
    }});
    if chosen {
        patch["metadata"]["annotations"] = json!({annotation::BOUND_BY_CONTROLLER.0: YES});
    }
    Patch::Merge(patch)
}

/// BIND-W2 and every other phase of a volume.
pub(super) fn phase(target: &Target, phase: &str, message: &str) -> Patch {
    let mut patch = expecting(target.revision, "");
    // An empty message is none; the reason goes with it, because nothing here ever sets one.
    let message = if message.is_empty() { Value::Null } else { message.into() };
    patch["status"] = json!({"phase": phase, "message": message, "reason": null});
    Patch::Merge(patch)
}

/// BIND-W3: the claim points at the volume and knows that binding is complete. `asked` is who made the volume, if the
/// annotations that say so were never written.
pub(super) fn point(claim: &Claim, volume: &str, chosen: bool, asked: Option<&Word>) -> Patch {
    let mut annotations = Map::new();
    annotations.insert(annotation::BIND_COMPLETED.0.to_owned(), YES.into());
    if chosen {
        annotations.insert(annotation::BOUND_BY_CONTROLLER.0.to_owned(), YES.into());
    }
    if let Some(provisioner) = asked {
        annotations.insert(annotation::STORAGE_PROVISIONER.0.to_owned(), provisioner.as_str().into());
        annotations.insert(annotation::BETA_STORAGE_PROVISIONER.0.to_owned(), provisioner.as_str().into());
    }
    let mut patch = of(&claim.meta);
    patch["metadata"]["annotations"] = annotations.into();
    patch["spec"] = json!({"volumeName": volume});
    Patch::Merge(patch)
}

/// BIND-W4 and every other status of a claim.
pub(super) fn status(claim: &Claim, status: &Status) -> Patch {
    let modes: Vec<&str> = status.access.iter().map(api::AccessMode::name).collect();
    let mut body =
        json!({"phase": status.phase.name(), "accessModes": if modes.is_empty() { Value::Null } else { json!(modes) }});
    match &status.capacity {
        Field::Keep => {}
        Field::Set(None) => body["capacity"] = Value::Null,
        Field::Set(Some(amount)) => body["capacity"] = json!({"storage": amount.text()}),
    }
    match &status.attributes_class {
        Field::Keep => {}
        Field::Set(name) => body["currentVolumeAttributesClassName"] = json!(name.as_deref()),
    }
    let mut patch = of(&claim.meta);
    patch["status"] = body;
    Patch::Merge(patch)
}

/// BIND-U3: the default class.
pub(super) fn classify(claim: &Claim, class: &str) -> Patch {
    let mut patch = of(&claim.meta);
    patch["spec"] = json!({"storageClassName": class});
    Patch::Merge(patch)
}

/// BIND-U5: both annotations that ask an external provisioner.
pub(super) fn ask(claim: &Claim, provisioner: &str) -> Patch {
    let mut annotations = Map::new();
    annotations.insert(annotation::STORAGE_PROVISIONER.0.to_owned(), provisioner.into());
    annotations.insert(annotation::BETA_STORAGE_PROVISIONER.0.to_owned(), provisioner.into());
    let mut patch = of(&claim.meta);
    patch["metadata"]["annotations"] = annotations.into();
    Patch::Merge(patch)
}

/// BIND-C0: the `migrated-to` annotation of a claim.
pub(super) fn mark(meta: &Meta, mark: Mark) -> Patch {
    let mut patch = of(meta);
    set_mark(&mut patch, mark);
    Patch::Merge(patch)
}

fn set_mark(patch: &mut Value, mark: Mark) {
    let value = match mark {
        Mark::Right => return,
        Mark::Set(driver) => driver.into(),
        Mark::Remove => Value::Null,
    };
    patch["metadata"]["annotations"] = json!({annotation::MIGRATED_TO.0: value});
}

/// BIND-V0: annotation and finalizers of a volume in one write.
pub(super) fn maintain(volume: &Volume, marked: Mark, add: Option<Finalizer>, remove: &[Finalizer]) -> Patch {
    let mut patch = of(&volume.meta);
    set_mark(&mut patch, marked);
    if add.is_some() || !remove.is_empty() {
        let removed = |held: &&Word| remove.iter().any(|gone| gone.0 == held.as_str());
        let kept = volume.meta.finalizers.iter().filter(|held| !removed(held)).map(Word::as_str);
        let finalizers: Vec<&str> = kept.chain(add.iter().map(|added| added.0)).collect();
        patch["metadata"]["finalizers"] = json!(finalizers);
    }
    Patch::Merge(patch)
}

/// BIND-V9a: nobody has the volume any more.
pub(super) fn erase(target: &Target) -> Patch {
    let mut patch = expecting(target.revision, "");
    patch["metadata"]["annotations"] = json!({annotation::BOUND_BY_CONTROLLER.0: null});
    patch["spec"] = json!({"claimRef": null});
    Patch::Merge(patch)
}

/// BIND-V9b: the reservation stays, the bond goes.
pub(super) fn clear_uid(target: &Target) -> Patch {
    let mut patch = expecting(target.revision, "");
    patch["spec"] = json!({"claimRef": {"uid": null, "resourceVersion": null}});
    Patch::Merge(patch)
}

/// A claim whose node was not a good choice.
pub(super) fn unselect(claim: &Claim) -> Patch {
    let mut patch = of(&claim.meta);
    patch["metadata"]["annotations"] = json!({annotation::SELECTED_NODE.0: null});
    Patch::Merge(patch)
}
