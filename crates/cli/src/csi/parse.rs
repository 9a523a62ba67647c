//! What a person types, turned into what the wire wants: sizes, durations, `KEY=VALUE` pairs and topologies.
//!
//! Every parser says in its error what it would have accepted; clap adds the name of the flag.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

/// What the size parser accepts, in the words of its errors.
const SIZES: &str = "a whole number of bytes, or one with a unit: Ki Mi Gi Ti Pi Ei (powers of 1024) \
                     or k M G T P E (powers of 1000), such as 1Gi, 500Mi or 10G";

/// What the duration parser accepts, in the words of its errors.
const DURATIONS: &str = "whole numbers with the units ms, s, m or h, such as 500ms, 30s or 1m30s";

const UNITS: [(&str, i64); 12] = [
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
];

/// A number of bytes, never negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size(i64);

impl Size {
    /// The count as the wire carries it.
    pub(super) fn bytes(self) -> i64 {
        self.0
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SizeError {
    #[error("{0:?} is no size; accepted is {SIZES}{meant}", meant = crate::usage::meant(.0))]
    Unreadable(String),
    #[error("{0} is more than CSI can express; the largest size is {max} bytes", max = i64::MAX)]
    TooLarge(String),
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let unreadable = || SizeError::Unreadable(text.to_owned());
        let too_large = || SizeError::TooLarge(text.to_owned());
        let (digits, unit) = split_number(text);
        if digits.is_empty() {
            return Err(unreadable());
        }
        // Our own output says "GiB", so that spelling must be readable too.
        let unit = if unit.len() > 1 { unit.strip_suffix('B').unwrap_or(unit) } else { unit };
        let factor = match unit {
            "" => 1,
            unit => UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(unreadable)?.1,
        };
        let count: i64 = digits.parse().map_err(|_| too_large())?;
        count.checked_mul(factor).map(Size).ok_or_else(too_large)
    }
}

/// How long one call may take; never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timeout(Duration);

impl Timeout {
    pub(super) fn duration(self) -> Duration {
        self.0
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TimeoutError {
    #[error("{0:?} is no duration; accepted are {DURATIONS}{meant}", meant = runtime::args::meant_duration(.0))]
    Unreadable(String),
    #[error("a timeout of zero would end every call before it starts")]
    Zero,
}

impl FromStr for Timeout {
    type Err = TimeoutError;

    fn from_str(text: &str) -> Result<Self, TimeoutError> {
        let unreadable = || TimeoutError::Unreadable(text.to_owned());
        let mut total = Duration::ZERO;
        let mut rest = text;
        loop {
            let (digits, after) = split_number(rest);
            let unit_end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
            let (unit, next) = after.split_at(unit_end);
            let count: u64 = digits.parse().map_err(|_| unreadable())?;
            let millis = match unit {
                "ms" => Some(count),
                "s" => count.checked_mul(1_000),
                "m" => count.checked_mul(60_000),
                "h" => count.checked_mul(3_600_000),
                _ => None,
            };
            let part = Duration::from_millis(millis.ok_or_else(unreadable)?);
            total = total.checked_add(part).ok_or_else(unreadable)?;
            if next.is_empty() {
                break;
            }
            rest = next;
        }
        if total.is_zero() { Err(TimeoutError::Zero) } else { Ok(Timeout(total)) }
    }
}

fn split_number(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// One `KEY=VALUE`. The value may be empty and may itself hold `=`; the key may not be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) key: String,
    pub(super) value: String,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PairError {
    #[error("expected KEY=VALUE, and there is no '=' in it")]
    NoEquals,
    #[error("expected KEY=VALUE, and the part before '=' is empty")]
    NoKey,
}

impl FromStr for Pair {
    type Err = PairError;

    fn from_str(text: &str) -> Result<Self, PairError> {
        let (key, value) = text.split_once('=').ok_or(PairError::NoEquals)?;
        if key.is_empty() {
            return Err(PairError::NoKey);
        }
        Ok(Pair { key: key.to_owned(), value: value.to_owned() })
    }
}

/// The same key given twice: which value is meant cannot be guessed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key {key:?} is given twice with {flag}")]
pub(super) struct DuplicateKey {
    flag: &'static str,
    key: String,
}

/// Joins the pairs of one repeated flag into the map the wire wants.
pub(super) fn map_of(flag: &'static str, pairs: Vec<Pair>) -> Result<BTreeMap<String, String>, DuplicateKey> {
    join(pairs).map_err(|key| DuplicateKey { flag, key })
}

/// The error is the key that came twice.
fn join(pairs: Vec<Pair>) -> Result<BTreeMap<String, String>, String> {
    let mut map = BTreeMap::new();
    for Pair { key, value } in pairs {
        if map.insert(key.clone(), value).is_some() {
            return Err(key);
        }
    }
    Ok(map)
}

/// One place a volume can live: `KEY=VALUE[,KEY=VALUE...]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segments(BTreeMap<String, String>);

impl Segments {
    pub(super) fn topology(self) -> ::csi::v1::Topology {
        ::csi::v1::Topology { segments: self.0 }
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SegmentsError {
    #[error("in segment {segment:?}: {problem}")]
    Segment { segment: String, problem: PairError },
    #[error("the key {key:?} is given twice")]
    Duplicate { key: String },
}

impl FromStr for Segments {
    type Err = SegmentsError;

    fn from_str(text: &str) -> Result<Self, SegmentsError> {
        let pair = |segment: &str| {
            segment.parse().map_err(|problem| SegmentsError::Segment { segment: segment.to_owned(), problem })
        };
        let pairs = text.split(',').map(pair).collect::<Result<Vec<Pair>, _>>()?;
        join(pairs).map(Segments).map_err(|key| SegmentsError::Duplicate { key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(text: &str) -> Result<i64, SizeError> {
        text.parse::<Size>().map(Size::bytes)
    }

    #[test]
    fn sizes_are_read_in_bytes_binary_and_decimal_units() {
        let rows = [
            ("0", 0),
            ("1073741824", 1 << 30),
            ("4Ki", 4096),
            ("500Mi", 500 << 20),
            ("1Gi", 1 << 30),
            ("1GiB", 1 << 30),
            ("7Ei", 7 << 60),
            ("3k", 3_000),
            ("10G", 10_000_000_000),
            ("10GB", 10_000_000_000),
            ("9223372036854775807", i64::MAX),
        ];
        for (text, want) in rows {
            assert_eq!(size(text), Ok(want), "{text}");
        }
    }

    #[test]
    fn a_size_that_cannot_be_read_is_refused_with_what_is_accepted() {
        for text in ["", "Gi", "-1", "+1", "1.5Gi", "1 Gi", "1gi", "1K", "1B", "1GiBB", "1Zi", "0x10"] {
            let error = size(text).unwrap_err();
            assert_eq!(error, SizeError::Unreadable(text.to_owned()));
            assert!(error.to_string().contains("1Gi, 500Mi or 10G"), "{error}");
        }
    }

    #[test]
    fn a_size_beyond_the_wire_is_refused_and_never_wraps() {
        for text in ["8Ei", "9223372036854775808", "99999999999999999999Ki", "10E"] {
            assert_eq!(size(text), Err(SizeError::TooLarge(text.to_owned())));
        }
    }

    #[test]
    fn durations_add_up_their_parts() {
        let rows = [("2m", 120_000), ("30s", 30_000), ("500ms", 500), ("1h", 3_600_000), ("1m30s", 90_000)];
        for (text, millis) in rows {
            assert_eq!(text.parse(), Ok(Timeout(Duration::from_millis(millis))), "{text}");
        }
    }

    #[test]
    fn a_duration_without_a_unit_or_of_zero_is_refused() {
        for text in ["", "10", "s", "1d", "-1s", "1.5s", "1m30", "99999999999999999h"] {
            assert_eq!(text.parse::<Timeout>(), Err(TimeoutError::Unreadable(text.to_owned())));
        }
        assert_eq!("0s".parse::<Timeout>(), Err(TimeoutError::Zero));
    }

    #[test]
    fn a_pair_splits_at_the_first_equals_sign() {
        let pair = |key: &str, value: &str| Ok(Pair { key: key.to_owned(), value: value.to_owned() });
        assert_eq!("a=b=c".parse(), pair("a", "b=c"));
        assert_eq!("a=".parse(), pair("a", ""));
        assert_eq!("a".parse::<Pair>(), Err(PairError::NoEquals));
        assert_eq!("=a".parse::<Pair>(), Err(PairError::NoKey));
    }

    #[test]
    fn a_key_given_twice_is_refused_by_name_and_flag() {
        let pairs: Vec<Pair> = ["a=1", "b=2", "a=1"].map(|text| text.parse().unwrap()).into();
        let error = map_of("--param", pairs.clone()).unwrap_err();
        assert_eq!(error.to_string(), "the key \"a\" is given twice with --param");
        assert_eq!(map_of("--param", pairs[..2].to_vec()).unwrap().len(), 2);
    }

    #[test]
    fn a_topology_is_a_list_of_segments() {
        let segments: Segments = "zone=z1,rack=r7".parse().unwrap();
        assert_eq!(segments.topology().segments["rack"], "r7");
        assert_eq!(
            "zone=z1,rack".parse::<Segments>().unwrap_err().to_string(),
            "in segment \"rack\": expected KEY=VALUE, and there is no '=' in it"
        );
        assert_eq!("z=1,z=2".parse::<Segments>().unwrap_err().to_string(), "the key \"z\" is given twice");
    }
}
