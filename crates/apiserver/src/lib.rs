//! The embedded Kubernetes API server: what storage needs of Kubernetes, served so that kubectl, kube-rs and the Go
//! controllers cannot tell. It is a library first: [`http::Service`] is a `tower` service that `kube::Client` calls in
//! process, and [`server`] puts the same service behind TLS. There is no storage policy in it.
//!
//! # In process
//! A client, a server and nothing between them. No socket, no thread, no file; where the runtime's time is paused, an
//! hour passes in no time.
//!
//! ```
//! use std::sync::Arc;
//!
//! use apiserver::auth::User;
//! use apiserver::sources::{RuntimeClock, SeededEntropy};
//! use apiserver::store::UnixMillis;
//! use apiserver::{Api, Settings};
//! use k8s_openapi::api::core::v1::PersistentVolumeClaim;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
//! let clock = RuntimeClock::starting_at(UnixMillis(1_800_000_000_000));
//! let api = Api::start(Settings::in_memory(Arc::new(clock), Arc::new(SeededEntropy::new(7)))?).await?;
//! // Garbage collection, namespaces, expiry and compaction; requests are answered without it, too.
//! let background = tokio::spawn({
//!     let api = api.clone();
//!     async move { api.run().await }
//! });
//!
//! let client = kube::Client::new(api.service().as_user(User::loopback()), "default");
//! let claims = kube::Api::<PersistentVolumeClaim>::default_namespaced(client);
//! let claim = serde_json::from_value(serde_json::json!({
//!     "metadata": {"name": "data"},
//!     "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
//! }))?;
//! let created = claims.create(&Default::default(), &claim).await?;
//! assert_eq!(created.status.and_then(|status| status.phase).as_deref(), Some("Pending"));
//!
//! api.service().stop();
//! background.await??;
//! # Ok(())
//! # })
//! # }
//! ```

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
mod paced_stream;
pub mod patch;
mod peer;
mod relations;
pub mod request;
mod rights;
pub mod schema;
pub mod seats;
pub mod server;
pub mod sources;
pub mod status;
pub mod store;
mod verbs;

pub use self::api::{Api, Settings};
pub use bootstrap::BootstrapError;
