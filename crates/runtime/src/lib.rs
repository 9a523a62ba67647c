//! What drives any step of a volume's life: watch caches, keyed queues, leases, events, metrics, the CSI client.
