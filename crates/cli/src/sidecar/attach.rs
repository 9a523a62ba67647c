//! The flags of `orlop sidecar` that csi-attacher has beyond csi-provisioner's (ATTACHER-3.1), and which of the two
//! roles a process has.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::bail;
use control::attacher;
use runtime::args::parse_duration;

use super::args::Args;

/// What a process does beside a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Role {
    /// Volumes are made for claims and deleted: csi-provisioner's.
    Provisioner,
    /// Volumes are attached to nodes and detached: csi-attacher's.
    Attacher,
}

/// How volumes are attached.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct AttachArgs {
    /// What this process does, of `provisioner` and `attacher`. Without it both; with --node-deployment, provisioner.
    #[arg(
        long,
        value_enum,
        value_name = "ROLE,...",
        value_delimiter = ',',
        hide_possible_values = true,
        help_heading = "Work"
    )]
    roles: Vec<Role>,
    /// How often the driver is asked which volumes are published where, if it can say.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration, help_heading = "Attaching")]
    reconcile_sync: Duration,
    /// Volumes on one page of that answer; 0 leaves it to the driver.
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Attaching")]
    max_entries: u32,
}

/// Whether an error says the driver's code. It always does; the gate is known so that it may be set.
pub(super) const ERROR_CODES: (&str, bool) = ("MutableCSINodeAllocatableCount", true);

/// csi-attacher's own defaults, which are not csi-provisioner's (SIDECAR-14.4).
const TIMEOUT: Duration = Duration::from_secs(15);
const WORKERS: usize = 10;

impl Args {
    /// Everything that can be wrong with these flags.
    pub(super) fn check_attaching(&self) -> anyhow::Result<()> {
        if self.roles().contains(&Role::Attacher) && self.places.node_deployment {
            bail!("--node-deployment runs one instance per node, and the attacher must run once; drop it from --roles");
        }
        if self.attach.reconcile_sync.is_zero() {
            bail!("--reconcile-sync must be more than nothing");
        }
        Ok(())
    }

    pub(super) fn roles(&self) -> BTreeSet<Role> {
        match (self.attach.roles.as_slice(), self.places.node_deployment) {
            ([], true) => BTreeSet::from([Role::Provisioner]),
            ([], false) => BTreeSet::from([Role::Provisioner, Role::Attacher]),
            (given, _) => given.iter().copied().collect(),
        }
    }

    /// What the flags say about attaching.
    pub(crate) fn attaching(&self) -> attacher::Options {
        attacher::Options {
            workers: self.work.worker_threads.unwrap_or(WORKERS),
            backoff: self.backoff(),
            timeout: self.work.timeout.unwrap_or(TIMEOUT),
            reconcile: self.attach.reconcile_sync,
            // A page size that the call cannot say is as good as none.
            max_entries: i32::try_from(self.attach.max_entries).unwrap_or(0),
            default_fstype: self.volumes.default_fstype.clone(),
            node: None,
        }
    }
}
