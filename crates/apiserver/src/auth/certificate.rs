//! A client certificate as a user: its common name and its organizations.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ring::digest::{SHA256, digest};
use thiserror::Error;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{AUTHENTICATED, CREDENTIAL_ID, UNAUTHENTICATED, UnixSeconds, User};

#[derive(Debug, Error, PartialEq, Eq)]
pub enum CertificateError {
    #[error("the client certificate is not from the authority of this server, or not for clients, or out of its time")]
    Untrusted,
    #[error("the client certificate cannot be read")]
    Unreadable,
    #[error("the client certificate has no common name")]
    NoName,
    #[error("the client certificate is not valid at this time")]
    OutOfTime,
}

/// Reads the first certificate of a chain that TLS has already verified. Its times are looked at again: a connection
/// may outlive the certificate that opened it.
pub fn user_of_certificate(der: &[u8], now: UnixSeconds) -> Result<User, CertificateError> {
    let (rest, certificate) = X509Certificate::from_der(der).map_err(|_| CertificateError::Unreadable)?;
    if !rest.is_empty() {
        return Err(CertificateError::Unreadable);
    }
    let validity = certificate.validity();
    if now.0 < validity.not_before.timestamp() || now.0 > validity.not_after.timestamp() {
        return Err(CertificateError::OutOfTime);
    }
    let subject = certificate.subject();
    let name = subject.iter_common_name().filter_map(|name| name.as_str().ok()).last().unwrap_or_default();
    if name.is_empty() {
        return Err(CertificateError::NoName);
    }
    let mut groups: Vec<String> =
        subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned).collect();
    if !groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED) {
        groups.push(AUTHENTICATED.into());
    }
    let id = format!("X509SHA256={}", hex(digest(&SHA256, der).as_ref()));
    let extra = BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![id])]);
    Ok(User { name: name.to_owned(), uid: String::new(), groups, extra })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String cannot fail");
        text
    })
}
