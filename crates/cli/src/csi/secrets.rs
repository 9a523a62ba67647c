//! Secrets come from files only: an argument vector can be read by every user of the machine.
//!
//! Invariant: a value is in [`Secrets`] or in the request it is sent with, and in no error, log line or `Debug`.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::parse::{Pair, PairError};

/// The secrets sent with every call that has a field for them.
#[derive(Default, Clone, PartialEq, Eq)]
pub(super) struct Secrets(BTreeMap<String, String>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.keys().map(|key| (key, ::csi::REDACTED))).finish()
    }
}

/// `--secret KEY=FILE`: one secret whose value is the content of a file.
#[derive(Debug, Clone)]
pub(super) struct KeyFile {
    key: String,
    file: PathBuf,
}

impl FromStr for KeyFile {
    type Err = PairError;

    fn from_str(text: &str) -> Result<Self, PairError> {
        let Pair { key, value } = text.parse()?;
        Ok(KeyFile { key, file: PathBuf::from(value) })
    }
}

/// Why no secrets could be read. Says where, never what was read there.
#[derive(Debug, thiserror::Error)]
pub(super) enum SecretsError {
    #[error("reading the secrets file {}", file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("the secrets file {} is not a JSON object whose values are all strings", file.display())]
    NotAnObject { file: PathBuf },
    #[error("line {line} of the secrets file {} is not KEY=VALUE", file.display())]
    NotAPair { file: PathBuf, line: usize },
    #[error("the secret key {key:?} is given twice")]
    Duplicate { key: String },
    #[error("the secret key {key:?} may hold only letters, digits, '-', '_' and '.'")]
    BadKey { key: String },
}

impl Secrets {
    /// Reads the file with many secrets, if any, and then the files with one each.
    pub(super) fn read(many: Option<&Path>, single: &[KeyFile]) -> Result<Self, SecretsError> {
        let mut secrets = Self::default();
        if let Some(file) = many {
            for (key, value) in parse_many(file, &read(file)?)? {
                secrets.add(key, value)?;
            }
        }
        for KeyFile { key, file } in single {
            let text = read(file)?;
            // Editors and `echo` end a file with a newline that nobody means as part of a password.
            let value = text.strip_suffix('\n').map_or(text.as_str(), |text| text.strip_suffix('\r').unwrap_or(text));
            secrets.add(key.clone(), value.to_owned())?;
        }
        Ok(secrets)
    }

    /// A copy for one request.
    pub(super) fn for_request(&self) -> BTreeMap<String, String> {
        self.0.clone()
    }

    /// A driver's message with every value of ours taken out of it.
    pub(super) fn strike_out(&self, message: &str) -> String {
        ::csi::Redactor::for_values(self.0.values().map(String::as_str)).clean(message.to_owned())
    }

    fn add(&mut self, key: String, value: String) -> Result<(), SecretsError> {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if key.is_empty() || !key.chars().all(legal) {
            return Err(SecretsError::BadKey { key });
        }
        match self.0.insert(key.clone(), value) {
            None => Ok(()),
            Some(_) => Err(SecretsError::Duplicate { key }),
        }
    }
}

fn read(file: &Path) -> Result<String, SecretsError> {
    std::fs::read_to_string(file).map_err(|source| SecretsError::Read { file: file.to_owned(), source })
}

/// JSON if the text starts like an object, else `KEY=VALUE` lines where empty lines and `#` comments are skipped.
fn parse_many(file: &Path, text: &str) -> Result<Vec<(String, String)>, SecretsError> {
    if text.trim_start().starts_with('{') {
        // The parser's own error is dropped on purpose: it quotes the text it stumbled over.
        let object: BTreeMap<String, String> =
            serde_json::from_str(text).map_err(|_| SecretsError::NotAnObject { file: file.to_owned() })?;
        return Ok(object.into_iter().collect());
    }
    let lines = text.lines().enumerate().filter(|(_, line)| {
        let line = line.trim_start();
        !line.is_empty() && !line.starts_with('#')
    });
    lines
        .map(|(index, line)| match line.parse::<Pair>() {
            Ok(pair) => Ok((pair.key.trim().to_owned(), pair.value)),
            Err(PairError::NoEquals | PairError::NoKey) => {
                Err(SecretsError::NotAPair { file: file.to_owned(), line: index + 1 })
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_with(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secrets");
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    fn read_many(text: &str) -> Result<Secrets, SecretsError> {
        let (_dir, path) = file_with(text);
        Secrets::read(Some(&path), &[])
    }

    #[test]
    fn json_and_lines_hold_the_same_secrets() {
        let json = read_many("{\"user\": \"ann\", \"pass\": \"a=b\"}").unwrap();
        let lines = read_many("# login\nuser=ann\n\npass=a=b\n").unwrap();
        assert_eq!(json, lines);
        assert_eq!(json.for_request()["pass"], "a=b");
    }

    #[test]
    fn a_key_file_gives_its_content_without_the_final_newline() {
        let (_dir, path) = file_with("two\nlines\r\n");
        let single = KeyFile { key: "pass".to_owned(), file: path };
        assert_eq!(Secrets::read(None, &[single]).unwrap().for_request()["pass"], "two\nlines");
    }

    #[test]
    fn neither_debug_nor_an_error_holds_a_value() {
        let secrets = read_many("pass=hunter2").unwrap();
        assert_eq!(format!("{secrets:?}"), "{\"pass\": \"***\"}");
        for text in ["pass=x\nhunter2", "{\"pass\": hunter2}", "{\"pass\": [\"hunter2\"]}", "a=hunter2\na=hunter2"] {
            let error = read_many(text).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        }
    }

    #[test]
    fn a_value_is_struck_out_of_a_message_that_quotes_it() {
        let secrets = read_many("pass=hunter2\npin=7").unwrap();
        assert_eq!(secrets.strike_out("login with hunter2 failed 7 times"), "login with *** failed 7 times");
    }

    /// Rule: WIRE-B.4
    #[test]
    fn a_key_the_spec_does_not_allow_is_refused() {
        // WIRE-B.4: secret keys are alphanumerics, '-', '_' and '.'.
        assert!(matches!(read_many("a b=c"), Err(SecretsError::BadKey { key }) if key == "a b"));
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Secrets::read(Some(Path::new("missing-secrets")), &[]).unwrap_err();
        assert_eq!(error.to_string(), "reading the secrets file missing-secrets");
    }
}
