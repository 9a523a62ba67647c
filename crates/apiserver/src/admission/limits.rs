//! LimitRanger, for claims: no smaller and no larger than the namespace allows.

use super::{Lookup, Operation, Request};
use crate::kinds::quantity;
use crate::kinds::read::{deleting, list, text};
use crate::status::ApiError;
use serde_json::Value;

pub(super) fn check(request: &Request<'_>, claim: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let writes = request.operation != Operation::Delete && request.subresource.is_empty();
    let dying = request.old.is_some_and(deleting);
    if !request.is_any("", "persistentvolumeclaims") || !writes || dying {
        return Ok(());
    }
    let ranges = lookup.list("LimitRange", request.namespace);
    let limits = ranges.iter().flat_map(|range| list(range, "/spec/limits"));
    let complaints: Vec<String> = limits
        .filter(|limit| text(limit, "/type") == "PersistentVolumeClaim")
        .flat_map(|limit| complaints(claim, limit))
        .collect();
    match complaints.as_slice() {
        [] => Ok(()),
        [one] => Err(request.forbidden(one)),
        several => Err(request.forbidden(&format!("[{}]", several.join(", ")))),
    }
}

fn complaints(claim: &Value, limit: &Value) -> Vec<String> {
    let asked = quantity(claim, "/spec/resources/requests/storage");
    let mut complaints = Vec::new();
    for (bound, pointer) in [("minimum", "/min/storage"), ("maximum", "/max/storage")] {
        let Some(limit) = quantity(limit, pointer) else { continue };
        let head = format!("{bound} storage usage per PersistentVolumeClaim is {limit}");
        match &asked {
            None => complaints.push(format!("{head}.  No request is specified")),
            Some(asked) if (bound == "minimum" && *asked < limit) || (bound == "maximum" && *asked > limit) => {
                complaints.push(format!("{head}, but request is {asked}"));
            }
            Some(_) => {}
        }
    }
    complaints
}
