//! Certificates for other machines: they make their keys themselves, and the authority signs what it decides to say of them.
//!
//! # Invariants
//! 1. Of a request only the key is taken, and only with the proof that its sender has it. Names and groups are the
//!    caller's to decide.
//! 2. A certificate of a machine lives for weeks and not for years: there are no lists of revoked ones.

use std::fmt;

use rcgen::{
    CertificateParams, CertificateSigningRequestParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _,
};
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use thiserror::Error;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::pki::{BACKDATE, DAY, Facts, params};
use super::{Identity, Pki, PkiError, UnixSeconds};

/// The unit in the certificates of machines that joined: they count only for as long as the machine's Node stands.
pub(super) const JOINED: &str = "orlop:joined";
/// How long a certificate of a machine is good for.
const MACHINE_DAYS: i64 = 90;

/// The SHA-256 of a public key with its algorithm, in DER: what a key is known by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyHash([u8; SHA256_OUTPUT_LEN]);

impl KeyHash {
    pub(super) fn of(key_info: &[u8]) -> Self {
        let mut hash = [0; SHA256_OUTPUT_LEN];
        hash.copy_from_slice(digest(&SHA256, key_info).as_ref());
        Self(hash)
    }

    /// Of the key that a certificate is for. `None` if it is no certificate.
    pub fn of_certificate(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        Some(Self::of(certificate.public_key().raw))
    }

    /// From 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != SHA256_OUTPUT_LEN || !rest.is_empty() {
            return None;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let mut hash = [0; SHA256_OUTPUT_LEN];
        for (byte, [high, low]) in hash.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Some(Self(hash))
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyHash({self})")
    }
}

/// Why a request cannot be signed.
#[derive(Debug, Error)]
#[error("it is no certificate signing request in PEM, or its sender does not have the key")]
pub struct BadRequest;

/// A key that somebody wants a certificate for, and has.
#[derive(Debug)]
pub struct SigningRequest(CertificateSigningRequestParams);

impl SigningRequest {
    pub fn read(pem: &str) -> Result<Self, BadRequest> {
        CertificateSigningRequestParams::from_pem(pem).map(Self).map_err(|_| BadRequest)
    }

    pub fn key(&self) -> KeyHash {
        KeyHash::of(&self.0.public_key.subject_public_key_info())
    }
}

/// A new key in PEM; a secret.
pub fn new_key() -> Result<String, PkiError> {
    Ok(KeyPair::generate()?.serialize_pem())
}

/// Asks for a certificate for a key of [`new_key`], in PEM.
pub fn signing_request(key_pem: &str) -> Result<String, PkiError> {
    let key = KeyPair::from_pem(key_pem)?;
    Ok(CertificateParams::default().serialize_request(&key)?.pem()?)
}

/// From when to when a certificate in PEM is good. `None` if it is no certificate.
pub fn lifetime(pem: &str) -> Option<(UnixSeconds, UnixSeconds)> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    let (_, certificate) = X509Certificate::from_der(&der).ok()?;
    let validity = certificate.validity();
    Some((UnixSeconds(validity.not_before.timestamp()), UnixSeconds(validity.not_after.timestamp())))
}

/// The authority, for signing at any time.
#[derive(Debug, Clone)]
pub struct CertificateSigner {
    ca: Identity,
    key: KeyHash,
}

/// Whom a certificate is for.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub name: &'a str,
    pub group: &'a str,
}

impl Pki {
    /// The authority, for signing at any time.
    pub fn authority(&self) -> Result<CertificateSigner, PkiError> {
        let ca = self.ca().clone();
        let key = KeyHash::of_certificate(&ca.certificate_der()).ok_or(PkiError::Authority)?;
        Ok(CertificateSigner { ca, key })
    }
}

impl CertificateSigner {
    pub fn ca_pem(&self) -> &str {
        self.ca.certificate_pem()
    }

    /// What others know the authority by.
    pub fn key(&self) -> KeyHash {
        self.key
    }

    /// A certificate for a machine that joined, in PEM.
    pub fn sign(&self, request: &SigningRequest, subject: &Subject<'_>, now: UnixSeconds) -> Result<String, PkiError> {
        let issuer = Issuer::from_ca_cert_pem(self.ca.certificate_pem(), KeyPair::from_pem(self.ca.key_pem())?)?;
        // Nothing outlives its authority.
        let ca_end = Facts::read(self.ca.certificate_pem()).map_or(i64::MAX, |facts| facts.not_after);
        let times = (now.0 - BACKDATE, ca_end.min(now.0 + MACHINE_DAYS * DAY));
        let mut params = params(subject.name, Some(subject.group), times)?;
        params.distinguished_name.push(DnType::OrganizationalUnitName, JOINED);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        Ok(params.signed_by(&request.0.public_key, &issuer)?.pem())
    }
}
