//! Labels, label selectors and node selectors inside objects: what they may contain. Selectors of a request are parsed
//! elsewhere; these are the ones that are stored.

use super::names;
use super::read::{entries, list, pairs, present, text, texts};
use crate::status::{FieldError, FieldErrors};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The labels of the object at `pointer`; every complaint names the whole map `field`.
pub(crate) fn validate_labels(object: &Value, pointer: &str, field: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for (key, value) in pairs(object, pointer) {
        errors.extend(validate_key(key, field));
        errors.extend(invalid_each(field, value, names::label_value(value)));
    }
    errors
}

pub(crate) fn validate_key(key: &str, field: &str) -> FieldErrors {
    invalid_each(field, key, names::qualified(key))
}

/// One error per complaint about `value`.
pub(crate) fn invalid_each(field: &str, value: &str, complaints: Vec<String>) -> FieldErrors {
    complaints.into_iter().map(|complaint| FieldError::invalid(field, value, complaint)).collect()
}

/// A label selector with `matchLabels` and `matchExpressions`.
pub(crate) fn validate_selector(selector: &Value, field: &str) -> FieldErrors {
    let mut errors = validate_labels(selector, "/matchLabels", &format!("{field}.matchLabels"));
    for (index, requirement) in list(selector, "/matchExpressions").iter().enumerate() {
        let field = format!("{field}.matchExpressions[{index}]");
        errors.extend(validate_requirement(requirement, &field));
        errors.extend(validate_values(requirement, &field));
    }
    errors
}

