//! `orlop top`: how full volumes are, how many volumes nodes have, how much room there is, how much work waits.
//!
//! What the cluster shows is gathered in `cluster/look.rs`, what processes measure in `cluster/measure.rs`, and arranged in
//! `lifecycle::top`. It only reads.

use std::process::ExitCode;

use lifecycle::table::Look;
use lifecycle::top::{self, Top};
use runtime::time::SystemClock;
use serde_json::Value;

use crate::cluster::output::Answer;
use crate::cluster::{ClusterArgs, Eye, MeasureArgs, OutputArgs, ScopeArgs};
use crate::process;

/// Show how full volumes are, attach slots, room for new volumes, and queues.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
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
  orlop top
  orlop top -A -o wide
  orlop top --metrics http://127.0.0.1:8081 --metrics http://127.0.0.1:8080

With the API alone there are attachments against the limits of each node, and room as
CSIStorageCapacity objects say it. How full volumes are is asked of the nodes through the API
server; queues are those of the API server's own process and of each --metrics address. What
cannot be reached is named.

Exit codes: 0 it was shown, 2 the cluster could not be read.";

pub(crate) fn run(args: &Args) -> ExitCode {
    process::reported("top", async {
        let top = look(args).await?;
        args.output.print(&top)?;
        Ok(true)
    })
}

async fn look(args: &Args) -> anyhow::Result<Top> {
    let cluster = args.cluster.connect("orlop-top").await?;
    let namespace = args.scope.namespace(&cluster);
    let picture = Eye::new(&cluster.client, &SystemClock).usage(namespace.as_deref()).await;
    crate::cluster::readable(&picture.claims, "persistentvolumeclaims")?;
    let measured = args.measure.ask(&cluster, &picture).await;
    Ok(top::arrange(&picture, measured, namespace.as_deref()))
}

impl Answer for Top {
    fn text(&self, look: Look) -> String {
        Top::text(self, look)
    }

    fn value(&self) -> Value {
        Top::value(self)
    }
}
