//! Nobody gives away rights they do not have: the check before a role or a binding is written.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::rbac::{RoleRef, Unresolved};
use super::{Attributes, Object, PolicyRule, Rbac, User, authorize};
use crate::request::{Refusal, go_quote, go_quote_list};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Combinations of verb, group, resource and name that one write may grant where each has to be compared with what the
/// user holds. A rule of four lists names as many as the product of their lengths.
const MOST_PIECES: usize = 20_000;
/// Rights that a refusal names.
const MOST_MISSING: usize = 1_000;

/// A role or a binding about to be stored.
#[derive(Debug, Clone, Copy)]
pub struct RoleWrite<'a> {
    pub user: &'a User,
    /// `roles`, `clusterroles`, `rolebindings` or `clusterrolebindings`.
    pub resource: &'a str,
    /// Of the URL; empty for the cluster kinds.
    pub namespace: &'a str,
    /// Of the URL; empty for a create.
    pub name: &'a str,
    pub object: &'a Value,
    /// What an update replaces.
    pub old: Option<&'a Value>,
}

/// Lets a Role or ClusterRole be written by a master, by one who may `escalate` it, or by one who has every right in
/// it.
pub fn check_role_write(rbac: &Rbac, write: &RoleWrite<'_>) -> Result<(), Refusal> {
    let RoleWrite { user, resource, namespace, name, object, old } = *write;
    if user.is_master() || keeps_rights(write) {
        return Ok(());
    }
    let escalate = Object::Resource { group: GROUP, resource, subresource: "", namespace, name };
    if authorize(rbac, &Attributes { user, verb: "escalate".into(), object: escalate, fields: None }).is_allowed() {
        return Ok(());
    }
    let refuse = |why: String| Refusal::forbidden(GROUP, resource, name_of(object), why);
    confirm_held(rbac, user, namespace, &PolicyRule::all_of(object)).map_err(refuse)?;
    // An aggregated role gathers whatever other roles say, now and later.
    let aggregates = |role: &Value| {
        role["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|selectors| !selectors.is_empty())
    };
    if aggregates(object) || old.is_some_and(aggregates) {
        confirm_held(rbac, user, namespace, &everything())
            .map_err(|_| refuse("must have cluster-admin privileges to use the aggregationRule".into()))?;
    }
    Ok(())
}

/// Lets a RoleBinding or ClusterRoleBinding be written by a master, by one who may `bind` the role, or by one who has
/// every right in it.
pub fn check_binding_write(rbac: &Rbac, write: &RoleWrite<'_>) -> Result<(), Refusal> {
    let RoleWrite { user, resource, namespace, object, .. } = *write;
    if user.is_master() || keeps_rights(write) {
        return Ok(());
    }
    let role = RoleRef::of(object);
    let resources = match role.kind.as_str() {
        "ClusterRole" => "clusterroles",
        _ => "roles",
    };
    let bind = Object::Resource { group: GROUP, resource: resources, subresource: "", namespace, name: &role.name };
    if authorize(rbac, &Attributes { user, verb: "bind".into(), object: bind, fields: None }).is_allowed() {
        return Ok(());
    }
    let rules = rbac.resolve(&role, namespace).map_err(|error| match error {
        Unresolved::NoRole { name } => Refusal::NotFound { group: GROUP.into(), resource: "role".into(), name },
        Unresolved::NoClusterRole { name } => {
            Refusal::NotFound { group: GROUP.into(), resource: "clusterrole".into(), name }
        }
        Unresolved::BadKind(_) => Refusal::Internal(error.to_string()),
    })?;
    confirm_held(rbac, user, namespace, rules).map_err(|why| Refusal::forbidden(GROUP, resource, name_of(object), why))
}

/// An update that only lets the garbage collector finish grants nothing.
fn keeps_rights(write: &RoleWrite<'_>) -> bool {
    let without_housekeeping = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
                metadata.remove(field);
            }
        }
        object
    };
    write.old.is_some_and(|old| without_housekeeping(old) == without_housekeeping(write.object))
}

fn confirm_held(rbac: &Rbac, user: &User, namespace: &str, wanted: &[PolicyRule]) -> Result<(), String> {
    let combinations = wanted.iter().map(PolicyRule::piece_count).fold(0, usize::saturating_add);
    if combinations > MOST_PIECES {
        return Err(format!(
            "the rules name {combinations} combinations of verb, group, resource and name, and at most {MOST_PIECES} are \
             compared with what the user holds"
        ));
    }
    let (held, unresolved) = rbac.rules_for(user, namespace);
    let missing: Vec<PolicyRule> = wanted
        .iter()
        .flat_map(PolicyRule::pieces)
        .filter(|piece| !held.iter().any(|rule| rule.covers(piece)))
        .take(MOST_MISSING)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let shown: BTreeSet<String> = compact(missing).iter().map(ToString::to_string).collect();
    let shown: Vec<String> = shown.into_iter().collect();
    let mut why = format!(
        "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        go_quote(&user.name),
        go_quote_list(&user.groups),
        shown.join("\n"),
    );
    if !unresolved.is_empty() {
        let errors: Vec<String> = unresolved.iter().map(ToString::to_string).collect();
        why = format!("{why}; resolution errors: [{}]", errors.join(" "));
    }
    Err(why)
}

/// Joins pieces that differ by verb only, which makes the refusal readable.
fn compact(pieces: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let mut joined: BTreeMap<PolicyRule, Vec<String>> = BTreeMap::new();
    let mut rules = Vec::new();
    for mut piece in pieces {
        if piece.non_resource_urls.is_empty() {
            let verbs = std::mem::take(&mut piece.verbs);
            joined.entry(piece).or_default().extend(verbs);
        } else {
            rules.push(piece);
        }
    }
    rules.extend(joined.into_iter().map(|(rule, verbs)| PolicyRule { verbs, ..rule }));
    rules
}

fn everything() -> [PolicyRule; 2] {
    let all = || vec!["*".to_owned()];
    [
        PolicyRule { api_groups: all(), resources: all(), verbs: all(), ..PolicyRule::default() },
        PolicyRule { non_resource_urls: all(), verbs: all(), ..PolicyRule::default() },
    ]
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
