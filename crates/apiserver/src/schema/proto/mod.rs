//! Protobuf bodies, by the same tables as JSON: client-go sends them by default and does not fall back.
//!
//! A body is the four bytes `k8s\0` and an envelope that names the kind and carries the object's message. Reading gives
//! the printed form that JSON decoding gives; writing takes it back. Absent and empty differ on the wire only for
//! pointers, so [`super::types::Presence`] decides what an empty value means. Nothing here panics, whatever the bytes.

mod read;
pub(in crate::schema) mod wire;
mod write;

#[cfg(test)]
mod tests;

pub use read::{Envelope, decode, open};
pub use write::{encode, seal, seal_list};

use super::quantity::QuantityError;

/// The bytes every protobuf body starts with.
pub const MAGIC: [u8; 4] = *b"k8s\0";

/// Why bytes are not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtoError {
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    Magic,
    #[error("empty data")]
    Empty,
    #[error("unexpected EOF")]
    Truncated,
    #[error("proto: integer overflow")]
    Varint,
    #[error("proto: illegal tag or wire type {0}")]
    Tag(u64),
    #[error("proto: wrong wire type for field {field} of {message}")]
    WireType { message: &'static str, field: &'static str },
    #[error("proto: content encoding {0:?} is not supported")]
    Encoding(String),
    #[error("proto: message nested too deeply")]
    TooDeep,
    #[error("proto: too many values in one message")]
    TooMany,
    #[error("{0}")]
    Quantity(QuantityError),
    #[error("Time.MarshalJSON: year outside of range [0,9999]")]
    Year,
    #[error("proto: embedded object is not JSON")]
    NotJson,
}
