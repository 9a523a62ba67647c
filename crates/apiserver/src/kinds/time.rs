//! The server's clock, as rules see it: a [`Timestamp`] comes in, nothing here asks for the time.

use crate::schema::time::{self, Moment, Precision};
use std::fmt;

/// Microseconds since 1970 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds * 1_000_000)
    }

    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Whole seconds, rounded down.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    #[must_use]
    pub const fn plus_seconds(self, seconds: i64) -> Self {
        Self(self.0 + seconds * 1_000_000)
    }

    /// Reads `2026-01-02T03:04:05Z`, also with a fraction and with an offset.
    pub fn parse(text: &str) -> Option<Self> {
        let moment = time::parse(text, Precision::Micros).or_else(|_| time::parse(text, Precision::Seconds)).ok()?;
        moment.seconds.checked_mul(1_000_000)?.checked_add(i64::from(moment.nanos / 1000)).map(Self)
    }

    /// With exactly six digits of a second, as a MicroTime.
    pub fn to_micro_string(self) -> String {
        time::print(self.moment(), Precision::Micros)
    }

    fn moment(self) -> Moment {
        let micros = u32::try_from(self.0.rem_euclid(1_000_000)).unwrap_or_default();
        Moment { seconds: self.seconds(), nanos: micros * 1000 }
    }
}

/// Whole seconds, as a Time.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&time::print(self.moment(), Precision::Seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written_in_utc() {
        let cases = [
            ("1970-01-01T00:00:00Z", 0, "1970-01-01T00:00:00.000000Z"),
            ("2026-01-01T00:00:00.123456Z", 1_767_225_600_123_456, "2026-01-01T00:00:00.123456Z"),
            ("2024-02-29T23:59:59+01:00", 1_709_247_599_000_000, "2024-02-29T22:59:59.000000Z"),
            ("2000-03-01T00:00:00-00:30", 951_870_600_000_000, "2000-03-01T00:30:00.000000Z"),
        ];
        for (text, micros, written) in cases {
            let time = Timestamp::parse(text).expect(text);
            assert_eq!((time.micros(), time.to_micro_string().as_str()), (micros, written), "{text}");
        }
    }

    #[test]
    fn nonsense_is_no_time() {
        for text in [
            "",
            "2026-01-01",
            "2025-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00",
        ] {
            assert_eq!(Timestamp::parse(text), None, "{text}");
        }
    }
}
