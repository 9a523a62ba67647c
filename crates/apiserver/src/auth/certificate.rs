//! A client certificate as a user: its common name and its organizations.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use ring::digest::{SHA256, digest};
use thiserror::Error;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::signing::JOINED;
use super::{AUTHENTICATED, CREDENTIAL_ID, KeyHash, UNAUTHENTICATED, UnixSeconds, User};
use crate::keys::MACHINE_KEY;

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
    Reading::of(der)?.user(now)
}

/// What a certificate says, which never changes.
#[derive(Debug, Clone)]
struct Reading {
    user: User,
    not_before: i64,
    not_after: i64,
}

impl Reading {
    fn of(der: &[u8]) -> Result<Self, CertificateError> {
        let (rest, certificate) = X509Certificate::from_der(der).map_err(|_| CertificateError::Unreadable)?;
        if !rest.is_empty() {
            return Err(CertificateError::Unreadable);
        }
        let validity = certificate.validity();
        let (not_before, not_after) = (validity.not_before.timestamp(), validity.not_after.timestamp());
        let subject = certificate.subject();
        let name = subject.iter_common_name().filter_map(|name| name.as_str().ok()).last().unwrap_or_default();
        let mut groups: Vec<String> =
            subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned).collect();
        if !groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED) {
            groups.push(AUTHENTICATED.into());
        }
        let id = format!("X509SHA256={}", hex(digest(&SHA256, der).as_ref()));
        let mut extra = BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![id])]);
        if subject.iter_organizational_unit().any(|unit| unit.as_str() == Ok(JOINED)) {
            let key = KeyHash::of(certificate.public_key().raw);
            extra.insert(MACHINE_KEY.to_owned(), vec![key.to_string()]);
        }
        let user = User { name: name.to_owned(), uid: String::new(), groups, extra };
        Ok(Self { user, not_before, not_after })
    }

    fn user(&self, now: UnixSeconds) -> Result<User, CertificateError> {
        match () {
            () if now.0 < self.not_before || now.0 > self.not_after => Err(CertificateError::OutOfTime),
            () if self.user.name.is_empty() => Err(CertificateError::NoName),
            () => Ok(self.user.clone()),
        }
    }
}

/// Reads certificates and remembers the last few: a client shows the same one with every request.
#[derive(Debug, Default)]
pub(super) struct CertificateReader {
    known: Mutex<VecDeque<(Box<[u8]>, Reading)>>,
}

impl CertificateReader {
    const REMEMBERED: usize = 16;

    /// As [`user_of_certificate`].
    pub(super) fn user(&self, der: &[u8], now: UnixSeconds) -> Result<User, CertificateError> {
        // No code that holds this lock can panic half-way.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, reading)) = known.iter().find(|(bytes, _)| **bytes == *der) {
            return reading.user(now);
        }
        let reading = Reading::of(der)?;
        let user = reading.user(now);
        known.truncate(Self::REMEMBERED - 1);
        known.push_front((der.into(), reading));
        user
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String cannot fail");
        text
    })
}
