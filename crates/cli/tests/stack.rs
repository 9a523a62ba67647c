//! `orlop up` as operators run it: with other people's drivers, on a cluster that exists, under systemd, and through an
//! upgrade of the program.

mod api_rig;
#[path = "stack/drivers.rs"]
mod drivers;
#[path = "stack/existing.rs"]
mod existing;
#[path = "stack/program.rs"]
mod program;
mod rig;
#[path = "stack/service.rs"]
mod service;
#[path = "stack/upgrade.rs"]
mod upgrade;
