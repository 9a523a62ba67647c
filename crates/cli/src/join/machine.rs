//! A machine that joined: its driver with what stands beside it, and its agent, as one long-running process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ::node::registrar::{self, Registrar};
use anyhow::{Context as _, anyhow, bail};
use apiserver::auth::{JoinToken, UnixSeconds};
use apiserver::sources::Clock as _;
use control::attacher::Attacher;
use control::capacity::OwnerLevel;
use control::provision::csi::Sidecar;
use driver_sdk::csi::Endpoint;
use runtime::args::ServeArgs;
use runtime::csi::{self, Driver};
use runtime::{Stop, Stopper, client, stop};
use tokio::task::JoinHandle;

use super::NAMESPACE;
use super::ask::Server;
use super::enrolment::{Age, As, Enrolment, Standing};
use crate::node::{NodeAgent, WorkArgs};
use crate::process::{self, Lead, Process};
use crate::{api, driver, sidecar, stack, usage};

/// How often the certificates are looked at: their age, and whether the server still takes them.
const LOOK: Duration = Duration::from_secs(10);

/// How a machine joins a server.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct JoinArgs {
    /// Join the machines of this `orlop up`, with a local driver and volumes of this machine's own.
    #[arg(long, value_name = "URL", help_heading = "Joining", conflicts_with = "kubeconfig")]
    server: Option<Server>,
    /// Token that `orlop token create` printed on the server; needed once.
    #[arg(long, value_name = "TOKEN", env = "ORLOP_JOIN_TOKEN", hide_env_values = true, help_heading = "Joining")]
    token: Option<Secret>,
    /// Directory of everything of a machine that joins: key and certificates, volumes, mounts
    /// [default: /var/lib/orlop, with --server].
    #[arg(long, value_name = "DIR", help_heading = "Joining", conflicts_with = "kubeconfig")]
    data: Option<PathBuf>,
}

/// A token as it was typed, which is not printed.
#[derive(Clone)]
struct Secret(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

const DATA: &str = "/var/lib/orlop";

impl JoinArgs {
    /// Whether this is about a machine that joins, or joined before.
    pub(crate) fn is_given(&self) -> bool {
        self.server.is_some() || self.data.is_some()
    }

    /// Whether there is a token, which may also come from the environment.
    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }
}

/// Joins unless that was done, and works until SIGTERM or SIGINT.
pub(crate) async fn run(args: &JoinArgs, work: &WorkArgs, serve: &ServeArgs) -> anyhow::Result<()> {
    if !stack::may_mount() {
        bail!("only root may mount: run this as root");
    }
    let data = args.data.clone().unwrap_or_else(|| DATA.into());
    if !data.exists() && (args.server.is_none() || args.token.is_none()) {
        return Err(not_joined(&data));
    }
    usage::make_private_directory("--data", &data)?;
    let data = data.canonicalize().with_context(|| format!("--data {}", data.display()))?;
    let enrolment = enrol(args, work, &data).await?;
    let place = Place { data, node: enrolment.node.clone() };
    let (stopper, stop) = Stopper::new();
    tokio::select! {
        biased;
        // The second signal: whoever sends it does not want to wait. It is listened for before anything runs.
        signals = stop::on_signals(stopper) => signals.context("listening for signals")?,
        ended = place.run(enrolment, work, serve, &stop) => ended?,
    }
    stack::release_root(&place.root(work))?;
    tracing::info!("stopped");
    Ok(())
}

fn now() -> UnixSeconds {
    UnixSeconds(i64::try_from(api::SystemClock.now().0 / 1000).unwrap_or(i64::MAX))
}

/// What was joined before, or is now.
async fn enrol(args: &JoinArgs, work: &WorkArgs, data: &Path) -> anyhow::Result<Enrolment> {
    let kept = Enrolment::kept(data)?;
    if let Some(mut kept) = kept {
        let asked = work.name();
        if work.is_named() && asked != kept.node {
            bail!(
                "this machine has joined as {:?}, and --node-name says {asked:?}: leave it out, or take another --data",
                kept.node
            );
        }
        if let Some(server) = &args.server {
            kept.move_to(server)?;
        }
        match (kept.age(now()), &args.token, &args.server) {
            (Some(Age::Over), Some(token), Some(server)) => return join(data, (server, token), &kept.node).await,
            (Some(Age::Over), _, _) => bail!(
                "the certificates of this machine have expired: join again with --server and a token that \
                 `orlop token create --node {}` prints on the server",
                kept.node
            ),
            _ => return still_in(data, kept, args.token.as_ref()).await,
        }
    }
    match (&args.server, &args.token) {
        (Some(server), Some(token)) => join(data, (server, token), &work.name()).await,
        _ => Err(not_joined(data)),
    }
}

