//! Definitions themselves: the rules of the kind CustomResourceDefinition.

use serde_json::{Value, json};

use super::prepared::{PATTERNS_BYTES, pattern_bytes};
use super::rule::Rule;
use crate::keys::APPROVED;
use crate::kinds::meta;
use crate::kinds::{
    Column, DeleteAnswer, Finalizers, Missing, NameRule, Policy, Rules, Scope, Timestamp, Versionless, read,
};
use crate::status::{FieldError, FieldErrors};

/// Keeps a definition until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Keys that tell the items of one list apart: each item is looked up by all of them.
const MOST_LIST_KEYS: usize = 64;

/// The rules of the kind.
pub(crate) const RULES: &dyn Rules = &DefinitionRules;

#[derive(Debug)]
struct DefinitionRules;

/// Whether a definition's resources are served: they are from the moment its names are accepted to the end.
pub(crate) fn is_served(definition: &Value) -> bool {
    let conditions = read::list(definition, "/status/conditions");
    conditions.iter().any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

/// The status of a definition whose names nobody else has.
pub(crate) fn accepted(definition: &Value, now: Timestamp) -> Value {
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": "True", "lastTransitionTime": now.to_string(),
            "reason": reason, "message": message,
        })
    };
    let mut conditions = vec![
        condition("NamesAccepted", "NoConflicts", "no conflicts found"),
        condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ];
    if is_protected(read::text(definition, "/spec/group")) {
        let approval = read::annotation(definition, APPROVED).unwrap_or_default();
        let message = format!("approved in {approval}");
        conditions.push(condition("KubernetesAPIApprovalPolicyConformant", "ApprovedAnnotation", &message));
    }
    let mut accepted = definition.clone();
    read::set(&mut accepted, "/status/conditions", conditions);
    read::set(&mut accepted, "/status/acceptedNames", read::copy(definition, "/spec/names"));
    accepted
}

fn is_protected(group: &str) -> bool {
    group.ends_with(".k8s.io") || group == "k8s.io" || group.ends_with(".kubernetes.io") || group == "kubernetes.io"
}

impl Rules for DefinitionRules {
    fn policy(&self) -> Policy {
        Policy {
            scope: Scope::Cluster,
            names: NameRule::Subdomain,
            finalizers: Finalizers::Any,
            missing: Missing::NotFound,
            versionless: Versionless::Refused,
            delete_answer: DeleteAnswer::Status,
        }
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                Column::text("Name", "The name of the object, unique for its kind and namespace."),
                Column::of("Created At", "date", "When the object was created."),
            ]
        }
    }

    fn row(&self, object: &Value, _now: Timestamp) -> Vec<Value> {
        vec![read::name(object).into(), read::text(object, "/metadata/creationTimestamp").into()]
    }

    fn default(&self, object: &mut Value) {
        let kind = read::text(object, "/spec/names/kind").to_owned();
        read::set_default_text(object, "/spec/names/singular", &kind.to_lowercase());
        read::set_default_text(object, "/spec/names/listKind", &format!("{kind}List"));
        read::set_default_text(object, "/spec/conversion/strategy", "None");
    }

    fn prepare_create(&self, object: &mut Value, _now: Timestamp) {
        let stored: Vec<Value> = read::list(object, "/spec/versions")
            .iter()
            .filter(|version| read::flag(version, "/storage"))
            .map(|version| read::copy(version, "/name"))
            .collect();
        read::set(object, "/status", json!({"storedVersions": stored}));
        read::set(object, "/metadata/generation", 1);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, _now: Timestamp) {
        read::restore(object, old, "/status");
        // A version that objects are stored in from now on is one that they were ever stored in.
        let mut stored: Vec<Value> = read::list(object, "/status/storedVersions").to_vec();
        for version in read::list(object, "/spec/versions").iter().filter(|version| read::flag(version, "/storage")) {
            if !stored.contains(&version["name"]) {
                stored.push(version["name"].clone());
            }
        }
        read::set(object, "/status/storedVersions", stored);
    }

    fn prepare_status_update(&self, object: &mut Value, old: &Value, _now: Timestamp) {
        read::restore(object, old, "/spec");
        for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
            read::restore(object, old, &format!("/metadata/{field}"));
        }
    }

    fn validate_create(&self, object: &Value) -> FieldErrors {
        let mut errors = meta::validate_create(object, &self.policy());
        errors.extend(validate_names(object));
        errors.extend(validate_versions(object));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = validate_names(object);
        errors.extend(validate_versions(object));
        for (pointer, field) in [
            ("/spec/group", "spec.group"),
            ("/spec/scope", "spec.scope"),
            ("/spec/names/plural", "spec.names.plural"),
            ("/spec/names/kind", "spec.names.kind"),
        ] {
            if !read::unchanged(object, old, pointer) {
                errors.push(FieldError::immutable(field, read::copy(object, pointer)));
            }
        }
        errors
    }

    fn validate_status_update(&self, _object: &Value, _old: &Value) -> FieldErrors {
        FieldErrors::new()
    }

    fn next_generation(&self, object: &Value, old: &Value) -> Option<i64> {
        let generation = read::number(old, "/metadata/generation").unwrap_or(0);
        Some(if read::unchanged(object, old, "/spec") { generation } else { generation + 1 })
    }
}

