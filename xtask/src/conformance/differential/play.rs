//! Playing a script against one server.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail};
use http::Method;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::body;
use super::script::Step;
use crate::kubernetes::{Answer, Client, Credential, Endpoint, Question};

/// How long a step with `[until]` is repeated.
const PATIENCE: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(25);
/// A watch that should have ended, or a server that should have answered.
const LIMIT: Duration = Duration::from_secs(30);

/// A server and the two ways to talk to it.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) admin: Client,
    pub(super) anonymous: Client,
    pub(super) address: String,
}

impl Side {
    pub(super) fn new(endpoint: &Endpoint) -> anyhow::Result<Self> {
        let anonymous = Client::new(&endpoint.as_user(Credential::Anonymous))?;
        Ok(Self { admin: Client::new(endpoint)?, anonymous, address: endpoint.address.clone() })
    }
}

/// What came back for one step.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) content_type: String,
    pub(super) warnings: Vec<String>,
    pub(super) body: Vec<u8>,
    /// Whether the body is a stream of watch events, one per line.
    pub(super) events: bool,
}

/// Names for places, and what earlier answers held.
type Variables = BTreeMap<String, String>;

fn places(namespace: &str) -> Variables {
    let home = format!("/api/v1/namespaces/{namespace}");
    let storage = "/apis/storage.k8s.io/v1";
    let group = |group: &str| format!("/apis/{group}/v1/namespaces/{namespace}");
    let pairs = [
        ("ns", namespace.to_owned()),
        ("C", format!("{home}/persistentvolumeclaims")),
        ("CM", format!("{home}/configmaps")),
        ("V", "/api/v1/persistentvolumes".to_owned()),
        ("ST", storage.to_owned()),
        ("SC", format!("{storage}/storageclasses")),
        ("VA", format!("{storage}/volumeattachments")),
        ("CAP", format!("{storage}/namespaces/{namespace}/csistoragecapacities")),
        ("L", format!("{}/leases", group("coordination.k8s.io"))),
        ("CRD", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned()),
        ("F", format!("{}/foos", group(&format!("{namespace}.io")))),
        ("rv", "1".to_owned()),
        ("uid", "none".to_owned()),
        ("N", home),
    ];
    pairs.map(|(name, value)| (name.to_owned(), value)).into()
}

/// Makes the case's namespace and what every namespace has, then plays the steps one after another.
pub(super) async fn play(side: &Side, namespace: &str, steps: &[Step]) -> anyhow::Result<Vec<Reply>> {
    let mut variables = places(namespace);
    for step in prelude() {
        ask(side, &step, &variables).await?;
    }
    let mut replies = Vec::new();
    for step in steps {
        let reply = ask_until(side, step, &variables).await.with_context(|| step.line())?;
        for (name, place) in step.captures() {
            // A capture that fails is no error here: the other server decides whether the answers differ.
            variables.insert(name.to_owned(), capture(&reply, place).unwrap_or_else(|| "nothing".to_owned()));
        }
        // Only of an object: the version of a list is that of the moment, which other cases move.
        for (name, place) in step.kept_captures().filter(|_| capture(&reply, "/metadata/uid").is_some()) {
            if let Some(value) = capture(&reply, place) {
                variables.insert(name.to_owned(), value);
            }
        }
        replies.push(reply.0);
    }
    Ok(replies)
}

/// The account that pods run as; a controller makes it in a cluster.
fn prelude() -> [Step; 2] {
    let post = |path: &str, body: &str| Step {
        method: "POST".to_owned(),
        path: path.to_owned(),
        body: Some(body.to_owned()),
        options: Vec::new(),
    };
    [post("/api/v1/namespaces", "NS:${ns}{}"), post("${N}/serviceaccounts", "SA:default{}")]
}

