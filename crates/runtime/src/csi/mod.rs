//! A CSI driver on a socket: it may be absent, slow, restarted or replaced, and we stay.
//!
//! [`Driver::run`] keeps one connection. After each connect it probes the driver and reads its name and capabilities
//! anew, because what answers may be another version. A driver with another name is not our driver: that ends `run`. A
//! capability that is gone is said ([`Facts::shrunk`]); who needs it decides.
//!
//! # Invariants
//! 1. A call is made only to a driver that has been asked what it can do since it connected.
//! 2. A call that was not sent is [`CallError::NotConnected`]; everything else carries the gRPC code, of which
//!    `lifecycle` knows what it means.
//! 3. Requests are logged through their redacted `Debug` only.

mod calls;
#[cfg(test)]
mod echo_tests;
mod facts;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::watch;
use ::csi::{Redactor, SensitiveRequest, v1};
use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};
use v1::controller_client::ControllerClient;
use v1::group_controller_client::GroupControllerClient;
use v1::identity_client::IdentityClient;
use v1::node_client::NodeClient;
use v1::plugin_capability::service::Type as Service;

pub use facts::{Capabilities, Facts};

use lifecycle::driver_limits;

use crate::causes;
use crate::metrics::{Caller, Metrics};
use crate::stop::Stop;

/// Between attempts to connect, and between probes.
const PAUSE: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// What metrics say until the driver has told its name.
const UNKNOWN_DRIVER: &str = "unknown-driver";
/// Drivers that replaced an in-tree plugin; of a sidecar's metrics only theirs say whether a call was for a migrated volume.
const MIGRATED: [&str; 7] = [
    "pd.csi.storage.gke.io",
    "ebs.csi.aws.com",
    "cinder.csi.openstack.org",
    "disk.csi.azure.com",
    "file.csi.azure.com",
    "csi.vsphere.vmware.com",
    "pxd.portworx.com",
];

/// A connection: a channel that ends with it, and the news of its end.
pub struct Connection {
    /// It must not connect again by itself.
    pub channel: Channel,
    /// Resolves when the connection has ended.
    pub lost: BoxFuture<'static, ()>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// How to reach a driver. A simulator brings its own.
pub trait Dial: Send + Sync + 'static {
    /// Connects once; the text says why not.
    fn dial(&self) -> BoxFuture<'_, Result<Connection, String>>;
}

impl Dial for ::csi::Endpoint {
    fn dial(&self) -> BoxFuture<'_, Result<Connection, String>> {
        Box::pin(async move {
            let (channel, lost) = ::csi::connect_once(self).await.map_err(|error| causes(&error))?;
            Ok(Connection { channel, lost: Box::pin(lost) })
        })
    }
}

impl Dial for Box<dyn Dial> {
    fn dial(&self) -> BoxFuture<'_, Result<Connection, String>> {
        (**self).dial()
    }
}

/// Why there is no connection once we are told to stop.
const STOPPING: &str = "stopping";

/// How to treat a driver.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long the calls that ask what it is may take: `--timeout`.
    pub timeout: Duration,
    /// Whether to ask what it does on a node.
    pub node: bool,
    /// As whose the calls are counted.
    pub caller: Caller,
}

impl Options {
    /// As a node agent treats drivers.
    pub fn on_node() -> Options {
        Options { node: true, caller: Caller::Node, ..Options::default() }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options { timeout: Duration::from_secs(10), node: false, caller: Caller::Sidecar }
    }
}

/// How things stand with the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// There is no connection, or the driver is not ready.
    Down {
        /// Why, in a sentence.
        why: String,
        /// Since when.
        since: Instant,
    },
    /// It is connected and ready.
    Up(Arc<Facts>),
}

impl Link {
    /// What is known, if it is connected.
    pub fn facts(&self) -> Option<&Arc<Facts>> {
        match self {
            Link::Down { .. } => None,
            Link::Up(facts) => Some(facts),
        }
    }
}

