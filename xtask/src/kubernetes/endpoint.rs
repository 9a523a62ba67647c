//! An API server as a client sees it: where it is, whom to trust, who to be.

use std::fmt;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use serde_json::json;

/// Who a client is. Never printed.
#[derive(Clone)]
pub(crate) enum Credential {
    Token(String),
    /// A client certificate and its key, both PEM.
    Certificate {
        certificate: String,
        key: String,
    },
    Anonymous,
}

impl fmt::Debug for Credential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Token(_) => "Token",
            Self::Certificate { .. } => "Certificate",
            Self::Anonymous => "Anonymous",
        })
    }
}

/// An API server that serves.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    /// Such as `https://127.0.0.1:6443`.
    pub(crate) address: String,
    /// The certificate authority of the server, PEM.
    pub(crate) ca: String,
    pub(crate) credential: Credential,
}

impl Endpoint {
    /// The same server as somebody else.
    pub(crate) fn as_user(&self, credential: Credential) -> Self {
        Self { credential, ..self.clone() }
    }

    /// A kubeconfig for kubectl and the Go controllers, readable by its owner only. JSON is YAML.
    pub(crate) fn write_kubeconfig(&self, file: &Path) -> anyhow::Result<()> {
        use base64::Engine as _;
        let base64 = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        let user = match &self.credential {
            Credential::Token(token) => json!({ "token": token }),
            Credential::Certificate { certificate, key } => {
                json!({ "client-certificate-data": base64(certificate), "client-key-data": base64(key) })
            }
            Credential::Anonymous => json!({}),
        };
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "peer",
            "clusters": [{ "name": "peer", "cluster": {
                "server": self.address, "certificate-authority-data": base64(&self.ca),
            }}],
            "users": [{ "name": "peer", "user": user }],
            "contexts": [{ "name": "peer", "context": { "cluster": "peer", "user": "peer" } }],
        });
        write_private(file, &config.to_string())
    }
}

/// Writes a file that only its owner may read.
pub(super) fn write_private(file: &Path, text: &str) -> anyhow::Result<()> {
    let opened = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file);
    let written = opened.and_then(|mut output| output.write_all(text.as_bytes()));
    written.with_context(|| format!("writing {}", file.display()))
}
