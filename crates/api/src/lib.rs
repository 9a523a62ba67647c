//! The nouns of Kubernetes storage: keys, ids, quantities, conditions.

pub mod object;
