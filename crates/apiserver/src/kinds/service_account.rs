//! ServiceAccount: an identity for pods. References to secrets are reduced to names.

use super::cells::{self, AGE, Column, NAME};
use super::read::{items_mut, name, text};
use super::time::Timestamp;
use super::{Policy, Rules, meta};
use crate::status::FieldErrors;
use serde_json::{Value, json};

const COLUMNS: &[Column] = &[NAME, AGE];

#[derive(Debug)]
pub(crate) struct ServiceAccountRules;

impl Rules for ServiceAccountRules {
    fn policy(&self) -> Policy {
        Policy::NAMESPACED
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, account: &Value, now: Timestamp) -> Vec<Value> {
        vec![name(account).into(), cells::age(account, now)]
    }

    fn prepare_create(&self, account: &mut Value, _now: Timestamp) {
        reduce_secrets(account);
    }

    fn prepare_update(&self, account: &mut Value, _old: &Value, _now: Timestamp) {
        reduce_secrets(account);
    }

    fn validate_create(&self, account: &Value) -> FieldErrors {
        meta::validate_create(account, &self.policy())
    }

    fn validate_update(&self, account: &Value, old: &Value) -> FieldErrors {
        let mut errors = meta::validate_core_update(account, old);
        errors.extend(self.validate_create(account));
        errors
    }
}

fn reduce_secrets(account: &mut Value) {
    for secret in items_mut(account, "/secrets") {
        *secret = json!({"name": text(secret, "/name")});
    }
}
