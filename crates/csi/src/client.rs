//! The client's end: a channel to a plugin.
//!
//! A channel connects again by itself when the plugin was restarted, and always sends `localhost` as `:authority`: a
//! socket has no host name, and a path in its place is what [`crate::authority`] has to repair for others.

use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::stream;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tonic::service::Routes;
use tonic::transport::{Channel, Server};
use tower::service_fn;

use crate::endpoint::{Endpoint, EndpointError};
use crate::listen::Connection;
use crate::socket::Socket;

/// Its host part becomes `:authority`. Nobody looks it up: the connector decides where to connect.
const ORIGIN: &str = "http://localhost";

/// How many bytes an in-memory connection holds in each direction before the writer waits.
const IN_MEMORY_BUFFER: usize = 64 * 1024;

/// Why a plugin could not be reached.
///
/// A channel that is already in use reports the same errors as `UNAVAILABLE`, with this text as the status message.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The endpoint was built by hand and is not one.
    #[error("unusable endpoint")]
    Endpoint(#[from] EndpointError),
    /// There is no such socket.
    #[error("no socket at {}; is the plugin running?", path.display())]
    Missing {
        /// The socket's path.
        path: PathBuf,
    },
    /// The path is not that of a socket.
    #[error("{} is not a socket", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The socket exists, or the port is ours to reach, and nobody listens.
    #[error("nobody listens on {endpoint}; the plugin that made it is gone")]
    Refused {
        /// The endpoint.
        endpoint: Endpoint,
    },
    /// The permissions of the socket, or of a directory above it, forbid connecting.
    #[error("permission denied on {}; its owner decides who may connect", path.display())]
    PermissionDenied {
        /// The socket's path.
        path: PathBuf,
    },
    /// The plugin is alive and so many clients wait for it that the kernel takes no more.
    #[error("too many clients wait to connect to {endpoint}")]
    Busy {
        /// The endpoint.
        endpoint: Endpoint,
    },
    /// Any other answer of the kernel.
    #[error("connecting to {endpoint}")]
    Io {
        /// The endpoint.
        endpoint: Endpoint,
        /// What the kernel said.
        source: io::Error,
    },
    /// The connection was made and does not speak HTTP/2.
    #[error("starting HTTP/2 on {endpoint}")]
    Handshake {
        /// The endpoint.
        endpoint: Endpoint,
        /// What tonic said.
        source: tonic::transport::Error,
    },
}

/// Connects to a plugin. Later calls on the channel reconnect if they must.
pub async fn connect(endpoint: &Endpoint) -> Result<Channel, ConnectError> {
    // Dialling here and not in tonic keeps the error typed. The channel's first connection is this very one.
    let socket = dial(endpoint).await?;
    channel()
        .connect_with_connector(connector(endpoint.clone(), Some(socket)))
        .await
        .map_err(|source| ConnectError::Handshake { endpoint: endpoint.clone(), source })
}

/// Connects to a plugin once. When the connection ends, `lost` resolves and all calls fail: the channel does not connect
/// again, because the plugin behind a new connection may be another one.
pub async fn connect_once(endpoint: &Endpoint) -> Result<(Channel, Lost), ConnectError> {
    let (held, receiver) = oneshot::channel();
    let mut socket = Some(Guarded { socket: dial(endpoint).await?, _held: held });
    let named = endpoint.clone();
    let connector = service_fn(move |_: http::Uri| {
        let gone = || ConnectError::Io { endpoint: named.clone(), source: io::ErrorKind::NotConnected.into() };
        ready(socket.take().map(TokioIo::new).ok_or_else(gone))
    });
    let channel = channel()
        .connect_with_connector(connector)
        .await
        .map_err(|source| ConnectError::Handshake { endpoint: endpoint.clone(), source })?;
    Ok((channel, Lost(receiver)))
}

/// Resolves when the connection has ended, whoever ended it.
#[derive(Debug)]
pub struct Lost(oneshot::Receiver<Infallible>);

