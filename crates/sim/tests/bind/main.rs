//! The binder on the real API server: every rule that others can see, and every way to be interrupted.

mod claims;
mod crashes;
mod plugins;
mod rig;
mod volumes;
mod wakes;
