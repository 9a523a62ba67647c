//! Durations as Go writes them: `1h30m`, `10s`, `1.5s`, `250ms`, `0`.

use std::time::Duration;

/// A text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a duration; write a number and a unit (ns, us, ms, s, m, h), such as 15s or 1m30s{}",
    meant(text)
)]
pub struct NotADuration {
    text: String,
}

/// What Go holds, 292 years: nobody means more, and a clock can be asked about any moment so far away.
const LONGEST: Duration = Duration::from_nanos(i64::MAX.unsigned_abs());

/// Reads a duration. It can be neither negative nor longer than Go's.
pub fn parse(text: &str) -> Result<Duration, NotADuration> {
    let error = || NotADuration { text: text.to_owned() };
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err(error());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(error)?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let nanos = match unit {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return Err(error()),
        };
        let number: f64 = number.parse().map_err(|_| error())?;
        let part = Duration::try_from_secs_f64(number * nanos / 1e9).map_err(|_| error())?;
        total = total.checked_add(part).filter(|total| *total <= LONGEST).ok_or_else(error)?;
        rest = tail;
    }
    Ok(total)
}

/// `; did you mean 10s?` for a text that is nearly a duration: without a unit, or with one in full.
pub fn meant(text: &str) -> String {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim().to_ascii_lowercase());
    let short = match unit.as_str() {
        _ if number.is_empty() => return String::new(),
        "" | "s" | "sec" | "secs" | "second" | "seconds" => "s",
        "m" | "min" | "mins" | "minute" | "minutes" => "m",
        "h" | "hr" | "hrs" | "hour" | "hours" => "h",
        "ms" | "millis" | "milliseconds" => "ms",
        "d" | "day" | "days" => {
            let hours = number.parse::<u64>().ok().and_then(|days| days.checked_mul(24));
            return hours.map_or_else(String::new, |hours| format!("; did you mean {hours}h?"));
        }
        _ => return String::new(),
    };
    format!("; did you mean {number}{short}?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_read_and_nonsense_is_refused() {
        let rows = [("15s", 15_000), ("1m30s", 90_000), ("1.5s", 1_500), ("250ms", 250), ("0", 0), ("2h", 7_200_000)];
        for (text, millis) in rows {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for (text, want) in [("10", "10s?"), ("5 minutes", "5m?"), ("2 days", "48h?"), ("1 Hour", "1h?")] {
            assert!(parse(text).is_err_and(|error| error.to_string().ends_with(want)), "{text}");
        }
        for bad in ["", "15", "s", "-1s", "1x", "1s2", "1..5s", "99999999999999999999h", "2562048h"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
