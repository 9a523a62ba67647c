//! Values that many objects repeat, each held once.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// A table of values that new ones are compared with. It holds a bounded number, so that a hostile cluster cannot make it
/// grow: a full table starts again. Values in use live on, and only their next equals are not shared with them. Looking for
/// those that nobody uses would cost a walk over the table for every value once it is full.
pub(crate) struct Shared<T: ?Sized> {
    held: Mutex<BTreeSet<Arc<T>>>,
    most: usize,
}

impl<T: ?Sized + Ord> Shared<T> {
    pub(crate) const fn new(most: usize) -> Self {
        Self { held: Mutex::new(BTreeSet::new()), most }
    }

    /// The value, shared with its equals.
    pub(crate) fn share(&self, value: impl AsRef<T> + Into<Arc<T>>) -> Arc<T> {
        // The table holds no state that a panic could leave half-written.
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(equal) = held.get(value.as_ref()) {
            return equal.clone();
        }
        if held.len() >= self.most {
            held.clear();
        }
        let value: Arc<T> = value.into();
        held.insert(value.clone());
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_are_shared_and_a_full_table_starts_again() {
        let table: Shared<str> = Shared::new(2);
        let first = table.share("a");
        assert!(Arc::ptr_eq(&first, &table.share("a")));
        table.share("b");
        table.share("c");
        assert_eq!(table.held.lock().unwrap().len(), 1);
        assert_eq!((&*first, &*table.share("a")), ("a", "a"));
    }
}
