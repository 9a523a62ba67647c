//! Lease: who leads, and until when. Leader election writes it with PUT, which creates it too.

use super::cells::{self, AGE, Column, NAME};
use super::read::{name, number, remove, text};
use super::time::Timestamp;
use super::{DeleteAnswer, Finalizers, Missing, Policy, Rules, Versionless, meta};
use crate::status::{FieldError, FieldErrors};
use serde_json::Value;

const COLUMNS: &[Column] = &[NAME, Column::text("Holder", "Who holds the lease."), AGE];

#[derive(Debug)]
pub(crate) struct LeaseRules;

impl Rules for LeaseRules {
    fn policy(&self) -> Policy {
        Policy {
            finalizers: Finalizers::Any,
            missing: Missing::Created,
            versionless: Versionless::Refused,
            delete_answer: DeleteAnswer::Status,
            ..Policy::NAMESPACED
        }
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, lease: &Value, now: Timestamp) -> Vec<Value> {
        vec![name(lease).into(), text(lease, "/spec/holderIdentity").into(), cells::age(lease, now)]
    }

    fn prepare_create(&self, lease: &mut Value, _now: Timestamp) {
        drop_coordinated_election(lease);
    }

    fn prepare_update(&self, lease: &mut Value, _old: &Value, _now: Timestamp) {
        drop_coordinated_election(lease);
    }

    fn validate_create(&self, lease: &Value) -> FieldErrors {
        let mut errors = meta::validate_create(lease, &self.policy());
        errors.extend(validate_spec(lease));
        errors
    }

    fn validate_update(&self, lease: &Value, old: &Value) -> FieldErrors {
        let mut errors = meta::validate_update(lease, old);
        errors.extend(validate_spec(lease));
        errors
    }
}

/// Fields of coordinated leader election, which is off.
fn drop_coordinated_election(lease: &mut Value) {
    for field in ["strategy", "preferredHolder"] {
        remove(lease, &format!("/spec/{field}"));
    }
}

fn validate_spec(lease: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if let Some(seconds) = number(lease, "/spec/leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        errors.push(FieldError::invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"));
    }
    if let Some(count) = number(lease, "/spec/leaseTransitions").filter(|count| *count < 0) {
        errors.push(FieldError::invalid("spec.leaseTransitions", count, "must be greater than or equal to 0"));
    }
    errors
}
