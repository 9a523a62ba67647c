//! What runs beside a CSI driver, on the real API server: what the driver is asked, what users see, and every way to be
//! interrupted (PROVISION-2.6 to PROVISION-2.13).

mod capacities;
mod creating;
mod driver;
mod nodes;
mod sources;
mod stage;
