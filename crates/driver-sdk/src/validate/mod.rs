//! Checks what came over the wire and turns it into the driver's types.
//!
//! Everything here happens before any lock and any lookup, and every fault is INVALID_ARGUMENT naming the field
//! (WIRE-B.2). Two things are deliberately *not* checked: the format of ids, because callers ask for objects
//! that never existed and expect NOT_FOUND or OK, and whether the paths of NodeGetVolumeStats and NodeExpandVolume are
//! absolute (LOCAL-0.2).

mod answer;
mod capability;
mod topology;

use std::path::PathBuf;

use csi::{TOKEN_KEYS, v1};

use crate::error::Error;
use crate::types::{CapacityRange, Secrets, StringMap};

pub(crate) use answer::{bug, bytes, checked_id, checked_map, checked_segments};
pub(crate) use capability::Rules;
pub(crate) use topology::{requirement, segments};

type Result<T> = std::result::Result<T, Error>;

/// Any string, in bytes.
const LONGEST_TEXT: usize = 128;
const LONGEST_NODE_ID: usize = 256;
/// What the operating system takes as a path.
const LONGEST_PATH: usize = 4096;
/// Keys and values of one map, and all mount flags together.
const LARGEST_MAP: usize = 4096;

/// A required string that fits the general limit: ids of all kinds.
pub(crate) fn required(field: &'static str, value: String) -> Result<String> {
    if value.is_empty() {
        return Err(missing(field));
    }
    optional(field, value)
}

/// A string that may be absent and fits the general limit.
pub(crate) fn optional(field: &'static str, value: String) -> Result<String> {
    limited(field, value, LONGEST_TEXT)
}

pub(crate) fn node_id(field: &'static str, value: String) -> Result<String> {
    if value.is_empty() {
        return Err(missing(field));
    }
    limited(field, value, LONGEST_NODE_ID)
}

/// A name that a caller chose. Slashes, spaces and emoji are legal, some control characters are not.
pub(crate) fn name(field: &'static str, value: String) -> Result<String> {
    let value = required(field, value)?;
    match value.chars().find(|c| is_banned(*c)) {
        None => Ok(value),
        Some(c) => Err(Error::invalid(field, format!("holds the control character U+{:04X}", u32::from(c)))),
    }
}

/// All control characters but tab, line feed and carriage return.
fn is_banned(c: char) -> bool {
    c.is_control() && !matches!(c, '\t' | '\n' | '\r')
}

pub(crate) fn map(field: &'static str, map: StringMap) -> Result<StringMap> {
    let size = map_size(&map);
    match size <= LARGEST_MAP {
        true => Ok(map),
        false => Err(Error::invalid(field, format!("holds {size} bytes, more than {LARGEST_MAP}"))),
    }
}

/// Tokens are not counted: kubelet adds them to a context that fitted before.
fn map_size(map: &StringMap) -> usize {
    let counted = map.iter().filter(|(key, _)| !TOKEN_KEYS.contains(&key.as_str()));
    counted.map(|(key, value)| key.len() + value.len()).sum()
}

pub(crate) fn secrets(values: StringMap) -> Result<Secrets> {
    let legal = |key: &str| key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if let Some(key) = values.keys().find(|key| key.is_empty() || !legal(key)) {
        let why = format!("key {key:?} may hold only letters, digits, dots, dashes and underscores");
        return Err(Error::invalid("secrets", why));
    }
    map("secrets", values).map(Secrets::new)
}

/// A path that the driver will make or use: absolute.
pub(crate) fn absolute_path(field: &'static str, value: String) -> Result<PathBuf> {
    let path = any_path(field, value)?;
    match path.is_absolute() {
        true => Ok(path),
        false => Err(Error::invalid(field, format!("{:?} is not an absolute path", path.display()))),
    }
}

pub(crate) fn optional_absolute_path(field: &'static str, value: String) -> Result<Option<PathBuf>> {
    if value.is_empty() { Ok(None) } else { absolute_path(field, value).map(Some) }
}

/// A path to ask about, as the caller sent it.
pub(crate) fn any_path(field: &'static str, value: String) -> Result<PathBuf> {
    if value.is_empty() {
        return Err(missing(field));
    }
    if value.contains('\0') {
        return Err(Error::invalid(field, "holds a zero byte"));
    }
    limited(field, value, LONGEST_PATH).map(PathBuf::from)
}

pub(crate) fn optional_path(field: &'static str, value: String) -> Result<Option<PathBuf>> {
    if value.is_empty() { Ok(None) } else { any_path(field, value).map(Some) }
}

pub(crate) fn range(range: v1::CapacityRange) -> Result<CapacityRange> {
    const FIELD: &str = "capacity_range";
    let (Ok(required), Ok(limit)) = (u64::try_from(range.required_bytes), u64::try_from(range.limit_bytes)) else {
        return Err(Error::invalid(FIELD, "sizes must not be negative"));
    };
    let limit = (limit != 0).then_some(limit);
    match limit {
        Some(limit) if required > limit => {
            Err(Error::invalid(FIELD, format!("required_bytes {required} is above limit_bytes {limit}")))
        }
        _ => Ok(CapacityRange { required, limit }),
    }
}

/// A range that must say something.
pub(crate) fn required_range(wire: Option<v1::CapacityRange>) -> Result<CapacityRange> {
    let wire = wire.ok_or_else(|| missing("capacity_range"))?;
    let range = range(wire)?;
    match range {
        CapacityRange { required: 0, limit: None } => {
            Err(Error::invalid("capacity_range", "needs required_bytes or limit_bytes"))
        }
        _ => Ok(range),
    }
}

/// How many entries at most; `None` when the caller does not care.
pub(crate) fn max_entries(field: &'static str, count: i32) -> Result<Option<usize>> {
    match usize::try_from(count) {
        Err(_) => Err(Error::invalid(field, format!("{count} is negative"))),
        Ok(0) => Ok(None),
        Ok(count) => Ok(Some(count)),
    }
}

pub(crate) fn missing(field: &'static str) -> Error {
    Error::invalid(field, "is missing")
}

fn limited(field: &'static str, value: String, limit: usize) -> Result<String> {
    match value.len() <= limit {
        true => Ok(value),
        false => Err(Error::invalid(field, format!("has {} bytes, more than {limit}", value.len()))),
    }
}

#[cfg(test)]
mod tests;
