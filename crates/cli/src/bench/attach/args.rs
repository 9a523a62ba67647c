//! What `orlop bench attach` takes.

use anyhow::bail;
use runtime::args::KubeArgs;

use crate::bench::Pace;
use crate::bench::site::{self, Supply};

/// Measure how fast volumes are attached to nodes and detached.
///
/// Nodes, volumes and pods are made for the run, and the bench plays the nodes' agents; an attach/detach controller, a
/// binder and the driver's attacher have to run. Nothing is left.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::bench) struct Args {
    #[command(flatten)]
    pub(super) kube: KubeArgs,
    /// Pods to create, each with a volume.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 500)]
    pub(super) count: usize,
    /// Nodes to make.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(super) nodes: usize,
    /// Driver of the volumes. It must take names of volumes that it never made, as `orlop bench driver --attach` does.
    #[arg(long, value_name = "NAME", default_value = site::NO_DRIVER)]
    pub(super) driver: String,
    #[command(flatten)]
    pub(super) pace: Pace,
}

const EXAMPLES: &str = "\
Examples:
  orlop bench driver --attach --endpoint unix:///tmp/bench/csi.sock &
  orlop sidecar --with-controllers --csi-address /tmp/bench/csi.sock &
  orlop bench attach -n 1000 --nodes 20 -o json";

impl Args {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if self.count == 0 || self.nodes == 0 || self.pace.concurrency == 0 {
            bail!("--count, --nodes and --concurrency must be at least 1");
        }
        Ok(())
    }

    /// What the run needs of the cluster.
    pub(super) fn site(&self) -> site::Options<'_> {
        let supply = Supply::ByHand { driver: &self.driver };
        site::Options { bench: "attach", supply, size: "1Mi", concurrency: self.pace.concurrency }
    }
}
