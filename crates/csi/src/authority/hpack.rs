//! One walk over an HPACK header block (RFC 7541) that repairs `:authority` and copies the rest.
//!
//! This is not an HPACK decoder: it keeps no dynamic table and reads no value but the one it is after. It only has to
//! know where each field begins and ends.

use http::uri::Authority;

use super::huffman;

/// The bytes are not a header block. The caller forwards them as they are; judging the peer is the server's task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// What [`rewrite`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing needed repair; nothing was written.
    Kept,
    /// The repaired block was written.
    Repaired,
}

const NAME: &[u8] = b":authority";

/// Where `:authority` stands in HPACK's static table.
const STATIC_INDEX: u64 = 1;

/// The most continuation bytes of an integer we read: 35 bits, more than any length or index can need.
const MAX_CONTINUATION: usize = 5;

/// Copies `block` to `out` with every unusable `:authority` literal repaired, or writes nothing if there is none.
///
/// After an error `out` may hold a part of the block. `scratch` is cleared and used for decoded text.
pub(super) fn rewrite(block: &[u8], scratch: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<Outcome, Malformed> {
    let mut cursor = Cursor { bytes: block, at: 0 };
    let mut copied = 0;
    while let Some(first) = cursor.peek() {
        let Some(name_bits) = name_prefix(first) else {
            // An indexed field or a table size update: one integer, no text.
            cursor.integer(if first & 0x80 != 0 { 7 } else { 5 })?;
            continue;
        };
        let is_authority = match cursor.integer(name_bits)? {
            0 => cursor.text()?.is(NAME, scratch)?,
            index => index == STATIC_INDEX,
        };
        let begin = cursor.at;
        let value = cursor.text()?;
        if !is_authority || !value.decode(scratch)?.needs_repair() {
            continue;
        }
        out.extend_from_slice(&block[copied..begin]);
        write_repaired(scratch, out);
        copied = cursor.at;
    }
    if copied == 0 {
        return Ok(Outcome::Kept);
    }
    out.extend_from_slice(&block[copied..]);
    Ok(Outcome::Repaired)
}

/// How many bits of a field's first byte belong to the name's index, or `None` if the field is not a literal.
fn name_prefix(first: u8) -> Option<u8> {
    match first {
        0x80.. => None,
        0x40.. => Some(6),
        0x20.. => None,
        // Without indexing (0000) and never indexed (0001) have one layout.
        0x00.. => Some(4),
    }
}

/// Writes `value` as an uncoded string with each byte that could offend replaced by one that cannot.
fn write_repaired(value: &[u8], out: &mut Vec<u8>) {
    write_length(value.len(), out);
    out.extend(value.iter().map(|byte| if is_plain(*byte) { *byte } else { b'-' }));
}

/// Writes a string's length with the Huffman bit clear.
fn write_length(length: usize, out: &mut Vec<u8>) {
    let Some(mut rest) = length.checked_sub(0x7f) else {
        out.push(length as u8);
        return;
    };
    out.push(0x7f);
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Bytes that are at home in any host name. A text made only of these is a valid authority.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-'
}

/// A decoded `:authority`.
struct Value<'a>(&'a [u8]);

impl Value<'_> {
    /// Asks exactly what the server will ask. An empty value has no valid form of the same length, so it stays.
    fn needs_repair(&self) -> bool {
        let Self(value) = self;
        // `Authority` allocates. The usual `localhost` needs no second look.
        !value.iter().copied().all(is_plain) && Authority::try_from(*value).is_err()
    }
}

/// A string as it stands in the block.
struct Text<'a> {
    coding: Coding,
    bytes: &'a [u8],
}

enum Coding {
    Raw,
    Huffman,
}

impl Text<'_> {
    fn decode<'s>(&self, scratch: &'s mut Vec<u8>) -> Result<Value<'s>, Malformed> {
        scratch.clear();
        match self.coding {
            Coding::Raw => scratch.extend_from_slice(self.bytes),
            Coding::Huffman => huffman::decode(self.bytes, scratch)?,
        }
        Ok(Value(scratch))
    }

    fn is(&self, name: &[u8], scratch: &mut Vec<u8>) -> Result<bool, Malformed> {
        match self.coding {
            Coding::Raw => Ok(self.bytes == name),
            // A code has five to thirty bits, so a longer string cannot be the name and need not be decoded.
            Coding::Huffman if self.bytes.len() > name.len() * 4 => Ok(false),
            Coding::Huffman => Ok(self.decode(scratch)?.0 == name),
        }
    }
}

/// A place in the block. It never moves past the end.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        let byte = self.peek().ok_or(Malformed)?;
        self.at += 1;
        Ok(byte)
    }

    /// An integer whose first byte lends it the low `prefix` bits (RFC 7541, section 5.1).
    fn integer(&mut self, prefix: u8) -> Result<u64, Malformed> {
        let mask = (1_u8 << prefix) - 1;
        let low = self.byte()? & mask;
        if low < mask {
            return Ok(u64::from(low));
        }
        let mut value = u64::from(mask);
        for nth in 0..MAX_CONTINUATION {
            let byte = self.byte()?;
            value += u64::from(byte & 0x7f) << (7 * nth);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    /// A string (RFC 7541, section 5.2).
    fn text(&mut self) -> Result<Text<'a>, Malformed> {
        let coding = if self.peek().ok_or(Malformed)? & 0x80 == 0 { Coding::Raw } else { Coding::Huffman };
        let length = usize::try_from(self.integer(7)?).map_err(|_| Malformed)?;
        let rest = self.bytes.get(self.at..).ok_or(Malformed)?;
        let bytes = rest.get(..length).ok_or(Malformed)?;
        self.at += length;
        Ok(Text { coding, bytes })
    }
}
