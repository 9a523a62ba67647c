//! A proxy in front of a driver that does to calls what networks, deadlines and crashes do to them.
//!
//! It passes any gRPC method through as bytes and knows nothing of CSI, so it works with any driver and with methods
//! that do not exist yet. Faults are chosen per method, in the order of the plan.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use csi::listen::Connection;
use csi::{BindError, Endpoint, Listener, SocketMode};
use futures_util::future::{BoxFuture, ready};
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt as _, StreamExt as _};
use http::uri::PathAndQuery;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{Bytes, Service};
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Response, Status};

/// What happens to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The call waits before it goes on to the driver.
    Delay(Duration),
    /// The driver gets the call and works on it; the caller's connection is cut without an answer.
    DropAfterSend,
    /// The driver gets the call twice at once; the caller gets one of the answers.
    Duplicate,
    /// The caller gets this code and the driver gets nothing.
    Fail(Code),
}

/// Which calls a fault happens to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    /// `CreateVolume`; absent for all.
    method: Option<String>,
    fault: Fault,
    /// How many calls are left to hit; absent for all.
    left: Option<u64>,
}

/// The faults to make. Rules are tried in order and the first that fits is taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    rules: Vec<Rule>,
}

impl Plan {
    /// Everything passes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Every call of `method`, such as `CreateVolume`, meets `fault`.
    #[must_use]
    pub fn always(self, method: &str, fault: Fault) -> Self {
        self.rule(Some(method), fault, None)
    }

    /// The first `count` calls of `method` meet `fault`; later ones pass on to the next rule.
    #[must_use]
    pub fn first(self, count: u64, method: &str, fault: Fault) -> Self {
        self.rule(Some(method), fault, Some(count))
    }

    /// Every call of any method meets `fault`.
    #[must_use]
    pub fn everything(self, fault: Fault) -> Self {
        self.rule(None, fault, None)
    }

    fn rule(mut self, method: Option<&str>, fault: Fault, left: Option<u64>) -> Self {
        self.rules.push(Rule { method: method.map(str::to_owned), fault, left });
        self
    }

    fn pick(&mut self, path: &str) -> Option<Fault> {
        let name = path.rsplit('/').next().unwrap_or_default();
        let fits = |rule: &&mut Rule| rule.method.as_deref().is_none_or(|m| m == name) && rule.left != Some(0);
        let rule = self.rules.iter_mut().find(fits)?;
        rule.left = rule.left.map(|left| left - 1);
        Some(rule.fault.clone())
    }
}

/// A running proxy. It stops when dropped.
#[derive(Debug)]
pub struct ChaosProxy {
    task: JoinHandle<()>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    upstream: Channel,
    plan: Mutex<Plan>,
    seen: Mutex<BTreeMap<String, u64>>,
}

impl ChaosProxy {
    /// Listens on `listen` and passes calls on to `upstream`, which need not be there yet.
    ///
    /// # Panics
    /// If called outside a tokio runtime.
    pub fn start(listen: &Endpoint, upstream: &Endpoint, plan: Plan) -> Result<Self, BindError> {
        let listener = Listener::bind(listen, SocketMode::default())?;
        let upstream = csi::connect_lazy(upstream);
        let shared = Arc::new(Shared { upstream, plan: Mutex::new(plan), seen: Mutex::default() });
        let incoming = listener.incoming().map(|connection| connection.map(Cuttable::new));
        let server = Server::builder().serve_with_incoming(Proxy { shared: shared.clone() }, incoming);
        let task = tokio::spawn(async move {
            if let Err(error) = server.await {
                tracing::error!(%error, "the chaos proxy ended");
            }
        });
        Ok(Self { task, shared })
    }

    /// Puts another plan in place for the calls that come from now on.
    pub fn set_plan(&self, plan: Plan) {
        *self.shared.plan.lock().unwrap_or_else(PoisonError::into_inner) = plan;
    }

    /// How many calls of a method, such as `CreateVolume`, came to the proxy.
    pub fn calls(&self, method: &str) -> u64 {
        self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner).get(method).copied().unwrap_or(0)
    }
}

impl Drop for ChaosProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn meet(&self, path: &str) -> Option<Fault> {
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default() += 1;
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).pick(path)
    }

    /// Passes one call on and tells when it is on its way. One message is a stream of one message, both ways.
    async fn pass(
        &self,
        request: Request<Bytes>,
        path: PathAndQuery,
        sent: Sent,
    ) -> Result<Response<Messages>, Status> {
        let mut client = tonic::client::Grpc::new(self.upstream.clone());
        client.ready().await.map_err(|error| Status::unavailable(format!("the proxied driver: {error}")))?;
        // HTTP/2 asks for what comes after the message when it has taken the message.
        let end = stream::once(async move { sent.send(()) }).filter_map(|_| ready(None));
        let request = request.map(|message| stream::once(ready(message)).chain(end));
        let answer = client.streaming(request, path, Raw).await?;
        Ok(answer.map(|messages| messages.boxed()))
    }
}

