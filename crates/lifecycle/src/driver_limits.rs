//! How much of a driver's answer is taken: everything that ends in an object of the API has to fit into it.
//!
//! etcd refuses objects beyond 1.5 MiB, and API servers requests beyond 3 MiB. A write that is too large can only fail, each
//! time it is repeated, so that an answer beyond these limits is refused in words before it is written. The limits are far above
//! those of the CSI specification (128 bytes for a string, 4 KiB for a map), because many drivers exceed those.

use std::collections::BTreeMap;

/// The id of a volume.
pub const VOLUME_ID: usize = 4 * 1024;
/// Keys and values of `volume_context` and of `publish_context`, each.
pub const CONTEXT: usize = 256 * 1024;
/// Keys and values of all segments of `accessible_topology`.
pub const TOPOLOGY: usize = 64 * 1024;
/// The sentence of an error. A longer one is cut.
pub const MESSAGE: usize = 4 * 1024;
/// A whole answer. One that is larger is not read at all, so that what the driver did is not known.
pub const ANSWER: usize = 16 * 1024 * 1024;

/// A part of an answer that does not fit into an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the driver's {part} takes {bytes} bytes, and at most {limit} can be stored; this is for the driver's vendor to correct"
)]
pub struct TooLarge {
    pub part: &'static str,
    pub bytes: usize,
    pub limit: usize,
}

/// Whether a part of an answer fits.
pub fn check(part: &'static str, bytes: usize, limit: usize) -> Result<(), TooLarge> {
    if bytes > limit { Err(TooLarge { part, bytes, limit }) } else { Ok(()) }
}

/// The bytes of a map's keys and values.
pub fn size_of(map: &BTreeMap<String, String>) -> usize {
    map.iter().map(|(key, value)| key.len() + value.len()).sum()
}

/// As much of a driver's sentence as is kept.
pub fn cut(message: &str) -> &str {
    let end = (0..=MESSAGE.min(message.len())).rev().find(|at| message.is_char_boundary(*at));
    end.and_then(|end| message.get(..end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_named_with_its_size_and_limit() {
        assert_eq!(check("volume_context", CONTEXT, CONTEXT), Ok(()));
        let refused = check("volume_context", CONTEXT + 1, CONTEXT).unwrap_err().to_string();
        assert!(refused.contains("volume_context takes 262145 bytes, and at most 262144"), "{refused}");
        assert_eq!(size_of(&BTreeMap::from([("ab".to_owned(), "c".to_owned())])), 3);
    }

    #[test]
    fn a_long_sentence_is_cut_between_two_characters() {
        assert_eq!(cut("short"), "short");
        let long = "ä".repeat(MESSAGE);
        assert_eq!(cut(&long).len(), MESSAGE);
        assert_eq!(cut(&format!("x{long}")).len(), MESSAGE - 1);
    }
}
