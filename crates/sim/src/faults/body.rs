//! The bodies of answers on their way back: whole ones pass, the events of a watch meet their fates.

use std::borrow::Cow;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use serde::Deserialize;
use tokio::time::{Sleep, sleep};

use super::layer::Line;
use super::{Flow, Lost};

/// What a client reads.
#[derive(Debug)]
pub struct Body {
    inner: apiserver::http::Body,
    watch: Option<Watched>,
}

/// A watch that is being read.
#[derive(Debug)]
struct Watched {
    line: Line,
    /// The request that opened it.
    number: u64,
    held: Option<(Pin<Box<Sleep>>, Bytes)>,
    over: bool,
}

impl Body {
    pub(super) fn whole(inner: apiserver::http::Body) -> Self {
        Self { inner, watch: None }
    }

    pub(super) fn watch(inner: apiserver::http::Body, line: Line, number: u64) -> Self {
        Self { inner, watch: Some(Watched { line, number, held: None, over: false }) }
    }
}

type Polled = Poll<Option<Result<Frame<Bytes>, Lost>>>;

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Lost;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        let Self { inner, watch } = self.get_mut();
        let mut next = |context: &mut Context<'_>| {
            let polled = Pin::new(&mut *inner).poll_frame(context);
            polled.map(|frame| frame.map(|frame| frame.map_err(|never| match never {})))
        };
        match watch {
            None => next(context),
            Some(watch) => watch.poll(context, next),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Watched {
    fn poll(&mut self, context: &mut Context<'_>, mut next: impl FnMut(&mut Context<'_>) -> Polled) -> Polled {
        // A dead component reads nothing any more; whoever still holds this is about to be dropped.
        if self.line.is_dead() {
            return Poll::Pending;
        }
        if self.over {
            return Poll::Ready(None);
        }
        loop {
            if let Some((until, _)) = &mut self.held {
                ready!(until.as_mut().poll(context));
                if let Some((_, bytes)) = self.held.take() {
                    return self.pass(bytes);
                }
            }
            let bytes = match ready!(next(context)) {
                None => return self.end("ended by the server"),
                Some(Err(lost)) => return Poll::Ready(Some(Err(lost))),
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            };
            match self.line.event(self.number) {
                Flow::Passes => return self.pass(bytes),
                Flow::Held(time) => {
                    self.note(format_args!("held for {} ms", time.as_millis()));
                    self.held = Some((Box::pin(sleep(time)), bytes));
                }
                Flow::Ended => return self.end("ended (injected)"),
                Flow::Broken => {
                    drop(self.end("broken (injected)"));
                    return Poll::Ready(Some(Err(Lost::Broken)));
                }
            }
        }
    }

    fn pass(&self, bytes: Bytes) -> Polled {
        self.note(brief(&bytes));
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn end(&mut self, how: &str) -> Polled {
        self.over = true;
        self.note(how);
        Poll::Ready(None)
    }

    fn note(&self, what: impl std::fmt::Display) {
        self.line.note(format_args!("#{} {what}", self.number));
    }
}

/// As much of an event as a journal needs.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: Object<'a>,
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow, default)]
    metadata: Metadata<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    resource_version: Cow<'a, str>,
}

fn brief(line: &[u8]) -> String {
    match serde_json::from_slice::<Event<'_>>(line) {
        Ok(Event { kind, object: Object { metadata } }) => {
            format!("{kind} {}/{} at {}", metadata.namespace, metadata.name, metadata.resource_version)
        }
        Err(_) => format!("{} bytes", line.len()),
    }
}
