//! The server's own certificate authority: made at the first start, used again at every later one.
//!
//! One directory, mode 0700, holds `ca`, `server` and `admin` as `.crt` and `.key`, and `sa.key` that signs
//! service-account tokens; every file is 0600.
//!
//! # Invariants
//! 1. A key that exists is never replaced by a new one while it can be read: clients trust it. The authority's
//!    certificate is renewed with the same key and name, so kubeconfigs that carry the old one work until it expires.
//! 2. What cannot be read is an error that names the file. A new authority in its place would lock everybody out.
//! 3. An administrator may bring an authority: `ca.crt` and `ca.key` found at the first start are used.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, SerialNumber,
};
use ring::rand::{SecureRandom as _, SystemRandom};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::files::{FileError, private_dir, read, write_private};
use super::{SYSTEM_MASTERS, UnixSeconds};

pub(super) const DAY: i64 = 24 * 60 * 60;
const CA_DAYS: i64 = 3650;
const LEAF_DAYS: i64 = 365;
/// Renewed at the first start in the last days of its life.
const RENEW_DAYS: i64 = 60;
/// Clients' clocks may be behind ours.
pub(super) const BACKDATE: i64 = 60 * 60;

#[derive(Debug, Error)]
pub enum PkiError {
    #[error("the certificates cannot be read or written")]
    File(#[from] FileError),
    #[error("{} is damaged: restore it, or move its directory away and hand out new kubeconfigs", .0.display())]
    Damaged(PathBuf),
    #[error("{} is missing but its certificate exists: restore the key, or move its directory away", .0.display())]
    KeyMissing(PathBuf),
    #[error("the certificate authority in {} has expired and was not made here: replace it", .0.display())]
    ForeignExpired(PathBuf),
    #[error("a certificate cannot be made")]
    Issue(#[from] rcgen::Error),
    #[error("the certificate authority cannot be read")]
    Authority,
    #[error("the system gives no random numbers")]
    Random,
}

/// A certificate and its key.
#[derive(Clone)]
pub struct Identity {
    certificate_pem: String,
    key_pem: String,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("certificate_pem", &self.certificate_pem).finish_non_exhaustive()
    }
}

impl Identity {
    /// From a certificate and its key in PEM. `None` if either cannot be read.
    pub fn from_pem(certificate_pem: &str, key_pem: &str) -> Option<Self> {
        CertificateDer::from_pem_slice(certificate_pem.as_bytes()).ok()?;
        PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).ok()?;
        Some(Self { certificate_pem: certificate_pem.to_owned(), key_pem: key_pem.to_owned() })
    }

    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// A secret.
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// For a TLS configuration.
    pub fn certificate_der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.certificate_pem.as_bytes())
            .expect("an identity is only made of PEM that was read before")
    }

    /// For a TLS configuration; a secret.
    pub fn key_der(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes())
            .expect("an identity is only made of PEM that was read before")
    }
}

/// Everything that proves who the server is and who its administrator is.
#[derive(Debug)]
pub struct Pki {
    ca: Identity,
    server: Identity,
    admin: Identity,
    token_key: PrivateKeyDer<'static>,
}

/// What a certificate below the authority is for.
enum Purpose<'a> {
    Server(&'a [String]),
    Client { name: &'a str, group: &'a str },
}

impl Pki {
    /// The files of a directory, for a copy of it: all that clients trust, and what can be made anew from it.
    pub const FILES: [&str; 7] = ["ca.crt", "ca.key", "sa.key", "server.crt", "server.key", "admin.crt", "admin.key"];
    /// Those of them that cannot be made anew: without one of these, every client has to be let in again.
    pub const ROOTS: [&str; 3] = ["ca.crt", "ca.key", "sa.key"];

    /// Opens the directory, making what is missing and renewing what is about to expire. `names` are further DNS names
    /// and addresses of the server beside `localhost` and the two loopback addresses.
    pub fn open(directory: &Path, names: &[String], now: UnixSeconds) -> Result<Self, PkiError> {
        private_dir(directory)?;
        let ca = open_authority(directory, now)?;
        let mut all = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        // Addresses in the form that certificates are read back in.
        all.extend(names.iter().map(|name| name.parse::<IpAddr>().map_or(name.clone(), |address| address.to_string())));
        let server = open_leaf(directory, "server", &ca, &Purpose::Server(&all), now)?;
        let admin = Purpose::Client { name: "kubernetes-admin", group: SYSTEM_MASTERS };
        let admin = open_leaf(directory, "admin", &ca, &admin, now)?;
        let token_key = open_token_key(directory)?;
        Ok(Self { ca, server, admin, token_key })
    }

