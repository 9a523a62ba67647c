//! What every long-running command around the Kubernetes API has: a client, caches, events, a lease, health, an end.
//!
//! A command builds its controllers on [`Process::context`] and gives [`Process::run`] the future that runs them. Under a
//! lease that future is made once per time of leading; the caches stay warm in between.

pub(crate) mod connect;
pub(crate) mod identity;
pub(crate) mod inert;
mod klog;
mod log;

use std::future::Future;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use control::Context;
use control::handoff::Handoff;
use runtime::args::{KubeArgs, LeaderArgs, LeaderCheck, ServeArgs};
use runtime::events::{self, Writer};
use runtime::health::{Health, Server};
use runtime::lease::{self, Elector};
use runtime::stop::{self, Drained};
use runtime::time::SystemClock;
use runtime::{Caches, Client, Clock, Entropy, Metrics, Stop, Stopper, client};

use crate::usage;
pub(crate) use inert::Inert;
pub(crate) use klog::{KlogArgs, WITHOUT_EFFECT};
pub(crate) use log::{LogArgs, LogFormat};

/// How long running work may take to end once the process is told to.
const DRAIN: Duration = Duration::from_secs(20);

/// Whether the process works at once, or only while it holds a lease.
#[derive(Debug, Clone)]
pub(crate) enum Lead {
    Always,
    Lease(lease::Options),
}

impl Lead {
    /// As the flags say; `lock` names the lease.
    pub(crate) fn by(args: &LeaderArgs, lock: &str) -> Self {
        args.options(lock, identity::unique()).map_or(Self::Always, Self::Lease)
    }
}

/// The host's name, which in a pod is the pod's. Other processes have it, too: see [`identity::unique`].
pub(crate) fn identity() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

/// A process that is wired and does nothing yet.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) context: Context,
    pub(crate) health: Health,
    writer: Writer,
}

impl Process {
    /// Connects as the flags say. `name` is what the API server sees as our name.
    pub(crate) async fn connect(args: &KubeArgs, name: &str) -> anyhow::Result<Self> {
        let explained = |error| connect::explained(error, args.kubeconfig.as_deref());
        let inner = args.connect().await.map_err(explained)?;
        Ok(Self::new(inner, args.client_options(name), name))
    }

    /// On a client that exists.
    pub(crate) fn new(inner: kube::Client, options: client::Options, name: &str) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let (metrics, entropy) = (Metrics::new(&*clock), Entropy::from_system());
        let client = Client::new(inner, options, &metrics, &entropy);
        let caches = Caches::new(&client, &entropy);
        let (recorder, writer) = events::channel(name, &identity(), clock.clone(), &metrics, &entropy);
        let context = Context { client, caches, recorder, metrics, entropy, clock, handoff: Handoff::default() };
        Self { context, health: Health::default(), writer }
    }

    /// Runs `work` until a signal asks for the end: at once, or whenever the lease is ours.
    pub(crate) async fn run<W, F>(self, serve: &ServeArgs, lead: Lead, work: W) -> anyhow::Result<()>
    where
        W: FnMut(Stop) -> F,
        F: Future<Output = ()>,
    {
        let (stopper, stop) = Stopper::new();
        tokio::select! {
            biased;
            ended = self.run_until(serve, lead, &stop, work) => ended,
            // The second signal: whoever sends it does not want to wait.
            signals = stop::on_signals(stopper) => signals.map_err(|error| anyhow!(error)),
        }
    }

    /// The same, until `stop`.
    pub(crate) async fn run_until<W, F>(self, serve: &ServeArgs, lead: Lead, stop: &Stop, work: W) -> anyhow::Result<()>
    where
        W: FnMut(Stop) -> F,
        F: Future<Output = ()>,
    {
        self.run_beside(serve, lead, stop, (work, std::future::ready(()))).await
    }

    /// The same, with something `beside` that has a lease of its own; see [`lead`].
    pub(crate) async fn run_beside<W, F>(
        self,
        serve: &ServeArgs,
        lead: Lead,
        stop: &Stop,
        (mut work, beside): (W, impl Future<Output = ()>),
    ) -> anyhow::Result<()>
    where
        W: FnMut(Stop) -> F,
        F: Future<Output = ()>,
    {
        let Self { context, health, writer } = self;
        let elector = elector(&context, &lead)?;
        let (done, ended) = Stopper::new();
        // Caches and events outlive the work, which may still need them to end well.
        let until = ended;
        let caches = tokio::spawn({
            let (caches, until) = (context.caches.clone(), until.clone());
            async move { caches.run(&until).await }
        });
        let events = tokio::spawn({
            let (client, until) = (context.client.clone(), until.clone());
            async move { writer.run(&client, &until).await }
        });
        let served = serve_health(&context, &health, serve, elector.as_ref(), &until).await?;
        tokio::join!(while_leading(elector, stop, &mut work), beside);
        done.stop();
        events.await.context("writing events")?;
        caches.await.context("following the cluster")?;
        if let Some(served) = served {
            served.await.context("answering metrics and health")?;
        }
        Ok(())
    }
}

