//! Names with a domain in front.

/// What the keeper puts on claims.
pub(crate) const KEEPER: &str = "sim.orlop.dev/keeper";
/// What the server puts on claims; nobody but the keeper takes it away here.
pub(crate) const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
