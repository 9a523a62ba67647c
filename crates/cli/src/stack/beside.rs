//! What stands beside one driver: a connection, a provisioner, an attacher, and a registrar where there is an agent.
//!
//! # Invariants
//! 1. A driver that is away, or goes away, holds up nobody else: what belongs to it waits for it.
//! 2. Of two drivers with one name only the first is used; claims name a driver and nothing more.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use ::node::registrar::{self, Registrar};
use anyhow::Context as _;
use control::Context;
use control::attacher::{self, Attacher};
use control::provision::csi::Sidecar;
use driver_sdk::csi::Endpoint;
use futures_util::FutureExt as _;
use runtime::csi::{self, Driver, Facts, Link};
use runtime::{Stop, Stopper};
use tokio::task::JoinHandle;

use super::place::node_name;
use super::plan::{Cluster, NAMESPACE, Plan, Role};
use crate::join::Company;
use crate::process::{self, Lead};
use crate::sidecar;

/// How long the start waits for the first word of a driver whose socket is there.
const GREETING: Duration = Duration::from_secs(2);
/// Questions of the registrar are short.
const QUESTION: Duration = Duration::from_secs(1);

/// Whose driver it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// The local driver of this process.
    Ours,
    Others,
}

/// Two drivers say the same name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the drivers at {first} and {second} both call themselves {name:?}, and claims could not say which they mean; give one \
     another name (for `orlop driver` with --driver-name), or leave one out (the local one with --local-driver=false)"
)]
pub(super) struct SameName {
    name: String,
    first: Endpoint,
    second: Endpoint,
}

/// The names that drivers of this stack have said. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Names(Arc<Mutex<BTreeMap<String, Endpoint>>>);

impl Names {
    fn take(&self, name: &str, endpoint: &Endpoint) -> Result<(), SameName> {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = names.entry(name.to_owned()).or_insert_with(|| endpoint.clone());
        match first == endpoint {
            true => Ok(()),
            false => Err(SameName { name: name.to_owned(), first: first.clone(), second: endpoint.clone() }),
        }
    }
}

/// A driver with what stands beside it.
#[derive(Debug)]
pub(super) struct Beside {
    plan: Plan,
    context: Context,
    names: Names,
    /// Where the driver is offered to an agent.
    sockets: Option<PathBuf>,
    whose: Whose,
    endpoint: Endpoint,
    pub(super) driver: Driver,
    /// Made when the driver has said its name.
    workers: OnceLock<Workers>,
    lost: Stopper,
    connected: JoinHandle<()>,
}

/// Who works for a driver that is known.
#[derive(Debug)]
struct Workers {
    sidecars: Option<Sidecars>,
    registrar: Option<Registrar>,
}

struct Sidecars {
    provisioner: Sidecar,
    provisions: Lead,
    attacher: Attacher,
    attaches: Lead,
}

impl std::fmt::Debug for Sidecars {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sidecars").field("attacher", &self.attacher).finish_non_exhaustive()
    }
}

/// What all drivers of a stack have in common.
#[derive(Debug)]
pub(super) struct Shared<'a> {
    pub(super) plan: &'a Plan,
    pub(super) context: &'a Context,
    pub(super) names: Names,
    pub(super) sockets: Option<PathBuf>,
}

impl Beside {
    /// Begins to connect. The local driver is there and is waited for; others have a moment to say their names, so that two
    /// of one name are refused before anything is done for either.
    pub(super) async fn open(shared: &Shared<'_>, whose: Whose, endpoint: &Endpoint) -> anyhow::Result<Self> {
        let driver = Driver::new(endpoint.clone(), csi::Options::default(), &shared.context.metrics);
        let mut link = driver.link();
        let (lost, connection) = Stopper::new();
        let connected = tokio::spawn(keep(driver.clone(), endpoint.clone(), connection));
        let beside = Self {
            plan: shared.plan.clone(),
            context: shared.context.clone(),
            names: shared.names.clone(),
            sockets: shared.sockets.clone(),
            whose,
            endpoint: endpoint.clone(),
            driver,
            workers: OnceLock::new(),
            lost,
            connected,
        };
        let facts = match whose {
            Whose::Ours => Some(beside.driver.ready().await),
            Whose::Others => first_word(&mut link).await,
        };
        match facts {
            Some(facts) => beside.prepare(&facts).await?,
            None => {
                tracing::info!(socket = %endpoint, "this driver is not there yet and is waited for; the rest starts")
            }
        }
        Ok(beside)
    }

    /// What the driver calls itself, if it has said so.
    pub(super) fn name(&self) -> Option<String> {
        self.driver.facts().map(|facts| facts.name.clone())
    }

    async fn prepare(&self, facts: &Facts) -> anyhow::Result<()> {
        self.names.take(&facts.name, &self.endpoint)?;
        let sidecars = match self.plan.has(Role::Sidecars) {
            true => Some(self.sidecars(facts).await.with_context(|| format!("beside the driver {}", facts.name))?),
            false => None,
        };
        let offer = |directory: &PathBuf| registrar::Options {
            directory: directory.clone(),
            endpoint: self.endpoint.path().map_or_else(String::new, |path| path.display().to_string()),
            timeout: QUESTION,
            on_refusal: registrar::OnRefusal::Stay,
        };
        let registrar = self.sockets.as_ref().map(|directory| Registrar::new(&self.driver, offer(directory)));
        // Nobody else prepares this driver.
        let _ = self.workers.set(Workers { sidecars, registrar });
        Ok(())
    }

