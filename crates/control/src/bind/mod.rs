//! Bind.
