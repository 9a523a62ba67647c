//! Moments as the API writes them: RFC 3339 in UTC, whole seconds or exactly six digits.

/// Seconds since 1970 and the part below a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    pub seconds: i64,
    pub nanos: u32,
}

/// The first of January of the year one: what Go calls the zero time, printed as `null`.
pub const ZERO: Moment = Moment { seconds: -62_135_596_800, nanos: 0 };

const LAYOUT_SECONDS: &str = "2006-01-02T15:04:05Z07:00";
const LAYOUT_MICROS: &str = "2006-01-02T15:04:05.000000Z07:00";
const SECONDS_PER_DAY: i64 = 86_400;

/// How the part below a second is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// Printed without a fraction; any fraction is read and dropped.
    Seconds,
    /// Exactly six digits, in both directions.
    Micros,
}

/// Why a text is not a moment, in the words clients know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    #[error("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {element:?}")]
    Shape { text: String, layout: &'static str, rest: String, element: &'static str },
    #[error("parsing time {text:?}: {part} out of range")]
    Range { text: String, part: &'static str },
    #[error("parsing time {text:?}: extra text: {rest:?}")]
    Extra { text: String, rest: String },
}

impl Precision {
    /// How long a printed moment of a year with four digits is.
    pub(super) const fn printed_len(self) -> usize {
        match self {
            Precision::Seconds => "2006-01-02T15:04:05Z".len(),
            Precision::Micros => "2006-01-02T15:04:05.000000Z".len(),
        }
    }

    fn layout(self) -> &'static str {
        match self {
            Precision::Seconds => LAYOUT_SECONDS,
            Precision::Micros => LAYOUT_MICROS,
        }
    }
}

/// A cursor over the text that remembers it for errors.
struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl<'a> Reader<'a> {
    fn wrong(&self, element: &'static str) -> TimeError {
        TimeError::Shape { text: self.text.to_owned(), layout: self.layout, rest: self.rest.to_owned(), element }
    }

    fn out_of_range(&self, part: &'static str) -> TimeError {
        TimeError::Range { text: self.text.to_owned(), part }
    }

    fn number(&mut self, width: usize, element: &'static str) -> Result<i64, TimeError> {
        let digits = self.rest.get(..width).filter(|head| head.bytes().all(|byte| byte.is_ascii_digit()));
        let value = digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| self.wrong(element))?;
        self.rest = &self.rest[width..];
        Ok(value)
    }

    fn literal(&mut self, element: &'static str) -> Result<(), TimeError> {
        self.rest = self.rest.strip_prefix(element).ok_or_else(|| self.wrong(element))?;
        Ok(())
    }

    fn two_digits(&mut self, element: &'static str, limit: i64, part: &'static str) -> Result<i64, TimeError> {
        let value = self.number(2, element)?;
        if value < limit { Ok(value) } else { Err(self.out_of_range(part)) }
    }

    /// An optional fraction of any length.
    fn fraction(&mut self) -> u32 {
        let Some(after) = self.rest.strip_prefix(['.', ',']) else { return 0 };
        let count = after.bytes().take_while(u8::is_ascii_digit).count();
        if count == 0 {
            return 0;
        }
        self.rest = &after[count..];
        after[..count].bytes().chain(std::iter::repeat(b'0')).take(9).fold(0, |sum, b| sum * 10 + u32::from(b - b'0'))
    }

    /// Seconds that the written clock is ahead of UTC.
    fn offset(&mut self) -> Result<i64, TimeError> {
        const ELEMENT: &str = "Z07:00";
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let bytes = self.rest.as_bytes();
        let sign = match bytes.first() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return Err(self.wrong(ELEMENT)),
        };
        let shape = bytes.len() >= 6 && bytes[3] == b':' && [1, 2, 4, 5].iter().all(|at| bytes[*at].is_ascii_digit());
        if !shape {
            return Err(self.wrong(ELEMENT));
        }
        let pair = |at: usize| i64::from(bytes[at] - b'0') * 10 + i64::from(bytes[at + 1] - b'0');
        let (hours, minutes) = (pair(1), pair(4));
        self.rest = &self.rest[6..];
        match (hours, minutes) {
            (0..=24, 0..=59) => Ok(sign * (hours * 3600 + minutes * 60)),
            (25.., _) => Err(self.out_of_range("time zone offset hour")),
            _ => Err(self.out_of_range("time zone offset minute")),
        }
    }
}

