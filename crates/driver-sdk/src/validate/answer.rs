//! Checks what a driver answers. The limits of the wire bind both directions (WIRE-B.4).
//!
//! A violation is a bug of the driver. The operation itself succeeded, so the answer must not be final: something is
//! there, and only a repeated call or the undoing one may tell what.

use super::{LARGEST_MAP, LONGEST_TEXT, Result, map_size, topology};
use crate::error::{Error, Reason};
use crate::types::{Segments, StringMap};

/// The driver broke a rule of the interface.
pub(crate) fn bug(why: impl Into<String>) -> Error {
    let doing = format!("driver bug: {}", why.into());
    tracing::error!(doing, "the driver broke a rule of the interface");
    Error::from(Reason::Backend { doing }).leaving_residue()
}

pub(crate) fn checked_id(what: &str, id: &str) -> Result<()> {
    match id.len() {
        0 => Err(bug(format!("{what} is empty"))),
        1..=LONGEST_TEXT => Ok(()),
        n => Err(bug(format!("{what} has {n} bytes, more than {LONGEST_TEXT}"))),
    }
}

pub(crate) fn checked_map(what: &str, map: &StringMap) -> Result<()> {
    match map_size(map) {
        n if n > LARGEST_MAP => Err(bug(format!("{what} holds {n} bytes, more than {LARGEST_MAP}"))),
        _ => Ok(()),
    }
}

pub(crate) fn checked_segments(segments: &Segments) -> Result<()> {
    topology::fault(segments).map_or(Ok(()), |why| Err(bug(why)))
}

/// A size as the wire has it.
pub(crate) fn bytes(what: &str, size: u64) -> Result<i64> {
    i64::try_from(size).map_err(|_| bug(format!("{what} is {size} bytes, more than the wire can tell")))
}
