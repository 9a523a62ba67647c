//! Whether anybody can do what a mount asks for: the node must be one of the cluster's.

use anyhow::bail;
use api::{Key, Kind, Node};
use runtime::Client;
use runtime::client::{Error, Selection};

/// How many other nodes a message names.
const NAMED: u32 = 5;

/// What the cluster says about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    Known,
    Missing,
    /// It was not told: not every user may read nodes.
    Unsaid,
}

pub(super) async fn presence(client: &Client, node: &str) -> Presence {
    match client.get::<Node>(Kind::NODE, &Key::cluster(node)).await {
        Ok(_) => Presence::Known,
        Err(Error::NotFound { .. }) => Presence::Missing,
        Err(_) => Presence::Unsaid,
    }
}

/// Refuses a node that nobody would ever answer for, before anything is made.
pub(super) async fn require(client: &Client, node: &str) -> anyhow::Result<()> {
    if presence(client, node).await != Presence::Missing {
        return Ok(());
    }
    let there = match client.list::<Node>(Kind::NODE, &Selection::default(), NAMED, None).await {
        Ok(page) if !page.items.is_empty() => {
            let names: Vec<String> = page.items.iter().map(|node| format!("node {}", node.name())).collect();
            format!("; it has {}{}", names.join(", "), if page.next.is_some() { " and more" } else { "" })
        }
        Ok(_) => "; it has none at all".to_owned(),
        Err(_) => String::new(),
    };
    bail!(
        "the cluster has no node {node:?}, so nobody would mount anything{there}\n  \
         name this machine's with --node-name, or start its agent first: `orlop up` or `orlop node`"
    )
}
