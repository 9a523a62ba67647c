//! The AGE cell and its relatives: how long ago, in at most two units.

use super::time::Timestamp;
use serde_json::Value;

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// The age of an object, from its creationTimestamp.
pub fn age_of(object: &Value, now: Timestamp) -> String {
    since(object.pointer("/metadata/creationTimestamp").and_then(Value::as_str), now)
}

/// The time that passed since a timestamp; `<unknown>` without one.
pub fn since(time: Option<&str>, now: Timestamp) -> String {
    match time.and_then(Timestamp::parse) {
        Some(time) => duration(now.micros() - time.micros()),
        None => "<unknown>".into(),
    }
}

fn duration(micros: i64) -> String {
    // Truncation, not rounding down: up to a second in the future is shown as now.
    let seconds = micros / 1_000_000;
    match seconds {
        i64::MIN..=-2 => "<invalid>".into(),
        -1 => "0s".into(),
        0..120 => format!("{seconds}s"),
        120..600 => two_units(seconds, (60, 'm'), (1, 's')),
        600..10_800 => format!("{}m", seconds / 60),
        10_800..28_800 => two_units(seconds, (HOUR, 'h'), (60, 'm')),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two_units(seconds, (DAY, 'd'), (HOUR, 'h')),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        63_072_000..252_288_000 => two_units(seconds, (YEAR, 'y'), (DAY, 'd')),
        _ => format!("{}y", seconds / YEAR),
    }
}

/// The big unit, and the small one unless it is zero.
fn two_units(seconds: i64, big: (i64, char), small: (i64, char)) -> String {
    let rest = seconds % big.0 / small.0;
    let head = format!("{}{}", seconds / big.0, big.1);
    if rest == 0 { head } else { format!("{head}{rest}{}", small.1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule: API-6.0
    #[test]
    fn ages_are_printed_with_at_most_two_units() {
        let cases = [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (10_860, "3h1m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (176_400, "2d1h"),
            (691_200, "8d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR, "2y"),
            (2 * YEAR + DAY, "2y1d"),
            (8 * YEAR, "8y"),
            (9 * YEAR + 5 * DAY, "9y"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(duration(seconds * 1_000_000), expected, "{seconds} s");
        }
        assert_eq!(duration(-1_500_000), "0s");
        assert_eq!(since(None, Timestamp::default()), "<unknown>");
    }
}
