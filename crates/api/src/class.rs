//! Classes: StorageClass and VolumeAttributesClass.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::keys::annotation;
use crate::object::{Kind, Meta, Object, Pairs, Word};
use crate::volume::ReclaimPolicy;

/// How volumes of a kind are made.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Class {
    #[serde(rename = "metadata")]
    pub meta: Meta,
    #[serde(default = "Word::empty")]
    pub provisioner: Word,
    #[serde(default)]
    pub parameters: BTreeMap<Box<str>, Box<str>>,
    #[serde(default)]
    pub mount_options: Vec<Box<str>>,
    pub reclaim_policy: Option<ReclaimPolicy>,
    /// The API server fills it in; absent only in objects from elsewhere.
    pub volume_binding_mode: Option<BindingMode>,
    #[serde(default)]
    pub allow_volume_expansion: bool,
    #[serde(default)]
    pub allowed_topologies: Vec<TopologyTerm>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum BindingMode {
    Immediate,
    WaitForFirstConsumer,
}

/// One alternative of `allowedTopologies`: every expression must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyTerm {
    pub match_label_expressions: Vec<TopologyExpression>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TopologyExpression {
    pub key: Box<str>,
    #[serde(default)]
    pub values: Vec<Box<str>>,
}

impl TopologyTerm {
    /// A term without expressions matches nothing.
    pub fn matches(&self, labels: &Pairs) -> bool {
        let holds = |expression: &TopologyExpression| {
            labels.get(&expression.key).is_some_and(|value| expression.values.iter().any(|held| &**held == value))
        };
        !self.match_label_expressions.is_empty() && self.match_label_expressions.iter().all(holds)
    }
}

impl Class {
    pub fn name(&self) -> &str {
        self.meta.key.name()
    }

    pub fn is_default(&self) -> bool {
        let says = |key| self.meta.annotation(key) == Some("true");
        says(annotation::DEFAULT_CLASS) || says(annotation::BETA_DEFAULT_CLASS)
    }

    pub fn delayed(&self) -> bool {
        self.volume_binding_mode == Some(BindingMode::WaitForFirstConsumer)
    }
}

impl Object for Class {
    const KIND: Kind = Kind::STORAGE_CLASS;

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// Parameters of a volume that may change while it lives.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttributesClass {
    #[serde(rename = "metadata")]
    pub meta: Meta,
    #[serde(default)]
    pub driver_name: Box<str>,
    #[serde(default)]
    pub parameters: BTreeMap<Box<str>, Box<str>>,
}

impl Object for AttributesClass {
    const KIND: Kind = Kind::ATTRIBUTES_CLASS;

    fn meta(&self) -> &Meta {
        &self.meta
    }
}