fn validate_requirement(requirement: &Value, field: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let values = list(requirement, "/values");
    match text(requirement, "/operator") {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(format!("{field}.values"), detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(format!("{field}.values"), detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => {
            errors.push(FieldError::invalid(format!("{field}.operator"), other, "not a valid selector operator"));
        }
    }
    errors.extend(validate_key(text(requirement, "/key"), &format!("{field}.key")));
    errors
}

fn validate_values(requirement: &Value, field: &str) -> FieldErrors {
    let values = texts(requirement, "/values");
    let each = values.into_iter().enumerate();
    each.flat_map(|(index, value)| invalid_each(&format!("{field}.values[{index}]"), value, names::label_value(value)))
        .collect()
}

/// The `required` part of a volume's node affinity: terms of expressions and field expressions.
pub(crate) fn validate_node_selector(selector: &Value, field: &str) -> FieldErrors {
    let terms = list(selector, "/nodeSelectorTerms");
    let field = format!("{field}.nodeSelectorTerms");
    if terms.is_empty() {
        return FieldError::required(field, "must have at least one node selector term").into();
    }
    let mut errors = FieldErrors::new();
    for (index, term) in terms.iter().enumerate() {
        for (place, requirement) in list(term, "/matchExpressions").iter().enumerate() {
            let field = format!("{field}[{index}].matchExpressions[{place}]");
            errors.extend(validate_node_requirement(requirement, &field));
        }
        for (place, requirement) in list(term, "/matchFields").iter().enumerate() {
            let field = format!("{field}[{index}].matchFields[{place}]");
            errors.extend(validate_node_field(requirement, &field));
        }
    }
    errors
}

fn validate_node_requirement(requirement: &Value, field: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let values = list(requirement, "/values");
    match text(requirement, "/operator") {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(format!("{field}.values"), detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(format!("{field}.values"), detail));
        }
        "Gt" | "Lt" if values.len() != 1 => {
            let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            errors.push(FieldError::required(format!("{field}.values"), detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => {
            errors.push(FieldError::invalid(format!("{field}.operator"), other, "not a valid selector operator"));
        }
    }
    errors.extend(validate_key(text(requirement, "/key"), &format!("{field}.key")));
    errors.extend(validate_values(requirement, field));
    errors
}

fn validate_node_field(requirement: &Value, field: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    match text(requirement, "/operator") {
        "In" | "NotIn" => {
            if list(requirement, "/values").len() != 1 {
                let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                errors.push(FieldError::required(format!("{field}.values"), detail));
            }
        }
        other => {
            errors.push(FieldError::invalid(format!("{field}.operator"), other, "not a valid selector operator"));
        }
    }
    match text(requirement, "/key") {
        "metadata.name" => {
            for (index, value) in texts(requirement, "/values").into_iter().enumerate() {
                errors.extend(invalid_each(&format!("{field}.values[{index}]"), value, names::subdomain(value)));
            }
        }
        other => {
            errors.push(FieldError::invalid(format!("{field}.key"), other, "not a valid field selector key"));
        }
    }
    errors
}

/// A term of `allowedTopologies` reduced to what identifies it: each key with its values.
pub(crate) type Topology = Map<String, Value>;

/// One term of `allowedTopologies`.
pub(crate) fn validate_topology(term: &Value, field: &str) -> (Topology, FieldErrors) {
    let (mut topology, mut errors) = (Topology::new(), FieldErrors::new());
    for (index, expression) in list(term, "/matchLabelExpressions").iter().enumerate() {
        let field = format!("{field}.matchLabelExpressions[{index}]");
        let key = text(expression, "/key");
        let mut values = texts(expression, "/values");
        if values.is_empty() {
            errors.push(FieldError::required(format!("{field}.values"), ""));
        }
        let mut seen = BTreeSet::new();
        for (place, value) in values.iter().enumerate() {
            if !seen.insert(*value) {
                errors.push(FieldError::duplicate(format!("{field}.values[{place}]"), *value));
            }
        }
        errors.extend(validate_key(key, &format!("{field}.key")));
        if topology.contains_key(key) {
            errors.push(FieldError::duplicate(format!("{field}.key"), key));
        }
        values.sort_unstable();
        topology.insert(key.into(), values.into());
    }
    (topology, errors)
}

/// A value that must be one of `supported`, which is printed in this order.
pub(crate) fn validate_choice(object: &Value, pointer: &str, field: &str, supported: &[&str]) -> Option<FieldError> {
    let value = present(object, pointer)?;
    let known = value.as_str().is_some_and(|value| supported.contains(&value));
    (!known).then(|| FieldError::not_supported(field, value.clone(), supported))
}

/// The bytes of all keys and values of a map together.
pub(crate) fn total_size(object: &Value, pointer: &str) -> usize {
    entries(object, pointer).into_iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_selector_is_checked_by_operator_and_syntax() {
        let good = json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "x.io/k", "operator": "In", "values": ["v"]}]});
        assert!(validate_selector(&good, "spec.selector").is_empty());
        let cases = [
            (
                json!({"key": "a", "operator": "In"}),
                "s.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            ),
            (
                json!({"key": "a", "operator": "Exists", "values": ["b"]}),
                "s.matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            (
                json!({"key": "a", "operator": "Is"}),
                "s.matchExpressions[0].operator: Invalid value: \"Is\": not a valid selector operator",
            ),
        ];
        for (requirement, expected) in cases {
            let errors = validate_selector(&json!({"matchExpressions": [requirement]}), "s");
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
        }
    }

    #[test]
    fn a_node_selector_needs_terms_and_one_value_for_comparisons() {
        let cases = [
            (json!({}), "required.nodeSelectorTerms: Required value: must have at least one node selector term"),
            (
                json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1", "2"]}]}]}),
                "required.nodeSelectorTerms[0].matchExpressions[0].values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'",
            ),
            (
                json!({"nodeSelectorTerms": [{"matchFields": [{"key": "spec.x", "operator": "In", "values": ["1"]}]}]}),
                "required.nodeSelectorTerms[0].matchFields[0].key: Invalid value: \"spec.x\": not a valid field selector key",
            ),
        ];
        for (selector, expected) in cases {
            let errors = validate_node_selector(&selector, "required");
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
        }
    }
}
