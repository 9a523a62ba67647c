//! The wire format itself: tags, varints and lengths.

use super::ProtoError;

/// What follows a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Payload<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

/// The fields of one message, in the order they were written.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// The next field: its number and what it carries.
    pub(super) fn next(&mut self) -> Result<Option<(u32, Payload<'a>)>, ProtoError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok().filter(|number| *number != 0).ok_or(ProtoError::Tag(tag))?;
        let payload = match tag & 7 {
            0 => Payload::Varint(self.varint()?),
            1 => Payload::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| ProtoError::Truncated)?;
                Payload::Bytes(self.take(length)?)
            }
            5 => Payload::Fixed32(u32::from_le_bytes(self.array()?)),
            _ => return Err(ProtoError::Tag(tag)),
        };
        Ok(Some((number, payload)))
    }

    pub(super) fn varint(&mut self) -> Result<u64, ProtoError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(ProtoError::Truncated)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ProtoError::Varint)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtoError> {
        let (head, rest) = self.rest.split_at_checked(length).ok_or(ProtoError::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtoError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(ProtoError::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }
}

pub(in crate::schema) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(in crate::schema) fn put_number(out: &mut Vec<u8>, field: u32, value: i64) {
    put_varint(out, u64::from(field) << 3);
    put_varint(out, value as u64);
}

pub(in crate::schema) fn put_double(out: &mut Vec<u8>, field: u32, value: f64) {
    put_varint(out, u64::from(field) << 3 | 1);
    out.extend_from_slice(&value.to_bits().to_le_bytes());
}

pub(in crate::schema) fn put_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    put_varint(out, u64::from(field) << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
