//! Claims that fill a stack: made and bound, and deleted until their volumes are gone.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures_util::future::try_join_all;
use http::Method;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::kubernetes::{Client, Question};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
/// Requests under way at once.
const CLIENTS: usize = 16;
const ASK_AGAIN: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(600);

/// Makes claims of the default class, and waits until all are bound.
pub(super) async fn make(client: &Client, count: usize) -> anyhow::Result<()> {
    let work = (0..CLIENTS).map(|first| async move {
        for number in (first..count).step_by(CLIENTS) {
            let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": format!("claim-{number:05}")},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}}});
            let question = Question::new(Method::POST, CLAIMS).body("application/json", claim.to_string());
            let answer = client.ask(&question).await?;
            ensure!(answer.status == 201, "{}: {}", answer.status, String::from_utf8_lossy(&answer.body));
        }
        anyhow::Ok(())
    });
    try_join_all(work).await?;
    let bound = |claims: &[Value]| claims.iter().filter(|claim| claim["status"]["phase"] == "Bound").count() == count;
    until(client, CLAIMS, bound).await
}

/// Deletes all claims, and waits until no volume is left.
pub(super) async fn delete(client: &Client) -> anyhow::Result<()> {
    let answer = client.ask(&Question::new(Method::DELETE, CLAIMS)).await?;
    ensure!(answer.status == 200, "{}: {}", answer.status, String::from_utf8_lossy(&answer.body));
    until(client, VOLUMES, <[Value]>::is_empty).await
}

async fn until(client: &Client, path: &str, so: impl Fn(&[Value]) -> bool) -> anyhow::Result<()> {
    let asked = async {
        loop {
            let answer = client.ask(&Question::get(path)).await?;
            let list: Value = serde_json::from_slice(&answer.body)?;
            if so(list["items"].as_array().context("a list has items")?) {
                return anyhow::Ok(());
            }
            sleep(ASK_AGAIN).await;
        }
    };
    timeout(PATIENCE, asked).await.with_context(|| format!("waiting for {path}"))?
}
