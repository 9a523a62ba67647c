//! An amount of storage: comparable as bytes, printed as it was written.

use std::cmp::Ordering;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};

use crate::object::Word;
use crate::quantity::{Format, Quantity};

/// A number of bytes and the text it came as: `10Gi` stays `10Gi` when it is copied from a volume to a claim.
///
/// A fraction of a byte counts as a whole one. Amounts compare exactly, however large they are; [`Amount::bytes`] of one that
/// is beyond what 64 bits hold is their end, since no backend has it.
#[derive(Clone)]
pub struct Amount {
    bytes: i64,
    /// Few sizes are in use, each by many.
    text: Word,
}

impl Amount {
    pub fn parse(text: &str) -> Result<Self, crate::quantity::QuantityError> {
        let quantity = Quantity::parse(text)?.round_up(0);
        let fallback = if quantity.is_negative() { i64::MIN } else { i64::MAX };
        let bytes = quantity.to_integer().and_then(|bytes| i64::try_from(bytes).ok()).unwrap_or(fallback);
        Ok(Self { bytes, text: Word::new(text) })
    }

    /// The canonical text of a number of bytes, with a binary suffix where one fits.
    pub fn from_bytes(bytes: i64) -> Self {
        let text = Quantity::from_integer(i128::from(bytes), Format::BinarySi).to_string();
        Self { bytes, text: Word::new(&text) }
    }

    /// No bytes at all: what is not said.
    pub fn zero() -> Self {
        Self::from_bytes(0)
    }

    /// For drivers and sums. To compare amounts, compare them themselves.
    pub fn bytes(&self) -> i64 {
        self.bytes
    }

    /// Whether [`Amount::bytes`] may stand for other amounts as well.
    fn is_at_the_end(&self) -> bool {
        matches!(self.bytes, i64::MIN | i64::MAX)
    }

    pub fn text(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Amount {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Amount {}

impl PartialOrd for Amount {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Amount {
    fn cmp(&self, other: &Self) -> Ordering {
        match self.bytes.cmp(&other.bytes) {
            Ordering::Equal if self.is_at_the_end() => {
                match (Quantity::parse(&self.text), Quantity::parse(&other.text)) {
                    (Ok(one), Ok(other)) => one.cmp(&other),
                    // Both were read from these texts.
                    (Err(_), _) | (_, Err(_)) => Ordering::Equal,
                }
            }
            order => order,
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).map_err(|error| D::Error::custom(format!("{text:?} is no amount: {error}")))
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_compares_by_bytes_and_prints_as_written() {
        let (binary, decimal) = (Amount::parse("1Gi").unwrap(), Amount::parse("1073741824").unwrap());
        assert_eq!(binary, decimal);
        assert_eq!((binary.text(), decimal.text()), ("1Gi", "1073741824"));
        assert!(Amount::parse("1G").unwrap() < binary);
    }

    #[test]
    fn a_fraction_of_a_byte_is_a_byte_and_an_absurd_amount_is_the_largest() {
        assert_eq!(Amount::parse("1m").unwrap().bytes(), 1);
        assert_eq!(Amount::parse("1e30").unwrap().bytes(), i64::MAX);
    }

    #[test]
    fn amounts_beyond_64_bits_compare_exactly() {
        let amount = |text: &str| Amount::parse(text).unwrap();
        assert!(amount("200E") < amount("950E") && amount("950E") > amount("200E"));
        assert_ne!(amount("200E"), amount("950E"));
        assert_eq!(amount("950E"), amount("0.95e21"));
        assert!(amount("1e39") < amount("1e40") && amount("-950E") < amount("-200E"));
        assert!(amount("1Gi") < amount("200E") && amount("9223372036854775807") < amount("200E"));
    }

    #[test]
    fn bytes_get_the_suffix_that_fits() {
        assert_eq!(Amount::from_bytes(10 << 30).text(), "10Gi");
        assert_eq!(Amount::from_bytes(1500).text(), "1500");
    }
}
