//! What the server serves, as data: one table of types that decoding, protobuf, patches and OpenAPI all read.

pub mod decode;
pub mod encode;
pub mod kinds;
pub mod openapi;
pub mod proto;
pub use ::api::quantity;
pub mod tables;
pub mod time;
pub(crate) mod trail;
pub mod types;
