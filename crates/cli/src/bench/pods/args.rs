//! What `orlop bench pods` takes.

use anyhow::bail;
use runtime::args::KubeArgs;

use crate::bench::Pace;
use crate::bench::site::{self, Binding, Supply};

/// Measure how fast pods get their volumes, and how fast those are given back.
///
/// Pods with one claim each are created and deleted again. Works on any cluster, with our node agent or a kubelet; nothing
/// has to run in the pods, and their image does not exist. The run has a namespace of its own and leaves nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("how").required(true))]
pub(in crate::bench) struct Args {
    #[command(flatten)]
    pub(super) kube: KubeArgs,
    /// Pods to create.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 100)]
    pub(super) count: usize,
    /// Class of the claims. It must delete its volumes.
    #[arg(long, value_name = "NAME", group = "how")]
    pub(super) class: Option<String>,
    /// Make a class of this provisioner for the run.
    #[arg(long, value_name = "NAME", group = "how")]
    pub(super) provisioner: Option<String>,
    /// Node of the pods; several take turns. Default: every node that has the driver.
    #[arg(long, value_name = "NAME")]
    pub(super) node: Vec<String>,
    /// Let a scheduler find the nodes. Classes that wait for a pod need it.
    #[arg(long, conflicts_with = "node")]
    pub(super) schedule: bool,
    /// Size of each claim.
    #[arg(long, value_name = "QUANTITY", default_value = "64Mi")]
    pub(super) size: String,
    #[command(flatten)]
    pub(super) pace: Pace,
}

const EXAMPLES: &str = "\
Examples:
  orlop bench pods --class fast -n 200 --node worker-1
  orlop bench pods --provisioner local.csi.orlop.dev -o json
  orlop bench pods --class topology-aware --schedule";

impl Args {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if self.count == 0 || self.pace.concurrency == 0 {
            bail!("--count and --concurrency must be at least 1");
        }
        site::check_size(&self.size)
    }

    /// What the run needs of the cluster.
    pub(super) fn site(&self) -> site::Options<'_> {
        let binding = if self.schedule { Binding::Whenever } else { Binding::AtOnce };
        let supply = match (&self.class, &self.provisioner) {
            (Some(class), _) => Supply::Class(class, binding),
            // One of the two is given: clap sees to it.
            (None, provisioner) => Supply::Provisioner(provisioner.as_deref().unwrap_or_default()),
        };
        site::Options { bench: "pods", supply, size: &self.size, concurrency: self.pace.concurrency }
    }
}
