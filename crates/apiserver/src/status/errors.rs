//! The problems of one object, bounded while they are collected.
//!
//! Guarantee: whatever a validation finds, at most [`MOST_ERRORS`] problems with at most [`MOST_ERROR_BYTES`] bytes of
//! text are kept in memory. They are the first ones, in the order in which they were found, so the answer is the same as
//! if all of them had been collected and then cut.

use std::ops::Deref;

use super::FieldError;

/// Problems of one object that are reported. A client that sends more mistakes than this fixes the first ones first.
pub(super) const MOST_ERRORS: usize = 1_000;
/// Bytes that the texts of all reported problems may have together; the first problem is reported whatever its size.
pub(super) const MOST_ERROR_BYTES: usize = 1 << 20;

/// The first problems of an object. Further ones are dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldErrors {
    errors: Vec<FieldError>,
    bytes: usize,
    full: bool,
}

impl FieldErrors {
    pub const fn new() -> Self {
        Self { errors: Vec::new(), bytes: 0, full: false }
    }

    /// Adds a problem unless there is no room.
    pub fn push(&mut self, error: FieldError) {
        if self.full {
            return;
        }
        self.bytes += error.size();
        if !self.errors.is_empty() && self.bytes > MOST_ERROR_BYTES {
            self.full = true;
            return;
        }
        self.errors.push(error);
        self.full = self.errors.len() >= MOST_ERRORS;
    }

    /// Adds the same problem several times.
    pub(crate) fn push_times(&mut self, error: &FieldError, times: usize) {
        for _ in 0..times {
            if self.full {
                return;
            }
            self.push(error.clone());
        }
    }

    /// Whether further problems are dropped: a caller can skip work that only finds more of them.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Adds problems until there is no room; the iterator is not asked for more than that.
    pub fn extend(&mut self, errors: impl IntoIterator<Item = FieldError>) {
        let mut errors = errors.into_iter();
        while !self.full {
            match errors.next() {
                Some(error) => self.push(error),
                None => return,
            }
        }
    }
}

impl Deref for FieldErrors {
    type Target = [FieldError];

    fn deref(&self) -> &[FieldError] {
        &self.errors
    }
}

impl FromIterator<FieldError> for FieldErrors {
    fn from_iter<I: IntoIterator<Item = FieldError>>(errors: I) -> Self {
        let mut collected = Self::new();
        collected.extend(errors);
        collected
    }
}

impl From<FieldError> for FieldErrors {
    fn from(error: FieldError) -> Self {
        std::iter::once(error).collect()
    }
}

impl IntoIterator for FieldErrors {
    type Item = FieldError;
    type IntoIter = std::vec::IntoIter<FieldError>;

    fn into_iter(self) -> Self::IntoIter {
        self.errors.into_iter()
    }
}

impl<'a> IntoIterator for &'a FieldErrors {
    type Item = &'a FieldError;
    type IntoIter = std::slice::Iter<'a, FieldError>;

    fn into_iter(self) -> Self::IntoIter {
        self.errors.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_beyond_the_count_are_dropped_while_they_are_collected() {
        let mut asked = 0;
        let errors: FieldErrors = std::iter::repeat_with(|| {
            asked += 1;
            FieldError::required(format!("f{asked}"), "")
        })
        .collect();
        assert!(errors.is_full());
        assert_eq!((errors.len(), asked), (MOST_ERRORS, MOST_ERRORS), "an endless iterator is not asked for more");
        assert_eq!(errors[0].field, "f1");
    }

    #[test]
    fn errors_beyond_the_bytes_are_dropped_but_the_first_one_never_is() {
        let long = || FieldError::required("f".repeat(MOST_ERROR_BYTES), "");
        let mut errors = FieldErrors::from(long());
        assert!(!errors.is_full());
        errors.push(FieldError::required("g", ""));
        assert!(errors.is_full() && errors.len() == 1);
    }
}