fn not_joined(data: &Path) -> anyhow::Error {
    anyhow!(
        "this machine has not joined a server ({} holds nothing): give --server and --token as `orlop token create` \
         prints them on the server",
        data.display()
    )
}

/// A machine that was taken out is let in again with a token. A server that does not answer is waited for later.
async fn still_in(data: &Path, kept: Enrolment, token: Option<&Secret>) -> anyhow::Result<Enrolment> {
    match (kept.standing().await, token) {
        (Standing::In | Standing::Unknown, _) => Ok(kept),
        (Standing::Out { .. }, Some(token)) => {
            let server = kept.server().parse().context("the address that this machine joined")?;
            join(data, (&server, token), &kept.node).await
        }
        (Standing::Out { why }, None) => bail!("{why}, and start this one with --token"),
    }
}

async fn join(data: &Path, (server, token): (&Server, &Secret), node: &str) -> anyhow::Result<Enrolment> {
    let token = JoinToken::parse(&token.0).context("--token")?;
    Enrolment::join(data, server, &token, node).await
}

/// Why the parts of a machine ended.
enum End {
    Stopped,
    Renewed(Box<Enrolment>),
}

/// A machine, and where its things are.
struct Place {
    data: PathBuf,
    node: String,
}

impl Place {
    fn socket(&self) -> PathBuf {
        self.data.join("csi.sock")
    }

    fn root(&self, work: &WorkArgs) -> PathBuf {
        work.root().map_or_else(|| self.data.join("node"), Path::to_owned)
    }

