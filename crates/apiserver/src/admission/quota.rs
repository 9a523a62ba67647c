//! ResourceQuota, for claims: what a claim adds is compared with what each quota's status says is used, and charged to
//! it. A quota whose status nobody filled in yet refuses nothing.

use super::{Lookup, Operation, Request};
use crate::kinds::read::{entries, list, name, present, set, text, texts, unchanged};
use crate::kinds::{as_quantity, class, quantity};
use crate::schema::quantity::{Format, Quantity};
use crate::status::ApiError;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What a claim uses, by the key a quota limits it with.
type Usage = BTreeMap<String, Quantity>;

/// A quota with its new usage: write its status before the object is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Charge {
    pub namespace: String,
    pub name: String,
    /// The whole quota as it should be.
    pub quota: Value,
}

pub(super) fn check(request: &Request<'_>, claim: &Value, lookup: &dyn Lookup) -> Result<Vec<Charge>, ApiError> {
    if !concerns(request, claim) {
        return Ok(Vec::new());
    }
    let mut quotas = lookup.list("ResourceQuota", request.namespace);
    quotas.sort_by(|left, right| name(left).cmp(name(right)));
    let mut charges = Vec::new();
    for mut quota in quotas {
        let delta = difference(usage_in_scope(claim, &quota), old_usage(request, &quota));
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

/// Creates and updates count; a status update only when it changes what is charged.
fn concerns(request: &Request<'_>, claim: &Value) -> bool {
    if !request.is_any("", "persistentvolumeclaims") {
        return false;
    }
    match (request.operation, request.subresource, request.old) {
        (Operation::Create, "", _) | (Operation::Update, "", Some(_)) => true,
        (Operation::Update, "status", Some(old)) => {
            let charged = [
                "/status/allocatedResources",
                "/status/currentVolumeAttributesClassName",
                "/status/modifyVolumeStatus",
            ];
            charged.iter().any(|pointer| !unchanged(claim, old, pointer))
        }
        _ => false,
    }
}

fn old_usage(request: &Request<'_>, quota: &Value) -> Usage {
    match (request.operation, request.old) {
        (Operation::Update, Some(old)) => usage_in_scope(old, quota),
        _ => Usage::new(),
    }
}

fn usage_in_scope(claim: &Value, quota: &Value) -> Usage {
    if in_scope(claim, quota) { usage(claim) } else { Usage::new() }
}

fn usage(claim: &Value) -> Usage {
    let one = || Quantity::from_integer(1, Format::DecimalSi);
    let mut usage =
        Usage::from([("persistentvolumeclaims".into(), one()), ("count/persistentvolumeclaims".into(), one())]);
    let asked = quantity(claim, "/spec/resources/requests/storage");
    let allocated = quantity(claim, "/status/allocatedResources/storage");
    let class = class(claim);
    let of_class = |what: &str| format!("{class}.storageclass.storage.k8s.io/{what}");
    if !class.is_empty() {
        usage.insert(of_class("persistentvolumeclaims"), one());
    }
    if let Some(size) = asked.max(allocated).as_ref().and_then(whole_bytes) {
        if !class.is_empty() {
            usage.insert(of_class("requests.storage"), size.clone());
        }
        usage.insert("requests.storage".into(), size);
    }
    usage
}

/// Usage is counted in whole bytes.
fn whole_bytes(size: &Quantity) -> Option<Quantity> {
    Some(Quantity::from_integer(size.to_integer()?, size.format()))
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

/// Claims have one scope: the attributes classes they use or are moving to. Scopes about pods never match a claim.
fn in_scope(claim: &Value, quota: &Value) -> bool {
    let classes: Vec<&str> = [
        "/spec/volumeAttributesClassName",
        "/status/currentVolumeAttributesClassName",
        "/status/modifyVolumeStatus/targetVolumeAttributesClassName",
    ]
    .iter()
    .map(|pointer| text(claim, pointer))
    .filter(|class| !class.is_empty())
    .collect();
    const SCOPE: &str = "VolumeAttributesClass";
    let plain = texts(quota, "/spec/scopes").iter().all(|scope| *scope == SCOPE && !classes.is_empty());
    let selected = present(quota, "/spec/scopeSelector").is_none_or(|selector| {
        list(selector, "/matchExpressions").iter().all(|expression| {
            let values = texts(expression, "/values");
            let named = classes.iter().any(|class| values.contains(class));
            text(expression, "/scopeName") == SCOPE
                && match text(expression, "/operator") {
                    "In" => named,
                    "NotIn" => !named,
                    "Exists" => !classes.is_empty(),
                    "DoesNotExist" => classes.is_empty(),
                    _ => false,
                }
        })
    });
    plain && selected
}
