//! What the journal holds of a volume whose creation was begun.

use api::{Claim, Key};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Wish;

/// The form that this program writes and reads.
const FORM: u32 = 1;

/// A creation that was begun: enough to end it without the claim and its class.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Intent<Plan> {
    form: u32,
    namespace: String,
    claim: String,
    pub(super) class: String,
    /// The name of the volume to be.
    pub(super) volume: String,
    /// The node that the first attempt was for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) node: Option<Box<str>>,
    /// The kind of the data source; empty without one.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub(super) source: String,
    pub(super) plan: Plan,
}

/// Why an entry cannot be understood. It stays where it is.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotRead {
    #[error("it is not what this program writes")]
    Malformed(#[source] serde_json::Error),
    #[error("it has form {form}, and this program knows form {FORM}; use the version of orlop that wrote it")]
    Unknown { form: u32 },
}

impl<Plan: Serialize + DeserializeOwned> Intent<Plan> {
    pub(super) fn new(wish: &Wish, plan: Plan) -> Self {
        Self {
            form: FORM,
            namespace: wish.claim.namespace().to_owned(),
            claim: wish.claim.name().to_owned(),
            class: wish.class.name().to_owned(),
            volume: wish.volume_name.clone(),
            node: wish.node.clone(),
            source: source_kind(&wish.claim),
            plan,
        }
    }

    pub(super) fn claim(&self) -> Key {
        Key::namespaced(&self.namespace, &self.claim)
    }

    pub(super) fn write(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    pub(super) fn read(text: &str) -> Result<Self, NotRead> {
        #[derive(Deserialize)]
        struct Head {
            form: u32,
        }
        let Head { form } = serde_json::from_str(text).map_err(NotRead::Malformed)?;
        match form {
            FORM => serde_json::from_str(text).map_err(NotRead::Malformed),
            form => Err(NotRead::Unknown { form }),
        }
    }
}

/// The label `source` of upstream's metrics (PROVISION-2.14).
pub(super) fn source_kind(claim: &Claim) -> String {
    claim.source.as_ref().map(|source| source.kind.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_understood_is_an_error_and_says_which() {
        let read = |text: &str| Intent::<u32>::read(text).map(|intent| intent.plan).map_err(|error| error.to_string());
        let good = r#"{"form":1,"namespace":"n","claim":"c","class":"k","volume":"v","plan":7}"#;
        assert_eq!(read(good), Ok(7));
        assert!(read(&good.replace("\"form\":1", "\"form\":2")).is_err_and(|error| error.contains("form 2")));
        assert!(read("{").is_err());
        assert!(read(&good.replace("7", "\"seven\"")).is_err());
    }
}
