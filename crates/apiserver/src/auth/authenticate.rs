//! From what a connection and a request show to a [`User`], or 401.

use std::collections::BTreeMap;
use std::fmt;

use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use thiserror::Error;

use super::certificate::CertificateReader;
use super::{AUTHENTICATED, BoundObjects, CertificateError, TokenError, TokenSigner, UnixSeconds, User};
use crate::request::Refusal;

/// What a request shows.
#[derive(Clone, Copy, Default)]
pub struct Credentials<'a> {
    /// The client's own certificate.
    pub certificate: Option<ClientCertificate<'a>>,
    /// The value of the Authorization header.
    pub authorization: Option<&'a str>,
}

/// A certificate whose key the client has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCertificate<'a> {
    /// In DER, from a chain that was found good when the connection was made.
    Trusted(&'a [u8]),
    Untrusted,
}

impl fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("certificate", &self.certificate.is_some())
            .field("authorization", &self.authorization.is_some())
            .finish()
    }
}

/// The holder of a token, and for which of the wanted audiences it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenUser {
    pub user: User,
    pub audiences: Vec<String>,
}

/// Tokens from a file, kept as hashes: looking one up tells nothing about the others by its time.
#[derive(Clone, Default)]
pub struct StaticTokens {
    users: BTreeMap<[u8; SHA256_OUTPUT_LEN], User>,
}

impl fmt::Debug for StaticTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StaticTokens").field("count", &self.users.len()).finish()
    }
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum TokenFileError {
    #[error("line {0} of the token file needs a token, a user name and a uid, separated by commas")]
    TooFewColumns(usize),
    #[error("line {0} of the token file has an open quote")]
    OpenQuote(usize),
}

impl StaticTokens {
    /// Reads `token,user,uid,"group1,group2"` lines; the groups may be left out. Empty lines and lines that start with
    /// `#` are skipped.
    pub fn parse(text: &str) -> Result<Self, TokenFileError> {
        let mut users = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let columns = columns(line).ok_or(TokenFileError::OpenQuote(number))?;
            let [token, name, uid, groups @ ..] = columns.as_slice() else {
                return Err(TokenFileError::TooFewColumns(number));
            };
            if token.is_empty() || name.is_empty() {
                return Err(TokenFileError::TooFewColumns(number));
            }
            let groups = groups.first().map(String::as_str).unwrap_or_default();
            let mut groups: Vec<String> =
                groups.split(',').map(str::trim).filter(|group| !group.is_empty()).map(str::to_owned).collect();
            if !groups.iter().any(|group| group == AUTHENTICATED) {
                groups.push(AUTHENTICATED.into());
            }
            let user = User { name: name.clone(), uid: uid.clone(), groups, extra: BTreeMap::new() };
            users.insert(hash(token), user);
        }
        Ok(Self { users })
    }

    fn find(&self, token: &str) -> Option<&User> {
        self.users.get(&hash(token))
    }
}

fn hash(token: &str) -> [u8; SHA256_OUTPUT_LEN] {
    let mut out = [0; SHA256_OUTPUT_LEN];
    out.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    out
}

/// Comma-separated values of one line; a value in quotes may hold commas. `None` if a quote stays open.
fn columns(line: &str) -> Option<Vec<String>> {
    let mut columns = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => columns.push(String::new()),
            c => columns.last_mut()?.push(c),
        }
    }
    (!quoted).then(|| columns.iter().map(|column| column.trim().to_owned()).collect())
}

/// Everything that turns credentials into users.
#[derive(Debug)]
pub struct Authenticator {
    signer: TokenSigner,
    tokens: StaticTokens,
    certificates: CertificateReader,
}

impl Authenticator {
    pub fn new(signer: TokenSigner, tokens: StaticTokens) -> Self {
        Self { signer, tokens, certificates: CertificateReader::default() }
    }

    pub fn signer(&self) -> &TokenSigner {
        &self.signer
    }

    /// The audiences of a token that is for this server.
    pub fn audiences(&self) -> Vec<String> {
        vec![self.signer.issuer().to_owned()]
    }

    /// A certificate wins over a token. One of them that is wrong is not forgiven unless the other is right; none at
    /// all is [`User::anonymous`].
    pub fn authenticate(
        &self,
        credentials: Credentials<'_>,
        objects: &dyn BoundObjects,
        now: UnixSeconds,
    ) -> Result<User, Refusal> {
        let by_certificate = credentials.certificate.map(|certificate| match certificate {
            ClientCertificate::Trusted(der) => self.certificates.user(der, now),
            ClientCertificate::Untrusted => Err(CertificateError::Untrusted),
        });
        if let Some(Ok(user)) = by_certificate {
            return Ok(user);
        }
        let by_token = credentials
            .authorization
            .and_then(bearer)
            .map(|token| self.authenticate_token(token, &self.audiences(), objects, now));
        match (by_certificate, by_token) {
            (_, Some(Ok(found))) => Ok(found.user),
            (None, None) => Ok(User::anonymous()),
            (certificate, token) => {
                let certificate = certificate.and_then(Result::err).map(|error| error.to_string());
                let token = token.and_then(Result::err).map(|error| error.to_string());
                tracing::debug!(certificate, token, "a credential was refused");
                Err(Refusal::Unauthorized)
            }
        }
    }

    /// `wanted` are the audiences of which one must be the token's.
    pub fn authenticate_token(
        &self,
        token: &str,
        wanted: &[String],
        objects: &dyn BoundObjects,
        now: UnixSeconds,
    ) -> Result<TokenUser, TokenError> {
        if let Some(user) = self.tokens.find(token) {
            // A token from the file is for this server and for nobody else.
            let ours = self.audiences();
            let audiences: Vec<String> = ours.iter().filter(|audience| wanted.contains(audience)).cloned().collect();
            return if audiences.is_empty() {
                Err(TokenError::Audience { token: ours, wanted: wanted.to_vec() })
            } else {
                Ok(TokenUser { user: user.clone(), audiences })
            };
        }
        let (user, audiences) = self.signer.verify(token, wanted, objects, now)?;
        Ok(TokenUser { user, audiences })
    }
}

/// The token of a Bearer header. Other schemes are none of ours and count as no credential, as does an empty token.
fn bearer(authorization: &str) -> Option<&str> {
    let mut words = authorization.trim().splitn(3, ' ');
    let scheme = words.next()?;
    let token = words.next()?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
