//! Metadata keys that only the machinery reads.

/// On the bookmark that ends the list at the start of a watch.
pub(crate) const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
