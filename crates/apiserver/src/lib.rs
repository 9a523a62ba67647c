//! The embedded Kubernetes API server: what storage needs of Kubernetes, served so that kubectl, kube-rs and the Go
//! controllers cannot tell. It is a library first: [`http::Service`] is a `tower` service that `kube::Client` calls in
//! process, and [`server`] puts the same service behind TLS. There is no storage policy in it.

pub mod admission;
mod api;
pub mod apply;
pub mod audit;
pub mod auth;
mod bootstrap;
pub mod catalog;
mod controllers;
mod crd;
mod discovery;
pub mod http;
mod keys;
pub mod kinds;
mod metrics;
pub mod patch;
pub mod request;
mod rights;
pub mod schema;
pub mod server;
pub mod sources;
pub mod status;
pub mod store;
mod verbs;

pub use api::{Api, Settings};
pub use bootstrap::BootstrapError;
