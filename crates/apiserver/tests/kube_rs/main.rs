//! kube-rs as it is used, against the API in process: typed objects, every kind of patch, watchers, reflectors,
//! controllers, leases, custom resources and errors. On paused time, so that hours pass in no time; one part over TLS.

mod controllers;
mod custom;
mod errors;
mod leases;
mod objects;
mod patches;
mod server;
mod tls;
mod watching;
