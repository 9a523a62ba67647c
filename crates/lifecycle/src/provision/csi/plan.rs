//! All that is needed to repeat or undo one creation, and to write the volume of it.
//!
//! It is stored in the cluster as compact JSON, so what is empty is left out, and a field that a later version adds has
//! a default.

use std::collections::BTreeMap;

use api::{Claim, Key};
use serde::{Deserialize, Serialize};

use super::access::Access;
use super::secrets::Secrets;
use super::source::{Content, Origin};
use super::topology::Requirement;

/// One creation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub driver: String,
    /// The class' provisioner: the driver, or the plugin that it took over from.
    pub provisioner: String,
    /// The name for the driver and of the PersistentVolume.
    pub volume: String,
    pub claim: ClaimOf,
    pub class: String,
    pub bytes: i64,
    /// The claim's access modes, as Kubernetes names them.
    pub modes: Vec<String>,
    /// The same as the driver names them.
    pub access: Vec<Access>,
    pub shape: Shape,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mount_options: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes_class: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mutable: BTreeMap<String, String>,
    #[serde(default)]
    pub secrets: Secrets,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Requirement>,
    /// Whether the driver's answer about places becomes the volume's node affinity.
    pub placed: bool,
    /// Whether the volume is attached for reading only.
    pub read_only: bool,
}

/// How a volume is shown to pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    Block,
    Mount {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fstype: Option<String>,
    },
}

/// The claim that a volume is made for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimOf {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub revision: String,
}

impl ClaimOf {
    pub fn of(claim: &Claim) -> Self {
        Self {
            namespace: claim.namespace().to_owned(),
            name: claim.name().to_owned(),
            uid: claim.uid().to_string(),
            revision: claim.meta.revision.to_string(),
        }
    }

    pub fn key(&self) -> Key {
        Key::namespaced(&self.namespace, &self.name)
    }
}