impl Future for Lost {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(context).map(drop)
    }
}

/// A socket whose end is noticed by whoever waits for `Lost`.
struct Guarded {
    socket: Socket,
    _held: oneshot::Sender<Infallible>,
}

impl AsyncRead for Guarded {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, into)
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

/// A channel that connects at its first call, so the plugin need not run yet.
///
/// # Panics
/// If called outside a tokio runtime.
pub fn connect_lazy(endpoint: &Endpoint) -> Channel {
    channel().connect_with_connector_lazy(connector(endpoint.clone(), None))
}

fn channel() -> tonic::transport::Endpoint {
    tonic::transport::Endpoint::from_static(ORIGIN)
}

/// Makes a connection each time tonic needs one; the first is `ready_made` if there is one.
fn connector(
    endpoint: Endpoint,
    mut ready_made: Option<Socket>,
) -> impl tower::Service<
    http::Uri,
    Response = TokioIo<Socket>,
    Error = ConnectError,
    Future = impl Future<Output = Result<TokioIo<Socket>, ConnectError>> + Send + 'static,
> + Send
+ 'static {
    service_fn(move |_: http::Uri| {
        let ready_made = ready_made.take();
        let endpoint = endpoint.clone();
        async move {
            let socket = match ready_made {
                Some(socket) => socket,
                None => dial(&endpoint).await?,
            };
            Ok(TokioIo::new(socket))
        }
    })
}

async fn dial(endpoint: &Endpoint) -> Result<Socket, ConnectError> {
    endpoint.check()?;
    let connected = match endpoint {
        Endpoint::Unix(path) => UnixStream::connect(path).await.map(Socket::Unix),
        Endpoint::Tcp(address) => TcpStream::connect(address).await.map(|stream| {
            // Latency only; a connection without it works.
            let _ = stream.set_nodelay(true);
            Socket::Tcp(stream)
        }),
    };
    connected.map_err(|source| explain(endpoint, source))
}

/// Turns an answer of the kernel into what it means for this endpoint.
fn explain(endpoint: &Endpoint, source: io::Error) -> ConnectError {
    match (source.kind(), endpoint) {
        (io::ErrorKind::NotFound, Endpoint::Unix(path)) => ConnectError::Missing { path: path.clone() },
        (io::ErrorKind::PermissionDenied, Endpoint::Unix(path)) => {
            ConnectError::PermissionDenied { path: path.clone() }
        }
        // A file that is no socket "refuses" as well.
        (io::ErrorKind::ConnectionRefused, Endpoint::Unix(path)) if !is_socket(path) => {
            ConnectError::NotASocket { path: path.clone() }
        }
        (io::ErrorKind::ConnectionRefused, endpoint) => ConnectError::Refused { endpoint: endpoint.clone() },
        (io::ErrorKind::WouldBlock, endpoint) => ConnectError::Busy { endpoint: endpoint.clone() },
        (_, endpoint) => ConnectError::Io { endpoint: endpoint.clone(), source },
    }
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}

/// A channel to `routes` in this process: real HTTP/2 and gRPC, no socket.
///
/// Requests carry [`Peer::InMemory`](crate::Peer::InMemory).
///
/// The server's half lives as long as the channel and its clones.
///
/// # Panics
/// If called outside a tokio runtime.
pub fn in_memory(routes: Routes) -> Channel {
    let connector = service_fn(move |_: http::Uri| {
        let (near, far) = tokio::io::duplex(IN_MEMORY_BUFFER);
        let incoming = stream::once(ready(Ok::<_, Infallible>(Connection::in_memory(far))));
        let server = Server::builder().add_routes(routes.clone()).serve_with_incoming(incoming);
        // It ends when the one connection has been handed to a task of its own, which ends with the channel.
        tokio::spawn(server);
        ready(Ok::<_, Infallible>(TokioIo::new(Socket::Memory(near))))
    });
    channel().connect_with_connector_lazy(connector)
}
