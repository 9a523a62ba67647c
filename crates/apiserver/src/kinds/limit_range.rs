//! LimitRange: the smallest and largest claim a namespace may make. Only the part about claims acts here; the rest is
//! stored and checked for sense.

use super::cells::{self, Column, as_quantity};
use super::labels::invalid_each;
use super::read::{entries, items_mut, list, present, text};
use super::time::Timestamp;
use super::{Missing, Policy, Rules, meta, names};
use crate::status::{FieldError, FieldErrors};
use serde_json::Value;
use std::collections::BTreeSet;

#[derive(Debug)]
pub(crate) struct LimitRangeRules;

impl Rules for LimitRangeRules {
    fn policy(&self) -> Policy {
        Policy { missing: Missing::Created, delete_answer: super::DeleteAnswer::Status, ..Policy::NAMESPACED }
    }

    fn columns(&self) -> &'static [Column] {
        cells::PLAIN
    }

    fn row(&self, range: &Value, _now: Timestamp) -> Vec<Value> {
        cells::plain_row(range)
    }

    fn default(&self, range: &mut Value) {
        for limit in items_mut(range, "/spec/limits") {
            for amounts in ["/max", "/min", "/default", "/defaultRequest", "/maxLimitRequestRatio"] {
                cells::round_resources(limit, amounts);
            }
        }
    }

    fn validate_create(&self, range: &Value) -> FieldErrors {
        let mut errors = meta::validate_create(range, &self.policy());
        let mut types = BTreeSet::new();
        for (index, limit) in list(range, "/spec/limits").iter().enumerate() {
            let field = format!("spec.limits[{index}]");
            let kind = text(limit, "/type");
            errors.extend(invalid_each(&format!("{field}.type"), kind, names::qualified(kind)));
            if !types.insert(kind) {
                errors.push(FieldError::duplicate(format!("{field}.type"), kind));
            }
            errors.extend(validate_limit(limit, &field));
        }
        errors
    }

    fn validate_update(&self, range: &Value, _old: &Value) -> FieldErrors {
        self.validate_create(range)
    }
}

fn validate_limit(limit: &Value, field: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let bounds = ["/min/storage", "/max/storage"];
    let unbounded = bounds.iter().all(|bound| present(limit, bound).is_none());
    if text(limit, "/type") == "PersistentVolumeClaim" && unbounded {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.push(FieldError::required(format!("{field}.limits"), detail));
    }
    for (resource, least) in entries(limit, "/min") {
        let most = limit.pointer("/max").and_then(|most| most.get(resource)).and_then(as_quantity);
        if let (Some(least), Some(most)) = (as_quantity(least), most)
            && least > most
        {
            let detail = format!("min value {least} is greater than max value {most}");
            errors.push(FieldError::invalid(format!("{field}.min[{resource}]"), least.to_string(), detail));
        }
    }
    errors
}
