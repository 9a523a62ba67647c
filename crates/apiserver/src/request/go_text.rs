//! Texts that clients compare and that come from Go's printers: quoted strings, number errors, durations.

use std::fmt::Write as _;
use std::time::Duration;

/// A string in double quotes with Go's escapes, as `%q` prints it.
pub fn go_quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if is_go_printable(c) => out.push(c),
            c => push_escape(&mut out, u32::from(c)),
        }
    }
    out.push('"');
    out
}

fn push_escape(out: &mut String, code: u32) {
    let written = match code {
        0..0x80 => write!(out, "\\x{code:02x}"),
        0x80..0x1_0000 => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
    written.expect("writing to a String cannot fail");
}

/// A list of strings as `%q` prints a slice: `["a" "b"]`.
pub fn go_quote_list<S: AsRef<str>>(items: &[S]) -> String {
    let quoted: Vec<String> = items.iter().map(|item| go_quote(item.as_ref())).collect();
    format!("[{}]", quoted.join(" "))
}

/// Letters, marks, numbers, punctuation, symbols and the ASCII space. Rust's own debug printer escapes the same set, if
/// the character is not the first: there it also escapes combining marks.
pub fn is_go_printable(c: char) -> bool {
    if c.is_ascii() {
        return c == ' ' || c.is_ascii_graphic();
    }
    let second: String = ['a', c].into_iter().collect();
    !second.escape_debug().any(|escaped| escaped == '\\')
}

/// A signed decimal with Go's error text.
pub(crate) fn parse_int(text: &str) -> Result<i64, String> {
    text.parse().map_err(|error| number_error("ParseInt", text, &error))
}

/// An unsigned decimal with Go's error text. Unlike Rust's parser, Go's takes no plus sign here.
pub(crate) fn parse_uint(text: &str) -> Result<u64, String> {
    if text.starts_with('+') {
        return Err(format!("strconv.ParseUint: parsing {}: invalid syntax", go_quote(text)));
    }
    text.parse().map_err(|error| number_error("ParseUint", text, &error))
}

fn number_error(function: &str, text: &str, error: &std::num::ParseIntError) -> String {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    let why = match error.kind() {
        PosOverflow | NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    format!("strconv.{function}: parsing {}: {why}", go_quote(text))
}

/// `1h2m3.5s`, `500ms`, `0`; anything else, also a negative duration, is `None`.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut total = 0f64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let value: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        total += value * seconds_of(&rest[..unit])?;
        rest = &rest[unit..];
    }
    Duration::try_from_secs_f64(total).ok()
}

fn seconds_of(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1e-9,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    })
}