    async fn sidecars(&self, facts: &Facts) -> anyhow::Result<Sidecars> {
        let namespace = format!("--leader-election-namespace={NAMESPACE}");
        let mut flags = vec![namespace.as_str()];
        let mut node = None;
        let company = match self.whose {
            Whose::Ours => self.plan.company,
            // Somebody else's driver is asked from here, whatever machines there are.
            Whose::Others => Company::Alone,
        };
        match (&self.plan.cluster, self.whose) {
            // Our own API may have no nodes to gather places from: the driver says where a volume is.
            (Cluster::Embedded, Whose::Ours | Whose::Others) => {
                flags.push("--immediate-topology=false");
                flags.extend(company.flags());
                node = company.node();
            }
            // Every machine has such a driver, and each makes the volumes of its own machine.
            (Cluster::Existing { .. }, Whose::Ours) => {
                flags.push("--node-deployment");
                node = Some(node_name());
            }
            (Cluster::Existing { .. }, Whose::Others) => {}
        }
        // Of each machine one: a second one in another directory would make a claim's volume once more, in its own pool.
        let provisions = match &node {
            Some(node) => self.plan.lead(&format!("{}-{node}", facts.name)),
            None => self.plan.lead(&facts.name.replace('/', "-")),
        };
        let args: sidecar::Args = process::flags(&flags)?;
        let mut options = sidecar::options(&args, &self.context, facts, node.as_deref()).await?;
        let mut attaching = args.attaching();
        company.settle(&mut options, &mut attaching);
        Ok(Sidecars {
            provisioner: Sidecar::new(&self.context, &self.driver, facts, options),
            provisions,
            attacher: Attacher::new(&self.context, &self.driver, facts, attaching),
            attaches: self.plan.lead(&attacher::lock(&facts.name)),
        })
    }

    /// Works for the driver until `stop`, from the moment it is there.
    pub(super) async fn run(&self, stop: &Stop) {
        if self.workers.get().is_none() {
            let facts = tokio::select! {
                biased;
                () = stop.stopped() => return,
                facts = self.driver.ready() => facts,
            };
            if let Err(error) = self.prepare(&facts).await {
                tracing::error!(error = format!("{error:#}"), socket = %self.endpoint, "this driver is not used");
                return;
            }
        }
        let Some(Workers { sidecars, registrar }) = self.workers.get() else { return };
        let provisioning = async {
            if let Some(Sidecars { provisioner, provisions, .. }) = sidecars {
                process::lead(
                    &self.context,
                    provisions,
                    stop,
                    |stop: Stop| async move { provisioner.run(&stop).await },
                )
                .await;
            }
        };
        let attaching = async {
            if let Some(Sidecars { attacher, attaches, .. }) = sidecars {
                process::lead(&self.context, attaches, stop, |stop: Stop| async move { attacher.run(&stop).await })
                    .await;
            }
        };
        let registering = async {
            if let Some(registrar) = registrar
                && let Err(error) = registrar.run(stop).await
            {
                tracing::error!(%error, socket = %self.endpoint, "the driver is not registered");
            }
        };
        // Each on the heap: together they would be one large state on the stack of whoever polls.
        tokio::join!(provisioning.boxed(), attaching.boxed(), registering.boxed());
    }

    /// Gives the connection up, after the work has ended.
    pub(super) async fn close(self) -> anyhow::Result<()> {
        self.lost.stop();
        self.connected.await.with_context(|| format!("the connection to {}", self.endpoint))
    }
}

/// Keeps a driver connected. When another driver takes its place, nothing can be done for it any more, and the rest goes on.
async fn keep(driver: Driver, endpoint: Endpoint, until: Stop) {
    if let Err(error) = driver.run(&until).await {
        tracing::error!(%error, socket = %endpoint, "this driver is not used any more");
    }
}

/// What the driver says of itself, unless its socket is not there or it takes its time.
async fn first_word(link: &mut runtime::watch::Receiver<Link>) -> Option<Arc<Facts>> {
    let met = async {
        // Whatever comes first, a connection or why there is none, is news to this receiver.
        link.changed().await.ok()?;
        link.borrow_and_update().facts().cloned()
    };
    tokio::time::timeout(GREETING, met).await.ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_driver_of_a_name_is_refused_and_the_first_may_come_back() {
        let names = Names::default();
        let [a, b] = ["unix:///run/a.sock", "unix:///run/b.sock"].map(|text| text.parse::<Endpoint>().unwrap());
        assert_eq!(names.take("one", &a), Ok(()));
        assert_eq!(names.take("two", &b), Ok(()));
        assert_eq!(names.take("one", &a), Ok(()));
        let refused = names.take("one", &b).unwrap_err().to_string();
        assert!(refused.contains("/run/a.sock") && refused.contains("/run/b.sock") && refused.contains("\"one\""));
        assert!(refused.contains("--driver-name"), "{refused}");
    }
}
