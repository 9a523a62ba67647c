//! What guards volumes and makes claims for pods, on the API server, with everything that can go wrong between two
//! requests: protection (spec controllers 8) and ephemeral claims (spec controllers 9).

mod ephemeral;
mod protect;
mod stage;
