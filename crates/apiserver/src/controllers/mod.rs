//! What happens without a request. Each controller reads the store, acts through the verbs like any client, and can be
//! stopped between any two steps: everything it knows it can learn again.

pub(crate) mod definitions;
pub(crate) mod garbage;
pub(crate) mod namespaces;
pub(crate) mod quotas;
