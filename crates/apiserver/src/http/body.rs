//! The body of an answer: some bytes, pieces of a long text that are made as they are sent, or the lines of a watch as
//! they come.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Frame, SizeHint};

use super::gzip::{self, Compressed};
use super::sending::SentBody;

/// A client that takes one piece of a long text holds up no more memory than that.
const PIECE: usize = 64 * 1024;

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
    /// A long text that is there as a whole, and is sent in copies of pieces: a piece that shares the text's memory would
    /// keep all of it.
    Long(Bytes),
    Sent(SentBody),
}

impl Body {
    pub fn empty() -> Self {
        Self(Inner::Once(Bytes::new()))
    }

    /// Text that turns out to be short is sent whole and with its length, like any other.
    pub(crate) fn pieces(mut pieces: Pieces) -> Self {
        let (mut first, mut length) = (Vec::new(), 0);
        while length <= gzip::FROM {
            let Some(piece) = pieces.next() else { return Self(Inner::Once(joined(first))) };
            length += piece.len();
            first.push(piece);
        }
        Self(Inner::Pieces(Box::new(first.into_iter().chain(pieces))))
    }

    /// The same text, all of it made.
    #[must_use]
    pub(super) fn whole(self) -> Self {
        match self.0 {
            Inner::Pieces(pieces) => Self(Inner::Once(joined(pieces.collect()))),
            other => Self(other),
        }
    }

    /// Whether this is a text that is worth compressing. A watch never is: its lines must not wait for each other.
    pub(super) fn is_long(&self) -> bool {
        match &self.0 {
            Inner::Once(bytes) => bytes.len() > gzip::FROM,
            Inner::Pieces(_) => true,
            Inner::Lines(_) | Inner::Long(_) | Inner::Sent(_) => false,
        }
    }

    /// Whether it ends when its client or the server wants it to.
    pub(super) fn is_lasting(&self) -> bool {
        matches!(self.0, Inner::Lines(_))
    }

    /// The bytes that are there already and wait to be sent.
    pub(super) fn waiting_bytes(&self) -> usize {
        match &self.0 {
            Inner::Once(bytes) | Inner::Long(bytes) => bytes.len(),
            Inner::Pieces(_) | Inner::Lines(_) | Inner::Sent(_) => 0,
        }
    }

    /// The same text, of which the memory is free once it has been taken.
    #[must_use]
    pub(super) fn in_pieces(self) -> Self {
        match self.0 {
            Inner::Once(bytes) if bytes.len() > PIECE => Self(Inner::Long(bytes)),
            other => Self(other),
        }
    }

    pub(super) fn sent(body: SentBody) -> Self {
        Self(Inner::Sent(body))
    }

    /// The same text in gzip.
    #[must_use]
    pub(super) fn compressed(self) -> Self {
        match self.0 {
            Inner::Once(bytes) => Self::pieces(Box::new(Compressed::new(Box::new(std::iter::once(bytes))))),
            Inner::Pieces(pieces) => Self::pieces(Box::new(Compressed::new(pieces))),
            other @ (Inner::Lines(_) | Inner::Long(_) | Inner::Sent(_)) => Self(other),
        }
    }

    pub(crate) fn lines(lines: Lines) -> Self {
        Self(Inner::Lines(lines))
    }
}

fn joined(mut pieces: Vec<Bytes>) -> Bytes {
    match pieces.len() {
        1 => pieces.remove(0),
        _ => pieces.concat().into(),
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
            Inner::Long(bytes) => write!(f, "Body({} bytes in pieces)", bytes.len()),
            Inner::Sent(_) => f.write_str("Body(being sent)"),
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
            Inner::Long(bytes) if bytes.is_empty() => Poll::Ready(None),
            Inner::Long(bytes) => {
                let piece = bytes.split_to(PIECE.min(bytes.len()));
                Poll::Ready(Some(Ok(Frame::data(Bytes::copy_from_slice(&piece)))))
            }
            Inner::Sent(body) => body.poll_piece(context).map(|piece| piece.map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Once(bytes) | Inner::Long(bytes) => bytes.is_empty(),
            Inner::Pieces(_) | Inner::Lines(_) => false,
            Inner::Sent(body) => body.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Once(bytes) | Inner::Long(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Inner::Pieces(_) | Inner::Lines(_) => SizeHint::default(),
            Inner::Sent(body) => body.size(),
        }
    }
}