fn capture((reply, answer): &(Reply, Answer), place: &str) -> Option<String> {
    if let Some(header) = place.strip_prefix("header:") {
        return Some(answer.headers.get(header)?.to_str().ok()?.to_owned());
    }
    let body: Value = serde_json::from_slice(&reply.body).ok()?;
    match body.pointer(place)? {
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// Repeats a step that has to wait for something the server does by itself: `[until=200]`, `[until=/pointer=text]`.
async fn ask_until(side: &Side, step: &Step, variables: &Variables) -> anyhow::Result<(Reply, Answer)> {
    let start = Instant::now();
    loop {
        let (reply, answer) = ask(side, step, variables).await?;
        let Some(goal) = step.option("until") else { return Ok((reply, answer)) };
        let reached = match goal.rsplit_once('=') {
            None => reply.status.to_string() == goal,
            Some((pointer, text)) => capture(&(reply.clone(), answer.clone()), pointer).as_deref() == Some(text),
        };
        if reached || start.elapsed() > PATIENCE {
            return Ok((reply, answer));
        }
        sleep(PAUSE).await;
    }
}

async fn ask(side: &Side, step: &Step, variables: &Variables) -> anyhow::Result<(Reply, Answer)> {
    let question = question(step, variables)?;
    let client = if step.option("anon").is_some() { &side.anonymous } else { &side.admin };
    let answer = match step.option("events") {
        None => timeout(LIMIT, client.ask(&question)).await.context("no answer")??,
        Some(count) => watch(client, &question, count.parse().unwrap_or(usize::MAX)).await?,
    };
    let text = |name: &str| {
        let values = answer.headers.get_all(name).into_iter();
        values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect::<Vec<_>>()
    };
    let reply = Reply {
        status: answer.status,
        content_type: text("content-type").join(" and "),
        warnings: text("warning"),
        body: answer.body.to_vec(),
        events: step.option("events").is_some(),
    };
    Ok((reply, answer))
}

/// Reads the first events of a watch, or all until the server ends it.
async fn watch(client: &Client, question: &Question, count: usize) -> anyhow::Result<Answer> {
    let mut stream = timeout(LIMIT, client.stream(question)).await.context("no answer")??;
    let mut body = Vec::new();
    for _ in 0..count {
        let Some(line) = timeout(LIMIT, stream.line()).await.context("the watch neither ends nor says more")?? else {
            break;
        };
        body.extend(line);
        body.push(b'\n');
    }
    Ok(Answer { status: stream.status, headers: stream.headers.clone(), body: body.into() })
}

fn question(step: &Step, variables: &Variables) -> anyhow::Result<Question> {
    let path = fill(&step.path, variables)?;
    let mut question = Question::new(Method::from_bytes(step.method.as_bytes())?, &path);
    let accept = accept(step);
    if !accept.is_empty() {
        question = question.header("accept", &accept);
    }
    if step.option("agent").is_none() {
        question = question.header("user-agent", "differential/1");
    }
    for (name, value) in &step.options {
        let value = fill(value, variables)?;
        question = match name.as_str() {
            "as" => question.header("impersonate-user", &value),
            "group" => question.header("impersonate-group", &value),
            "token" => question.header("authorization", &format!("Bearer {value}")),
            "agent" => question.header("user-agent", &value),
            name => match name.strip_prefix("header:") {
                Some(header) => question.header(header, &value),
                None => question,
            },
        };
    }
    let Some(text) = &step.body else { return Ok(question) };
    let body = body::read(text)?;
    let bytes = match String::from_utf8(body.bytes) {
        Ok(text) => fill(&text, variables)?.into_bytes(),
        Err(binary) => binary.into_bytes(),
    };
    Ok(question.body(content_type(step).unwrap_or(body.kind), bytes))
}

fn content_type(step: &Step) -> Option<&str> {
    step.options.iter().find_map(|(name, value)| match name.as_str() {
        "merge" => Some("application/merge-patch+json"),
        "json" => Some("application/json-patch+json"),
        "strategic" => Some("application/strategic-merge-patch+json"),
        "apply" => Some("application/apply-patch+yaml"),
        "yaml" => Some("application/yaml"),
        "type" => Some(value.as_str()),
        _ => None,
    })
}

fn accept(step: &Step) -> String {
    let meta = |kind: &str| format!("application/json;as={kind};v=v1;g=meta.k8s.io");
    let chosen = step.options.iter().find_map(|(name, value)| match name.as_str() {
        "table" => Some(meta("Table")),
        "partial" => Some(meta("PartialObjectMetadata")),
        "partials" => Some(meta("PartialObjectMetadataList")),
        "aggregated" => Some("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList".to_owned()),
        "accept" => Some(value.clone()),
        _ => None,
    });
    chosen.unwrap_or_else(|| "application/json".to_owned())
}

/// Puts the values of variables in their places. A `${` that names no variable is a mistake in the script.
fn fill(text: &str, variables: &Variables) -> anyhow::Result<String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, tail) = after.split_once('}').context("a variable that is not closed")?;
        let Some(value) = variables.get(name) else { bail!("there is no variable {name}") };
        filled.push_str(before);
        filled.push_str(value);
        rest = tail;
    }
    Ok(filled + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in() {
        let places = places("d1");
        assert_eq!(fill("${C}/${ns}", &places).expect("fills"), "/api/v1/namespaces/d1/persistentvolumeclaims/d1");
        assert!(fill("${nobody}", &places).is_err());
    }
}
