//! The file that lets kubectl in: address, authority and a client certificate, all inline.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::Identity;

/// What a kubeconfig says. Its text holds a private key: write it with [`super::write_private`].
#[derive(Debug, Clone, Copy)]
pub struct Kubeconfig<'a> {
    /// Names the cluster, the user and the context.
    pub name: &'a str,
    /// `https://127.0.0.1:6443`
    pub server: &'a str,
    pub ca_pem: &'a str,
    pub client: &'a Identity,
}

/// The YAML text.
pub fn kubeconfig(config: &Kubeconfig<'_>) -> String {
    // JSON strings are YAML strings, so no name or address can break out of its line.
    let quoted = |text: &str| Value::from(text).to_string();
    let inline = |pem: &str| STANDARD.encode(pem);
    let name = quoted(config.name);
    let server = quoted(config.server);
    let authority = inline(config.ca_pem);
    let certificate = inline(config.client.certificate_pem());
    let key = inline(config.client.key_pem());
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: {name}\n  \
           cluster:\n    \
             server: {server}\n    \
             certificate-authority-data: {authority}\n\
         users:\n\
         - name: {name}\n  \
           user:\n    \
             client-certificate-data: {certificate}\n    \
             client-key-data: {key}\n\
         contexts:\n\
         - name: {name}\n  \
           context:\n    \
             cluster: {name}\n    \
             user: {name}\n\
         current-context: {name}\n"
    )
}
