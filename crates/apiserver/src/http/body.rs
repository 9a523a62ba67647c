//! The body of an answer: some bytes, pieces of a long text that are made as they are sent, or the lines of a watch as
//! they come.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Frame, SizeHint};

/// What a watch sends, one line after the other. Dropping it ends the watch.
pub type Lines = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

/// A long text, a piece at a time. The next piece is made when the one before is on its way.
pub(crate) type Pieces = Box<dyn Iterator<Item = Bytes> + Send>;

/// The body of every answer of this server.
pub struct Body(Inner);

enum Inner {
    Once(Bytes),
    Pieces(Pieces),
    Lines(Lines),
}

impl Body {
    pub fn empty() -> Self {
        Self(Inner::Once(Bytes::new()))
    }

    /// Text that turns out to be one piece is sent with its length, like any other.
    pub(crate) fn pieces(mut pieces: Pieces) -> Self {
        let Some(first) = pieces.next() else { return Self::empty() };
        match pieces.next() {
            None => Self(Inner::Once(first)),
            Some(second) => Self(Inner::Pieces(Box::new([first, second].into_iter().chain(pieces)))),
        }
    }

    /// The bytes of an answer that is all there; none of a watch.
    pub(crate) fn whole(&self) -> Option<&Bytes> {
        match &self.0 {
            Inner::Once(bytes) => Some(bytes),
            Inner::Pieces(_) | Inner::Lines(_) => None,
        }
    }

    pub(crate) fn lines(lines: Lines) -> Self {
        Self(Inner::Lines(lines))
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Self(Inner::Once(bytes.into()))
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Inner::Once(bytes) => write!(f, "Body({} bytes)", bytes.len()),
            Inner::Pieces(_) => f.write_str("Body(pieces)"),
            Inner::Lines(_) => f.write_str("Body(watch)"),
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.get_mut().0 {
            Inner::Once(bytes) if bytes.is_empty() => Poll::Ready(None),
            Inner::Once(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Inner::Pieces(pieces) => Poll::Ready(pieces.next().map(|piece| Ok(Frame::data(piece)))),
            Inner::Lines(lines) => lines.as_mut().poll_next(context).map(|line| line.map(|line| Ok(Frame::data(line)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, Inner::Once(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Once(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Inner::Pieces(_) | Inner::Lines(_) => SizeHint::default(),
        }
    }
}