/// Why a driver cannot be used any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// Another driver answers on the socket.
    #[error("the driver on the socket was {was:?} and is now {is:?}; restart this process if that is intended")]
    NameChanged {
        /// The name at first.
        was: String,
        /// The name now.
        is: String,
    },
}

/// Why a call has no good answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// Nothing was sent.
    #[error("the driver is not connected: {why}")]
    NotConnected {
        /// Why not.
        why: String,
    },
    /// The driver answered with an error, or the connection or the time ended during the call.
    #[error("{method}: {code:?}: {message}")]
    Status {
        /// The call.
        method: &'static str,
        /// The gRPC code.
        code: Code,
        /// The driver's sentence.
        message: String,
    },
}

impl CallError {
    /// The gRPC code; `None` if nothing was sent.
    pub fn code(&self) -> Option<Code> {
        match self {
            CallError::NotConnected { .. } => None,
            CallError::Status { code, .. } => Some(*code),
        }
    }

    /// The driver's sentence, or why nothing was sent.
    pub fn message(&self) -> &str {
        match self {
            CallError::NotConnected { why } => why,
            CallError::Status { message, .. } => message,
        }
    }
}

/// A driver. Clones share the connection.
#[derive(Clone)]
pub struct Driver {
    inner: Arc<Inner>,
    /// Calls on this handle are for volumes that an in-tree plugin made.
    migrated: bool,
}

struct Inner {
    dial: Box<dyn Dial>,
    options: Options,
    metrics: Metrics,
    link: watch::Sender<Link>,
    channel: Mutex<Option<Channel>>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("link", &*self.inner.link.borrow()).finish_non_exhaustive()
    }
}

impl Driver {
    /// A driver that nobody has connected to yet.
    pub fn new(dial: impl Dial, options: Options, metrics: &Metrics) -> Driver {
        let down = Link::Down { why: "not connected yet".to_owned(), since: Instant::now() };
        let inner = Inner {
            dial: Box::new(dial),
            options,
            metrics: metrics.clone(),
            link: watch::Sender::new(down),
            channel: Mutex::new(None),
        };
        Driver { inner: Arc::new(inner), migrated: false }
    }

    /// A handle whose calls are counted as made for migrated volumes.
    pub fn for_migrated(&self) -> Driver {
        Driver { inner: self.inner.clone(), migrated: true }
    }

    /// Follows how things stand.
    pub fn link(&self) -> watch::Receiver<Link> {
        self.inner.link.subscribe()
    }

    /// What is known, if the driver is connected and ready now.
    pub fn facts(&self) -> Option<Arc<Facts>> {
        self.inner.link.borrow().facts().cloned()
    }

    /// Waits until the driver is connected and ready.
    pub async fn ready(&self) -> Arc<Facts> {
        let mut link = self.link();
        loop {
            if let Some(facts) = link.borrow_and_update().facts() {
                return facts.clone();
            }
            // The sender lives as long as `self`.
            let _ = link.changed().await;
        }
    }

    /// Keeps the driver connected until `stop`, or until another driver has taken its place.
    pub async fn run(&self, stop: &Stop) -> Result<(), DriverError> {
        let keep = self.keep();
        let ended = tokio::select! {
            biased;
            () = stop.stopped() => Ok(()),
            error = keep => Err(error),
        };
        let why = ended.as_ref().err().map_or_else(|| STOPPING.to_owned(), ToString::to_string);
        self.down(why);
        ended
    }

    async fn keep(&self) -> DriverError {
        let mut known: Option<Arc<Facts>> = None;
        let mut pause = FIRST_PAUSE;
        loop {
            let Connection { channel, mut lost } = match self.inner.dial.dial().await {
                Ok(connection) => connection,
                Err(why) => {
                    self.down(why);
                    sleep(pause).await;
                    pause = (pause * 2).min(PAUSE);
                    continue;
                }
            };
            pause = FIRST_PAUSE;
            let facts = tokio::select! {
                biased;
                () = &mut lost => {
                    self.down("the connection ended".to_owned());
                    sleep(pause).await;
                    continue;
                }
                facts = self.meet(&channel, known.as_deref()) => facts,
            };
            if let Some(was) = &known
                && was.name != facts.name
            {
                return DriverError::NameChanged { was: was.name.clone(), is: facts.name };
            }
            let facts = Arc::new(facts);
            self.up(channel, facts.clone());
            known = Some(facts);
            lost.await;
            tracing::warn!(driver = known.as_ref().map(|facts| &*facts.name), "the driver's connection ended");
            self.down("the connection ended".to_owned());
        }
    }