    pub fn ca_pem(&self) -> &str {
        &self.ca.certificate_pem
    }

    pub(super) fn ca(&self) -> &Identity {
        &self.ca
    }

    /// What client certificates must be signed by.
    pub fn ca_der(&self) -> CertificateDer<'static> {
        self.ca.certificate_der()
    }

    pub fn server(&self) -> &Identity {
        &self.server
    }

    /// A member of `system:masters`.
    pub fn admin(&self) -> &Identity {
        &self.admin
    }

    /// The key of [`super::TokenSigner`], in PKCS#8; a secret.
    pub fn token_key_der(&self) -> Vec<u8> {
        self.token_key.secret_der().to_vec()
    }

    /// A certificate for another client, such as `system:node:N` in `system:nodes`. It is not stored.
    pub fn issue_client(&self, name: &str, group: &str, now: UnixSeconds) -> Result<Identity, PkiError> {
        issue(&self.ca, &Purpose::Client { name, group }, now)
    }
}

fn open_authority(directory: &Path, now: UnixSeconds) -> Result<Identity, PkiError> {
    let (certificate_path, key_path) = (directory.join("ca.crt"), directory.join("ca.key"));
    let key = match (read(&key_path)?, read(&certificate_path)?) {
        (None, Some(_)) => return Err(PkiError::KeyMissing(key_path)),
        (Some(key_pem), Some(certificate_pem)) => {
            let key = KeyPair::from_pem(&key_pem).map_err(|_| PkiError::Damaged(key_path.clone()))?;
            let facts = Facts::read(&certificate_pem).ok_or(PkiError::Damaged(certificate_path.clone()))?;
            if facts.public_key != key.public_key_raw() {
                return Err(PkiError::Damaged(certificate_path));
            }
            let ca = Identity { certificate_pem, key_pem };
            if !facts.is_due(now) {
                return Ok(ca);
            }
            if facts.name != CA_NAME {
                return if facts.not_after < now.0 { Err(PkiError::ForeignExpired(certificate_path)) } else { Ok(ca) };
            }
            tracing::warn!(file = %certificate_path.display(), "the certificate authority is about to expire: renewed");
            key
        }
        (Some(key_pem), None) => KeyPair::from_pem(&key_pem).map_err(|_| PkiError::Damaged(key_path.clone()))?,
        (None, None) => {
            tracing::info!(directory = %directory.display(), "made a certificate authority");
            KeyPair::generate()?
        }
    };
    let mut params = params(CA_NAME, None, (now.0 - BACKDATE, now.0 + CA_DAYS * DAY))?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    let ca = Identity { certificate_pem: params.self_signed(&key)?.pem(), key_pem: key.serialize_pem() };
    store(directory, "ca", &ca)?;
    Ok(ca)
}

const CA_NAME: &str = "orlop-ca";

fn open_leaf(
    directory: &Path,
    stem: &'static str,
    ca: &Identity,
    purpose: &Purpose<'_>,
    now: UnixSeconds,
) -> Result<Identity, PkiError> {
    let found = (read(&directory.join(format!("{stem}.crt")))?, read(&directory.join(format!("{stem}.key")))?);
    let why = match found {
        (Some(certificate_pem), Some(key_pem)) => {
            let leaf = Identity { certificate_pem, key_pem };
            match why_not_reusable(&leaf, ca, purpose, now) {
                None => return Ok(leaf),
                Some(why) => why,
            }
        }
        _ => "missing",
    };
    tracing::info!(certificate = stem, why, "made a certificate");
    let leaf = issue(ca, purpose, now)?;
    store(directory, stem, &leaf)?;
    Ok(leaf)
}

/// A leaf is cheap, so any doubt about it is a reason to make a new one.
fn why_not_reusable(leaf: &Identity, ca: &Identity, purpose: &Purpose<'_>, now: UnixSeconds) -> Option<&'static str> {
    let (Ok(key), Some(facts)) = (KeyPair::from_pem(&leaf.key_pem), Facts::read(&leaf.certificate_pem)) else {
        return Some("damaged");
    };
    let wanted = match purpose {
        Purpose::Server(names) => names.to_vec(),
        Purpose::Client { .. } => Vec::new(),
    };
    if facts.public_key != key.public_key_raw() {
        Some("its key is another one")
    } else if !facts.is_signed_by(ca) {
        Some("another authority signed it")
    } else if facts.is_due(now) {
        Some("about to expire")
    } else if wanted.iter().any(|name| !facts.names.contains(name)) {
        Some("the server has a new name")
    } else {
        None
    }
}

fn open_token_key(directory: &Path) -> Result<PrivateKeyDer<'static>, PkiError> {
    let path = directory.join("sa.key");
    if let Some(pem) = read(&path)? {
        return PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| PkiError::Damaged(path));
    }
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    write_private(&path, key.serialize_pem().as_bytes())?;
    PrivateKeyDer::try_from(key.serialize_der()).map_err(|_| PkiError::Damaged(path))
}

