//! One writer's change on its way to a hundred watchers.
//!
//! Writers send at fixed times, and those that are late send at once, so that a slow server does not make the load lighter
//! than it must. Each write has a number; a watcher notes when it has read the number.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures_util::future::try_join_all;
use http::Method;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use super::load::{NAMESPACE, post};
use super::side::Side;
use crate::bench::numbers::{Series, milliseconds};
use crate::kubernetes::{Client, Question, Stream};

const WATCHERS: usize = 100;
const WRITERS: usize = 16;
const WRITES: usize = 10_000;
const PER_SECOND: u32 = 1_000;
/// How long the last events may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// What stands before the number in the text of an object.
const MARK: &[u8] = b"\"number\":\"";

/// What was seen, times in milliseconds.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) p50: Option<f64>,
    pub(super) p99: Option<f64>,
    pub(super) written_p99: Option<f64>,
    /// Writes per second that were acknowledged.
    pub(super) rate: f64,
}

/// When each write was sent and acknowledged, in nanoseconds since the start.
#[derive(Debug)]
struct Times {
    start: Instant,
    sent: Vec<AtomicU64>,
    acknowledged: Vec<AtomicU64>,
}

impl Times {
    fn new() -> Self {
        let zeros = || (0..WRITES).map(|_| AtomicU64::new(0)).collect();
        Self { start: Instant::now(), sent: zeros(), acknowledged: zeros() }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

pub(super) async fn measure(side: &Side) -> anyhow::Result<Seen> {
    let collection = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    for writer in 0..WRITERS {
        let answer = side.client.ask(&post(&collection, &object(writer, "start"))).await?;
        ensure!(answer.status == 201, "creating a config map: {}", answer.status);
    }
    let times = Arc::new(Times::new());
    let mut watchers = JoinSet::new();
    for _ in 0..WATCHERS {
        let client = side.new_client()?;
        let question = Question::get(&format!("{collection}?watch=1"));
        let stream = client.stream(&question).await?;
        ensure!(stream.status == 200, "watching: {}", stream.status);
        let times = Arc::clone(&times);
        watchers.spawn(async move { timeout(PATIENCE, receive(stream, &times)).await.context("events did not come")? });
    }
    let client = side.new_client()?;
    let began = Instant::now();
    try_join_all((0..WRITERS).map(|writer| write(&client, &collection, writer, &times, began))).await?;
    let took = began.elapsed();
    let (mut fanout, mut written) = (Series::default(), Series::default());
    while let Some(received) = watchers.join_next().await {
        for (number, at) in received?? {
            let since = |from: &AtomicU64| Duration::from_nanos(at.saturating_sub(from.load(Ordering::Relaxed)));
            fanout.push(since(&times.acknowledged[number]));
            written.push(since(&times.sent[number]));
        }
    }
    let [p50, p99] = [50, 99].map(|percent| fanout.percentile(percent).map(milliseconds));
    let rate = f64::from(u32::try_from(WRITES)?) / took.as_secs_f64();
    Ok(Seen { p50, p99, written_p99: written.percentile(99).map(milliseconds), rate })
}

fn object(writer: usize, number: &str) -> serde_json::Value {
    let name = format!("fanout-{writer}");
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"number": number}})
}

/// Writes every sixteenth number, each at its time.
async fn write(client: &Client, collection: &str, writer: usize, times: &Times, began: Instant) -> anyhow::Result<()> {
    let path = format!("{collection}/fanout-{writer}");
    for number in (writer..WRITES).step_by(WRITERS) {
        let due = began + Duration::from_secs(1) * u32::try_from(number)? / PER_SECOND;
        sleep_until(due.into()).await;
        let body = object(writer, &number.to_string()).to_string();
        let question = Question::new(Method::PUT, &path).body("application/json", body);
        times.sent[number].store(times.now(), Ordering::Relaxed);
        let answer = client.ask(&question).await?;
        times.acknowledged[number].store(times.now(), Ordering::Relaxed);
        ensure!(answer.status == 200, "updating a config map: {}", answer.status);
    }
    Ok(())
}

/// Reads until every number was seen. Gives each with the time it came.
async fn receive(mut stream: Stream, times: &Times) -> anyhow::Result<Vec<(usize, u64)>> {
    let mut received = Vec::with_capacity(WRITES);
    let mut text = Vec::new();
    while received.len() < WRITES {
        let piece = stream.piece().await?.context("the watch ended before its last event")?;
        let now = times.now();
        text.extend_from_slice(&piece);
        let Some(end) = text.iter().rposition(|byte| *byte == b'\n') else { continue };
        for line in text[..end].split(|byte| *byte == b'\n') {
            received.extend(number(line).map(|number| (number, now)));
        }
        text.drain(..=end);
    }
    Ok(received)
}

/// The number in an event; none in those about the start.
fn number(line: &[u8]) -> Option<usize> {
    let at = line.windows(MARK.len()).position(|window| window == MARK)? + MARK.len();
    let end = line[at..].iter().position(|byte| *byte == b'"')?;
    std::str::from_utf8(&line[at..at + end]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_the_number_that_was_written() {
        let line = br#"{"type":"MODIFIED","object":{"data":{"number":"42"},"metadata":{"f:number":{}}}}"#;
        assert_eq!(number(line), Some(42));
        assert_eq!(number(br#"{"data":{"number":"start"}}"#), None);
        assert_eq!(number(b"{}"), None);
    }
}
