//! Quantities: `1Gi`, `500m`, `2e3`.
//!
//! A quantity is a decimal number and the family of suffixes it was written with. It is exact: an `i128` and a power of
//! ten, never a float. Printing chooses the largest suffix that needs no fraction, except that a text that already looks
//! canonical to Kubernetes is kept as it was written (spec section 2), so `+1` and `007` survive a round trip.
//!
//! Two differences from the reference server, both outside what a cluster can hold: numbers with more digits than an
//! `i128` are refused, and a thousand exa or more prints with an exponent, where the reference drops the suffix and
//! thereby changes the number.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;

/// Which suffixes a quantity is printed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `n u m k M G T P E`
    DecimalSi,
    /// `Ki Mi Gi Ti Pi Ei`
    BinarySi,
    /// `e3`
    DecimalExponent,
}

/// Why a text is not a quantity, in the words clients know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// `unscaled * 10^scale`.
#[derive(Debug, Clone)]
pub struct Quantity {
    unscaled: i128,
    scale: i32,
    format: Format,
    /// The text it was read from, while that text counts as canonical.
    text: Option<String>,
}

/// The finest step a quantity is stored with.
const NANO: i32 = -9;
/// The finest step of resource lists such as `requests` and `capacity`.
pub const MILLI: i32 = -3;
/// Digits that fit an `i64` for certain: up to here the reference keeps canonical texts.
const SAFE_DIGITS: i32 = 18;
/// Beyond this no suffix exists and arithmetic would be meaningless.
const MAX_EXPONENT: i64 = 100_000;
const MAX_BINARY: i128 = i64::MAX as i128;

const DECIMAL_SUFFIXES: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY_SUFFIXES: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// A suffix with its meaning.
enum Suffix {
    Decimal { exponent: i32, format: Format },
    Binary { bits: u32 },
}

/// The pieces of a written quantity.
struct Parts<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros, `0` if there are none.
    whole: &'a str,
    /// Digits after the point.
    fraction: &'a str,
    suffix: &'a str,
}

impl Quantity {
    pub fn zero() -> Self {
        Self { unscaled: 0, scale: 0, format: Format::DecimalSi, text: None }
    }

    pub fn from_integer(value: i128, format: Format) -> Self {
        Self { unscaled: value, scale: 0, format, text: None }
    }

    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let parts = split(text)?;
        let suffix = interpret(parts.suffix).ok_or(QuantityError::Suffix)?;
        if let Some(quick) = parse_small(text, &parts, &suffix) {
            return Ok(quick);
        }
        parse_large(&parts, &suffix)
    }

    pub fn format(&self) -> Format {
        self.format
    }

    pub fn is_zero(&self) -> bool {
        self.unscaled == 0
    }

    pub fn is_negative(&self) -> bool {
        self.unscaled < 0
    }

    /// Rounded away from zero to a multiple of `10^scale`. Forgets the written text only if the text was finer.
    pub fn round_up(mut self, scale: i32) -> Self {
        if self.scale < scale {
            self.text = None;
            (self.unscaled, _) = divide_up(self.unscaled, scale.saturating_sub(self.scale));
            self.scale = scale;
        }
        self
    }

    /// The number in units, rounded away from zero; `None` if it does not fit.
    pub fn to_integer(&self) -> Option<i128> {
        match u32::try_from(self.scale) {
            Ok(_) if self.unscaled == 0 => Some(0),
            Ok(up) => self.unscaled.checked_mul(10_i128.checked_pow(up)?),
            Err(_) => Some(divide_up(self.unscaled, -self.scale).0),
        }
    }

    /// The sum, printed as `self` would be unless `self` is zero; `None` if it needs more digits than we keep.
    pub fn checked_add(&self, other: &Self) -> Option<Self> {
        let format = if self.is_zero() { other.format } else { self.format };
        if self.is_zero() || other.is_zero() {
            let kept = if self.is_zero() { other } else { self };
            return Some(Self { format, text: None, ..kept.clone() });
        }
        let scale = self.scale.min(other.scale);
        let unscaled = at_scale(self, scale)?.checked_add(at_scale(other, scale)?)?;
        Some(Self { unscaled, scale, format, text: None })
    }

    pub fn checked_sub(&self, other: &Self) -> Option<Self> {
        let negated = Self { unscaled: other.unscaled.checked_neg()?, text: None, ..other.clone() };
        self.checked_add(&negated)
    }

    /// The canonical text without regard to how it was written.
    fn canonical(&self) -> String {
        if self.is_zero() {
            return "0".to_owned();
        }
        if self.format == Format::BinarySi
            && let Some(text) = self.binary_text()
        {
            return text;
        }
        let (mut digits, mut exponent) = strip_zeros(self.unscaled, self.scale);
        let mut padding = 0;
        while exponent % 3 != 0 {
            exponent -= 1;
            padding += 1;
        }
        // Two digits more than the parsed number can have always fit unless the number was at the limit already.
        let mut text = match digits.checked_mul(10_i128.pow(padding)) {
            Some(padded) => {
                digits = padded;
                digits.to_string()
            }
            None => format!("{digits}{}", "0".repeat(padding as usize)),
        };
        match self.format {
            Format::DecimalExponent if exponent != 0 => text.push_str(&format!("e{exponent}")),
            Format::DecimalExponent => {}
            Format::DecimalSi | Format::BinarySi => match DECIMAL_SUFFIXES.iter().find(|(_, e)| *e == exponent) {
                Some((suffix, _)) => text.push_str(suffix),
                // No letter reaches this far.
                None => text.push_str(&format!("e{exponent}")),
            },
        }
        text
    }

    /// `None` where the reference shows a binary quantity in decimal: below 1024, and with a fraction.
    fn binary_text(&self) -> Option<String> {
        let (unscaled, scale) = strip_zeros(self.unscaled, self.scale);
        let mut whole = unscaled.checked_mul(10_i128.checked_pow(u32::try_from(scale).ok()?)?)?;
        if whole.unsigned_abs() < 1024 {
            return None;
        }
        let mut power = 0;
        while whole % 1024 == 0 && power < BINARY_SUFFIXES.len() {
            whole /= 1024;
            power += 1;
        }
        let suffix = power.checked_sub(1).map_or("", |index| BINARY_SUFFIXES[index].0);
        Some(format!("{whole}{suffix}"))
    }
}

