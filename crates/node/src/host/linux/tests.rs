//! The machine, for real.
