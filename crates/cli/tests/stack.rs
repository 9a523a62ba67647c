//! `orlop up` as operators run it: with other people's drivers, on a cluster that exists, under systemd, and through an
//! upgrade of the program.

mod api_rig;
mod rig;
#[path = "stack/drivers.rs"]
mod drivers;
#[path = "stack/existing.rs"]
mod existing;
#[path = "stack/program.rs"]
mod program;
#[path = "stack/service.rs"]
mod service;
#[path = "stack/upgrade.rs"]
mod upgrade;
