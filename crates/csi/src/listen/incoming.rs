//! The stream of accepted connections.

use std::convert::Infallible;
use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::Stream;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::time::Sleep;
use tonic::transport::server::Connected;

use super::peer::{Peer, UnixPeer};
use super::{Acceptor, Listener};
use crate::authority::TolerantIo;
use crate::endpoint::Endpoint;
use crate::socket::Socket;

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// An accepted connection, tolerant of a socket path as `:authority`; its `ConnectInfo` is the [`Peer`].
#[derive(Debug)]
pub struct Connection {
    io: TolerantIo<Socket>,
    peer: Peer,
}

impl Connection {
    fn new(socket: Socket, peer: Peer) -> Self {
        Self { io: TolerantIo::new(socket), peer }
    }

    /// The server's end of a pipe inside this process.
    pub(crate) fn in_memory(pipe: DuplexStream) -> Self {
        Self::new(Socket::Memory(pipe), Peer::InMemory)
    }

    /// Who connected.
    pub fn peer(&self) -> Peer {
        self.peer
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}

/// A source of connections that may fail.
pub(super) trait Accept {
    type Connection;

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Self::Connection>>;
}

impl Accept for Listener {
    type Connection = Connection;

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Connection>> {
        let (socket, peer) = match &self.acceptor {
            Acceptor::Unix { listener, .. } => {
                let (stream, _) = ready!(listener.poll_accept(cx))?;
                let peer = UnixPeer::of(&stream).map_or(Peer::Unknown, Peer::Unix);
                (Socket::Unix(stream), peer)
            }
            Acceptor::Tcp(listener) => {
                let (stream, address) = ready!(listener.poll_accept(cx))?;
                // Latency only; a connection without it works.
                let _ = stream.set_nodelay(true);
                (Socket::Tcp(stream), Peer::Tcp(address))
            }
        };
        Poll::Ready(Ok(Connection::new(socket, peer)))
    }
}

/// The connections of a [`Listener`], for tonic's `serve_with_incoming`. Dropping it removes the socket.
///
/// The error type says it: an accept that fails is logged and tried again, first at once, then after growing pauses.
#[derive(Debug)]
pub struct Incoming(AcceptLoop<Listener>);

impl Incoming {
    pub(super) fn new(listener: Listener) -> Self {
        Self(AcceptLoop::new(listener))
    }

    /// What the listener claimed.
    pub fn endpoint(&self) -> &Endpoint {
        self.0.source.endpoint()
    }
}

impl Stream for Incoming {
    type Item = Result<Connection, Infallible>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().0.poll_connection(cx).map(|connection| Some(Ok(connection)))
    }
}

/// Accepts for ever, pausing after failures.
#[derive(Debug)]
pub(super) struct AcceptLoop<A> {
    source: A,
    pause: Option<Pin<Box<Sleep>>>,
    next_pause: Duration,
}

impl<A: Accept> AcceptLoop<A> {
    pub(super) fn new(source: A) -> Self {
        Self { source, pause: None, next_pause: FIRST_PAUSE }
    }

    pub(super) fn poll_connection(&mut self, cx: &mut Context<'_>) -> Poll<A::Connection> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match ready!(self.source.poll_accept(cx)) {
                Ok(connection) => {
                    self.next_pause = FIRST_PAUSE;
                    return Poll::Ready(connection);
                }
                // The client left before we came to it. The queue is one shorter, so this cannot go round for ever.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => self.pause_after(&error),
            }
        }
    }

    /// Out of file descriptors or memory, most likely. The connection stays in the kernel's queue meanwhile.
    fn pause_after(&mut self, error: &io::Error) {
        let length = self.next_pause;
        tracing::warn!(%error, pause_ms = length.as_millis() as u64, "cannot accept a connection; trying again");
        self.pause = Some(Box::pin(tokio::time::sleep(length)));
        self.next_pause = LONGEST_PAUSE.min(length * 2);
    }
}
