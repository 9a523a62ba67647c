//! Asks processes what they measure: the nodes and the API server through the API, and whoever has an address of its own.
//!
//! Nobody has to answer. Who does not is named in the answer, with the reason.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::stream::{self, StreamExt as _};
use http_body_util::BodyExt as _;
use kube::client::Body;
use lifecycle::explain::Picture;
use lifecycle::measured::queues;
use lifecycle::top::{Measured, Unreachable};

use super::Cluster;

/// How long one process may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many are asked at once.
const AT_ONCE: usize = 8;
/// The largest answer that is read; a kubelet of many volumes has a few megabytes.
const LARGEST: usize = 64 << 20;

/// Who else measures.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct MeasureArgs {
    /// Address at which a process answers its metrics, such as http://127.0.0.1:8081; may be given several times.
    #[arg(long, value_name = "URL", value_parser = address)]
    metrics: Vec<http::Uri>,
}

impl MeasureArgs {
    /// Asks all, and reads what came.
    pub(crate) async fn ask(&self, cluster: &Cluster, picture: &Picture) -> Measured {
        let mut questions = vec![Question::api(cluster)];
        questions.extend(nodes(picture).into_iter().map(|node| Question::node(cluster, &node)));
        questions.extend(self.metrics.iter().map(Question::address));
        let answers = stream::iter(questions).map(Question::ask).buffered(AT_ONCE);
        let answers: Vec<(Question, anyhow::Result<String>)> = answers.collect().await;
        let mut measured = Measured::default();
        for (question, answer) in answers {
            match answer {
                Ok(text) => {
                    measured.usages.add(&text);
                    let found = queues(&text).into_iter().map(|queue| (question.process.clone(), queue));
                    measured.queues.extend(found);
                }
                Err(error) => {
                    let Question { what, node, .. } = question;
                    measured.unreachable.push(Unreachable { what, node, why: format!("{error:#}") });
                }
            }
        }
        measured
    }
}

/// Nodes that have volumes.
fn nodes(picture: &Picture) -> BTreeSet<Box<str>> {
    let attached = picture.attachments.items().iter().map(|attachment| attachment.node.as_str().into());
    let pods = picture.pods.items().iter().filter(|pod| pod.wants_volumes() && pod.claims().next().is_some());
    let known = |node: &str| picture.nodes.items().iter().any(|known| known.name() == node);
    attached.chain(pods.map(|pod| pod.node.clone())).filter(|node| known(node)).collect()
}

struct Question {
    /// What is missing if there is no answer.
    what: String,
    node: Option<Box<str>>,
    process: Box<str>,
    target: anyhow::Result<(kube::Client, String)>,
}

impl Question {
    fn api(cluster: &Cluster) -> Self {
        let what = "the queues of the API server".to_owned();
        let target = Ok((cluster.raw.clone(), "/metrics".to_owned()));
        Self { what, node: None, process: "API server".into(), target }
    }

    fn node(cluster: &Cluster, node: &str) -> Self {
        let path = format!("/api/v1/nodes/{node}/proxy/metrics");
        let what = format!("usage of the volumes on node {node}");
        let process = format!("node {node}").into();
        Self { what, node: Some(node.into()), process, target: Ok((cluster.raw.clone(), path)) }
    }

    /// Nothing of the cluster's credentials goes to another address.
    fn address(uri: &http::Uri) -> Self {
        let path = match uri.path() {
            "" | "/" => "/metrics".to_owned(),
            path => path.to_owned(),
        };
        let mut config = kube::Config::new(uri.clone());
        config.default_retry = false;
        config.proxy_url = None;
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
        let target = http::Uri::from_parts(parts).context("its address").and_then(|root| {
            config.cluster_url = root;
            Ok((kube::Client::try_from(config).context("making a client")?, path))
        });
        let process = uri.authority().map_or("", |it| it.as_str()).into();
        Self { what: format!("metrics of {uri}"), node: None, process, target }
    }

    async fn ask(self) -> (Self, anyhow::Result<String>) {
        let answer = match &self.target {
            Ok((client, path)) => match tokio::time::timeout(PATIENCE, fetch(client, path)).await {
                Ok(answer) => answer,
                Err(_) => Err(anyhow::anyhow!("no answer within {PATIENCE:?}")),
            },
            Err(error) => Err(anyhow::anyhow!("{error:#}")),
        };
        (self, answer)
    }
}

async fn fetch(client: &kube::Client, path: &str) -> anyhow::Result<String> {
    let request = http::Request::get(path).header(http::header::ACCEPT, "text/plain");
    let request = request.body(Body::empty()).context("making the request")?;
    let answer = client.send(request).await.context("no answer")?;
    let status = answer.status();
    let body = http_body_util::Limited::new(answer.into_body(), LARGEST).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!("reading the answer: {error}"))?.to_bytes();
    match status {
        http::StatusCode::OK => Ok(String::from_utf8_lossy(&body).into_owned()),
        http::StatusCode::FORBIDDEN | http::StatusCode::UNAUTHORIZED => anyhow::bail!("not allowed"),
        http::StatusCode::NOT_FOUND => anyhow::bail!("not served"),
        status => anyhow::bail!("the answer was {status}"),
    }
}

fn address(text: &str) -> Result<http::Uri, String> {
    let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let uri: http::Uri = full.parse().map_err(|error| format!("{error}; write http://HOST:PORT"))?;
    match (uri.scheme_str(), uri.authority()) {
        (Some("http" | "https"), Some(_)) => Ok(uri),
        _ => Err("write http://HOST:PORT or https://HOST:PORT, with a path if it is not /metrics".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_needs_no_scheme_and_no_path() {
        for (text, uri) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080/"),
            ("http://127.0.0.1:8080/stats", "http://127.0.0.1:8080/stats"),
            ("https://node:10250/metrics", "https://node:10250/metrics"),
        ] {
            assert_eq!(address(text).map(|uri| uri.to_string()), Ok(uri.to_owned()), "{text}");
        }
        for text in ["", "ftp://x", "unix:///run/x", "http://", "a b"] {
            assert!(address(text).is_err(), "{text:?}");
        }
    }
}
