//! Taints are taken off a node, and those that stay are written back exactly as they were.

use api::{Kind, Node};
use runtime::client::Error;
use runtime::{Context, Patch};
use serde_json::{Value, json};

/// Takes off the taints whose key and effect `which` names, if the node is still the one that was seen.
pub(crate) async fn remove(context: &Context, seen: &Node, which: impl Fn(&str, &str) -> bool) -> Result<(), Error> {
    let key = &seen.meta.key;
    // The whole object: what the cache holds of a taint lacks when it was added, which decides when pods are evicted.
    let mut whole: Value = context.client.get(Kind::NODE, key).await?;
    let Some(taints) = whole["spec"]["taints"].as_array_mut() else { return Ok(()) };
    taints.retain(|taint| !which(text(taint, "key"), text(taint, "effect")));
    let metadata = json!({"uid": seen.meta.uid.as_str(), "resourceVersion": whole["metadata"]["resourceVersion"]});
    let patch = Patch::Merge(json!({"metadata": metadata, "spec": {"taints": whole["spec"]["taints"]}}));
    context.patch::<Node>(key, &patch).await.map(drop)
}

fn text<'a>(taint: &'a Value, member: &str) -> &'a str {
    taint[member].as_str().unwrap_or_default()
}