    fn up(&self, channel: Channel, facts: Arc<Facts>) {
        if !facts.shrunk.is_empty() {
            tracing::warn!(driver = facts.name, lost = ?facts.shrunk, "the driver can do less than before it restarted");
        }
        tracing::info!(driver = facts.name, version = facts.version, "the driver is ready");
        *self.inner.channel.lock().unwrap_or_else(PoisonError::into_inner) = Some(channel);
        self.inner.link.send_replace(Link::Up(facts));
    }

    fn down(&self, why: String) {
        *self.inner.channel.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.inner.link.send_if_modified(|link| {
            let since = match link {
                Link::Down { why: known, .. } if *known == why => return false,
                Link::Down { since, .. } => *since,
                Link::Up(_) => Instant::now(),
            };
            match why == STOPPING {
                // Nobody has to worry about what was asked for.
                true => tracing::debug!("the connection to the driver is given up"),
                false => tracing::warn!(why, "the driver is not ready"),
            }
            *link = Link::Down { why, since };
            true
        });
    }

    /// Probes the driver until it is ready and asks what it is, as often as it takes.
    async fn meet(&self, channel: &Channel, known: Option<&Facts>) -> Facts {
        loop {
            match self.ask(channel, known).await {
                Ok(Some(facts)) => return facts,
                Ok(None) => self.down("the driver says that it is not ready yet".to_owned()),
                Err(error) => self.down(error.to_string()),
            }
            sleep(PAUSE).await;
        }
    }

    /// `None` if the driver is not ready.
    async fn ask(&self, channel: &Channel, known: Option<&Facts>) -> Result<Option<Facts>, CallError> {
        let wait = self.inner.options.timeout;
        let mut identity = IdentityClient::new(channel.clone());
        let asked = identity.probe(timed(v1::ProbeRequest {}, wait));
        let probe = self.timed("/csi.v1.Identity/Probe", wait, asked).await?;
        if probe.ready == Some(false) {
            return Ok(None);
        }
        let asked = identity.get_plugin_info(timed(v1::GetPluginInfoRequest {}, wait));
        let method = "/csi.v1.Identity/GetPluginInfo";
        let info = self.timed(method, wait, asked).await?;
        if info.name.is_empty() {
            let message = "the driver has no name".to_owned();
            return Err(CallError::Status { method, code: Code::Internal, message });
        }
        let capabilities = self.capabilities(channel).await?;
        Ok(Some(Facts {
            name: info.name,
            version: info.vendor_version,
            shrunk: known.map(|known| known.capabilities.missing_in(&capabilities)).unwrap_or_default(),
            capabilities,
            connection: known.map_or(1, |known| known.connection + 1),
        }))
    }

    async fn capabilities(&self, channel: &Channel) -> Result<Capabilities, CallError> {
        let wait = self.inner.options.timeout;
        let mut found = Capabilities::default();
        let mut identity = IdentityClient::new(channel.clone());
        let asked = identity.get_plugin_capabilities(timed(v1::GetPluginCapabilitiesRequest {}, wait));
        found.read_plugin(self.timed("/csi.v1.Identity/GetPluginCapabilities", wait, asked).await?);
        if found.serves(Service::ControllerService) {
            let mut controller = ControllerClient::new(channel.clone());
            let asked = controller.controller_get_capabilities(timed(v1::ControllerGetCapabilitiesRequest {}, wait));
            found.read_controller(self.timed("/csi.v1.Controller/ControllerGetCapabilities", wait, asked).await?);
        }
        if found.serves(Service::GroupControllerService) {
            let mut group = GroupControllerClient::new(channel.clone());
            let request = timed(v1::GroupControllerGetCapabilitiesRequest {}, wait);
            let asked = group.group_controller_get_capabilities(request);
            let method = "/csi.v1.GroupController/GroupControllerGetCapabilities";
            found.read_group(self.timed(method, wait, asked).await?);
        }
        if self.inner.options.node {
            let mut node = NodeClient::new(channel.clone());
            let asked = node.node_get_capabilities(timed(v1::NodeGetCapabilitiesRequest {}, wait));
            found.read_node(self.timed("/csi.v1.Node/NodeGetCapabilities", wait, asked).await?);
        }
        Ok(found)
    }

