//! The three plugins that are about storage: protection finalizers, the default class, and who may grow.

use super::{Lookup, Operation, Request};
use crate::kinds::meta::add_finalizer;
use crate::kinds::read::{annotation, flag, name, present, set, text};
use crate::kinds::{BETA_CLASS, class, is_default_class, quantity};
use crate::schema::quantity::Quantity;
use crate::status::ApiError;
use serde_json::Value;

const STORAGE: &str = "storage.k8s.io";
const CLAIMS: &str = "persistentvolumeclaims";
const REQUEST: &str = "/spec/resources/requests/storage";

/// StorageObjectInUseProtection: a finalizer at birth. It is never added again, so users can take it away.
pub(super) fn protect(request: &Request<'_>, object: &mut Value) {
    const FINALIZERS: [(&str, &str, &str); 3] = [
        ("", "persistentvolumes", crate::keys::PV_PROTECTION),
        ("", CLAIMS, crate::keys::PVC_PROTECTION),
        (STORAGE, "volumeattributesclasses", crate::keys::VAC_PROTECTION),
    ];
    for (group, plural, finalizer) in FINALIZERS {
        if request.is(Operation::Create, group, plural) {
            add_finalizer(object, finalizer);
        }
    }
}

/// DefaultStorageClass: a claim that names no class gets the newest default one; an empty name is a name.
pub(super) fn default_class(request: &Request<'_>, claim: &mut Value, lookup: &dyn Lookup) {
    let named = present(claim, "/spec/storageClassName").is_some() || annotation(claim, BETA_CLASS).is_some();
    if !request.is(Operation::Create, "", CLAIMS) || named {
        return;
    }
    let mut defaults = lookup.list("StorageClass", "");
    defaults.retain(is_default_class);
    // Times of one form compare as texts; the newest comes first, then the smallest name.
    defaults.sort_by(|left, right| {
        let created = |class| text(class, "/metadata/creationTimestamp");
        created(right).cmp(created(left)).then_with(|| name(left).cmp(name(right)))
    });
    if let Some(class) = defaults.first() {
        set(claim, "/spec/storageClassName", name(class));
    }
}

/// PersistentVolumeClaimResize: only bound claims of a class that says so may grow.
pub(super) fn check_resize(request: &Request<'_>, claim: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let Some(old) = request.old.filter(|_| request.is(Operation::Update, "", CLAIMS)) else { return Ok(()) };
    let size = |claim| quantity(claim, REQUEST).unwrap_or_else(Quantity::zero);
    if size(claim) <= size(old) {
        return Ok(());
    }
    if text(old, "/status/phase") != "Bound" {
        return Err(request.forbidden("Only bound persistent volume claims can be expanded"));
    }
    let resizable = match class(claim) {
        "" => false,
        name if name != class(old) => false,
        name => lookup.get("StorageClass", "", name).is_some_and(|class| flag(&class, "/allowVolumeExpansion")),
    };
    if resizable {
        return Ok(());
    }
    let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support \
               resize";
    Err(request.forbidden(why))
}
