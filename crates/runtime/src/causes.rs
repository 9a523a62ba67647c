//! An error with everything that led to it, for events and logs.

use std::error::Error;

/// The error's text and those of its causes, in one line.
pub fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
