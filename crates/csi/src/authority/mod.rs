//! Tolerance for clients that send a socket path as HTTP/2 `:authority`.
//!
//! # The fault
//! A gRPC client that dials a unix socket has no host name to put into `:authority`. Clients on an old grpc-go send the
//! socket's path, raw (`/csi/csi.sock`) or percent-encoded (`%2Fcsi%2Fcsi.sock`); kubelet's plugin registration still
//! does. Neither is an authority, so Rust's HTTP/2 server resets the stream with PROTOCOL_ERROR before any of our code
//! sees the request. [`TolerantIo`] sits between the socket and that server and repairs the value on its way in.
//!
//! # The key idea: the same decoded length
//! HPACK gives each connection a dynamic table, kept by both sides without a word about it: a header sent once is later
//! sent as a mere index. An entry's cost is the length of its decoded name and value plus 32, and the oldest entries
//! leave when the sum grows too large. If we changed the length, the server's table would evict at other moments than
//! the client's, and from then on every index would mean the wrong header. So the repaired value has exactly as many
//! bytes as the original (each offending byte becomes `-`), and the field keeps its representation: what was added to
//! the table is still added, what was not is not. The tables differ in those bytes and in nothing else, and a later
//! request that sends only the index gets the repaired value. This is also why no state about headers is kept here.
//!
//! # Invariants
//! 1. Bytes that hold no unusable `:authority` come out exactly as they went in, whatever they are: valid HTTP/2,
//!    broken HTTP/2, or something else.
//! 2. No input causes a panic or holds back more than one HEADERS frame (16 KiB).
//! 3. Whether a value is unusable is asked of the same function the server asks, [`http::uri::Authority`].
//!
//! # Not here
//! Header blocks cut into CONTINUATION frames, a name given as an index into the dynamic table although the static
//! table has it, and HEADERS frames over 16 KiB pass untouched. No known gRPC client sends these with a path.

mod frames;
mod hpack;
mod huffman;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

use frames::Rewriter;

/// How much is read from the connection at once.
const CHUNK: usize = 8 * 1024;

/// The server's end of a connection, with an unusable `:authority` of the client repaired. See the [module](self).
pub struct TolerantIo<IO> {
    io: IO,
    rewriter: Rewriter,
    chunk: Box<[u8]>,
    /// Bytes for the server, of which it has taken the first `given`.
    ready: Vec<u8>,
    given: usize,
}

impl<IO> TolerantIo<IO> {
    /// Wraps a connection of which nothing has been read yet.
    pub fn new(io: IO) -> Self {
        let chunk = vec![0; CHUNK].into_boxed_slice();
        Self { io, rewriter: Rewriter::new(), chunk, ready: Vec::new(), given: 0 }
    }

    /// Moves repaired bytes to the server's buffer.
    fn give(&mut self, buf: &mut ReadBuf<'_>) {
        let rest = &self.ready[self.given..];
        let count = rest.len().min(buf.remaining());
        buf.put_slice(&rest[..count]);
        self.given += count;
        if self.given == self.ready.len() {
            self.ready.clear();
            self.given = 0;
        }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for TolerantIo<IO> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        while this.ready.is_empty() {
            if this.rewriter.is_opaque() {
                return Pin::new(&mut this.io).poll_read(cx, buf);
            }
            let mut chunk = ReadBuf::new(&mut this.chunk);
            ready!(Pin::new(&mut this.io).poll_read(cx, &mut chunk))?;
            match chunk.filled() {
                [] => {
                    this.rewriter.finish(&mut this.ready);
                    break;
                }
                filled => this.rewriter.push(filled, &mut this.ready),
            }
        }
        this.give(buf);
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for TolerantIo<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
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

impl<IO: Connected> Connected for TolerantIo<IO> {
    type ConnectInfo = IO::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.io.connect_info()
    }
}

/// Shows the connection but not what passes over it, which may be secrets.
impl<IO: fmt::Debug> fmt::Debug for TolerantIo<IO> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TolerantIo").field("io", &self.io).finish_non_exhaustive()
    }
}