fn validate_names(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let (group, plural) = (read::text(object, "/spec/group"), read::text(object, "/spec/names/plural"));
    if read::name(object) != format!("{plural}.{group}") {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", read::name(object), detail));
    }
    let labels = [("/spec/names/plural", "spec.names.plural"), ("/spec/names/singular", "spec.names.singular")];
    for (pointer, field) in labels {
        for complaint in crate::kinds::names::label(read::text(object, pointer)) {
            errors.push(FieldError::invalid(field, read::text(object, pointer), complaint));
        }
    }
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid("spec.group", group, "should be a domain with at least one dot"));
    } else {
        for complaint in crate::kinds::names::subdomain(group) {
            errors.push(FieldError::invalid("spec.group", group, complaint));
        }
    }
    if is_protected(group) && read::annotation(object, APPROVED).is_none_or(str::is_empty) {
        let detail = "protected groups must have approval annotation \"api-approved.kubernetes.io\", see \
                      https://github.com/kubernetes/enhancements/pull/1111";
        errors.push(FieldError::required("metadata.annotations[api-approved.kubernetes.io]", detail));
    }
    if read::text(object, "/spec/names/kind").is_empty() {
        errors.push(FieldError::required("spec.names.kind", ""));
    }
    let scope = read::text(object, "/spec/scope");
    if !["Cluster", "Namespaced"].contains(&scope) {
        errors.push(FieldError::not_supported("spec.scope", scope, &["Cluster", "Namespaced"]));
    }
    errors
}

fn validate_versions(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let mut left = Some(PATTERNS_BYTES);
    let versions = read::list(object, "/spec/versions");
    if versions.is_empty() {
        errors.push(FieldError::required("spec.versions", "must have at least one version"));
    } else if versions.iter().filter(|version| read::flag(version, "/storage")).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", "", detail));
    }
    if !["", "None"].contains(&read::text(object, "/spec/conversion/strategy")) {
        let strategy = read::text(object, "/spec/conversion/strategy");
        errors.push(FieldError::not_supported("spec.conversion.strategy", strategy, &["None"]));
    }
    for (index, version) in versions.iter().enumerate() {
        let field = format!("spec.versions[{index}]");
        for complaint in crate::kinds::names::label(read::text(version, "/name")) {
            errors.push(FieldError::invalid(format!("{field}.name"), read::text(version, "/name"), complaint));
        }
        match version.pointer("/schema/openAPIV3Schema") {
            None => {
                errors.push(FieldError::required(format!("{field}.schema.openAPIV3Schema"), "schemas are required"));
            }
            Some(schema) => {
                let field = format!("{field}.schema.openAPIV3Schema");
                if read::text(schema, "/type") != "object" {
                    let found = read::text(schema, "/type");
                    errors.push(FieldError::invalid(format!("{field}.type"), found, "must be object at the root"));
                }
                validate_schema(schema, &field, &mut errors, &mut left);
            }
        }
    }
    errors
}

/// What must be understood to serve objects by a schema: its types, patterns and rules.
fn validate_schema(schema: &Value, field: &str, errors: &mut FieldErrors, left: &mut Option<usize>) {
    if errors.is_full() {
        return;
    }
    let untyped = read::text(schema, "/type").is_empty();
    let free = schema["x-kubernetes-int-or-string"] == true || super::prune::preserves(schema);
    if untyped && !free {
        errors.push(FieldError::required(format!("{field}.type"), "must not be empty for specified object fields"));
    }
    errors.extend(validate_pattern(read::text(schema, "/pattern"), field, left));
    let keys = read::list(schema, "/x-kubernetes-list-map-keys").len();
    if keys > MOST_LIST_KEYS {
        errors.push(FieldError::too_many(format!("{field}.x-kubernetes-list-map-keys"), keys, MOST_LIST_KEYS));
    }
    for (index, declared) in read::list(schema, "/x-kubernetes-validations").iter().enumerate() {
        let rule = read::text(declared, "/rule");
        if Rule::parse(rule).is_none() {
            let field = format!("{field}.x-kubernetes-validations[{index}].rule");
            errors.push(FieldError::invalid(field, rule, "this server does not understand the rule"));
        }
    }
    for (name, schema) in read::entries(schema, "/properties") {
        validate_schema(schema, &format!("{field}.properties[{name}]"), errors, left);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(schema) = schema.get(key).filter(|schema| schema.is_object()) {
            validate_schema(schema, &format!("{field}.{key}"), errors, left);
        }
    }
}

/// A pattern must be one, and all patterns of a definition must fit into the room for them. `left` is what is left of it, and
/// none after the first pattern that did not fit: further ones are not compiled.
fn validate_pattern(pattern: &str, field: &str, left: &mut Option<usize>) -> Option<FieldError> {
    let field = format!("{field}.pattern");
    let room = left.filter(|_| !pattern.is_empty())?;
    let bytes = match pattern_bytes(pattern) {
        Ok(bytes) => bytes,
        Err(regex::Error::CompiledTooBig(_)) => {
            return Some(FieldError::invalid(field, pattern, "is too large a regular expression for this server"));
        }
        Err(_) => return Some(FieldError::invalid(field, pattern, "must be a valid regular expression")),
    };
    *left = room.checked_sub(bytes);
    left.is_none().then(|| {
        let detail = format!(
            "the regular expressions of a definition may have at most {PATTERNS_BYTES} bytes together when they are \
             compiled, and with this one they have more"
        );
        FieldError::invalid(field, pattern, detail)
    })
}
