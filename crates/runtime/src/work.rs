//! What lines of the log are about: a claim, a volume, and the attempt that works on them.
//!
//! Work opens one of these spans where it begins. Every line that is written below it, by whomever, then carries `claim`,
//! `volume` and `operation`. The spans are of the most important level, so that warnings carry these fields also where
//! nothing else is logged. Who writes the log numbers the operations: there is no counter here that all would share.

use api::Key;
use tracing::Span;
use tracing::field::display;

/// The name of these spans. Who writes the log knows them by it.
pub const SPAN: &str = "operation";
/// The field that says what is done, such as `bind`. With a number it becomes the `operation` of a line.
pub const KIND: &str = "kind";

/// Begins work on a claim, whose volume may be known later.
pub fn on_claim(kind: &'static str, claim: &Key) -> Span {
    begin(kind, Some(claim), None)
}

/// Begins work on a volume, by its name or handle, and on its claim, if it has one.
pub fn on_volume(kind: &'static str, volume: &str, claim: Option<&Key>) -> Span {
    begin(kind, claim, Some(volume))
}

fn begin(kind: &'static str, claim: Option<&Key>, volume: Option<&str>) -> Span {
    // What is not known yet can be recorded later.
    tracing::error_span!("operation", kind, claim = claim.map(display), volume = volume.map(display))
}

/// Says which claim the work that runs is about, once that is known.
pub fn is_about_claim(claim: &Key) {
    Span::current().record("claim", display(claim));
}

/// Says which volume the work that runs is about, once that is known.
pub fn is_about_volume(volume: &str) {
    Span::current().record("volume", display(volume));
}