    /// Runs the driver, and the rest beside it: anew with each new certificate, which disturbs no mount.
    async fn run(
        &self,
        mut enrolment: Enrolment,
        work: &WorkArgs,
        serve: &ServeArgs,
        stop: &Stop,
    ) -> anyhow::Result<()> {
        tracing::info!(server = enrolment.server(), node = self.node, data = %self.data.display(), "joined");
        let (ending, mut serving) = self.start_driver().await?;
        let worked = loop {
            let round = self.round(&enrolment, work, serve, stop);
            let ended = tokio::select! {
                biased;
                ended = round => ended,
                ended = &mut serving => return ended.context("the driver")?.context("the driver").and(Err(anyhow!("the driver ended"))),
            };
            match ended {
                Ok(End::Renewed(renewed)) => enrolment = *renewed,
                Ok(End::Stopped) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        ending.stop();
        let served = serving.await.context("the driver")?.context("the driver");
        worked.and(served)
    }

    async fn start_driver(&self) -> anyhow::Result<(Stopper, JoinHandle<anyhow::Result<()>>)> {
        let flags = driver::Flags {
            endpoint: format!("unix://{}", self.socket().display()),
            node_id: self.node.clone(),
            pool: self.data.join("pool"),
            state_dir: self.data.join("driver"),
            more: &[],
        };
        let server = driver::Server::open(flags.settle()?).await?;
        let (stopper, stop) = Stopper::new();
        Ok((stopper, tokio::spawn(async move { server.serve(async move { stop.stopped().await }).await })))
    }

    /// Everything that works with one pair of certificates.
    async fn round(
        &self,
        enrolment: &Enrolment,
        work: &WorkArgs,
        serve: &ServeArgs,
        stop: &Stop,
    ) -> anyhow::Result<End> {
        let process = async |who, name| {
            let client = enrolment.client(who).await?;
            anyhow::Ok(Process::new(client, client::Options { manager: name, ..client::Options::default() }, "orlop"))
        };
        let own = process(As::Node, "orlop-node".to_owned()).await?;
        let beside = process(As::Machine, "orlop-machine".to_owned()).await?;
        let endpoint: Endpoint =
            format!("unix://{}", self.socket().display()).parse().context("the driver's socket")?;
        let driver = Driver::new(endpoint, csi::Options::default(), &beside.context.metrics);
        let agent = NodeAgent::joined(&own.context, work, (&self.node, &self.root(work)))?;
        agent.add_to(&own.health);
        let (lost, connection) = Stopper::new();
        let connected = tokio::spawn({
            let driver = driver.clone();
            async move { driver.run(&connection).await }
        });
        let (enough, until) = Stopper::new();
        let until = stop.or(&until);
        let working = async {
            let mounting = async {
                let ended = self.agent(own, (&driver, &agent), serve, &until).await;
                enough.stop();
                ended
            };
            let volumes = self.volumes(beside, (&driver, &agent), &until);
            let (mounted, volumes) = tokio::join!(Box::pin(mounting), Box::pin(volumes));
            mounted.and(volumes)
        };
        let renewing = async {
            let renewed = renewal(enrolment, &until).await;
            enough.stop();
            renewed
        };
        let (worked, renewed) = tokio::join!(Box::pin(working), renewing);
        lost.stop();
        connected.await.context("the connection to the driver")?.map_err(|error| anyhow!(error))?;
        worked?;
        if let Some(refusal) = agent.into_refusal() {
            return Err(refusal.into());
        }
        Ok(renewed?.map_or(End::Stopped, |renewed| End::Renewed(Box::new(renewed))))
    }

    /// The agent, and what offers it the driver.
    async fn agent(
        &self,
        process: Process,
        (driver, agent): (&Driver, &NodeAgent),
        serve: &ServeArgs,
        stop: &Stop,
    ) -> anyhow::Result<()> {
        driver.ready().await;
        let options = registrar::Options {
            directory: agent.sockets().to_owned(),
            endpoint: self.socket().display().to_string(),
            timeout: Duration::from_secs(1),
            on_refusal: registrar::OnRefusal::Stay,
        };
        let registrar = Registrar::new(driver, options);
        let both = |stop: Stop| {
            let registrar = &registrar;
            async move {
                // The agent may end by itself, and then there is nobody to offer anything to.
                let (alone, ended) = Stopper::new();
                let (ended, offering) = (stop.or(&ended), registrar);
                let offered = async {
                    if let Err(error) = offering.run(&ended).await {
                        tracing::error!(%error, "the driver is not registered");
                    }
                };
                let served = async {
                    agent.run(stop.clone()).await;
                    alone.stop();
                };
                tokio::join!(offered, Box::pin(served));
            }
        };
        process.run_until(serve, Lead::Always, stop, both).await
    }

    /// What makes, deletes, attaches and detaches this machine's volumes, while the agent holds the node's lease: a clone of
    /// this machine would make each of them a second time.
    async fn volumes(
        &self,
        process: Process,
        (driver, agent): (&Driver, &NodeAgent),
        stop: &Stop,
    ) -> anyhow::Result<()> {
        let namespace = format!("--leader-election-namespace={NAMESPACE}");
        let flags = [
            "--node-deployment",
            "--node-deployment-immediate-binding=false",
            "--immediate-topology=false",
            "--enable-capacity",
            "--capacity-ownerref-level=-1",
        ];
        let args: sidecar::Args = process::flags(&[&flags[..], &[namespace.as_str()]].concat())?;
        let facts = driver.ready().await;
        let context = process.context.clone();
        let mut options = sidecar::options(&args, &context, &facts, Some(&self.node)).await?;
        if let Some(room) = &mut options.capacity {
            // What is told about a machine goes when the machine is taken out.
            room.owner.level = OwnerLevel::Node(self.node.clone());
        }
        let provisioner = Sidecar::new(&context, driver, &facts, options);
        let mut attaching = args.attaching();
        attaching.node = Some(self.node.clone());
        let attacher = Attacher::new(&context, driver, &facts, attaching);
        let both = |stop: Stop| {
            let (provisioner, attacher) = (&provisioner, &attacher);
            async move {
                let work = async {
                    tokio::join!(Box::pin(provisioner.run(&stop)), Box::pin(attacher.run(&stop)));
                };
                agent.while_held(&stop, work).await;
            }
        };
        process.run_until(&process::no_endpoint(), Lead::Always, stop, both).await
    }
}

/// New certificates as soon as the old ones are due; `None` if everything ends before.
async fn renewal(enrolment: &Enrolment, stop: &Stop) -> anyhow::Result<Option<Enrolment>> {
    let looking = async {
        loop {
            if let Some(renewed) = look(enrolment).await? {
                return Ok(Some(renewed));
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::select! {
        biased;
        () = stop.stopped() => Ok(None),
        looked = looking => looked,
    }
}

/// One look at the certificates. An error is that this machine was taken out: nothing that it could do would be let in, and
/// whoever looks after it should hear why.
async fn look(enrolment: &Enrolment) -> anyhow::Result<Option<Enrolment>> {
    if enrolment.age(now()) != Some(Age::Young) {
        match enrolment.renewed().await {
            Ok(renewed) => {
                tracing::info!("new certificates; the parts of this machine start anew with them");
                return Ok(Some(renewed));
            }
            Err(error) => tracing::warn!(error = format!("{error:#}"), "no new certificates; asked again later"),
        }
    }
    match enrolment.standing().await {
        Standing::Out { why } => bail!("{why}, and start this one with --token"),
        Standing::In | Standing::Unknown => Ok(None),
    }
}
