//! A namespace, and how much storage may be asked for in it.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::amount::Amount;
use crate::object::{Kind, Meta, Object};

/// A namespace.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Namespace {
    #[serde(rename = "metadata")]
    pub meta: Meta,
}

impl Object for Namespace {
    const KIND: Kind = Kind::NAMESPACE;

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// A ResourceQuota: limits by name, and what is used of them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Quota {
    #[serde(rename = "metadata")]
    pub meta: Meta,
    #[serde(default)]
    pub status: QuotaStatus,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct QuotaStatus {
    pub hard: BTreeMap<Box<str>, Amount>,
    pub used: BTreeMap<Box<str>, Amount>,
}

impl Object for Quota {
    const KIND: Kind = Kind::QUOTA;

    fn meta(&self) -> &Meta {
        &self.meta
    }
}
