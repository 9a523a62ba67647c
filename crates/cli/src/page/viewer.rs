//! One browser that looks: a stream of server-sent events from its position on the board.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use http_body::Frame;
use tokio::sync::watch;

use super::board::{Board, Looking, News};

/// Items per event: a browser draws the first while the next are on their way.
const BATCH: usize = 50;
/// How often a stream says that it lives; the page takes twice that for an end.
const TICK: Duration = Duration::from_secs(10);

struct Viewer {
    board: Arc<Board>,
    versions: watch::Receiver<u64>,
    position: Option<u64>,
    /// Made and not sent.
    ready: VecDeque<String>,
    _looking: Looking,
}

/// The stream of one viewer. It is polled only when the connection takes more, so that a slow one skips what it missed.
pub(super) fn stream(board: &Arc<Board>) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + use<> {
    let viewer = Viewer {
        board: Arc::clone(board),
        versions: board.versions(),
        position: None,
        ready: VecDeque::new(),
        _looking: board.look(),
    };
    unfold(viewer, |mut viewer| async move {
        let text = viewer.next().await;
        Some((Ok(Frame::data(Bytes::from(text))), viewer))
    })
}

impl Viewer {
    async fn next(&mut self) -> String {
        loop {
            if let Some(text) = self.ready.pop_front() {
                return text;
            }
            let version = *self.versions.borrow_and_update();
            // Before the first painting there is nothing to say.
            if version > 0 && self.position != Some(version) {
                let news = self.board.since(self.position);
                self.position = Some(news.version);
                self.ready = events(&news);
                continue;
            }
            // The board lives as long as its viewers, so that a wait that ends has seen a change.
            if tokio::time::timeout(TICK, self.versions.changed()).await.is_err() {
                return event("tick", "{}");
            }
        }
    }
}

fn events(news: &News) -> VecDeque<String> {
    let mut events = VecDeque::new();
    if news.whole {
        events.push_back(event("begin", "{}"));
    }
    if !news.gone.is_empty() {
        events.push_back(event("gone", &serde_json::json!(news.gone).to_string()));
    }
    for batch in news.items.chunks(BATCH) {
        events.push_back(event("put", &format!("[{}]", batch.join(","))));
    }
    if news.whole {
        events.push_back(event("live", "{}"));
    }
    events
}

/// JSON has no line breaks of its own, so that one line is enough.
fn event(name: &str, data: &str) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::StreamExt as _;

    async fn read(stream: &mut (impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Unpin)) -> String {
        let Some(Ok(frame)) = stream.next().await else { panic!("a stream does not end by itself") };
        let data = frame.into_data().unwrap_or_default();
        String::from_utf8_lossy(&data).into_owned()
    }

    #[tokio::test]
    async fn a_viewer_hears_the_whole_and_then_changes() {
        let board = Arc::new(Board::default());
        board.edit(|edit| edit.put("a", "{\"id\":\"a\"}".to_owned()));
        let mut stream = std::pin::pin!(stream(&board));
        assert_eq!(read(&mut stream).await, "event: begin\ndata: {}\n\n");
        assert_eq!(read(&mut stream).await, "event: put\ndata: [{\"id\":\"a\"}]\n\n");
        assert_eq!(read(&mut stream).await, "event: live\ndata: {}\n\n");
        for number in 0..3 {
            board.edit(|edit| edit.put("a", format!("{{\"number\":{number}}}")));
        }
        assert_eq!(read(&mut stream).await, "event: put\ndata: [{\"number\":2}]\n\n", "only the newest");
        board.edit(|edit| edit.remove("a"));
        assert_eq!(read(&mut stream).await, "event: gone\ndata: [\"a\"]\n\n");
    }
}
