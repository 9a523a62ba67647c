//! Provision: what is decided before and after a volume is made for a claim.

pub mod csi;