impl std::fmt::Display for Quantity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.text {
            Some(text) => f.write_str(text),
            None => f.write_str(&self.canonical()),
        }
    }
}

impl std::str::FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        match self.unscaled.signum().cmp(&other.unscaled.signum()) {
            Ordering::Equal if self.unscaled > 0 => magnitude(self, other),
            Ordering::Equal if self.unscaled < 0 => magnitude(other, self),
            unequal => unequal,
        }
    }
}

/// Compares absolute values of two numbers that are not zero.
fn magnitude(left: &Quantity, right: &Quantity) -> Ordering {
    let (left, left_scale) = strip_zeros(left.unscaled, left.scale);
    let (right, right_scale) = strip_zeros(right.unscaled, right.scale);
    let (left, right) = (left.unsigned_abs(), right.unsigned_abs());
    let top = |digits: u128, scale: i32| i64::from(scale) + i64::from(digits.ilog10());
    match top(left, left_scale).cmp(&top(right, right_scale)) {
        Ordering::Equal => {}
        unequal => return unequal,
    }
    // Same leading power of ten, so the shift is at most the number of digits; an overflow means the shifted side is larger.
    let shift = left_scale.abs_diff(right_scale);
    let raise = |digits: u128| 10_u128.checked_pow(shift).and_then(|factor| digits.checked_mul(factor));
    if left_scale >= right_scale {
        raise(left).map_or(Ordering::Greater, |raised| raised.cmp(&right))
    } else {
        raise(right).map_or(Ordering::Less, |raised| left.cmp(&raised))
    }
}

/// Moves factors of ten from the digits into the scale.
fn strip_zeros(mut digits: i128, mut scale: i32) -> (i128, i32) {
    while digits != 0 && digits % 10 == 0 {
        digits /= 10;
        scale += 1;
    }
    (digits, scale)
}

/// Divides by `10^power` away from zero; the flag says whether the division was exact.
fn divide_up(value: i128, power: i32) -> (i128, bool) {
    let Some(divisor) = u32::try_from(power).ok().and_then(|power| 10_i128.checked_pow(power)) else {
        return (value.signum(), value == 0);
    };
    let exact = value % divisor == 0;
    (value / divisor + if exact { 0 } else { value.signum() }, exact)
}

