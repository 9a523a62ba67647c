//! Objects to fill a server with, and lists to read them back.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures_util::future::try_join_all;
use http::Method;
use serde_json::{Value, json};

use super::side::Side;
use crate::kubernetes::{Client, Question};

pub(super) const NAMESPACE: &str = "bench";
const CLIENTS: usize = 16;
const PAGE: usize = 500;

/// Ways to read all claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    Whole,
    /// `resourceVersion=0`: whatever a cache has.
    Unversioned,
    Pages,
    Table,
}

pub(super) fn post(path: &str, object: &Value) -> Question {
    Question::new(Method::POST, path).body("application/json", object.to_string())
}

async fn create(client: &Client, path: &str, object: &Value) -> anyhow::Result<()> {
    let answer = client.ask(&post(path, object)).await?;
    ensure!(answer.status == 201, "{path}: {}: {}", answer.status, String::from_utf8_lossy(&answer.body));
    Ok(())
}

pub(super) async fn create_namespace(side: &Side) -> anyhow::Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    create(&side.client, "/api/v1/namespaces", &namespace).await
}

/// Creates claims from 16 connections, each with one request at a time. Gives creates per second.
pub(super) async fn create_claims(side: &Side, round: usize, count: usize) -> anyhow::Result<f64> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims");
    let took = create_all(side, &path, count, |number| claim(&format!("claim-{round}-{number:05}"))).await?;
    Ok(f64::from(u32::try_from(count)?) / took.as_secs_f64())
}

pub(super) async fn create_volumes(side: &Side, count: usize) -> anyhow::Result<()> {
    let make = |number| volume(&format!("volume-{number:05}"));
    create_all(side, "/api/v1/persistentvolumes", count, make).await.map(drop)
}

async fn create_all(
    side: &Side,
    path: &str,
    count: usize,
    make: impl Fn(usize) -> Value + Copy,
) -> anyhow::Result<Duration> {
    // Connections are made before the clock starts.
    let client = side.new_client()?;
    let greeting = Question::get("/version");
    try_join_all((0..CLIENTS).map(|_| client.ask(&greeting))).await?;
    let started = Instant::now();
    let client = &client;
    let work = (0..CLIENTS).map(|first| async move {
        for number in (first..count).step_by(CLIENTS) {
            create(client, path, &make(number)).await?;
        }
        anyhow::Ok(())
    });
    try_join_all(work).await?;
    Ok(started.elapsed())
}

fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": {"app": "bench", "tier": "data"}},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "resources": {"requests": {"storage": "10Gi"}},
        },
    })
}

fn volume(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": {"app": "bench"}},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "capacity": {"storage": "10Gi"},
            "persistentVolumeReclaimPolicy": "Delete",
            "csi": {"driver": "bench.example.com", "volumeHandle": name, "volumeAttributes": {"pool": "one"}},
        },
    })
}

/// Reads all claims. Gives the time until the last byte was there, and the number of bytes.
pub(super) async fn list(side: &Side, read: Read) -> anyhow::Result<(Duration, usize)> {
    const CLAIMS: &str = "/api/v1/persistentvolumeclaims";
    const AS_TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let started = Instant::now();
    let question = match read {
        Read::Whole => Question::get(CLAIMS),
        Read::Unversioned => Question::get(&format!("{CLAIMS}?resourceVersion=0")),
        Read::Table => Question::get(CLAIMS).header("accept", AS_TABLE),
        Read::Pages => {
            let bytes = pages(&side.client, CLAIMS).await?;
            return Ok((started.elapsed(), bytes));
        }
    };
    let (status, bytes) = side.client.weigh(&question).await?;
    ensure!(status == 200, "listing claims: {status}");
    Ok((started.elapsed(), bytes))
}

async fn pages(client: &Client, path: &str) -> anyhow::Result<usize> {
    let (mut token, mut bytes) = (String::new(), 0);
    loop {
        let answer = client.ask(&Question::get(&format!("{path}?limit={PAGE}&continue={token}"))).await?;
        ensure!(answer.status == 200, "listing a page of claims: {}", answer.status);
        bytes += answer.body.len();
        match next_page(&answer.body).context("reading a page of claims")? {
            Some(next) => token = next,
            None => return Ok(bytes),
        }
    }
}

/// The token of the page after this one. Parsing the whole page would measure this client more than the server.
fn next_page(body: &[u8]) -> anyhow::Result<Option<String>> {
    const NAME: &[u8] = b"\"continue\":\"";
    let Some(at) = body.windows(NAME.len()).take(4096).position(|window| window == NAME) else { return Ok(None) };
    let token = &body[at + NAME.len()..];
    let end = token.iter().position(|byte| *byte == b'"').context("a token without an end")?;
    Ok(Some(std::str::from_utf8(&token[..end])?.to_owned()))
}