/// Runs `work` until `stop`: at once, or whenever the lease is ours. For a part that has a lease beside its process'.
pub(crate) async fn lead<W, F>(context: &Context, lead: &Lead, stop: &Stop, mut work: W)
where
    W: FnMut(Stop) -> F,
    F: Future<Output = ()>,
{
    match elector(context, lead) {
        Ok(elector) => while_leading(elector, stop, &mut work).await,
        // The process' own lease has the same times, and would not have come so far.
        Err(error) => tracing::error!(%error, "a part cannot compete for its lease, and does nothing"),
    }
}

async fn while_leading<W, F>(elector: Option<Elector>, stop: &Stop, work: &mut W)
where
    W: FnMut(Stop) -> F,
    F: Future<Output = ()>,
{
    match elector {
        Some(elector) => elector.run(stop, |epoch| work(epoch.stop)).await,
        None => {
            if let Drained::Dropped = stop::drain(work(stop.clone()), stop, DRAIN).await {
                tracing::warn!("stopping with work under way; the next start finishes it");
            }
        }
    }
}

fn elector(context: &Context, lead: &Lead) -> anyhow::Result<Option<Elector>> {
    match lead {
        Lead::Always => Ok(None),
        Lead::Lease(options) => {
            let Context { client, clock, entropy, metrics, .. } = context;
            let elector = Elector::new(client, clock.clone(), entropy, metrics, options.clone());
            elector.map(Some).map_err(|error| anyhow!(error)).context("leader election")
        }
    }
}

/// Answers metrics and health, if an address was given.
async fn serve_health(
    context: &Context,
    health: &Health,
    serve: &ServeArgs,
    elector: Option<&Elector>,
    until: &Stop,
) -> anyhow::Result<Option<tokio::task::JoinHandle<()>>> {
    let Some((address, check)) = serve.address() else { return Ok(None) };
    if let (Some(elector), LeaderCheck::Served) = (elector, check) {
        let standing = elector.standing();
        let patience = elector.lease_duration();
        health.add("leader-election", move || standing.borrow().healthy(patience));
    }
    let server = Server::bind(address, &serve.metrics_path, &context.metrics, health).await;
    let server = server.map_err(|error| anyhow!(error))?;
    if let Ok(address) = server.address() {
        tracing::info!(http = %address, "answering metrics and health");
    }
    let until = until.clone();
    Ok(Some(tokio::spawn(async move { server.run(&until).await })))
}

/// The flags of a command as if only these were given: a part of a process then behaves as the command of its name does.
pub(crate) fn flags<A: clap::Args>(given: &[&str]) -> anyhow::Result<A> {
    let command = A::augment_args(clap::Command::new("orlop").no_binary_name(true));
    let matches = command.try_get_matches_from(given).context("the flags of a part")?;
    A::from_arg_matches(&matches).context("the flags of a part")
}

/// For a process that answers no metrics of its own.
pub(crate) fn no_endpoint() -> ServeArgs {
    endpoint(None)
}

/// For one that does, if an address was given.
pub(crate) fn endpoint(address: Option<SocketAddr>) -> ServeArgs {
    let http_endpoint = address.map(|address| address.to_string()).unwrap_or_default();
    ServeArgs { http_endpoint, metrics_address: String::new(), metrics_path: "/metrics".to_owned() }
}

/// An error with its causes for a person: no cause twice, and no numbers that only programmers look up.
pub(crate) fn sentence(error: &anyhow::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain() {
        let said = without_codes(cause.to_string().trim_end());
        // Some errors repeat their cause in their own words.
        if !said.is_empty() && !parts.last().is_some_and(|last| last.ends_with(&said)) {
            parts.push(said);
        }
    }
    parts.join(": ")
}

