//! What guards volumes and makes claims for pods, on the API server, with everything that can go wrong between two
//! requests: protection (PROTECT-8), ephemeral claims (PROTECT-9), and the binder's own plugins (BIND-4.10).

mod ephemeral;
mod protect;
mod recycle;
mod stage;
