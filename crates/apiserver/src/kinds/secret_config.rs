//! Secret and ConfigMap: small named values. Values of secrets never reach an error text.

use super::cells::{self, AGE, Column, NAME};
use super::labels::invalid_each;
use super::read::{annotation, copy, entries, flag, insert, name, pairs, remove, set_default_text, text, unchanged};
use super::time::Timestamp;
use super::{DeleteAnswer, Policy, Rules, meta, names};
use crate::status::{FieldError, FieldErrors};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::collections::BTreeSet;

const MOST_BYTES: usize = 1024 * 1024;
const FROZEN: &str = "field is immutable when `immutable` is set";

const SECRET_COLUMNS: &[Column] =
    &[NAME, Column::text("Type", "What the secret is for."), Column::text("Data", "How many values it holds."), AGE];
const CONFIG_MAP_COLUMNS: &[Column] = &[NAME, Column::text("Data", "How many values it holds."), AGE];

const POLICY: Policy = Policy { delete_answer: DeleteAnswer::Status, ..Policy::NAMESPACED };

#[derive(Debug)]
pub(crate) struct SecretRules;

impl Rules for SecretRules {
    fn policy(&self) -> Policy {
        POLICY
    }

    fn columns(&self) -> &'static [Column] {
        SECRET_COLUMNS
    }

    fn row(&self, secret: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            name(secret).into(),
            text(secret, "/type").into(),
            entries(secret, "/data").len().into(),
            cells::age(secret, now),
        ]
    }

    fn default(&self, secret: &mut Value) {
        merge_string_data(secret);
        set_default_text(secret, "/type", "Opaque");
    }

    fn validate_create(&self, secret: &Value) -> FieldErrors {
        let mut errors = meta::validate_create(secret, &self.policy());
        let sizes = pairs(secret, "/data").into_iter().map(|(_, value)| decoded_size(value));
        let total: usize = sizes.sum();
        for (key, _) in entries(secret, "/data") {
            errors.extend(invalid_each(&format!("data[{key}]"), key, names::config_key(key)));
        }
        if total > MOST_BYTES {
            errors.push(FieldError::too_long("data", MOST_BYTES));
        }
        errors.extend(validate_type(secret));
        errors
    }

    fn validate_update(&self, secret: &Value, old: &Value) -> FieldErrors {
        let mut errors = meta::validate_core_update(secret, old);
        if !unchanged(secret, old, "/type") {
            errors.push(FieldError::immutable("type", copy(secret, "/type")));
        }
        errors.extend(validate_frozen(secret, old, &["data"]));
        errors.extend(self.validate_create(secret));
        errors
    }
}

/// `stringData` is for writing only: its values win over those in `data`.
fn merge_string_data(secret: &mut Value) {
    let Some(Value::Object(given)) = remove(secret, "/stringData") else { return };
    for (key, value) in given {
        insert(secret, "/data", &key, STANDARD.encode(value.as_str().unwrap_or_default()));
    }
}

fn decoded_size(value: &str) -> usize {
    STANDARD.decode(value).map_or(value.len(), |bytes| bytes.len())
}

fn validate_type(secret: &Value) -> FieldErrors {
    let has = |key: &str| entries(secret, "/data").iter().any(|(other, _)| *other == key);
    let required = |key: &str| FieldError::required(format!("data[{key}]"), "");
    let missing = |keys: &[&str]| keys.iter().filter(|key| !has(key)).map(|key| required(key)).collect();
    match text(secret, "/type") {
        crate::keys::SECRET_ACCOUNT_TOKEN => {
            const ACCOUNT: &str = crate::keys::SECRET_ACCOUNT_NAME;
            match annotation(secret, ACCOUNT) {
                None | Some("") => FieldError::required(format!("metadata.annotations[{ACCOUNT}]"), "").into(),
                Some(_) => FieldErrors::new(),
            }
        }
        crate::keys::SECRET_DOCKERCFG => validate_json(secret, ".dockercfg"),
        crate::keys::SECRET_DOCKERCONFIGJSON => validate_json(secret, ".dockerconfigjson"),
        crate::keys::SECRET_BASIC_AUTH if !has("username") && !has("password") => missing(&["username", "password"]),
        crate::keys::SECRET_SSH => missing(&["ssh-privatekey"]),
        crate::keys::SECRET_TLS => missing(&["tls.crt", "tls.key"]),
        _ => FieldErrors::new(),
    }
}

fn validate_json(secret: &Value, key: &str) -> FieldErrors {
    let field = format!("data[{key}]");
    let Some((_, value)) = pairs(secret, "/data").into_iter().find(|(other, _)| *other == key) else {
        return FieldError::required(field, "").into();
    };
    let parsed = STANDARD.decode(value).is_ok_and(|bytes| serde_json::from_slice::<Value>(&bytes).is_ok());
    if parsed {
        FieldErrors::new()
    } else {
        FieldError::invalid(field, "<secret contents redacted>", "invalid JSON").into()
    }
}

/// Once an object is immutable, it stays so, with its content.
fn validate_frozen(object: &Value, old: &Value, content: &[&str]) -> FieldErrors {
    if !flag(old, "/immutable") {
        return FieldErrors::new();
    }
    let mut errors = FieldErrors::new();
    if !flag(object, "/immutable") {
        errors.push(FieldError::forbidden("immutable", FROZEN));
    }
    let changed = content.iter().filter(|field| !unchanged(object, old, &format!("/{field}")));
    errors.extend(changed.map(|field| FieldError::forbidden(*field, FROZEN)));
    errors
}

#[derive(Debug)]
pub(crate) struct ConfigMapRules;

impl Rules for ConfigMapRules {
    fn policy(&self) -> Policy {
        POLICY
    }

    fn columns(&self) -> &'static [Column] {
        CONFIG_MAP_COLUMNS
    }

    fn row(&self, config: &Value, now: Timestamp) -> Vec<Value> {
        let count = entries(config, "/data").len() + entries(config, "/binaryData").len();
        vec![name(config).into(), count.into(), cells::age(config, now)]
    }

    fn validate_create(&self, config: &Value) -> FieldErrors {
        let mut errors = meta::validate_create(config, &self.policy());
        let binary = pairs(config, "/binaryData");
        let binary_keys: BTreeSet<&str> = binary.iter().map(|(key, _)| *key).collect();
        let mut total = 0;
        for (key, value) in pairs(config, "/data") {
            let field = format!("data[{key}]");
            errors.extend(invalid_each(&field, key, names::config_key(key)));
            if binary_keys.contains(key) {
                errors.push(FieldError::invalid(field, key, "duplicate of key present in binaryData"));
            }
            total += value.len();
        }
        for (key, value) in binary {
            errors.extend(invalid_each(&format!("binaryData[{key}]"), key, names::config_key(key)));
            total += decoded_size(value);
        }
        if total > MOST_BYTES {
            // The reference names no field here.
            errors.push(FieldError::too_long("[]", MOST_BYTES));
        }
        errors
    }

    fn validate_update(&self, config: &Value, old: &Value) -> FieldErrors {
        let mut errors = meta::validate_core_update(config, old);
        errors.extend(validate_frozen(config, old, &["data", "binaryData"]));
        errors.extend(self.validate_create(config));
        errors
    }
}
