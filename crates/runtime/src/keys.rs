//! Metadata keys that only the machinery reads.

/// On the bookmark that ends the list at the start of a watch.
pub(crate) const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Where Kubernetes tells a pod its namespace. Not a key, but a name with a domain in it all the same.
pub(crate) const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