/// `No such file or directory`, without its `(os error 2)`; `disk is full`, without its `Error code 13: disk is full`.
pub(crate) fn without_codes(said: &str) -> String {
    let mut kept = String::new();
    let mut rest = said;
    while let Some((before, after)) = rest.split_once(" (os error ") {
        kept.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    kept += rest;
    // A database says everything twice, the second time with a number; or a second time as its own cause.
    if let Some((code, said)) = kept.strip_prefix("Error code ").and_then(|rest| rest.split_once(": "))
        && code.parse::<u32>().is_ok()
    {
        return said.to_owned();
    }
    match kept.split_once(": Error code ") {
        Some((once, again)) if again.split_once(": ").is_some_and(|(_, again)| once.ends_with(again)) => {
            once.to_owned()
        }
        _ => kept,
    }
}

/// Says what went wrong, in the command's name. Whoever would have read it may be gone, which is no reason to panic.
fn complain(command: &str, error: &anyhow::Error) {
    let _ = writeln!(std::io::stderr(), "orlop {command}: {}", sentence(error));
}

/// Everything that can be wrong with the flags of a lease, before anybody is asked for one.
pub(crate) fn check_leading(args: &LeaderArgs) -> anyhow::Result<()> {
    let namespace = &args.leader_election_namespace;
    if !namespace.is_empty() {
        let checked = usage::parse_namespace(namespace);
        checked.map_err(|why| anyhow!("--leader-election-namespace {namespace:?}: {why}"))?;
    }
    args.check().map_err(|error| anyhow!(error)).context("leader election")
}

/// How a command ends: what went wrong is said in its name.
pub(crate) fn ended(command: &str, result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(command, &error);
            ExitCode::FAILURE
        }
    }
}

/// How a command that reports ends: 0 if all is well, 1 if what it reports is not, 2 if it could not find out.
pub(crate) fn reported(command: &str, work: impl Future<Output = anyhow::Result<bool>>) -> ExitCode {
    let mut well = false;
    let reported = block_on(async {
        well = work.await?;
        Ok(())
    });
    match (reported, well) {
        (Ok(()), true) => ExitCode::SUCCESS,
        (Ok(()), false) => ExitCode::from(1),
        (Err(error), _) => {
            complain(command, &error);
            ExitCode::from(2)
        }
    }
}

/// Starts a runtime for a command that mostly waits, and runs it there.
pub(crate) fn block_on<F: Future<Output = anyhow::Result<()>>>(work: F) -> anyhow::Result<()> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get).clamp(2, 4);
    let runtime = builder.worker_threads(threads).enable_all().build().context("starting the runtime")?;
    to_its_end(&runtime, work)
}

/// The same on this thread alone: whoever hears of a change in a cache has told it before anybody else sees it there.
pub(crate) fn block_on_here<F: Future<Output = anyhow::Result<()>>>(work: F) -> anyhow::Result<()> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    to_its_end(&builder.enable_all().build().context("starting the runtime")?, work)
}

/// Tokio's own function puts the code of what it waits for into the program three times, and what a command does as a
/// whole is large: behind a pointer it is there once.
pub(crate) fn to_its_end<T>(runtime: &tokio::runtime::Runtime, work: impl Future<Output = T>) -> T {
    let work: std::pin::Pin<&mut dyn Future<Output = T>> = std::pin::pin!(work);
    runtime.block_on(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_applied_for_under_a_name_that_no_other_process_of_this_host_has() {
        let args: LeaderArgs = flags(&["--leader-election"]).unwrap();
        let Lead::Lease(options) = Lead::by(&args, "lock") else { panic!("it was asked for") };
        let host = lease::sanitise(&identity());
        assert_ne!(options.identity, host);
        assert_eq!(options.identity, lease::sanitise(identity::unique()));
        assert!(options.identity.starts_with(&format!("{host}-")), "{}", options.identity);
    }

    #[test]
    fn an_error_is_told_once_and_without_numbers() {
        let twice = anyhow!("Error code 13: disk is full").context("disk is full").context("opening the database");
        assert_eq!(sentence(&twice), "opening the database: disk is full");
        let at_once = anyhow!("disk is full: Error code 13: disk is full").context("writing");
        assert_eq!(sentence(&at_once), "writing: disk is full");
        let of_the_system = anyhow!(std::io::Error::from_raw_os_error(2)).context("reading /x");
        assert_eq!(sentence(&of_the_system), "reading /x: No such file or directory");
    }
}
