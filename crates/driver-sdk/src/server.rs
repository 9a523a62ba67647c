//! A finished driver: its routes, and serving them until told to stop.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use csi::Listener;
use csi::v1::controller_server::ControllerServer;
use csi::v1::group_controller_server::GroupControllerServer;
use csi::v1::identity_server::IdentityServer;
use csi::v1::node_server::NodeServer;
use csi::v1::snapshot_metadata_server::SnapshotMetadataServer;
use futures_util::stream::select_all;
use tokio::sync::oneshot;
use tonic::service::Routes;
use tonic::transport::Server;

use crate::builder::{Definition, DriverBuilder, Identity};
use crate::metrics::Metrics;
use crate::pipeline::{Pipeline, Running};
use crate::selftest::{self, SelfTestError};
use crate::serve::{ControllerService, IdentityService, NodeService, Shared};

/// The largest message in either direction: what gRPC clients accept by default.
const LARGEST_MESSAGE: usize = 4 << 20;

/// Calls that a client may abandon at once without losing its connection: a kubelet with many pods gives up on many
/// calls in one moment, and those it still waits for must not suffer for it.
const ABANDONED_CALLS: usize = 10_000;

/// How long clients have to close their connections after the last call has ended.
const LINGER: Duration = Duration::from_millis(200);

/// Which part of a driver a process serves. What it advertises does not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    All,
    Controller,
    Node,
}

impl Mode {
    fn controller(self) -> bool {
        matches!(self, Self::All | Self::Controller)
    }

    fn node(self) -> bool {
        matches!(self, Self::All | Self::Node)
    }
}

/// A driver, ready to serve. Clones are handles to the same one.
#[derive(Clone)]
pub struct Driver {
    shared: Arc<Shared>,
}

/// Why serving ended, other than by being told to with everything finished.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("nothing to listen on")]
    NoListener,
    #[error("the driver has no {0} side")]
    NoSuchSide(&'static str),
    #[error("the driver's self-test at start")]
    SelfTest(#[from] SelfTestError),
    #[error("serving the sockets")]
    Transport(#[source] tonic::transport::Error),
    #[error("still running at the end of the grace period: {}", list(.0))]
    Unfinished(Vec<Running>),
}

fn list(running: &[Running]) -> String {
    running.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl Driver {
    pub fn builder(identity: Identity) -> DriverBuilder {
        DriverBuilder::new(identity)
    }

    pub(crate) fn new(definition: Definition) -> Self {
        let pipeline = Pipeline::new(Metrics::new(definition.identity.name()));
        Self { shared: Arc::new(Shared::new(definition, pipeline)) }
    }

    pub fn identity(&self) -> &Identity {
        &self.shared.definition.identity
    }

    pub(crate) fn has_controller(&self) -> bool {
        self.shared.definition.controller.is_some()
    }

    pub(crate) fn has_node(&self) -> bool {
        self.shared.definition.node.is_some()
    }

    /// The services of one mode. A service that is not in it is unknown there, which callers see as UNIMPLEMENTED.
    pub fn routes(&self, mode: Mode) -> Routes {
        macro_rules! limited {
            ($server:expr) => {
                $server.max_decoding_message_size(LARGEST_MESSAGE).max_encoding_message_size(LARGEST_MESSAGE)
            };
        }
        let shared = self.shared.clone();
        let mut routes = Routes::new(limited!(IdentityServer::new(IdentityService { shared: shared.clone() })));
        if let Some(table) = shared.definition.controller.as_ref().filter(|_| mode.controller()) {
            let service = ControllerService { shared: shared.clone(), table: Arc::new(table.clone()) };
            if table.group_snapshots.is_some() {
                routes = routes.add_service(limited!(GroupControllerServer::new(service.clone())));
            }
            if table.snapshot_metadata.is_some() {
                routes = routes.add_service(limited!(SnapshotMetadataServer::new(service.clone())));
            }
            routes = routes.add_service(limited!(ControllerServer::new(service)));
        }
        if let Some(table) = shared.definition.node.as_ref().filter(|_| mode.node()) {
            let service = NodeService { shared: shared.clone(), table: Arc::new(table.clone()) };
            routes = routes.add_service(limited!(NodeServer::new(service)));
        }
        routes
    }

    /// Serves until `shutdown` ends, then finishes what runs, for at most `grace`.
    ///
    /// After the grace period what is left goes on until the process ends. That is no worse than a crash, from which
    /// a driver recovers anyway; the error names it so that it can be logged.
    pub async fn serve(
        self,
        listeners: impl IntoIterator<Item = Listener>,
        mode: Mode,
        shutdown: impl Future<Output = ()>,
        grace: Duration,
    ) -> Result<(), ServeError> {
        self.check_sides(mode)?;
        let incoming = select_all(listeners.into_iter().map(Listener::incoming));
        if incoming.is_empty() {
            return Err(ServeError::NoListener);
        }
        selftest::run(&self, mode).await?;
        let (stop, stopped) = oneshot::channel();
        let signal = async {
            shutdown.await;
            tracing::info!(running = self.running().len(), "stops accepting calls and finishes those that run");
            // The receiver lives as long as this function.
            let _ = stop.send(());
        };
        let server = Server::builder()
            .http2_max_pending_accept_reset_streams(Some(ABANDONED_CALLS))
            .add_routes(self.routes(mode))
            .serve_with_incoming_shutdown(incoming, signal);
        let drained = async {
            server.await.map_err(ServeError::Transport)?;
            self.shared.pipeline.operations.idle().await;
            Ok(())
        };
        // A client may keep its connection open for as long as it likes; only running calls are worth waiting for.
        let finished = async {
            let _ = stopped.await;
            let quiet = async {
                loop {
                    self.shared.pipeline.operations.idle().await;
                    tokio::time::sleep(LINGER).await;
                    if self.running().is_empty() {
                        return;
                    }
                }
            };
            // Out of time is told by what still runs.
            let _ = tokio::time::timeout(grace, quiet).await;
        };
        tokio::select! {
            biased;
            result = drained => result,
            () = finished => match self.running() {
                running if running.is_empty() => Ok(()),
                running => Err(ServeError::Unfinished(running)),
            },
        }
    }

    fn check_sides(&self, mode: Mode) -> Result<(), ServeError> {
        match mode {
            Mode::Controller if !self.has_controller() => Err(ServeError::NoSuchSide("controller")),
            Mode::Node if !self.has_node() => Err(ServeError::NoSuchSide("node")),
            Mode::All | Mode::Controller | Mode::Node => Ok(()),
        }
    }

    /// Ends when no operation runs. New ones may start meanwhile.
    pub async fn idle(&self) {
        self.shared.pipeline.operations.idle().await;
    }

    /// The operations that run now.
    pub fn running(&self) -> Vec<Running> {
        self.shared.pipeline.operations.running()
    }

    /// A handle to the counters, for [`crate::metrics::serve`].
    pub fn metrics(&self) -> Metrics {
        self.shared.pipeline.metrics.clone()
    }

    /// The counters in the text format of Prometheus.
    pub fn metrics_text(&self) -> String {
        self.shared.pipeline.metrics.text()
    }

    /// Checks the rules that depend on what the driver answers at run time. [`Driver::serve`] does this first.
    pub async fn self_test(&self, mode: Mode) -> Result<(), SelfTestError> {
        selftest::run(self, mode).await
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.shared.definition, f)
    }
}
