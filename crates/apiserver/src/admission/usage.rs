//! What an object uses, by the keys that quotas limit it with. Admission charges it, the controller counts it: both by
//! this one function, so that they cannot disagree.
//!
//! Everything namespaced can be counted; of claims also the size is, in all and per class. Processor time and memory
//! are not: no pod runs here that would use them.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::kinds::read::{list, present, text, texts};
use crate::kinds::{class, quantity};
use crate::schema::quantity::{Format, Quantity};
use crate::status::Resource;

/// Amounts by the key of a quota.
pub(crate) type Usage = BTreeMap<String, Quantity>;

const CLAIMS: Resource<'_> = Resource::new("", "persistentvolumeclaims");
const PODS: Resource<'_> = Resource::new("", "pods");
/// The part of a key that is left when its class is taken away.
const OF_CLASS: &str = ".storageclass.storage.k8s.io/";
/// Kinds that had a key before everything could be counted.
const NAMED: [&str; 5] = ["configmaps", "persistentvolumeclaims", "pods", "resourcequotas", "secrets"];
/// The scope of claims: the attributes classes they use or are moving to.
const ATTRIBUTES_CLASS: &str = "VolumeAttributesClass";

/// What it takes to know what objects of a resource use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Their number is enough.
    Number,
    /// Each has to be looked at.
    Each,
}

/// How the objects of a resource are measured for a quota.
pub(crate) fn measure(resource: Resource<'_>, quota: &Value) -> Measure {
    match resource == CLAIMS || resource == PODS || has_scopes(quota) {
        true => Measure::Each,
        false => Measure::Number,
    }
}

/// Events come and go by themselves and are nobody's to limit.
pub(crate) fn is_counted(resource: Resource<'_>) -> bool {
    resource.name != "events"
}

/// The keys under which the number of a resource's objects is limited.
pub(crate) fn number_keys(resource: Resource<'_>) -> impl Iterator<Item = String> {
    let named = resource.group.is_empty() && NAMED.contains(&resource.name);
    let counted = match resource.group {
        "" => format!("count/{}", resource.name),
        group => format!("count/{}.{group}", resource.name),
    };
    [Some(counted), named.then(|| resource.name.to_owned())].into_iter().flatten()
}

/// Whether a key limits what objects of the resource use.
pub(crate) fn concerns(resource: Resource<'_>, key: &str) -> bool {
    let of_claims = key == "requests.storage" || key.contains(OF_CLASS);
    (resource == CLAIMS && of_claims) || number_keys(resource).any(|known| known == key)
}

/// What an object uses of a quota; nothing if it is outside the quota's scopes.
pub(crate) fn of(resource: Resource<'_>, object: &Value, quota: &Value) -> Usage {
    if !is_counted(resource) || !in_scopes(resource, object, quota) {
        return Usage::new();
    }
    let one = || Quantity::from_integer(1, Format::DecimalSi);
    let mut usage: Usage = number_keys(resource).map(|key| (key, one())).collect();
    if resource == PODS && ["Succeeded", "Failed"].contains(&text(object, "/status/phase")) {
        // A pod that has ended is still an object, but not one of the pods that run.
        usage.remove(PODS.name);
    }
    if resource == CLAIMS {
        usage.extend(of_claim(object));
    }
    usage
}

fn of_claim(claim: &Value) -> Usage {
    let mut usage = Usage::new();
    let asked = quantity(claim, "/spec/resources/requests/storage");
    let allocated = quantity(claim, "/status/allocatedResources/storage");
    let class = class(claim);
    let of_class = |what: &str| format!("{class}{OF_CLASS}{what}");
    if !class.is_empty() {
        usage.insert(of_class("persistentvolumeclaims"), Quantity::from_integer(1, Format::DecimalSi));
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

fn has_scopes(quota: &Value) -> bool {
    !list(quota, "/spec/scopes").is_empty() || present(quota, "/spec/scopeSelector").is_some()
}

/// Whether a quota is about an object at all. Scopes about pods never match a claim, nor the reverse, and nothing else
/// has scopes.
fn in_scopes(resource: Resource<'_>, object: &Value, quota: &Value) -> bool {
    let plain = texts(quota, "/spec/scopes");
    let selected = present(quota, "/spec/scopeSelector").map(|selector| list(selector, "/matchExpressions"));
    plain.iter().all(|scope| in_scope(resource, object, Scope { name: scope, operator: "Exists", values: &[] }))
        && selected.unwrap_or_default().iter().all(|expression| {
            let values = texts(expression, "/values");
            let (name, operator) = (text(expression, "/scopeName"), text(expression, "/operator"));
            in_scope(resource, object, Scope { name, operator, values: &values })
        })
}

/// One condition of a quota.
#[derive(Clone, Copy)]
struct Scope<'a> {
    name: &'a str,
    operator: &'a str,
    values: &'a [&'a str],
}

impl Scope<'_> {
    /// Whether the names an object has in the scope are those it wants.
    fn wants(&self, names: &[&str]) -> bool {
        let named = || names.iter().any(|name| self.values.contains(name));
        match self.operator {
            "In" => named(),
            "NotIn" => !named(),
            "Exists" => !names.is_empty(),
            "DoesNotExist" => names.is_empty(),
            _ => false,
        }
    }
}

fn in_scope(resource: Resource<'_>, object: &Value, scope: Scope<'_>) -> bool {
    let filled = |pointers: &[&str]| -> Vec<&str> {
        pointers.iter().map(|pointer| text(object, pointer)).filter(|name| !name.is_empty()).collect()
    };
    match scope.name {
        ATTRIBUTES_CLASS if resource == CLAIMS => scope.wants(&filled(&[
            "/spec/volumeAttributesClassName",
            "/status/currentVolumeAttributesClassName",
            "/status/modifyVolumeStatus/targetVolumeAttributesClassName",
        ])),
        "PriorityClass" if resource == PODS => scope.wants(&filled(&["/spec/priorityClassName"])),
        "Terminating" if resource == PODS => present(object, "/spec/activeDeadlineSeconds").is_some(),
        "NotTerminating" if resource == PODS => present(object, "/spec/activeDeadlineSeconds").is_none(),
        "BestEffort" if resource == PODS => asks_for_nothing(object),
        "NotBestEffort" if resource == PODS => !asks_for_nothing(object),
        _ => false,
    }
}

/// Whether no container of a pod asks for processor time or memory.
fn asks_for_nothing(pod: &Value) -> bool {
    let containers = ["/spec/containers", "/spec/initContainers"].into_iter().flat_map(|lists| list(pod, lists));
    let asks = |container: &Value| {
        ["requests", "limits"].iter().any(|kind| {
            ["cpu", "memory"].iter().any(|what| present(container, &format!("/resources/{kind}/{what}")).is_some())
        })
    };
    !containers.into_iter().any(asks)
}
