//! A case: what is done to the program, small enough to keep as a file.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// One input of the fuzzer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Case {
    /// Requests to one server, one after the other.
    Http(Vec<Step>),
    /// Changes to the files of a store, which is then opened, salvaged and restored.
    Store(Vec<Edit>),
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    #[serde(default, skip_serializing_if = "is_admin")]
    pub caller: Caller,
    pub method: String,
    pub uri: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub body: Vec<Part>,
}

/// Who sends a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Caller {
    /// Somebody in process who may do everything.
    #[default]
    Admin,
    /// A connection whose credentials are in the headers.
    Remote,
    /// A connection that showed these bytes, in base64, as its certificate.
    Certificate(String),
}

fn is_admin(caller: &Caller) -> bool {
    *caller == Caller::Admin
}

/// A piece of a body, repeated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    #[serde(flatten)]
    pub piece: Piece,
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub times: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Piece {
    Text(String),
    Base64(String),
}

fn once() -> usize {
    1
}

fn is_once(times: &usize) -> bool {
    *times == 1
}

/// One change to the files of a store. Places and lengths are taken modulo what is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Edit {
    Overwrite {
        file: String,
        at: usize,
        bytes: Vec<u8>,
    },
    Truncate {
        file: String,
        to: usize,
    },
    Append {
        file: String,
        bytes: Vec<u8>,
        times: usize,
    },
    /// Copies a range of a file over another one of it.
    Copy {
        file: String,
        from: usize,
        to: usize,
        length: usize,
    },
    Remove {
        file: String,
    },
    /// The acknowledged revision, with a checksum that fits.
    Mark {
        revision: u64,
    },
    /// The row of `meta`, with a checksum that fits.
    Meta {
        body: String,
    },
    /// A row of `log`, with a checksum that fits.
    Row(Row),
    /// Any statement, as somebody with the sqlite3 program could give.
    Sql {
        statement: String,
    },
}

/// A row of the store's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    pub revision: i64,
    pub resource: String,
    pub path: String,
    pub created: i64,
    pub expires: Option<i64>,
    /// In base64, as it may be anything.
    pub value: Option<String>,
}

impl Part {
    pub fn text(text: impl Into<String>) -> Self {
        Self::repeated(text, 1)
    }

    pub fn repeated(text: impl Into<String>, times: usize) -> Self {
        Self { piece: Piece::Text(text.into()), times }
    }

    /// As text where it is text.
    pub fn bytes(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::text(text),
            Err(error) => Self { piece: Piece::Base64(STANDARD.encode(error.as_bytes())), times: 1 },
        }
    }
}

impl Step {
    pub fn new(method: &str, uri: impl Into<String>) -> Self {
        let (method, uri) = (method.to_owned(), uri.into());
        Self { caller: Caller::Admin, method, uri, headers: Vec::new(), body: Vec::new() }
    }

    #[must_use]
    pub fn with_body(mut self, kind: &str, body: Vec<Part>) -> Self {
        self.headers.push(("content-type".to_owned(), kind.to_owned()));
        self.body = body;
        self
    }

    /// The whole body; what is no base64 is left out.
    pub fn body(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in &self.body {
            let piece = match &part.piece {
                Piece::Text(text) => text.clone().into_bytes(),
                Piece::Base64(text) => STANDARD.decode(text).unwrap_or_default(),
            };
            // A body beyond what the server reads is as good as any other that is too large.
            let room = (8_usize << 20).saturating_sub(bytes.len()) / piece.len().max(1);
            bytes.extend(piece.repeat(part.times.min(room)));
        }
        bytes
    }

    pub fn size(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        let body: usize = self.body.iter().map(|part| part.size().saturating_mul(part.times)).sum();
        self.uri.len() + headers + body.min(8 << 20)
    }
}

impl Part {
    fn size(&self) -> usize {
        match &self.piece {
            Piece::Text(text) => text.len(),
            Piece::Base64(text) => text.len() / 4 * 3,
        }
    }
}

impl Case {
    /// Bytes that the program is given.
    pub fn size(&self) -> usize {
        match self {
            Self::Http(steps) => steps.iter().map(Step::size).sum(),
            Self::Store(edits) => edits.iter().map(Edit::size).sum(),
        }
    }
}

impl Edit {
    fn size(&self) -> usize {
        match self {
            Self::Overwrite { bytes, .. } => bytes.len(),
            Self::Append { bytes, times, .. } => bytes.len() * times,
            Self::Meta { body } => body.len(),
            Self::Row(row) => row.value.as_ref().map_or(0, String::len) + row.path.len() + row.resource.len(),
            Self::Sql { statement } => statement.len(),
            Self::Truncate { .. } | Self::Copy { .. } | Self::Remove { .. } | Self::Mark { .. } => 0,
        }
    }
}