/// The digits of `quantity` at a scale that is at most its own.
fn at_scale(quantity: &Quantity, scale: i32) -> Option<i128> {
    let up = u32::try_from(i64::from(quantity.scale) - i64::from(scale)).ok()?;
    quantity.unscaled.checked_mul(10_i128.checked_pow(up)?)
}

fn split(text: &str) -> Result<Parts<'_>, QuantityError> {
    let (negative, rest) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let rest = rest.trim_start_matches('0');
    let (whole, rest) = rest.split_at(digits(rest));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(after) => after.split_at(digits(after)),
        None => ("", rest),
    };
    let letters = suffix.bytes().take_while(|byte| b"eEinumkKMGTP".contains(byte)).count();
    let exponent = &suffix[letters..];
    let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    if digits(exponent) != exponent.len() {
        return Err(QuantityError::Format);
    }
    Ok(Parts { negative, whole: if whole.is_empty() { "0" } else { whole }, fraction, suffix })
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

fn interpret(suffix: &str) -> Option<Suffix> {
    if let Some((_, exponent)) = DECIMAL_SUFFIXES.iter().find(|(name, _)| *name == suffix) {
        return Some(Suffix::Decimal { exponent: *exponent, format: Format::DecimalSi });
    }
    if let Some((_, bits)) = BINARY_SUFFIXES.iter().find(|(name, _)| *name == suffix) {
        return Some(Suffix::Binary { bits: *bits });
    }
    let exponent: i64 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let exponent = (-MAX_EXPONENT..=MAX_EXPONENT).contains(&exponent).then_some(exponent)?;
    Some(Suffix::Decimal { exponent: i32::try_from(exponent).ok()?, format: Format::DecimalExponent })
}

/// Numbers that the reference reads into 64 bits; only these may keep their text.
fn parse_small(text: &str, parts: &Parts<'_>, suffix: &Suffix) -> Option<Quantity> {
    let length = i32::try_from(parts.whole.len() + parts.fraction.len()).ok()?;
    let (scale, format, bits) = match suffix {
        Suffix::Decimal { exponent, format } if length <= SAFE_DIGITS => (*exponent, *format, 0),
        // Twenty bits are about six digits.
        Suffix::Binary { bits } if parts.fraction.is_empty() && length + (*bits as i32 * 3 / 10) < 15 => {
            (0, Format::BinarySi, *bits)
        }
        _ => return None,
    };
    let scale = scale - i32::try_from(parts.fraction.len()).ok()?;
    if scale < NANO {
        return None;
    }
    let shifted = [parts.whole, parts.fraction].concat();
    let value: i64 = shifted.parse().ok()?;
    let result = value.checked_mul(1_i64 << bits)?;
    let canonical = match format {
        Format::BinarySi => value % 8 != 0,
        _ => scale % 3 == 0 && !shifted.ends_with("000") && !shifted.starts_with('0'),
    };
    // Only a bare zero is its own canonical text; other spellings of zero are rewritten.
    let keep = canonical || text == "0";
    Some(Quantity {
        unscaled: i128::from(if parts.negative { -result } else { result }),
        scale,
        format,
        text: keep.then(|| text.to_owned()),
    })
}

/// Everything else: rounded up to nano, binary amounts capped at 2^63-1.
fn parse_large(parts: &Parts<'_>, suffix: &Suffix) -> Result<Quantity, QuantityError> {
    let written = i32::try_from(parts.fraction.len()).map_err(|_| QuantityError::Numeric)?;
    let amount: i128 = [parts.whole, parts.fraction].concat().parse().map_err(|_| QuantityError::Numeric)?;
    let (mut amount, mut scale, mut format) = match suffix {
        Suffix::Decimal { exponent, format } => (amount, exponent - written, *format),
        Suffix::Binary { bits } => match amount.checked_mul(1_i128 << bits) {
            Some(amount) => (amount, -written, Format::BinarySi),
            None => (MAX_BINARY, 0, Format::BinarySi),
        },
    };
    if scale < NANO {
        (amount, _) = divide_up(amount, NANO - scale);
        scale = NANO;
    }
    if format == Format::BinarySi {
        let (whole, exact) = if scale < 0 { divide_up(amount, -scale) } else { (amount, true) };
        if whole > MAX_BINARY {
            (amount, scale) = (MAX_BINARY, 0);
        } else if whole == 1 && !exact {
            format = Format::DecimalSi;
        }
    }
    Ok(Quantity { unscaled: if parts.negative { -amount } else { amount }, scale, format, text: None })
}
