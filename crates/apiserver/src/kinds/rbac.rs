//! Roles and their bindings: who may do what.

use super::cells::{self, AGE, Column, NAME};
use super::golang::{self, Kind, Shape, member};
use super::read::{items_mut, list, name, set_default_text, text, unchanged};
use super::time::Timestamp;
use super::{DeleteAnswer, Missing, NameRule, Policy, Rules, Scope, meta};
use crate::status::{FieldError, FieldErrors};
use serde_json::Value;

const GROUP: &str = "rbac.authorization.k8s.io";

const BINDING_COLUMNS: &[Column] = &[
    NAME,
    Column::text("Role", "The role that is granted."),
    AGE,
    Column::text("Users", "Users that have the role.").wide(),
    Column::text("Groups", "Groups that have the role.").wide(),
    Column::text("ServiceAccounts", "Service accounts that have the role.").wide(),
];

const ROLE_REFERENCE: Shape = &[
    member("APIGroup", "apiGroup", Kind::Text),
    member("Kind", "kind", Kind::Text),
    member("Name", "name", Kind::Text),
];

#[derive(Debug)]
pub(crate) struct RoleRules(Scope);

#[derive(Debug)]
pub(crate) struct BindingRules(Scope);

pub(crate) static ROLE: RoleRules = RoleRules(Scope::Namespaced);
pub(crate) static CLUSTER_ROLE: RoleRules = RoleRules(Scope::Cluster);
pub(crate) static ROLE_BINDING: BindingRules = BindingRules(Scope::Namespaced);
pub(crate) static CLUSTER_ROLE_BINDING: BindingRules = BindingRules(Scope::Cluster);

const fn policy(scope: Scope) -> Policy {
    Policy {
        scope,
        names: NameRule::PathSegment,
        missing: Missing::Created,
        delete_answer: DeleteAnswer::Status,
        ..Policy::NAMESPACED
    }
}

impl Rules for RoleRules {
    fn policy(&self) -> Policy {
        policy(self.0)
    }

    fn columns(&self) -> &'static [Column] {
        cells::PLAIN
    }

    fn row(&self, role: &Value, _now: Timestamp) -> Vec<Value> {
        cells::plain_row(role)
    }

    fn validate_create(&self, role: &Value) -> FieldErrors {
        let mut errors = meta::validate_create(role, &self.policy());
        for (index, rule) in list(role, "/rules").iter().enumerate() {
            errors.extend(validate_rule(rule, &format!("rules[{index}]"), self.0));
        }
        errors
    }

    fn validate_update(&self, role: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate_create(role);
        errors.extend(meta::validate_core_update(role, old));
        errors
    }
}

fn validate_rule(rule: &Value, field: &str, scope: Scope) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let empty = |part: &str| list(rule, &format!("/{part}")).is_empty();
    if empty("verbs") {
        errors.push(FieldError::required(format!("{field}.verbs"), "verbs must contain at least one value"));
    }
    if !empty("nonResourceURLs") {
        let urls = rule["nonResourceURLs"].clone();
        if scope == Scope::Namespaced {
            let detail = "namespaced rules cannot apply to non-resource URLs";
            errors.push(FieldError::invalid(format!("{field}.nonResourceURLs"), urls.clone(), detail));
        }
        if !empty("apiGroups") || !empty("resources") || !empty("resourceNames") {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(FieldError::invalid(format!("{field}.nonResourceURLs"), urls, detail));
        }
        return errors;
    }
    for (part, what) in [("apiGroups", "api group"), ("resources", "resource")] {
        if empty(part) {
            let detail = format!("resource rules must supply at least one {what}");
            errors.push(FieldError::required(format!("{field}.{part}"), detail));
        }
    }
    errors
}

impl Rules for BindingRules {
    fn policy(&self) -> Policy {
        policy(self.0)
    }

    fn columns(&self) -> &'static [Column] {
        BINDING_COLUMNS
    }

    fn row(&self, binding: &Value, now: Timestamp) -> Vec<Value> {
        let role = format!("{}/{}", text(binding, "/roleRef/kind"), text(binding, "/roleRef/name"));
        let subjects = |kind: &str| {
            let named = list(binding, "/subjects").iter().filter(|subject| text(subject, "/kind") == kind);
            let shown = named.map(|subject| match text(subject, "/namespace") {
                namespace if kind == "ServiceAccount" => format!("{namespace}/{}", text(subject, "/name")),
                _ => text(subject, "/name").to_string(),
            });
            Value::from(shown.collect::<Vec<_>>().join(", "))
        };
        vec![
            name(binding).into(),
            role.into(),
            cells::age(binding, now),
            subjects("User"),
            subjects("Group"),
            subjects("ServiceAccount"),
        ]
    }

    fn default(&self, binding: &mut Value) {
        set_default_text(binding, "/roleRef/apiGroup", GROUP);
        for subject in items_mut(binding, "/subjects") {
            if ["User", "Group"].contains(&text(subject, "/kind")) {
                set_default_text(subject, "/apiGroup", GROUP);
            }
        }
    }

    fn validate_create(&self, binding: &Value) -> FieldErrors {
        let mut errors = meta::validate_create(binding, &self.policy());
        errors.extend(validate_role(&binding["roleRef"], self.0));
        for (index, subject) in list(binding, "/subjects").iter().enumerate() {
            errors.extend(validate_subject(subject, &format!("subjects[{index}]"), self.0));
        }
        errors
    }

    fn validate_update(&self, binding: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate_create(binding);
        errors.extend(meta::validate_core_update(binding, old));
        if !unchanged(binding, old, "/roleRef") {
            let shown = golang::compact(&binding["roleRef"], ROLE_REFERENCE);
            errors.push(FieldError::invalid_shown("roleRef", shown, "cannot change roleRef"));
        }
        errors
    }
}

fn validate_role(role: &Value, scope: Scope) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let group = text(role, "/apiGroup");
    if group != GROUP {
        errors.push(FieldError::not_supported("roleRef.apiGroup", group, &[GROUP]));
    }
    let kinds: &[&str] = match scope {
        Scope::Namespaced => &["Role", "ClusterRole"],
        Scope::Cluster => &["ClusterRole"],
    };
    let kind = text(role, "/kind");
    if !kinds.contains(&kind) {
        errors.push(FieldError::not_supported("roleRef.kind", kind, kinds));
    }
    if text(role, "/name").is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    }
    errors
}

fn validate_subject(subject: &Value, field: &str, scope: Scope) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if text(subject, "/name").is_empty() {
        errors.push(FieldError::required(format!("{field}.name"), ""));
    }
    let group = text(subject, "/apiGroup");
    match text(subject, "/kind") {
        "ServiceAccount" => {
            if !group.is_empty() {
                errors.push(FieldError::not_supported(format!("{field}.apiGroup"), group, &[""]));
            }
            if text(subject, "/namespace").is_empty() && scope == Scope::Cluster {
                errors.push(FieldError::required(format!("{field}.namespace"), ""));
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                errors.push(FieldError::not_supported(format!("{field}.apiGroup"), group, &[GROUP]));
            }
        }
        other => {
            let kinds = ["ServiceAccount", "User", "Group"];
            errors.push(FieldError::not_supported(format!("{field}.kind"), other, &kinds));
        }
    }
    errors
}
