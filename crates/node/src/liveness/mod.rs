//! Asks a driver whether it is well, for a probe over HTTP (NODE-28).
//!
//! Each question is a connection of its own: a driver that takes no connections is not well, whatever an old one says.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ::csi::v1;
use ::csi::{Endpoint, connect_once};
use runtime::Metrics;
use runtime::csi::code_name;
use runtime::metrics::Caller;
use tokio::time::{Instant, timeout};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use v1::identity_client::IdentityClient;

use crate::registry::sentence;

/// What metrics say until the driver has told its name.
const UNKNOWN_DRIVER: &str = "unknown-driver";
/// For the name, which only metrics want.
const NAME_PATIENCE: Duration = Duration::from_millis(200);
const PROBE: &str = "/csi.v1.Identity/Probe";
const GET_PLUGIN_INFO: &str = "/csi.v1.Identity/GetPluginInfo";

/// Asks one driver.
#[derive(Debug)]
pub struct Prober {
    endpoint: Endpoint,
    /// For connecting and Probe together.
    patience: Duration,
    metrics: Metrics,
    name: Mutex<Option<String>>,
}

/// Why a driver is not well.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unwell {
    #[error("the driver cannot be reached: {0}")]
    Unreachable(String),
    #[error("the driver says that it is not ready")]
    NotReady,
    #[error("Probe: {code}: {message}")]
    Failed { code: &'static str, message: String },
    #[error("no answer within {0:?}")]
    Slow(Duration),
}

impl Prober {
    pub fn new(endpoint: &Endpoint, patience: Duration, metrics: &Metrics) -> Self {
        Self { endpoint: endpoint.clone(), patience, metrics: metrics.clone(), name: Mutex::new(None) }
    }

    /// Connects and calls Probe. A driver that does not say whether it is ready is.
    pub async fn probe(&self) -> Result<(), Unwell> {
        let asked = timeout(self.patience, self.ask()).await.unwrap_or(Err(Unwell::Slow(self.patience)));
        // A driver that is well is asked for its name, and not waited for.
        let _ = timeout(NAME_PATIENCE, self.meet(&asked?)).await;
        Ok(())
    }

    async fn ask(&self) -> Result<Channel, Unwell> {
        let connected = connect_once(&self.endpoint).await;
        let (channel, _lost) = connected.map_err(|error| Unwell::Unreachable(sentence(&error)))?;
        let mut identity = IdentityClient::new(channel.clone());
        let begun = Instant::now();
        let answer = identity.probe(self.timed(v1::ProbeRequest {})).await;
        self.count(PROBE, &answer, begun);
        match answer {
            Ok(answer) if answer.get_ref().ready == Some(false) => Err(Unwell::NotReady),
            Ok(_) => Ok(channel),
            Err(status) => Err(Unwell::Failed { code: code_name(status.code()), message: status.message().to_owned() }),
        }
    }

    /// Learns the driver's name, once; it is only for the metrics.
    async fn meet(&self, channel: &Channel) {
        if self.name.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            return;
        }
        let begun = Instant::now();
        let asked = IdentityClient::new(channel.clone()).get_plugin_info(self.timed(v1::GetPluginInfoRequest {})).await;
        self.count(GET_PLUGIN_INFO, &asked, begun);
        if let Ok(info) = asked
            && !info.get_ref().name.is_empty()
        {
            let name = info.into_inner().name;
            tracing::info!(driver = name, "the driver answers");
            *self.name.lock().unwrap_or_else(PoisonError::into_inner) = Some(name);
        }
    }

    fn timed<Q>(&self, request: Q) -> Request<Q> {
        let mut request = Request::new(request);
        // Our own clock ends it: tonic calls a call that ran out of time cancelled, which means something else.
        request.set_timeout(self.patience.saturating_mul(2));
        request
    }

    fn count<R>(&self, method: &str, answer: &Result<R, Status>, begun: Instant) {
        let name = self.name.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let code = answer.as_ref().err().map_or(Code::Ok, Status::code);
        let labels = vec![
            ("driver_name", name.unwrap_or_else(|| UNKNOWN_DRIVER.to_owned())),
            ("method_name", method.to_owned()),
            ("grpc_status_code", code_name(code).to_owned()),
        ];
        self.metrics.called(Caller::Sidecar, labels, begun.elapsed());
    }
}
