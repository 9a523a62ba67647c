//! `orlop tree`: claims, volumes, attachments and mounts of a cluster as one tree.
//!
//! What the cluster shows is gathered in `cluster/look.rs` and arranged in `lifecycle::tree`. It only reads.

use std::process::ExitCode;

use lifecycle::explain::Listing;
use lifecycle::table::Look;
use lifecycle::tree::{self, Scope, Tree};
use runtime::time::SystemClock;
use serde_json::Value;

use crate::cluster::output::Answer;
use crate::cluster::{ClusterArgs, Eye, MeasureArgs, OutputArgs, ScopeArgs};
use crate::process;

/// Show claims, volumes, attachments and mounts as one tree, with reasons.
///
/// After the claims comes what belongs to none: volumes, attachments, and creations that have begun and not ended.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Claims to show. Without any: all of them, and volumes, attachments and intents that belong to no claim.
    #[arg(value_name = "CLAIM")]
    claims: Vec<String>,
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    measure: MeasureArgs,
    #[command(flatten)]
    output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  orlop tree
  orlop tree data -n shop -o wide
  orlop tree -A -o json | jq '.claims[] | select(.reason)'

How full volumes are is asked of the nodes through the API server, and of each --metrics
address; where nobody says it, it is left out.

Exit codes: 0 all is settled, 1 something moves, waits or is stuck, 2 the cluster could not be read.";

pub(crate) fn run(args: &Args) -> ExitCode {
    process::reported("tree", async {
        let tree = look(args).await?;
        args.output.print(&tree)?;
        Ok(tree.settled())
    })
}

async fn look(args: &Args) -> anyhow::Result<Tree> {
    let names = args.claims.iter().map(|name| crate::explain::claim_name(name)).collect::<Result<Vec<_>, _>>()?;
    let cluster = args.cluster.connect("orlop-tree").await?;
    let namespace = args.scope.namespace(&cluster);
    let picture = Eye::new(&cluster.client, &SystemClock).all(namespace.as_deref()).await;
    crate::cluster::readable(&picture.claims, "persistentvolumeclaims")?;
    if let (Some(name), Listing::Seen(found)) = (&namespace, &picture.namespaces)
        && found.is_empty()
    {
        anyhow::bail!("there is no namespace {name:?}; `kubectl get namespaces` lists those there are, -A shows all");
    }
    for name in &names {
        if !picture.claims.items().iter().any(|claim| *claim.name() == **name) {
            let place = namespace.as_ref().map_or_else(|| "any namespace".to_owned(), |it| format!("namespace {it:?}"));
            anyhow::bail!("there is no PersistentVolumeClaim {name:?} in {place}; `orlop tree` shows those there are");
        }
    }
    let measured = args.measure.ask(&cluster, &picture).await;
    let scope = Scope { namespace: namespace.map(Into::into), claims: names };
    Ok(tree::grow(&picture, &measured.usages, scope))
}

impl Answer for Tree {
    fn text(&self, look: Look) -> String {
        Tree::text(self, look)
    }

    fn value(&self) -> Value {
        Tree::value(self)
    }
}
