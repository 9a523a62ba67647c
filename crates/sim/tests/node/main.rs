//! The node agent on a model machine, with a model driver, against the real API server (NODE-5 to NODE-23, NODE-30 to
//! NODE-32).

mod alone;
mod devices;
mod driver;
mod faults;
mod filesystem;
mod kinds;
mod metrics;
mod migrated;
mod narrow;
mod pods;
mod races;
mod restart;
mod selinux;
mod slots;
mod stage;
mod terms;
mod unread;
mod upkeep;
mod wire;
