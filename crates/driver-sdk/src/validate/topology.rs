//! Topology: keys and values that name places.

use std::collections::BTreeSet;

use csi::v1;

use super::Result;
use crate::error::Error;
use crate::types::{Segments, TopologyRequirement};

const LONGEST_PART: usize = 63;

/// Where a volume is wanted. Present only when at least one place is named.
pub(crate) fn requirement(
    field: &'static str,
    wire: Option<v1::TopologyRequirement>,
) -> Result<Option<TopologyRequirement>> {
    let Some(wire) = wire else { return Ok(None) };
    let places = |list: Vec<v1::Topology>| list.into_iter().map(|t| segments(field, t.segments)).collect::<Result<_>>();
    let requirement = TopologyRequirement { requisite: places(wire.requisite)?, preferred: places(wire.preferred)? };
    Ok((!requirement.requisite.is_empty() || !requirement.preferred.is_empty()).then_some(requirement))
}

pub(crate) fn segments(field: &'static str, segments: Segments) -> Result<Segments> {
    match fault(&segments) {
        None => Ok(segments),
        Some(why) => Err(Error::invalid(field, why)),
    }
}

/// What is wrong with these segments.
pub(super) fn fault(segments: &Segments) -> Option<String> {
    let mut seen = BTreeSet::new();
    segments.iter().find_map(|(key, value)| {
        if !seen.insert(key.to_ascii_lowercase()) {
            return Some(format!("topology key {key:?} occurs twice in different case"));
        }
        let (prefix, name) = match key.split_once('/') {
            None => (None, key.as_str()),
            Some((prefix, name)) => (Some(prefix), name),
        };
        if prefix.is_some_and(|prefix| !is_domain(prefix)) || !is_label(name) {
            return Some(format!("{key:?} is not a topology key"));
        }
        (!is_label(value)).then(|| format!("{value:?} is not a topology value"))
    })
}

/// Letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    bytes.len() <= LONGEST_PART
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn is_domain(text: &str) -> bool {
    let part = |part: &str| {
        let bytes = part.as_bytes();
        !part.is_empty()
            && !part.starts_with('-')
            && !part.ends_with('-')
            && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
    };
    text.len() <= LONGEST_PART && text.split('.').all(part)
}
