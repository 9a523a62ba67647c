//! Everything that can go wrong with a call, in one line each, and the exit code it ends in.
//!
//! Invariant: a driver's message is shown with our own secrets struck out and without line breaks.

use std::error::Error;
use std::fmt;
use std::io;
use std::process::ExitCode;

use ::csi::{ConnectError, Endpoint};
use tonic::{Code, Status, TimeoutExpired};

use super::parse::DuplicateKey;
use super::render::text::clean;
use super::secrets::{Secrets, SecretsError};

/// A driver's answer other than OK.
#[derive(Debug)]
pub(super) struct Refusal {
    rpc: &'static str,
    code: Code,
    message: String,
}

impl Refusal {
    pub(super) fn code(&self) -> Code {
        self.code
    }

    pub(super) fn code_name(&self) -> &'static str {
        name(self.code)
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = if self.message.is_empty() { "(no message)".to_owned() } else { clean(&self.message) };
        write!(f, "{}: {}: {message} ({})", self.rpc, name(self.code), meaning(self.rpc, self.code))
    }
}

/// Why a command did not end well.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("no endpoint: give --endpoint or set CSI_ENDPOINT, for example to unix:///run/csi/csi.sock")]
    NoEndpoint,
    #[error(transparent)]
    Usage(#[from] DuplicateKey),
    #[error(transparent)]
    Secrets(#[from] SecretsError),
    #[error("cannot connect")]
    Connect(#[from] ConnectError),
    #[error("cannot connect: {endpoint} did not take the connection within the --timeout")]
    ConnectTimeout { endpoint: Endpoint },
    #[error("{0}")]
    Refused(Refusal),
    #[error("{rpc}: the connection broke: {cause} (the call may still be running; repeat it as it is)")]
    Lost { rpc: &'static str, cause: String },
    #[error("{rpc}: the driver broke the contract: {what}")]
    Contract { rpc: &'static str, what: &'static str },
    #[error("the ranges are incomplete; continue with --offset {resume_at}")]
    Incomplete { resume_at: i64, source: Box<Failure> },
    #[error("starting the runtime")]
    Runtime(#[source] io::Error),
    #[error("writing the answer")]
    Output(#[source] io::Error),
}

impl Failure {
    /// Sorts what tonic calls a status: the driver's own, one that stands for our timer, or one for a lost connection.
    pub(super) fn of_call(rpc: &'static str, status: Status, secrets: &Secrets) -> Self {
        if chain(status.source()).any(|cause| cause.is::<TimeoutExpired>()) {
            return Self::deadline(rpc);
        }
        // Only a status that was made up on our side has a source, and its last cause is the one that explains.
        if let Some(cause) = chain(status.source()).last() {
            return Failure::Lost { rpc, cause: cause.to_string() };
        }
        Failure::Refused(Refusal { rpc, code: status.code(), message: secrets.strike_out(status.message()) })
    }

    /// Our own timer ended the call; the driver's answer would have been the same.
    pub(super) fn deadline(rpc: &'static str) -> Self {
        let message = "no answer within the --timeout".to_owned();
        Failure::Refused(Refusal { rpc, code: Code::DeadlineExceeded, message })
    }

    /// How the call ended, in a word for the request log.
    pub(super) fn outcome(&self) -> &'static str {
        match self {
            Failure::Refused(refusal) => refusal.code_name(),
            Failure::Lost { .. } | Failure::Connect(_) | Failure::ConnectTimeout { .. } => "no answer",
            Failure::Contract { .. } | Failure::Incomplete { .. } => "a wrong answer",
            Failure::NoEndpoint | Failure::Usage(_) | Failure::Secrets(_) => "not sent",
            Failure::Runtime(_) | Failure::Output(_) => "not sent",
        }
    }

    pub(super) fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Refused(_) | Failure::Contract { .. } => ExitCode::from(1),
            Failure::NoEndpoint | Failure::Usage(_) | Failure::Secrets(_) => ExitCode::from(2),
            Failure::Connect(_) | Failure::ConnectTimeout { .. } | Failure::Lost { .. } => ExitCode::from(3),
            Failure::Incomplete { source, .. } => source.exit_code(),
            // A reader that has seen enough, such as `head`, is no fault of ours.
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Failure::Output(_) | Failure::Runtime(_) => ExitCode::from(1),
        }
    }

    /// The failure and its causes in one line; `None` when there is nobody left to tell.
    pub(super) fn line(&self) -> Option<String> {
        if matches!(self, Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe) {
            return None;
        }
        let parts: Vec<String> =
            chain(Some(self)).map(|part| crate::process::without_codes(&part.to_string())).collect();
        Some(clean(&parts.join(": ")))
    }
}

fn chain<'a>(first: Option<&'a (dyn Error + 'static)>) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(first, |error| (*error).source())
}

/// The name of a code as the CSI and gRPC documents spell it.
fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// What the code means for the caller and what to do next (WIRE-B.1, WIRE-B.11). Some codes mean something else in some
/// calls.
fn meaning(rpc: &str, code: Code) -> &'static str {
    match (rpc, code) {
        ("Probe", Code::FailedPrecondition) => "the driver is unhealthy or lacks something it needs; see its log",
        ("ListVolumes" | "ListSnapshots", Code::Aborted) => "the token is not valid any more; list without --token",
        ("NodeExpandVolume", Code::FailedPrecondition) => "not while the volume is in use; unpublish it first",
        (_, code) => general_meaning(code),
    }
}

fn general_meaning(code: Code) -> &'static str {
    match code {
        Code::Ok => "an error that says OK: a fault of the driver",
        Code::Cancelled => "the call was cancelled and may still be running; repeat it as it is, or undo it",
        Code::Unknown => "the driver failed without saying how, and callers take that as final; see its log",
        Code::InvalidArgument => "something in the request is missing or not supported; change it, repeating is no use",
        Code::DeadlineExceeded => "the driver may still be working on it; repeat it as it is, with a longer --timeout",
        Code::NotFound => "the driver does not know that id or path; check it",
        Code::AlreadyExists => "it exists with other properties; ask for the same ones or use another name or path",
        Code::PermissionDenied => "the secrets are known but do not allow this; an administrator has to change that",
        Code::ResourceExhausted => "no space, quota or slot is left there; free some or choose another place",
        Code::FailedPrecondition => "the object is not in a state that allows this, such as in use; change that first",
        Code::Aborted => "another operation on the same volume is running; the call may be repeated as it is",
        Code::OutOfRange => "that size or offset is not possible there; choose another",
        Code::Unimplemented => "the driver does not offer this call; see `orlop csi capabilities`",
        Code::Internal => "the driver failed, and callers take that as final with nothing left behind; see its log",
        Code::Unavailable => "the driver cannot serve now, or may still be busy with it; repeat it as it is later",
        Code::DataLoss => "data is damaged or gone; see the driver's log before calling it again",
        Code::Unauthenticated => "the secrets were not accepted; give the right ones with --secrets or --secret",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(rpc: &'static str, status: Status) -> Failure {
        Failure::of_call(rpc, status, &Secrets::default())
    }

    #[test]
    fn every_code_has_its_own_name_and_its_own_advice() {
        let codes: Vec<Code> = (0..=16).map(Code::from_i32).collect();
        let names: std::collections::BTreeSet<_> = codes.iter().map(|code| name(*code)).collect();
        let advice: std::collections::BTreeSet<_> = codes.iter().map(|code| general_meaning(*code)).collect();
        assert_eq!((names.len(), advice.len()), (17, 17));
    }

    #[test]
    fn a_refusal_is_one_line_with_code_message_and_advice() {
        let failure = refused("CreateVolume", Status::aborted("v1 is\nbusy \u{1b}[31m"));
        assert_eq!(
            failure.line().unwrap(),
            "CreateVolume: ABORTED: v1 is\\nbusy \\u{1b}[31m (another operation on the same volume is running; \
             the call may be repeated as it is)"
        );
        assert_eq!(failure.exit_code(), ExitCode::from(1));
    }

    /// Rule: WIRE-B.8.ListVolumes
    #[test]
    fn a_refused_list_token_is_not_called_a_running_operation() {
        // WIRE-B.8.ListVolumes: ABORTED from a list means a bad starting token.
        let line = refused("ListVolumes", Status::aborted("bad token")).line().unwrap();
        assert!(line.ends_with("(the token is not valid any more; list without --token)"), "{line}");
    }

    #[test]
    fn a_timer_of_ours_is_reported_as_the_deadline_and_not_as_cancelled() {
        let status = Status::from_error(Box::new(TimeoutExpired(())));
        assert_eq!(status.code(), Code::Cancelled);
        let line = refused("NodeStageVolume", status).line().unwrap();
        assert!(line.starts_with("NodeStageVolume: DEADLINE_EXCEEDED: no answer within the --timeout"), "{line}");
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure() {
        let failure = Failure::Output(io::ErrorKind::BrokenPipe.into());
        assert_eq!((failure.line(), failure.exit_code()), (None, ExitCode::SUCCESS));
    }
}
