//! What a stack is made of.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use driver_sdk::csi::Endpoint;
use runtime::lease;

use super::place::{self, Place};
use crate::join::{Company, Listen};
use crate::process::{self, Lead};

/// Leases and journals are there, on the embedded API as on others.
pub(super) const NAMESPACE: &str = "kube-system";

/// What a stack does for the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Role {
    /// What `orlop controllers` does.
    Controllers,
    /// What `orlop scheduler` does.
    Scheduler,
    /// What `orlop sidecar` does, beside each driver.
    Sidecars,
    /// What `orlop node` and `orlop registrar` do.
    Node,
    /// The live page.
    Page,
}

impl Role {
    /// What is on unless something else is asked for. A cluster has a binder, an attach/detach controller and a scheduler
    /// already: a second binder beside kube-controller-manager's would work against it, since each knows its own lease only.
    pub(crate) fn usual(cluster: &Cluster) -> BTreeSet<Self> {
        match cluster {
            Cluster::Embedded => {
                BTreeSet::from([Self::Controllers, Self::Scheduler, Self::Sidecars, Self::Node, Self::Page])
            }
            Cluster::Existing { .. } => BTreeSet::from([Self::Sidecars, Self::Node, Self::Page]),
        }
    }
}

/// Whose API is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cluster {
    /// Ours, in this process.
    Embedded,
    Existing {
        kubeconfig: PathBuf,
        context: Option<String>,
    },
}

/// Whether the local driver runs in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Local {
    Run,
    LeaveOut,
}

/// A stack that is to be started.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) place: Place,
    pub(crate) cluster: Cluster,
    pub(crate) local: Local,
    /// Sockets of drivers that somebody else runs.
    pub(crate) others: Vec<Endpoint>,
    pub(crate) roles: BTreeSet<Role>,
    /// Where other machines may join the embedded API.
    pub(crate) machines: Option<Listen>,
    /// Whether there are others; found out at the start.
    pub(crate) company: Company,
    /// Where metrics and health are told.
    pub(crate) http: Option<SocketAddr>,
    /// How long a machine may be silent on the embedded API until it is called lost.
    pub(crate) node_grace: Duration,
}

impl Plan {
    pub(crate) fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// Whether the agent runs here.
    pub(crate) fn mounts(&self) -> bool {
        self.has(Role::Node) && place::may_mount()
    }

    /// Who may do what must be done once: on our own API nobody else is, on others whoever holds the lease.
    pub(super) fn lead(&self, lock: &str) -> Lead {
        match &self.cluster {
            Cluster::Embedded => Lead::Always,
            Cluster::Existing { .. } => {
                let (lock, identity) = (lease::sanitise(lock), lease::sanitise(process::identity::unique()));
                Lead::Lease(lease::Options::new(NAMESPACE, &lock, &identity))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(data: &str, cluster: Cluster) -> Plan {
        let place = Place { data: PathBuf::from(data), listen: ([127, 0, 0, 1], 0).into() };
        let roles = Role::usual(&cluster);
        let (others, machines, company) = (Vec::new(), None, Company::Alone);
        let node_grace = Duration::from_secs(50);
        Plan { place, cluster, local: Local::Run, others, roles, machines, company, http: None, node_grace }
    }

    fn elsewhere() -> Cluster {
        Cluster::Existing { kubeconfig: PathBuf::from("kubeconfig"), context: None }
    }

    fn identity(plan: &Plan) -> Option<String> {
        match plan.lead("lock") {
            Lead::Always => None,
            Lead::Lease(options) => Some(options.identity),
        }
    }

    #[test]
    fn what_must_run_once_needs_a_lease_only_where_others_may_run_it() {
        assert_eq!(identity(&plan("/a", Cluster::Embedded)), None);
        let held = identity(&plan("/a", elsewhere())).expect("others may run it");
        assert_eq!(held, lease::sanitise(process::identity::unique()), "another one for each process");
    }

    #[test]
    fn a_cluster_that_has_a_binder_gets_no_second_one_unless_asked() {
        let usual = Role::usual(&elsewhere());
        assert!(!usual.contains(&Role::Controllers) && !usual.contains(&Role::Scheduler));
        assert!(Role::usual(&Cluster::Embedded).contains(&Role::Controllers));
    }
}
