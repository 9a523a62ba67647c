//! From bytes on the wire to a typed request: method, path, query and headers in, an enum of what is asked out.
//!
//! Everything here is a pure function over strings. Nothing reads a store, a clock or a socket, so the same parser
//! serves TCP, the in-process client and the fuzzer.
//!
//! # Invariants
//! 1. Authorization and routing read the same [`RequestInfo`]: a path cannot be authorized as one thing and served
//!    as another.
//! 2. No input panics; what is too large is refused before it is parsed.
//! 3. A refusal carries the code, reason and text a client of kube-apiserver 1.36 would see (API-5).
//!
//! # Not here
//! Bodies (`schema/`), the Status object itself (`status.rs`), and which resources exist.

mod continue_token;
mod fields;
mod go_text;
mod info;
mod label_names;
mod labels;
mod media;
mod options;
mod query;
mod refusal;
mod write_options;

#[cfg(test)]
mod tests;

pub use continue_token::{ContinueAt, ContinueToken};
pub use fields::{FieldLabels, FieldSelector, FieldTerm};
pub use go_text::{go_quote, go_quote_list, is_go_printable};
pub use info::{Discovery, Endpoint, Health, Method, RequestInfo, ResourceRequest, Target, Verb};
pub use label_names::{label_key_problems, label_value_problems};
pub use labels::{LabelOperator, LabelRequirement, LabelSelector};
pub use media::{
    Accepted, BodyType, DiscoveryForm, Encoding, MetaVersion, Offer, PatchType, ResourceFlavor, Transform, body_type,
    negotiate, negotiate_discovery, patch_type, wants_pretty,
};
pub use options::{
    Freshness, GetOptions, IncludeObject, ListOptions, ListRead, TableOptions, WatchOptions, WatchStart,
    request_timeout,
};
pub use query::Query;
pub(crate) use query::percent_decode;
pub(crate) use refusal::aggregate;
pub use refusal::{Cause, Details, Refusal};
pub use write_options::{
    DeleteOptions, DryRun, FieldValidation, PatchOptions, Preconditions, Propagation, WriteOptions, field_manager,
};

/// The largest body of a request: 3 MiB.
pub const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;
/// The most values that a JSON body may have: each takes a hundred times its text in memory, or more, once it is read.
pub const MAX_BODY_VALUES: usize = 100_000;
/// Longest path, in bytes as sent. The longest meaningful one is about 1 KiB.
pub const MAX_PATH_BYTES: usize = 8 * 1024;
/// Longest query, in bytes as sent. Selectors over many names are the long ones.
pub const MAX_QUERY_BYTES: usize = 48 * 1024;
/// Most header fields of one request.
pub const MAX_HEADERS: usize = 128;
/// Most bytes of names and values of the header fields of one request. A service-account token is about 1 KiB.
pub const MAX_HEADER_BYTES: usize = 64 * 1024;

/// Refuses a request whose header fields are too many or too large together.
pub fn check_headers<'a>(fields: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Result<(), Refusal> {
    let mut bytes = 0usize;
    for (count, (name, value)) in fields.into_iter().enumerate() {
        bytes = bytes.saturating_add(name.len()).saturating_add(value.len());
        if count >= MAX_HEADERS || bytes > MAX_HEADER_BYTES {
            return Err(Refusal::HeadersTooLarge);
        }
    }
    Ok(())
}