/// Reads a moment; the answer is in UTC.
pub fn parse(text: &str, precision: Precision) -> Result<Moment, TimeError> {
    let mut reader = Reader { text, rest: text, layout: precision.layout() };
    let year = reader.number(4, "2006")?;
    reader.literal("-")?;
    let month = reader.two_digits("01", 13, "month")?;
    if month == 0 {
        return Err(reader.out_of_range("month"));
    }
    reader.literal("-")?;
    let day = reader.two_digits("02", 100, "day")?;
    reader.literal("T")?;
    let hour = reader.two_digits("15", 24, "hour")?;
    reader.literal(":")?;
    let minute = reader.two_digits("04", 60, "minute")?;
    reader.literal(":")?;
    let second = reader.two_digits("05", 60, "second")?;
    let nanos = match precision {
        Precision::Seconds => reader.fraction(),
        Precision::Micros => {
            let start = Reader { text, rest: reader.rest, layout: reader.layout };
            reader.literal(".").map_err(|_| start.wrong(".000000"))?;
            let micros = reader.number(6, ".000000").map_err(|_| start.wrong(".000000"))?;
            u32::try_from(micros * 1000).unwrap_or(0)
        }
    };
    let offset = reader.offset()?;
    if !reader.rest.is_empty() {
        return Err(TimeError::Extra { text: text.to_owned(), rest: reader.rest.to_owned() });
    }
    if !(1..=days_in_month(year, month)).contains(&day) {
        return Err(reader.out_of_range("day"));
    }
    let seconds = days_from_civil(year, month, day) * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second - offset;
    Ok(Moment { seconds, nanos })
}

/// The text of a moment in UTC.
pub fn print(moment: Moment, precision: Precision) -> String {
    let (days, of_day) = (moment.seconds.div_euclid(SECONDS_PER_DAY), moment.seconds.rem_euclid(SECONDS_PER_DAY));
    let (year, month, day) = civil_from_days(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let mut text = String::with_capacity("2006-01-02T15:04:05.000000Z".len());
    if !(0..=9999).contains(&year) {
        text = format!("{year:04}");
    } else {
        push_digits(&mut text, year, 4);
    }
    for (before, number) in [('-', month), ('-', day), ('T', hour), (':', minute), (':', second)] {
        text.push(before);
        push_digits(&mut text, number, 2);
    }
    if precision == Precision::Micros {
        text.push('.');
        push_digits(&mut text, i64::from(moment.nanos / 1000), 6);
    }
    text.push('Z');
    text
}

/// Adds a number with leading zeros; it has no more digits than that. Every write prints a moment, and the formatter of
/// the standard library takes five times as long.
fn push_digits(text: &mut String, number: i64, digits: u32) {
    for place in (0..digits).rev() {
        let digit = number / 10_i64.pow(place) % 10;
        text.push(char::from(b'0' + u8::try_from(digit).unwrap_or_default()));
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar, counting years from March so that leap days come last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days.saturating_add(719_468);
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Moment, Precision, ZERO, parse, print};

    fn seconds(text: &str) -> String {
        match parse(text, Precision::Seconds) {
            Ok(moment) => print(moment, Precision::Seconds),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn moments_are_printed_in_utc_without_fraction() {
        assert_eq!(seconds("2024-02-29T23:30:00-01:00"), "2024-03-01T00:30:00Z");
        assert_eq!(seconds("1969-12-31T23:59:59.999Z"), "1969-12-31T23:59:59Z");
        assert_eq!(parse("0001-01-01T00:00:00Z", Precision::Seconds), Ok(ZERO));
    }

    #[test]
    fn micro_moments_have_exactly_six_digits() {
        let text = "2024-01-02T03:04:05.000006Z";
        assert_eq!(print(parse(text, Precision::Micros).unwrap(), Precision::Micros), text);
        let error = parse("2024-01-02T03:04:05Z", Precision::Micros).unwrap_err().to_string();
        assert!(error.ends_with(r#"cannot parse "Z" as ".000000""#), "{error}");
        assert!(parse("2024-01-02T03:04:05.1234567Z", Precision::Micros).is_err());
    }

    #[test]
    fn nonsense_is_refused_with_the_part_that_is_wrong() {
        let layout = r#""2006-01-02T15:04:05Z07:00""#;
        assert_eq!(seconds(""), format!(r#"parsing time "" as {layout}: cannot parse "" as "2006""#));
        assert_eq!(seconds("2024-13-01T00:00:00Z"), r#"parsing time "2024-13-01T00:00:00Z": month out of range"#);
        assert_eq!(seconds("2023-02-29T00:00:00Z"), r#"parsing time "2023-02-29T00:00:00Z": day out of range"#);
        assert_eq!(seconds("2024-01-01T24:00:00Z"), r#"parsing time "2024-01-01T24:00:00Z": hour out of range"#);
        assert_eq!(seconds("2024-01-01T00:00:00Zx"), r#"parsing time "2024-01-01T00:00:00Zx": extra text: "x""#);
        let expected = format!(r#"parsing time "2024-01-01 00:00:00" as {layout}: cannot parse " 00:00:00" as "T""#);
        assert_eq!(seconds("2024-01-01 00:00:00"), expected);
    }

    proptest! {
        #[test]
        fn every_moment_of_four_digit_years_reads_back(at in -62_167_219_200_i64..=253_402_300_799, micros in 0_u32..1_000_000) {
            let moment = Moment { seconds: at, nanos: micros * 1000 };
            prop_assert_eq!(parse(&print(moment, Precision::Micros), Precision::Micros), Ok(moment));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "[0-9TZ:.+é-]{0,30}") {
            let _ = parse(&text, Precision::Seconds);
            let _ = parse(&text, Precision::Micros);
        }
    }
}
