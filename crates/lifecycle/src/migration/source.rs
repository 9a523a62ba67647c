//! The two forms of a volume's source.

use std::collections::BTreeMap;

use api::AccessMode;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Untranslatable;

/// `spec.csi` of a PersistentVolume.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiSource {
    pub driver: String,
    pub volume_handle: String,
    #[serde(skip_serializing_if = "is_false")]
    pub read_only: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fs_type: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub volume_attributes: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_publish_secret_ref: Option<SecretReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_stage_secret_ref: Option<SecretReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_publish_secret_ref: Option<SecretReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_expand_secret_ref: Option<SecretReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_expand_secret_ref: Option<SecretReference>,
}

/// Where a secret is. Never what is in it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SecretReference {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

pub(super) fn is_false(value: &bool) -> bool {
    !value
}

/// Absent and zero are the same.
pub(super) fn is_zero(value: &i32) -> bool {
    *value == 0
}

impl CsiSource {
    pub(super) fn new(driver: &str, handle: impl Into<String>) -> Self {
        Self { driver: driver.to_owned(), volume_handle: handle.into(), ..Self::default() }
    }

    pub(super) fn attribute(mut self, name: &str, value: impl Into<String>) -> Self {
        self.volume_attributes.insert(name.to_owned(), value.into());
        self
    }

    /// The attribute `partition`, if there is one and it says something.
    pub(super) fn partition(&self) -> Result<i32, Untranslatable> {
        match self.volume_attributes.get("partition").map(String::as_str) {
            None | Some("") => Ok(0),
            Some(text) => text.parse().map_err(|_| Untranslatable::Partition { partition: text.to_owned() }),
        }
    }
}

/// A pod's volume of an in-tree plugin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inline<'a> {
    /// The volume's name in the pod.
    pub name: &'a str,
    /// The pod's namespace; empty if it is not known.
    pub namespace: &'a str,
    pub source: &'a Value,
}

/// What a volume that stands for an inline one is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Synthetic {
    /// Unique per disk: staging paths are made of it. Never stored, so that it need not be a legal name.
    pub name: String,
    pub csi: CsiSource,
    pub access: AccessMode,
}

/// What a driver's volume becomes for the plugin.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Back {
    pub source: Value,
    /// Annotations that the volume gets.
    pub annotations: Vec<(String, String)>,
}

impl Back {
    pub(super) fn of(source: Value) -> Self {
        Self { source, annotations: Vec::new() }
    }
}

/// Reads a plugin's source.
pub(super) fn read<T: DeserializeOwned>(field: &'static str, source: &Value) -> Result<T, Untranslatable> {
    T::deserialize(source).map_err(|error| Untranslatable::Malformed { field, why: error.to_string() })
}

/// Writes a plugin's source.
pub(super) fn write<T: Serialize>(field: &'static str, source: &T) -> Result<Value, Untranslatable> {
    serde_json::to_value(source).map_err(|error| Untranslatable::Malformed { field, why: error.to_string() })
}
