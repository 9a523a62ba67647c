//! A connection whose client has to read: one that takes nothing of what is sent to it for a while is cut.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long a write may wait for the client.
const LONGEST_WRITE: Duration = Duration::from_secs(30);

/// A stream on which no write waits for longer than [`LONGEST_WRITE`].
pub(crate) struct PacedStream<S> {
    stream: S,
    /// Runs while a write waits.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> PacedStream<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, deadline: None }
    }

    /// The outcome of a write, which is an error once its client has let it wait for too long.
    fn paced<T>(&mut self, outcome: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.deadline = None;
            return outcome;
        }
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(LONGEST_WRITE)));
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PacedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PacedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.paced(outcome, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.paced(outcome, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        self.paced(outcome, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(context);
        self.paced(outcome, context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_cut_off_and_one_that_is_slow_is_not() {
        let (near, mut far) = duplex(64);
        let mut paced = PacedStream::new(near);
        let reading = async {
            let mut piece = [0; 64];
            for _ in 0..10 {
                sleep(Duration::from_secs(20)).await;
                far.read_exact(&mut piece).await.expect("bytes come");
            }
            far
        };
        let (written, far) = tokio::join!(async { paced.write_all(&[1; 640]).await }, reading);
        written.expect("each piece is taken within 20 seconds");
        let started = Instant::now();
        let error = paced.write_all(&[1; 640]).await.expect_err("nothing is taken");
        assert_eq!((error.kind(), started.elapsed().as_secs()), (io::ErrorKind::TimedOut, 30));
        drop(far);
    }
}
