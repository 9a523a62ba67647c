//! A ConfigMap: texts by name.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::object::{Kind, Meta, Object};

/// Texts by name. Binary data is not kept.
#[derive(Debug, Clone, Deserialize)]
pub struct ConfigMap {
    #[serde(rename = "metadata")]
    pub meta: Meta,
    #[serde(default)]
    pub data: Option<BTreeMap<Box<str>, Box<str>>>,
}

impl Object for ConfigMap {
    const KIND: Kind = Kind::CONFIG_MAP;

    fn meta(&self) -> &Meta {
        &self.meta
    }
}
