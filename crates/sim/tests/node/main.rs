//! The node agent on a model machine, with a model driver, against the real API server (spec node 5 to 23, 30 to 32).

mod driver;
mod faults;
mod filesystem;
mod kinds;
mod narrow;
mod restart;
mod stage;
mod terms;
