//! The objects of the drill: three kinds, each version marked with a token in two places.

use serde_json::{Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Map,
    Claim,
    Volume,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Map, Self::Claim, Self::Volume];

    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Map => "/api/v1/namespaces/default/configmaps",
            Self::Claim => "/api/v1/namespaces/default/persistentvolumeclaims",
            Self::Volume => "/api/v1/persistentvolumes",
        }
    }

    pub(crate) fn object(self, name: &str, token: &str) -> Value {
        let mut object = match self {
            Self::Map => json!({"data": {"key": "value"}}),
            Self::Claim => json!({"spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}},
            }}),
            Self::Volume => json!({"spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                "csi": {"driver": "driver.example", "volumeHandle": name},
            }}),
        };
        object["metadata"] = json!({"name": name});
        mark(&mut object, token);
        object
    }
}

/// A write is whole if it has left both marks.
pub(crate) fn mark(object: &mut Value, token: &str) {
    object["metadata"]["labels"] = json!({"token": token});
    object["metadata"]["annotations"] = json!({"twin": token});
}

pub(crate) fn marks(token: &str) -> Value {
    let mut patch = json!({"metadata": {}});
    mark(&mut patch, token);
    patch
}

/// The token of an object. Both marks are there or the write was torn.
pub(crate) fn token(object: &Value) -> &str {
    let label = object["metadata"]["labels"]["token"].as_str().unwrap_or_default();
    assert_eq!(object["metadata"]["annotations"]["twin"].as_str(), Some(label), "half of a write: {object}");
    label
}

pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

pub(crate) fn is_being_deleted(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some()
}
