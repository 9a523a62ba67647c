//! Reading a secret for one call (SIDECAR-1.9).

use std::collections::BTreeMap;

use api::{Key, Kind};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lifecycle::provision::csi::secrets::Reference;
use runtime::Client;
use runtime::client::Error;
use serde::Deserialize;

use super::wire::Values;

/// As it comes from the server. It has no `Debug` on purpose.
#[derive(Deserialize)]
struct Secret {
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
}

/// Why a secret cannot be used. No part of its values is in any of these.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretError {
    #[error("the secret {key} does not exist")]
    Missing { key: Key },
    #[error("the secret {key} cannot be read: {error}")]
    Unread { key: Key, error: Error },
    #[error("the secret {key} has a value under {name:?} that is not text, which drivers cannot be given")]
    NotText { key: Key, name: String },
}

/// The values of a secret, for one call.
pub(crate) async fn read(client: &Client, reference: &Reference) -> Result<Values, SecretError> {
    let key = Key::namespaced(&reference.namespace, &reference.name);
    let secret: Secret = match client.get(Kind::SECRET, &key).await {
        Ok(secret) => secret,
        Err(error) if error.is_not_found() => return Err(SecretError::Missing { key }),
        Err(error) => return Err(SecretError::Unread { key, error }),
    };
    let mut values = Values::new();
    for (name, value) in secret.data.unwrap_or_default() {
        let text = STANDARD.decode(value).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        match text {
            Some(text) => drop(values.insert(name, text)),
            None => return Err(SecretError::NotText { key, name }),
        }
    }
    Ok(values)
}
