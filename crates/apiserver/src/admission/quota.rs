//! ResourceQuota: what a write adds is compared with what each quota's status says is used, and charged to it. A quota
//! whose status nobody filled in yet refuses nothing.

use super::usage::{self, Usage};
use super::{Lookup, Operation, Request};
use crate::kinds::as_quantity;
use crate::kinds::read::{entries, name, set, unchanged};
use crate::schema::quantity::Quantity;
use crate::status::ApiError;
use serde_json::{Map, Value};

/// A quota with its new usage, to be written together with the object that uses it.
#[derive(Debug, Clone, PartialEq)]
pub struct Charge {
    pub namespace: String,
    pub name: String,
    /// The whole quota as it should be.
    pub quota: Value,
}

pub(super) fn check(request: &Request<'_>, object: &Value, lookup: &dyn Lookup) -> Result<Vec<Charge>, ApiError> {
    if !concerns(request, object) {
        return Ok(Vec::new());
    }
    let mut quotas = lookup.list("ResourceQuota", request.namespace);
    quotas.sort_by(|left, right| name(left).cmp(name(right)));
    let mut charges = Vec::new();
    for mut quota in quotas {
        let before = match (request.operation, request.old) {
            (Operation::Update, Some(old)) => usage::of(request.resource, old, &quota),
            _ => Usage::new(),
        };
        let delta = difference(usage::of(request.resource, object, &quota), before);
        let limited: Usage = delta.into_iter().filter(|(key, _)| hard(&quota, key).is_some()).collect();
        if limited.is_empty() {
            continue;
        }
        check_one(request, &quota, &limited)?;
        charge(&mut quota, &limited);
        charges.push(Charge { namespace: request.namespace.into(), name: name(&quota).into(), quota });
    }
    Ok(charges)
}

/// Creates of everything in a namespace count. Of claims updates do, too, and status updates that change what is charged.
fn concerns(request: &Request<'_>, object: &Value) -> bool {
    if request.namespace.is_empty() || !usage::is_counted(request.resource) {
        return false;
    }
    let claim = request.is_any("", "persistentvolumeclaims");
    match (request.operation, request.subresource, request.old) {
        (Operation::Create, "", _) => true,
        (Operation::Update, "", Some(_)) => claim,
        (Operation::Update, "status", Some(old)) if claim => {
            let charged = [
                "/status/allocatedResources",
                "/status/currentVolumeAttributesClassName",
                "/status/modifyVolumeStatus",
            ];
            charged.iter().any(|pointer| !unchanged(object, old, pointer))
        }
        _ => false,
    }
}

/// What changes; keys that do not change are left out.
fn difference(new: Usage, old: Usage) -> Usage {
    let mut delta = new.clone();
    for (key, before) in old {
        let now = new.get(&key).cloned().unwrap_or_else(Quantity::zero);
        if let Some(change) = now.checked_sub(&before) {
            delta.insert(key, change);
        }
    }
    delta.retain(|_, change| !change.is_zero());
    delta
}

fn hard(quota: &Value, key: &str) -> Option<Quantity> {
    as_quantity(quota.pointer("/status/hard")?.get(key)?)
}

fn used(quota: &Value, key: &str) -> Quantity {
    let used = quota.pointer("/status/used").and_then(|used| used.get(key)).and_then(as_quantity);
    used.unwrap_or_else(Quantity::zero)
}

fn check_one(request: &Request<'_>, quota: &Value, delta: &Usage) -> Result<(), ApiError> {
    let exceeded = |(key, change): &(&String, &Quantity)| {
        let after = used(quota, key).checked_add(change);
        let grows = **change > Quantity::zero();
        grows && hard(quota, key).is_some_and(|hard| after.is_none_or(|after| after > hard))
    };
    let exceeded: Vec<(&String, &Quantity)> = delta.iter().filter(exceeded).collect();
    if exceeded.is_empty() {
        return Ok(());
    }
    let show = |amount: &dyn Fn(&str, &Quantity) -> String| {
        let each = exceeded.iter().map(|(key, change)| format!("{key}={}", amount(key, change)));
        each.collect::<Vec<_>>().join(",")
    };
    let why = format!(
        "exceeded quota: {}, requested: {}, used: {}, limited: {}",
        name(quota),
        show(&|_, change| change.to_string()),
        show(&|key, _| used(quota, key).to_string()),
        show(&|key, _| hard(quota, key).unwrap_or_else(Quantity::zero).to_string()),
    );
    Err(request.forbidden(&why))
}

fn charge(quota: &mut Value, delta: &Usage) {
    let mut after: Map<String, Value> =
        entries(quota, "/status/used").into_iter().map(|(key, amount)| (key.into(), amount.clone())).collect();
    for (key, change) in delta {
        if let Some(sum) = used(quota, key).checked_add(change) {
            after.insert(key.clone(), sum.to_string().into());
        }
    }
    set(quota, "/status/used", after);
}
