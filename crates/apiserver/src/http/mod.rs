//! HTTP: one `tower` service that answers every path. It runs behind TLS ([`crate::server`]), and in process: a
//! `kube::Client` built on [`Service::as_user`] needs no socket.
//!
//! Everything a client sends is bounded here: body, headers, path, query, time. Nothing it sends can panic.

mod answer;
mod attempts;
mod body;
mod containers;
mod endpoints;
mod flow;
mod gate;
mod gzip;
mod handle;
mod join;
mod list_text;
mod member;
mod questions;
mod render;
mod resources;
mod sending;
mod weight;
mod writes;

pub use body::{Body, Lines};

pub(crate) use answer::{Answer, escape, json_bytes};
pub(crate) use attempts::JoinAttempts;
pub(crate) use flow::Flow;
pub(crate) use gate::Gate;

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};

pub(crate) use handle::ConnectionSeat;
use handle::{Origin, Strangers};

use crate::audit::AuditLog;
use crate::auth::{CertificateSigner, User};
use crate::discovery::SwaggerCache;
use crate::metrics::Metrics;
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
    origin: Origin,
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
    pub(crate) flow: Flow,
    /// What discovery tells clients to connect to.
    pub(crate) address: String,
    pub(crate) swagger: SwaggerCache,
    pub(crate) metrics: Arc<Metrics>,
    /// Signs for other machines, where they may join.
    pub(crate) machines: OnceLock<CertificateSigner>,
    pub(crate) attempts: JoinAttempts,
    /// What the rest of the process measures, in the text form of Prometheus.
    pub(crate) beside: OnceLock<Beside>,
}

/// Answers with what is measured beside the server.
pub(crate) struct Beside(pub(crate) Box<dyn Fn() -> String + Send + Sync>);

impl std::fmt::Debug for Beside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Beside")
    }
}

impl Service {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            origin: Origin {
                caller: Caller::Remote(None),
                address: None,
                audit: None,
                strangers: Strangers::Heard,
                seat: None,
            },
        }
    }

    /// The same service for one connection, whose client may have shown a certificate.
    #[must_use]
    pub fn for_peer(&self, certificate: Option<PeerCertificate>) -> Self {
        self.clone_for(Caller::Remote(certificate))
    }

    /// The same service for callers in this process, who are this user and need no credentials.
    #[must_use]
    pub fn as_user(&self, user: User) -> Self {
        self.clone_for(Caller::Known(Arc::new(user)))
    }

    fn clone_for(&self, caller: Caller) -> Self {
        Self { shared: Arc::clone(&self.shared), origin: Origin { caller, ..self.origin.clone() } }
    }

    /// The same service for clients at an address, which the audit log names.
    #[must_use]
    pub fn from_address(mut self, address: IpAddr) -> Self {
        self.origin.address = Some(address);
        self
    }

    /// The same service for one connection, which keeps its seat when its client shows a valid credential.
    #[must_use]
    pub(crate) fn on_seat(mut self, seat: Arc<ConnectionSeat>) -> Self {
        self.origin.seat = Some(seat);
        self
    }

    /// Who is behind a connection by its certificate alone, if that is somebody who may ask for something now.
    pub(crate) fn account_behind(&self, certificate: &PeerCertificate) -> Option<String> {
        let core = &self.shared.core;
        let user = self.shared.gate.authenticate(core, Some(certificate), &http::HeaderMap::new()).ok()?;
        if let Some(member) = member::Member::of(&user) {
            member.check(core).ok()?;
        }
        Some(flow::account_of(&user).to_owned())
    }

    /// The same service for who has a credential: without one, nothing is answered.
    #[must_use]
    pub fn without_strangers(mut self) -> Self {
        self.origin.strangers = Strangers::TurnedAway;
        self
    }

    /// The same service with every request noted in a log.
    #[must_use]
    pub fn audited(mut self, log: Arc<AuditLog>) -> Self {
        self.origin.audit = Some(log);
        self
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
        let (shared, origin) = (Arc::clone(&self.shared), self.origin.clone());
        Box::pin(async move { Ok(handle::handle(shared, origin, request).await) })
    }
}
