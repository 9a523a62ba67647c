//! What `orlop bench claims` takes.

use anyhow::bail;
use runtime::args::KubeArgs;

use crate::bench::Pace;
use crate::bench::site::{self, Binding, Supply};

/// Measure how fast claims are bound, and how fast they and their volumes are deleted.
///
/// Claims are created, waited for, deleted, and waited for again. Works on any cluster; the run has a namespace of its own
/// and leaves nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("how").required(true))]
pub(in crate::bench) struct Args {
    #[command(flatten)]
    pub(super) kube: KubeArgs,
    /// Claims to create.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1000)]
    pub(super) count: usize,
    /// Class of the claims. It must bind at once and delete its volumes.
    #[arg(long, value_name = "NAME", group = "how")]
    pub(super) class: Option<String>,
    /// Make a class of this provisioner for the run.
    #[arg(long, value_name = "NAME", group = "how")]
    pub(super) provisioner: Option<String>,
    /// Make volumes by hand first, and measure how claims find them.
    #[arg(long = "static", group = "how")]
    pub(super) by_hand: bool,
    /// Volumes to make with --static, if there shall be more than claims.
    #[arg(long, value_name = "N", requires = "by_hand")]
    pub(super) volumes: Option<usize>,
    /// Size of each claim.
    #[arg(long, value_name = "QUANTITY", default_value = "1Mi")]
    pub(super) size: String,
    #[command(flatten)]
    pub(super) pace: Pace,
}

const EXAMPLES: &str = "\
Examples:
  orlop bench claims --class fast -n 500 --size 1Gi
  orlop bench claims --provisioner local.csi.orlop.dev --concurrency 64 -o json
  orlop bench claims --static -n 10000 --volumes 100000";

impl Args {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if self.count == 0 || self.pace.concurrency == 0 {
            bail!("--count and --concurrency must be at least 1");
        }
        if self.volumes.is_some_and(|volumes| volumes < self.count) {
            bail!("--volumes must be at least --count ({}), or some claims would find none", self.count);
        }
        site::check_size(&self.size)
    }

    /// What the run needs of the cluster.
    pub(super) fn site(&self) -> site::Options<'_> {
        let supply = match (&self.class, &self.provisioner) {
            (Some(class), _) => Supply::Class(class, Binding::AtOnce),
            (None, Some(provisioner)) => Supply::Provisioner(provisioner),
            (None, None) => Supply::ByHand { driver: site::NO_DRIVER },
        };
        site::Options { bench: "claims", supply, size: &self.size, concurrency: self.pace.concurrency }
    }

    /// Volumes to make by hand; none for claims that are provisioned.
    pub(super) fn volumes(&self) -> usize {
        if self.by_hand { self.volumes.unwrap_or(self.count) } else { 0 }
    }
}
