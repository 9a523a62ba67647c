//! An error with everything that led to it, for events and logs.

use std::error::Error;

/// The error's text and those of its causes, in one line. A cause that the text before it already ends with is not repeated.
pub fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        source = cause.source();
    }
    text
}
