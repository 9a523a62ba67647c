//! The query of a URL: what a client may say beside the path.

use super::{MAX_QUERY_BYTES, Refusal};

/// Parameters in the order they were sent. The first of several values wins where one is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Takes the text after `?`. A pair that cannot be decoded is an error. The reference drops it, and with it the
    /// selector that would have kept a deletion small; no client sends such a pair.
    pub fn parse(raw: &str) -> Result<Self, Refusal> {
        if raw.len() > MAX_QUERY_BYTES {
            return Err(Refusal::PathTooLong);
        }
        let pairs = raw.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            if pair.contains(';') {
                return None;
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name, Plus::IsSpace)?, decode(value, Plus::IsSpace)?))
        });
        let pairs = pairs.collect::<Option<_>>();
        let pairs = pairs.ok_or_else(|| Refusal::BadRequest("the query of the request cannot be decoded".into()))?;
        Ok(Self { pairs })
    }

    /// The first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Every value of a parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Absent is `None`; `0` and `false` are no; everything else, also nothing after the name, is yes.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| !(value == "0" || value.eq_ignore_ascii_case("false")))
    }
}

/// What a plus sign stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plus {
    IsSpace,
    IsPlus,
}

/// Undoes percent encoding; `None` if an escape is broken or the bytes are not UTF-8.
pub(super) fn decode(text: &str, plus: Plus) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => hex(bytes.next()?)? * 16 + hex(bytes.next()?)?,
            b'+' if plus == Plus::IsSpace => b' ',
            other => other,
        });
    }
    String::from_utf8(out).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// Undoes percent encoding outside a query, where a plus sign is itself.
pub(crate) fn percent_decode(text: &str) -> Option<String> {
    decode(text, Plus::IsPlus)
}
