//! The local driver as a part of a stack.

use driver_sdk::metrics::Metrics;
use runtime::Stop;

use super::place::node_name;
use super::plan::{Cluster, Plan};
use super::{Part, Place};
use crate::driver::{Flags, Server};

/// The local driver on a socket of its own, and what it measures.
pub(super) async fn start(plan: &Plan) -> anyhow::Result<(Part, Metrics)> {
    let place: &Place = &plan.place;
    let flags = Flags {
        endpoint: format!("unix://{}", place.socket().display()),
        node_id: node_name(),
        pool: place.pool(),
        state_dir: place.data.join("driver"),
        more: match &plan.cluster {
            Cluster::Embedded => &[],
            // Each machine has such a driver, of the same name. An attacher runs once and would ask the one beside it about
            // volumes of all the others, so attaching is left out: a volume of this driver is where it is.
            Cluster::Existing { .. } => &["--no-attach"],
        },
    };
    let server = Server::open(flags.settle()?).await?;
    let metrics = server.metrics();
    let serve = |stop: Stop| async move { server.serve(async move { stop.stopped().await }).await };
    Ok((Part::start("the driver", serve), metrics))
}
