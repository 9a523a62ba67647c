//! The attacher beside a CSI driver, on the real API server: what the driver is asked, what the API shows, and every
//! way to be interrupted (ATTACHER-3).

mod attaching;
mod crashes;
mod detaching;
mod driver;
mod listing;
mod stage;
mod together;
mod trivial;
