//! What a driver says when it cannot do what was asked, and the one place where that becomes a gRPC code.
//!
//! A caller (kubelet, a sidecar) sorts codes into *final* and *may still be running*. After a final code it believes
//! that nothing was left behind and may never call the undoing RPC. So an error also says whether something may be left
//! ([`Residue`]), and an error with possible residue can only leave as a non-final code: that is the finality rule.

use std::error::Error as StdError;
use std::fmt;

use tonic::Code;

/// What an object is, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Volume,
    Snapshot,
    GroupSnapshot,
    Node,
    Path,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Volume => "volume",
            Self::Snapshot => "snapshot",
            Self::GroupSnapshot => "group snapshot",
            Self::Node => "node",
            Self::Path => "path",
        })
    }
}

/// May something of the failed operation be left behind?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residue {
    /// Everything was rolled back, or nothing was ever done.
    None,
    /// Something may be left: only a repeat or the undoing call will tell.
    Possible,
}

/// Why an operation failed, in the words of the specification's error tables.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The request is wrong: the caller must change it.
    #[error("{field}: {why}")]
    Invalid { field: &'static str, why: String },
    #[error("{kind} {id:?} does not exist")]
    NotFound { kind: Kind, id: String },
    /// Something of that name exists and is not what was asked for.
    #[error("{0}")]
    Exists(String),
    /// The object's present state forbids it; the message says which state and what would change it.
    #[error("{0}")]
    Precondition(String),
    #[error("{0}")]
    NoSpace(String),
    #[error("{0}")]
    OutOfRange(String),
    /// Another operation holds the object; the same call may simply be repeated.
    #[error("{0}")]
    Busy(String),
    /// The driver cannot work now (starting, pool missing, read-only); nothing was done.
    #[error("{0}")]
    Unavailable(String),
    #[error("{0}")]
    Unauthenticated(String),
    #[error("{0}")]
    Denied(String),
    #[error("this driver does not implement {0}")]
    Unsupported(&'static str),
    /// A page token that this driver did not give out.
    #[error("starting_token {0:?} was not given out by this driver; start the listing again without a token")]
    BadToken(String),
    /// Data that was written is missing or damaged, and repeating the call does not bring it back.
    #[error("{0}")]
    DataLoss(String),
    /// The storage below failed. `doing` says at what.
    #[error("{doing}")]
    Backend { doing: String },
}

/// A failed operation: why, what may be left, and the cause below it.
#[derive(Debug)]
pub struct Error {
    reason: Reason,
    residue: Residue,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    pub fn invalid(field: &'static str, why: impl Into<String>) -> Self {
        Reason::Invalid { field, why: why.into() }.into()
    }

    pub fn not_found(kind: Kind, id: impl Into<String>) -> Self {
        Reason::NotFound { kind, id: id.into() }.into()
    }

    pub fn exists(why: impl Into<String>) -> Self {
        Reason::Exists(why.into()).into()
    }

    pub fn precondition(why: impl Into<String>) -> Self {
        Reason::Precondition(why.into()).into()
    }

    pub fn no_space(why: impl Into<String>) -> Self {
        Reason::NoSpace(why.into()).into()
    }

    pub fn out_of_range(why: impl Into<String>) -> Self {
        Reason::OutOfRange(why.into()).into()
    }

    pub fn busy(why: impl Into<String>) -> Self {
        Reason::Busy(why.into()).into()
    }

    pub fn unavailable(why: impl Into<String>) -> Self {
        Reason::Unavailable(why.into()).into()
    }

    pub fn data_loss(why: impl Into<String>) -> Self {
        Reason::DataLoss(why.into()).into()
    }

    /// The storage below failed and everything was rolled back.
    pub fn backend(doing: impl Into<String>, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { reason: Reason::Backend { doing: doing.into() }, residue: Residue::None, source: Some(source.into()) }
    }

    /// Marks that something of this operation may be left behind.
    #[must_use]
    pub fn leaving_residue(mut self) -> Self {
        self.residue = Residue::Possible;
        self
    }

    /// Adds the cause, printed after the reason.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    pub fn reason(&self) -> &Reason {
        &self.reason
    }

    pub fn residue(&self) -> Residue {
        self.residue
    }

    /// The code this error leaves with. The finality rule is applied here and nowhere else.
    pub fn code(&self) -> Code {
        let code = match &self.reason {
            Reason::Invalid { .. } => Code::InvalidArgument,
            Reason::NotFound { .. } => Code::NotFound,
            Reason::Exists(_) => Code::AlreadyExists,
            Reason::Precondition(_) => Code::FailedPrecondition,
            Reason::NoSpace(_) => Code::ResourceExhausted,
            Reason::OutOfRange(_) => Code::OutOfRange,
            Reason::Busy(_) | Reason::BadToken(_) => Code::Aborted,
            Reason::Unavailable(_) => Code::Unavailable,
            Reason::Unauthenticated(_) => Code::Unauthenticated,
            Reason::Denied(_) => Code::PermissionDenied,
            Reason::Unsupported(_) => Code::Unimplemented,
            Reason::DataLoss(_) => Code::DataLoss,
            Reason::Backend { .. } => Code::Internal,
        };
        match self.residue {
            Residue::None => code,
            Residue::Possible if is_final(code) => Code::Aborted,
            Residue::Possible => code,
        }
    }

    /// The reason and its causes on one line, as callers and logs see it.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}

/// Would every caller take this code as "it is over and nothing is left"?
///
/// RESOURCE_EXHAUSTED counts as final because the external provisioner takes it so (WIRE-B.11).
pub fn is_final(code: Code) -> bool {
    !matches!(code, Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted)
}

impl From<Reason> for Error {
    fn from(reason: Reason) -> Self {
        Self { reason, residue: Residue::None, source: None }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.reason, f)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules: WIRE-B.11, LOCAL-E.4.7
    #[test]
    fn an_error_that_may_leave_residue_never_leaves_with_a_final_code() {
        let all = [
            Error::invalid("name", "missing"),
            Error::not_found(Kind::Volume, "v"),
            Error::exists("other size"),
            Error::precondition("staged"),
            Error::no_space("pool full"),
            Error::out_of_range("too small"),
            Error::busy("other call"),
            Error::unavailable("starting"),
            Error::data_loss("sync failed"),
            Error::backend("mkfs", "exit 1"),
            Reason::Unsupported("x").into(),
            Reason::BadToken("x".into()).into(),
            Reason::Denied("x".into()).into(),
            Reason::Unauthenticated("x".into()).into(),
        ];
        for error in all {
            let left = error.leaving_residue();
            assert!(!is_final(left.code()), "{left} leaves with {:?}", left.code());
        }
    }

    #[test]
    fn the_chain_names_every_cause_once() {
        let error = Error::backend("formatting the volume", std::io::Error::other("exit status 1"));
        assert_eq!(error.chain(), "formatting the volume: exit status 1");
        assert_eq!(error.to_string(), "formatting the volume");
    }
}