    /// Makes a call on the present connection. The methods by name are what most callers want.
    pub async fn call<Q, R, C, F>(
        &self,
        method: &'static str,
        wait: Duration,
        request: Q,
        call: C,
    ) -> Result<R, CallError>
    where
        Q: fmt::Debug + SensitiveRequest,
        C: FnOnce(Channel, Request<Q>) -> F,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let channel = self.inner.channel.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(channel) = channel else {
            let why = match &*self.inner.link.borrow() {
                Link::Down { why, .. } => why.clone(),
                Link::Up(_) => "it is connecting".to_owned(),
            };
            return Err(CallError::NotConnected { why });
        };
        tracing::trace!(method, ?request, "calling the driver");
        let redactor = Redactor::of(&request);
        self.timed_with(&redactor, method, wait, call(channel, timed(request, wait))).await
    }

    /// A call whose request has no secrets.
    async fn timed<R>(
        &self,
        method: &'static str,
        wait: Duration,
        call: impl Future<Output = Result<Response<R>, Status>>,
    ) -> Result<R, CallError> {
        self.timed_with(&Redactor::default(), method, wait, call).await
    }

    /// Waits for an answer as long as it may take, and counts it. Every answer of a driver that is an error becomes ours here,
    /// without the secrets of its request and no longer than what is kept of it.
    async fn timed_with<R>(
        &self,
        redactor: &Redactor,
        method: &'static str,
        wait: Duration,
        call: impl Future<Output = Result<Response<R>, Status>>,
    ) -> Result<R, CallError> {
        let start = Instant::now();
        // Our own clock is asked first: tonic calls a call that ran out of time cancelled, which means something else.
        let answer = tokio::select! {
            biased;
            () = sleep(wait) => Err(Status::deadline_exceeded(format!("no answer within {wait:?}"))),
            answer = call => answer,
        };
        let code = answer.as_ref().err().map_or(Code::Ok, code_of);
        self.inner.metrics.called(self.inner.options.caller, self.labels(method, code), start.elapsed());
        answer.map(Response::into_inner).map_err(|status| {
            let message = driver_limits::cut(&redactor.clean(status.message().to_owned())).to_owned();
            tracing::debug!(method, ?code, message, "the call failed");
            CallError::Status { method, code, message }
        })
    }

    fn labels(&self, method: &str, code: Code) -> Vec<(&'static str, String)> {
        let facts = self.facts();
        let name = facts.as_ref().map_or(UNKNOWN_DRIVER, |facts| &facts.name);
        let mut labels = vec![
            ("driver_name", name.to_owned()),
            ("method_name", method.to_owned()),
            ("grpc_status_code", code_name(code).to_owned()),
        ];
        if self.inner.options.caller == Caller::Node || MIGRATED.contains(&name) {
            labels.push(("migrated", self.migrated.to_string()));
        }
        labels
    }
}

/// What a status says. An answer that is too large to be read is no answer: tonic gives it a code that a driver uses to refuse
/// a request, although the driver did what it was asked for.
fn code_of(status: &Status) -> Code {
    match status.code() {
        Code::OutOfRange if status.message().contains("decoded message length too large") => Code::Unknown,
        code => code,
    }
}

/// A request that tells the driver how long we wait.
fn timed<Q>(request: Q, wait: Duration) -> Request<Q> {
    let mut request = Request::new(request);
    request.set_timeout(wait);
    request
}

/// The name Go gives a code, which is what dashboards filter by.
pub fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}
