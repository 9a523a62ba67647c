//! HTTP: one `tower` service that answers every path. It runs behind TLS ([`crate::server`]), and in process: a
//! `kube::Client` built on [`Service::as_user`] needs no socket.
//!
//! Everything a client sends is bounded here: body, headers, path, query, time. Nothing it sends can panic.

mod answer;
mod body;
mod endpoints;
mod gate;
mod handle;
mod list_text;
mod questions;
mod render;
mod resources;
mod writes;

pub use body::{Body, Lines};

pub(crate) use answer::{Answer, escape, json_bytes};
pub(crate) use gate::Gate;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};

use crate::auth::User;
use crate::store::UnixMillis;
use crate::verbs::Core;

/// Why a body could not be read.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The certificate that a TLS client showed, and whose key it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerCertificate {
    /// In DER, from a chain that ends at our authority.
    Ours(Arc<[u8]>),
    /// From somebody else, for something else, or from another time.
    Untrusted,
}

/// The API as a service. Clones share everything.
#[derive(Debug, Clone)]
pub struct Service {
    shared: Arc<Shared>,
    caller: Caller,
}

/// Who stands behind the requests of one connection.
#[derive(Debug, Clone)]
enum Caller {
    /// Credentials come with each request, or with the connection's certificate.
    Remote(Option<PeerCertificate>),
    /// In process: the owner of the server says who it is.
    Known(Arc<User>),
}

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) core: Arc<Core>,
    pub(crate) gate: Gate,
    /// What discovery tells clients to connect to.
    pub(crate) address: String,
}

impl Service {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, caller: Caller::Remote(None) }
    }

    /// The same service for one connection, whose client may have shown a certificate.
    #[must_use]
    pub fn for_peer(&self, certificate: Option<PeerCertificate>) -> Self {
        Self { shared: Arc::clone(&self.shared), caller: Caller::Remote(certificate) }
    }

    /// The same service for callers in this process, who are this user and need no credentials.
    #[must_use]
    pub fn as_user(&self, user: User) -> Self {
        Self { shared: Arc::clone(&self.shared), caller: Caller::Known(Arc::new(user)) }
    }

    /// The time of the server's clock.
    pub(crate) fn now(&self) -> UnixMillis {
        self.shared.core.clock.now()
    }

    /// Fails readiness and ends all watches.
    pub fn stop(&self) {
        self.shared.core.stopping.send_replace(true);
    }
}

impl<B> tower::Service<Request<B>> for Service
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (shared, caller) = (Arc::clone(&self.shared), self.caller.clone());
        Box::pin(async move { Ok(handle::handle(shared, caller, request).await) })
    }
}
