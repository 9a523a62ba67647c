//! VolumeAttributesClass: attributes a volume may take on while it lives. The class itself never changes.

use super::cells::{self, AGE, Column, NAME};
use super::read::{name, text, unchanged};
use super::storage_class::{Parameters, validate_parameters, validate_provisioner};
use super::time::Timestamp;
use super::{Policy, Rules, meta};
use crate::status::{FieldError, FieldErrors};
use serde_json::Value;

const COLUMNS: &[Column] = &[NAME, Column::text("DriverName", "The driver that understands the parameters."), AGE];

#[derive(Debug)]
pub(crate) struct AttributesClassRules;

impl Rules for AttributesClassRules {
    fn policy(&self) -> Policy {
        Policy::CLUSTER
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, class: &Value, now: Timestamp) -> Vec<Value> {
        vec![name(class).into(), text(class, "/driverName").into(), cells::age(class, now)]
    }

    fn validate_create(&self, class: &Value) -> FieldErrors {
        let mut errors = meta::validate_create(class, &self.policy());
        errors.extend(validate_provisioner(text(class, "/driverName"), "driverName"));
        errors.extend(validate_parameters(class, Parameters::Required));
        errors
    }

    fn validate_update(&self, class: &Value, old: &Value) -> FieldErrors {
        let mut errors = meta::validate_core_update(class, old);
        for field in ["driverName", "parameters"] {
            if !unchanged(class, old, &format!("/{field}")) {
                errors.push(FieldError::forbidden(field, format!("updates to {field} are forbidden.")));
            }
        }
        errors.extend(self.validate_create(class));
        errors
    }
}
