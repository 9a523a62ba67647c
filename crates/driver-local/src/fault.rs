//! From what the system said to what the caller is told.

use std::error::Error as StdError;
use std::io;

use driver_sdk::Error;
use rustix::io::Errno;

use crate::record::ReadError;

/// A failure of the system below. Out of space and read-only have their own meaning for a caller, however deep in the
/// chain of causes they stand.
pub fn sys(error: impl StdError + Send + Sync + 'static) -> Error {
    classify("the storage below failed".to_owned(), error)
}

/// As [`sys`], for a bare I/O error that does not say what was being done.
pub fn io(doing: impl Into<String>, error: io::Error) -> Error {
    classify(doing.into(), error)
}

fn classify(doing: String, error: impl StdError + Send + Sync + 'static) -> Error {
    match errno(&error) {
        Some(Errno::NOSPC | Errno::DQUOT) => Error::no_space("the pool has no space left").because(error),
        Some(Errno::ROFS) => Error::unavailable("the pool is read-only; remount it read-write").because(error),
        _ => Error::backend(doing, error),
    }
}

fn errno(error: &(dyn StdError + 'static)) -> Option<Errno> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<io::Error>().and_then(Errno::from_io_error) {
            return Some(found);
        }
        cause = error.source();
    }
    None
}

/// A record that cannot be read: damage is a state of the object that only a person can mend.
pub fn record(error: ReadError) -> Error {
    match error {
        ReadError::Io { .. } => Error::unavailable("a record cannot be read").because(error),
        ReadError::Missing(_) | ReadError::Damaged { .. } | ReadError::Newer { .. } => {
            Error::precondition(error.to_string())
        }
    }
}
