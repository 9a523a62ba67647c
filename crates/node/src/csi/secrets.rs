//! Reading a secret for one call.

use std::collections::BTreeMap;

use api::{Key, Kind};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lifecycle::node::because::Stage;
use serde::Deserialize;

use super::Values;
use super::details::SecretRef;
use crate::Agent;
use crate::reconcile::Failure;

/// As it comes from the server. It has no `Debug` on purpose.
#[derive(Deserialize)]
struct Secret {
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
}

impl Agent {
    /// The values of a secret; none without a reference. No part of a value is in an error.
    pub(crate) async fn secret(&self, reference: Option<&SecretRef>, stage: Stage) -> Result<Values, Failure> {
        let Some(reference) = reference else { return Ok(Values::new()) };
        let key = Key::namespaced(&reference.namespace, &reference.name);
        let failed = |message: String| Failure::transient(stage, format!("the secret {key} {message}"));
        let secret: Secret = match self.context.client.get(Kind::SECRET, &key).await {
            Ok(secret) => secret,
            Err(error) => return Err(failed(format!("cannot be read: {error}"))),
        };
        let mut values = Values::new();
        for (name, value) in secret.data.unwrap_or_default() {
            let text = STANDARD.decode(value).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            let Some(text) = text else {
                return Err(failed(format!(
                    "has a value under {name:?} that is not text, which drivers cannot be given"
                )));
            };
            values.insert(name, text);
        }
        Ok(values)
    }
}
