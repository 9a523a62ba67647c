//! The secret that opens the page.
//!
//! It is compared in constant time and never printed by `Debug`. A browser does not keep the token itself but a cookie made of
//! it, which opens this port's page and nothing else.

use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use apiserver::auth::write_private;
use apiserver::sources::{Entropy as _, SystemEntropy};
use sha2::{Digest as _, Sha256};

/// Bytes of randomness in a token.
const STRENGTH: usize = 32;
/// A token by hand may be shorter than ours, and not guessable.
const SHORTEST: usize = 16;

/// The token.
pub(super) struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Why a file gives no token.
#[derive(Debug, thiserror::Error)]
pub(super) enum TokenError {
    #[error("it cannot be read")]
    Read(#[source] io::Error),
    #[error("others can read it (mode {0:o}); take that away with chmod 600, and remove the file to get a new token")]
    Open(u32),
    #[error(
        "what stands in it is no token: at least {SHORTEST} letters, digits, - or _; remove the file to get a new one"
    )]
    NoToken,
    #[error("it cannot be written")]
    Write(#[source] apiserver::auth::FileError),
}

impl Token {
    /// A new one that nobody knows.
    pub(super) fn new() -> Self {
        let mut bytes = [0_u8; STRENGTH];
        SystemEntropy::default().fill(&mut bytes);
        Self(hex(&bytes))
    }

    /// The one in a private file, which is made with a new one if it does not exist.
    pub(super) fn kept_in(file: &Path) -> Result<Self, TokenError> {
        match fs::read_to_string(file) {
            Ok(text) => {
                let mode = fs::metadata(file).map_err(TokenError::Read)?.mode();
                let open = fs::Permissions::from_mode(mode & 0o077).mode();
                if open != 0 {
                    return Err(TokenError::Open(mode & 0o777));
                }
                Self::read(text.trim()).ok_or(TokenError::NoToken)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let token = Self::new();
                write_private(file, format!("{}\n", token.0).as_bytes()).map_err(TokenError::Write)?;
                Ok(token)
            }
            Err(error) => Err(TokenError::Read(error)),
        }
    }

    fn read(text: &str) -> Option<Self> {
        let allowed = |letter: u8| letter.is_ascii_alphanumeric() || letter == b'-' || letter == b'_';
        (text.len() >= SHORTEST && text.bytes().all(allowed)).then(|| Self(text.to_owned()))
    }

    /// The text, for who may know it.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    pub(super) fn is(&self, given: &str) -> bool {
        same(&self.0, given)
    }

    /// What a browser keeps for this address.
    pub(super) fn cookie(&self, address: SocketAddr) -> String {
        hex(&Sha256::digest(format!("orlop page {address} {}", self.0).as_bytes()))
    }

    pub(super) fn is_cookie(&self, address: SocketAddr, given: &str) -> bool {
        same(&self.cookie(address), given)
    }
}

/// Compares digests to their end, so that the time says nothing about where two texts differ, nor about their lengths.
fn same(known: &str, given: &str) -> bool {
    let (known, given) = (Sha256::digest(known.as_bytes()), Sha256::digest(given.as_bytes()));
    let differs = known.iter().zip(given.iter()).fold(0_u8, |differs, (a, b)| differs | (a ^ b));
    std::hint::black_box(differs) == 0
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_kept_in_a_private_file_and_found_again() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let file = directory.path().join("token");
        let first = Token::kept_in(&file).expect("it can be made");
        let again = Token::kept_in(&file).expect("it can be read");
        assert!(again.is(first.reveal()) && !again.is("") && !again.is(&first.reveal()[1..]));
        assert_eq!(fs::metadata(&file).expect("it is there").mode() & 0o777, 0o600);
        assert!(!format!("{first:?}").contains(first.reveal()));
    }

    #[test]
    fn a_token_that_others_can_read_or_guess_is_refused() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let file = directory.path().join("token");
        fs::write(&file, "0123456789abcdef0123").expect("it can be written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("its mode can be set");
        assert!(matches!(Token::kept_in(&file), Err(TokenError::Open(0o644))));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("its mode can be set");
        assert!(Token::kept_in(&file).is_ok());
        fs::write(&file, "short").expect("it can be written");
        assert!(matches!(Token::kept_in(&file), Err(TokenError::NoToken)));
    }

    #[test]
    fn a_cookie_opens_one_address_and_is_not_the_token() {
        let token = Token::new();
        let (here, there) = (SocketAddr::from(([127, 0, 0, 1], 1)), SocketAddr::from(([127, 0, 0, 1], 2)));
        assert!(token.is_cookie(here, &token.cookie(here)) && !token.is_cookie(there, &token.cookie(here)));
        assert!(!token.is_cookie(here, token.reveal()) && !token.is(&token.cookie(here)));
    }
}
