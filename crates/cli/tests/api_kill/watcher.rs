//! A watcher: reads until the server is gone and goes on where it was.

use std::collections::BTreeMap;

use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;

use super::objects::{Kind, name, token};
use crate::api_rig::revision;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) revision: u64,
    pub(crate) name: String,
    /// None for a removal.
    pub(crate) token: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Watcher {
    pub(crate) kind: Kind,
    /// Everything up to here was seen.
    pub(crate) position: u64,
    pub(crate) seen: Vec<Seen>,
}

impl Watcher {
    pub(crate) fn new(kind: Kind, position: u64) -> Self {
        Self { kind, position, seen: Vec::new() }
    }

    /// Returns when the connection breaks, or when an object of this name was seen.
    pub(crate) async fn run(mut self, client: kube::Client, last: Option<&str>) -> Self {
        let query = format!("watch=1&allowWatchBookmarks=true&resourceVersion={}", self.position);
        let request = http::Request::get(format!("{}?{query}", self.kind.path())).body(Body::empty());
        let Ok(response) = client.send(request.expect("the path is well formed")).await else { return self };
        assert_eq!(response.status().as_u16(), 200, "a watch from {} is refused", self.position);
        let (mut body, mut rest) = (response.into_body(), Vec::new());
        while let Some(Ok(frame)) = body.frame().await {
            rest.extend_from_slice(&frame.into_data().unwrap_or_default());
            // What follows the last line end is not said yet.
            let whole = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            for line in rest.drain(..whole).collect::<Vec<u8>>().split(|byte| *byte == b'\n') {
                if !line.is_empty() {
                    self.take(&serde_json::from_slice(line).expect("a line is JSON"));
                }
            }
            if last.is_some_and(|last| self.seen.last().is_some_and(|seen| seen.name == last)) {
                return self;
            }
        }
        self
    }

    fn take(&mut self, event: &Value) {
        let (kind, object) = (event["type"].as_str().unwrap_or_default(), &event["object"]);
        let token = match kind {
            "ADDED" | "MODIFIED" => Some(token(object).to_owned()),
            "DELETED" => None,
            "BOOKMARK" => {
                assert!(revision(object) >= self.position, "a bookmark went back: {event}");
                self.position = revision(object);
                return;
            }
            _ => panic!("a watch from {} got {event}", self.position),
        };
        let seen = Seen { revision: revision(object), name: name(object).to_owned(), token };
        assert!(seen.revision > self.position, "{seen:?} came after {}", self.position);
        self.position = seen.revision;
        self.seen.push(seen);
    }

    /// What is there if one knows nothing but these events.
    pub(crate) fn replayed(&self) -> BTreeMap<String, (u64, String)> {
        let mut objects = BTreeMap::new();
        for seen in &self.seen {
            match &seen.token {
                Some(token) => drop(objects.insert(seen.name.clone(), (seen.revision, token.clone()))),
                None => drop(objects.remove(&seen.name)),
            }
        }
        objects
    }
}