/// Told when a request has left for the driver.
type Sent = oneshot::Sender<()>;

type Messages = BoxStream<'static, Result<Bytes, Status>>;

/// Takes every request of the server, whatever its path.
#[derive(Clone)]
struct Proxy {
    shared: Arc<Shared>,
}

impl Service<http::Request<Body>> for Proxy {
    type Response = http::Response<Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let path = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let cut = request.extensions().get::<Cut>().cloned();
        let method = OneCall { shared: self.shared.clone(), path, cut };
        async move { Ok(tonic::server::Grpc::new(Raw).server_streaming(method, request).await) }.boxed()
    }
}

struct OneCall {
    shared: Arc<Shared>,
    path: PathAndQuery,
    cut: Option<Cut>,
}

impl tonic::server::ServerStreamingService<Bytes> for OneCall {
    type Response = Bytes;
    type ResponseStream = Messages;
    type Future = BoxFuture<'static, Result<Response<Messages>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let (shared, path, cut) = (self.shared.clone(), self.path.clone(), self.cut.clone());
        let (metadata, _, body) = request.into_parts();
        let again = move || Request::from_parts(metadata.clone(), Default::default(), body.clone());
        async move {
            let (sent, on_its_way) = oneshot::channel();
            match shared.meet(path.path()) {
                None => shared.pass(again(), path, sent).await,
                Some(Fault::Fail(code)) => Err(Status::new(code, "made by the chaos proxy")),
                Some(Fault::Delay(time)) => {
                    tokio::time::sleep(time).await;
                    shared.pass(again(), path, sent).await
                }
                Some(Fault::Duplicate) => {
                    let twin = shared.pass(again(), path.clone(), oneshot::channel().0);
                    tokio::join!(shared.pass(again(), path, sent), twin).0
                }
                Some(Fault::DropAfterSend) => {
                    // A task of its own: this one ends with the caller's connection, the driver's call must not.
                    let request = again();
                    tokio::spawn(async move { shared.pass(request, path, sent).await.map(drop) });
                    let _ = on_its_way.await;
                    cut.inspect(Cut::now);
                    std::future::pending().await
                }
            }
        }
        .boxed()
    }
}

/// Cuts the connection that a request came over.
#[derive(Clone)]
struct Cut(Arc<Notify>);

impl Cut {
    fn now(&self) {
        // Keeps the permit when nobody waits yet, so the next read sees it.
        self.0.notify_one();
    }
}

/// A connection that a handler can cut.
struct Cuttable {
    inner: Connection,
    cut: Cut,
    cutting: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Cuttable {
    fn new(inner: Connection) -> Self {
        let cut = Cut(Arc::new(Notify::new()));
        let notify = cut.0.clone();
        Self { inner, cut, cutting: Box::pin(async move { notify.notified().await }) }
    }
}

impl Connected for Cuttable {
    type ConnectInfo = Cut;

    fn connect_info(&self) -> Cut {
        self.cut.clone()
    }
}

impl AsyncRead for Cuttable {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.cutting.as_mut().poll(cx).is_ready() {
            // Whoever polls again after this error gets it again.
            self.cutting = Box::pin(std::future::ready(()));
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for Cuttable {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Messages as they are, undecoded.
#[derive(Debug, Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        prost::bytes::BufMut::put(buf, item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        use prost::bytes::Buf as _;
        let length = buf.remaining();
        Ok(Some(buf.copy_to_bytes(length)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counted_rule_gives_way_to_the_next_one() {
        let mut plan = Plan::new()
            .first(2, "CreateVolume", Fault::Fail(Code::DeadlineExceeded))
            .always("CreateVolume", Fault::Duplicate);
        let mut next = |path: &str| plan.pick(path);
        assert_eq!(next("/csi.v1.Controller/CreateVolume"), Some(Fault::Fail(Code::DeadlineExceeded)));
        assert_eq!(next("/csi.v1.Identity/Probe"), None);
        assert_eq!(next("/csi.v1.Controller/CreateVolume"), Some(Fault::Fail(Code::DeadlineExceeded)));
        assert_eq!(next("/csi.v1.Controller/CreateVolume"), Some(Fault::Duplicate));
    }
}
