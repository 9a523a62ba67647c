//! What happens to every call between the wire and the driver.
//!
//! ```text
//! number, span -> gate, validation -> join or lock -> detached task -> answer, metrics, log
//! ```
//!
//! # Invariants
//! 1. A driver method that has started runs to its end, whatever becomes of the caller. Its locks go with it.
//! 2. No sentence leaves that holds a secret of the request.
//! 3. A panic costs one operation. Its answer is not final, because nobody knows what is left.

pub mod call;
mod locks;
pub(crate) mod method;
mod operations;
mod run;

pub(crate) use csi::{Redactor, SensitiveRequest as Sensitive};
pub(crate) use locks::{Hold, Key, Wanted};
pub(crate) use method::Method;
pub use operations::Running;
pub(crate) use run::{Pipeline, Plan, status_of};
