//! The tables: one `Struct` per API type, one file per topic.
//!
//! Names, protobuf numbers, presence, list types and merge keys are facts of Kubernetes 1.36; the sentences are ours.
//! A field's line reads: JSON name, type, protobuf number (0: the envelope carries it), presence, sentence. `list!(T)` is
//! an atomic list that patches replace; `list!(T, APPLY, STRATEGIC)` says how server-side apply and strategic merge
//! patches treat it.

pub mod apiextensions;
pub mod authentication;
pub mod authorization;
pub mod container;
pub mod coordination;
pub mod core;
pub mod events;
pub mod meta;
pub mod node;
pub mod persistent;
pub mod pod;
pub mod policy;
pub mod rbac;
pub mod scheduling;
pub mod sources;
pub mod storage;
pub mod volume;

#[cfg(test)]
mod tests;

use super::types::{Field, Presence, Type};

const fn field(name: &'static str, ty: Type, number: u32, presence: Presence, doc: &'static str) -> Field {
    Field { name, ty, number, presence, doc }
}

/// Carried by the envelope in protobuf.
pub const API_VERSION: Field =
    field("apiVersion", Type::String, 0, Presence::OmitZero, "Group and version this object is written in.");
pub const KIND: Field = field("kind", Type::String, 0, Presence::OmitZero, "Kind of the object.");

macro_rules! list {
    ($item:expr) => {
        list!($item, Atomic, Replace)
    };
    ($item:expr, $apply:ident $(($keys:expr))?, $strategic:ident $(($key:expr))?) => {
        $crate::schema::types::Type::List(&$crate::schema::types::List {
            item: $item,
            apply: $crate::schema::types::ListKind::$apply $(($keys))?,
            strategic: $crate::schema::types::ListPatch::$strategic $(($key))?,
        })
    };
}
use list;
