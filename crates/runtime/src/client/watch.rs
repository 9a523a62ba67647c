//! The stream of a watch: one JSON object per line, read straight into what the cache holds.

use api::object::{Meta, Revision};
use bytes::{Buf as _, BytesMut};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Error;
use super::error::{Status, from_watch};

/// No object can be larger than what the store takes, which is far below this.
const LONGEST_LINE: usize = 32 * 1024 * 1024;

/// What the stream says.
#[derive(Debug)]
pub enum WatchEvent<T> {
    /// The object is there, new or changed.
    Put(T),
    /// The object is gone. Which it was is all that is read of it: what is gone needs no sound shape.
    Gone(Box<Meta>),
    /// Everything up to this revision was sent.
    Bookmark {
        /// The revision.
        revision: Revision,
        /// Whether this ends the list that came first.
        initial_end: bool,
    },
    /// An object that does not have the shape it should have.
    Unreadable {
        /// Which, as far as it could be read.
        meta: Option<Box<Meta>>,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// A running watch.
pub struct WatchStream {
    body: kube::client::Body,
    buffer: BytesMut,
    /// How much of the buffer is known to hold no line end.
    searched: usize,
    doing: String,
}

impl std::fmt::Debug for WatchStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchStream").field("doing", &self.doing).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Head {
    #[serde(rename = "type")]
    kind: Box<str>,
}

#[derive(Deserialize)]
struct Tail<T> {
    object: T,
}

#[derive(Deserialize)]
struct Marked {
    metadata: Meta,
}

impl WatchStream {
    pub(super) fn new(body: kube::client::Body, doing: String) -> WatchStream {
        WatchStream { body, buffer: BytesMut::new(), searched: 0, doing }
    }

    /// The next event; `None` when the server has ended the watch, as it does every few minutes.
    ///
    /// Dropping the future loses nothing.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<WatchEvent<T>>, Error> {
        loop {
            if let Some(length) = self.line() {
                let line = self.buffer.split_to(length);
                self.buffer.advance(1);
                self.searched = 0;
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return self.event(&line).map(Some);
            }
            if self.buffer.len() > LONGEST_LINE {
                return Err(self.broken("a line of the watch is longer than any object can be"));
            }
            match self.body.frame().await {
                // A line that was cut is sent again by the next watch.
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => return Err(self.broken(&crate::causes(&error))),
            }
        }
    }

    fn line(&mut self) -> Option<usize> {
        let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
        match unsearched.iter().position(|byte| *byte == b'\n') {
            Some(at) => Some(self.searched + at),
            None => {
                self.searched = self.buffer.len();
                None
            }
        }
    }

    fn event<T: DeserializeOwned>(&self, line: &[u8]) -> Result<WatchEvent<T>, Error> {
        let unreadable = |source| Error::Unreadable { doing: self.doing.clone(), source };
        let head: Head = serde_json::from_slice(line).map_err(unreadable)?;
        match &*head.kind {
            "ADDED" | "MODIFIED" => Ok(object(line)),
            "DELETED" => {
                let tail: Tail<Marked> = serde_json::from_slice(line).map_err(unreadable)?;
                Ok(WatchEvent::Gone(Box::new(tail.object.metadata)))
            }
            "BOOKMARK" => {
                let tail: Tail<Marked> = serde_json::from_slice(line).map_err(unreadable)?;
                let meta = tail.object.metadata;
                let initial_end = meta.annotation(crate::keys::INITIAL_EVENTS_END) == Some("true");
                Ok(WatchEvent::Bookmark { revision: meta.revision, initial_end })
            }
            "ERROR" => {
                let tail: Tail<Status> = serde_json::from_slice(line).map_err(unreadable)?;
                Err(from_watch(tail.object, self.doing.clone()))
            }
            other => Err(self.broken(&format!("unknown event type {other:?}"))),
        }
    }

    fn broken(&self, message: &str) -> Error {
        Error::Unavailable { doing: self.doing.clone(), retry_after: None, message: message.to_owned() }
    }
}

fn object<T: DeserializeOwned>(line: &[u8]) -> WatchEvent<T> {
    match serde_json::from_slice::<Tail<T>>(line) {
        Ok(tail) => WatchEvent::Put(tail.object),
        Err(source) => {
            let meta = serde_json::from_slice::<Tail<Marked>>(line).ok().map(|tail| Box::new(tail.object.metadata));
            WatchEvent::Unreadable { meta, source }
        }
    }
}
