//! Objects the tests of several kinds share.

use super::{Birth, Endpoint, Rules, Timestamp, Update, before_create, before_update, rules_for};
use crate::status::{ApiError, Resource};
use serde_json::{Value, json};

pub(crate) const NOW: Timestamp = Timestamp::from_seconds(1_767_225_600);

pub(crate) fn rules(kind: &str) -> &'static dyn Rules {
    let groups = ["", "storage.k8s.io", "coordination.k8s.io", "rbac.authorization.k8s.io"];
    groups.iter().find_map(|group| rules_for(group, kind)).expect("a built-in kind")
}

pub(crate) fn claim(spec: Value) -> Value {
    let mut claim = json!({
        "metadata": {"name": "c", "namespace": "conf"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    merge(&mut claim["spec"], spec);
    claim
}

pub(crate) fn volume(spec: Value) -> Value {
    let mut volume = json!({
        "metadata": {"name": "pv"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "csi": {"driver": "d.io", "volumeHandle": "h"},
        },
    });
    merge(&mut volume["spec"], spec);
    volume
}

/// Fields of `change` replace those of `target`, objects are merged, `null` removes.
pub(crate) fn merge(target: &mut Value, change: Value) {
    let Value::Object(change) = change else {
        *target = change;
        return;
    };
    for (key, value) in change {
        match value {
            Value::Null => {
                target.as_object_mut().map(|target| target.remove(&key));
            }
            Value::Object(_) if target[&key].is_object() => merge(&mut target[&key], value),
            other => target[key] = other,
        }
    }
}

/// Runs a create as the server does, without admission.
pub(crate) fn create(kind: &str, object: Value) -> Result<(Value, Vec<String>), ApiError> {
    let rules = rules(kind);
    let mut object = object;
    rules.default(&mut object);
    let birth = Birth { now: NOW, uid: "uid-1" };
    let warnings = before_create(rules, Resource::new("", kind), &mut object, birth)?;
    object["metadata"]["resourceVersion"] = json!("5");
    Ok((object, warnings))
}

/// Runs a merge patch as the server does, without admission.
pub(crate) fn patch(kind: &str, old: &Value, change: Value) -> Result<Value, ApiError> {
    update(kind, old, change, Endpoint::Main)
}

pub(crate) fn update(kind: &str, old: &Value, change: Value, endpoint: Endpoint) -> Result<Value, ApiError> {
    let rules = rules(kind);
    let mut object = old.clone();
    merge(&mut object, change);
    rules.default(&mut object);
    let update = Update { old, endpoint, now: NOW };
    before_update(rules, Resource::new("", kind), &mut object, update).map(|_| object)
}

/// The cells of a row without its age.
pub(crate) fn cells(kind: &str, object: &Value) -> Vec<Value> {
    let rules = rules(kind);
    let row = rules.row(object, NOW);
    assert_eq!(row.len(), rules.columns().len(), "{kind} has one cell per column");
    let each = row.into_iter().zip(rules.columns());
    each.filter(|(_, column)| column.name != "Age").map(|(cell, _)| cell).collect()
}

pub(crate) fn message<T: std::fmt::Debug>(result: Result<T, ApiError>) -> String {
    result.expect_err("a refusal").message
}