fn issue(ca: &Identity, purpose: &Purpose<'_>, now: UnixSeconds) -> Result<Identity, PkiError> {
    let ca_key = KeyPair::from_pem(&ca.key_pem)?;
    let issuer = Issuer::from_ca_cert_pem(&ca.certificate_pem, ca_key)?;
    // Nothing outlives its authority.
    let ca_end = Facts::read(&ca.certificate_pem).map_or(i64::MAX, |facts| facts.not_after);
    let times = (now.0 - BACKDATE, ca_end.min(now.0 + LEAF_DAYS * DAY));
    let mut params = match purpose {
        Purpose::Server(_) => params("orlop-apiserver", None, times)?,
        Purpose::Client { name, group } => params(name, Some(group), times)?,
    };
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    params.extended_key_usages = match purpose {
        Purpose::Server(names) => {
            params.subject_alt_names = names.iter().map(|name| alternative(name)).collect::<Result<_, _>>()?;
            vec![ExtendedKeyUsagePurpose::ServerAuth]
        }
        Purpose::Client { .. } => vec![ExtendedKeyUsagePurpose::ClientAuth],
    };
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok(Identity { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
}

fn alternative(name: &str) -> Result<SanType, rcgen::Error> {
    match name.parse::<IpAddr>() {
        Ok(address) => Ok(SanType::IpAddress(address)),
        Err(_) => Ok(SanType::DnsName(name.try_into()?)),
    }
}

pub(super) fn params(name: &str, group: Option<&str>, (start, end): (i64, i64)) -> Result<CertificateParams, PkiError> {
    let mut serial = [0u8; 16];
    SystemRandom::new().fill(&mut serial).map_err(|_| PkiError::Random)?;
    // A serial number is a positive integer.
    serial[0] = (serial[0] & 0x7f) | 0x40;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    if let Some(group) = group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.distinguished_name.push(DnType::CommonName, name);
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    let at = |seconds: i64| {
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
    };
    params.not_before = at(start);
    params.not_after = at(end);
    Ok(params)
}

fn store(directory: &Path, stem: &str, identity: &Identity) -> Result<(), FileError> {
    // The key goes first: a certificate without its key is an error, a key without its certificate is not.
    write_private(&directory.join(format!("{stem}.key")), identity.key_pem.as_bytes())?;
    write_private(&directory.join(format!("{stem}.crt")), identity.certificate_pem.as_bytes())
}

/// What a certificate on disk says.
pub(super) struct Facts {
    pub(super) not_after: i64,
    name: String,
    public_key: Vec<u8>,
    names: Vec<String>,
    der: Vec<u8>,
}

impl Facts {
    pub(super) fn read(pem: &str) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
        let (_, certificate) = X509Certificate::from_der(&der).ok()?;
        let alternatives = certificate.subject_alternative_name().ok()?;
        let names = alternatives.map(|found| found.value.general_names.iter().filter_map(shown).collect());
        let common = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
        Some(Self {
            not_after: certificate.validity().not_after.timestamp(),
            name: common.unwrap_or_default().to_owned(),
            public_key: certificate.public_key().subject_public_key.data.to_vec(),
            names: names.unwrap_or_default(),
            der: der.to_vec(),
        })
    }

    fn is_due(&self, now: UnixSeconds) -> bool {
        self.not_after < now.0 + RENEW_DAYS * DAY
    }

    fn is_signed_by(&self, ca: &Identity) -> bool {
        let ca = ca.certificate_der();
        let (Ok((_, leaf)), Ok((_, ca))) = (X509Certificate::from_der(&self.der), X509Certificate::from_der(&ca))
        else {
            return false;
        };
        leaf.issuer() == ca.subject() && leaf.verify_signature(Some(ca.public_key())).is_ok()
    }
}

fn shown(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let four = <[u8; 4]>::try_from(*bytes).map(IpAddr::from).ok();
            four.or_else(|| <[u8; 16]>::try_from(*bytes).map(IpAddr::from).ok()).map(|address| address.to_string())
        }
        _ => None,
    }
}
