//! `orlop bench attach`: volumes attached and detached without a node's agent, for the controllers' sake.
//!
//! # Invariants
//! 1. What is made belongs to the run: a namespace of its own, and what carries that namespace's name. It is taken away at
//!    the end, also after an error and after Ctrl-C; the played agents work until then, so that volumes are let go.
//! 2. A volume counts as attached when its node was told so, which is when a real agent would mount it.
//! 3. Claims are bound before the first pod is made, so that nothing but attaching is measured.

mod args;
mod machines;
mod report;

use super::consumers::{Consumers, Ending, PodLedger, Stage};
use super::ledger::{Ledger, Moment};
use super::session::{self, PATIENCE, Session};
use super::site::Site;
use super::span::{self, Span};
use super::writes::Writes;
pub(super) use args::Args;
use machines::Machines;
use report::Report;

pub(super) async fn run(args: Args) -> anyhow::Result<()> {
    args.check()?;
    session::run(&args.kube, |session| measure(&args, session)).await
}

async fn measure(args: &Args, session: Session) -> anyhow::Result<()> {
    let site = Site::prepare(&args.site(), session.client.clone()).await?;
    let claims = Ledger::follow(&session.caches, site.namespace(), args.count);
    let ledger = PodLedger::follow(&session.caches, site.namespace(), args.count, &claims);
    let machines = Machines::follow(&session.caches, &site, args.nodes, &ledger);
    let pods = Consumers { site: &site, ledger: &ledger, ending: Ending::ByBench };
    let run = Run { args, site: &site, claims: &claims, pods: &pods, machines: &machines, session: &session };
    let clear = async {
        let pods = pods.clear(PATIENCE).await;
        let nodes = machines.remove().await;
        let site = site.clear(&claims, PATIENCE).await;
        pods.and(nodes).and(site)
    };
    let report = tokio::select! {
        biased;
        report = session.measure(run.all(), clear) => report?,
        never = machines.play() => match never {},
    };
    args.pace.output.print(&report)
}

struct Run<'a> {
    args: &'a Args,
    site: &'a Site,
    claims: &'a Ledger,
    pods: &'a Consumers<'a>,
    machines: &'a Machines<'a>,
    session: &'a Session,
}

impl Run<'_> {
    async fn all(&self) -> anyhow::Result<Report> {
        let (args, count) = (self.args, self.args.count);
        self.machines.make().await?;
        self.pods.admit().await?;
        self.site.make_volumes(count).await?;
        self.claims.until(Moment::Available, count, args.pace.timeout).await?;
        self.site.create_claims(self.claims, count).await?;
        self.claims.until(Moment::Bound, count, args.pace.timeout).await?;
        self.machines.learn(self.claims, count);
        let (attached, attach_writes) = self.attach().await?;
        if args.pace.pause {
            super::pause(&format!("{count} volumes are attached")).await?;
        }
        let (detached, detach_writes) = self.detach().await?;
        let whole = std::time::Duration::from_secs_f64(attached.seconds + detached.seconds);
        Ok(Report {
            pods: count,
            nodes: args.nodes,
            concurrency: args.pace.concurrency,
            driver: args.driver.clone(),
            attached,
            detached,
            pairs_per_second: span::rate(count, whole),
            attach_writes,
            detach_writes,
        })
    }

    async fn attach(&self) -> anyhow::Result<(Span, Option<Writes>)> {
        let (count, ledger, census) = (self.args.count, self.pods.ledger, &self.session.census);
        let (before, written) = (census.take().await, self.machines.written());
        let first = self.pods.create(count, |number| Some(self.machines.node_of(number))).await?;
        let last = ledger.until(Stage::Attached, count, self.args.pace.timeout).await?;
        let writes = census.since(before, &[("POST pods", count), self.machines.wrote_since(written)]).await;
        Ok((ledger.span(Stage::Attached, first, last), writes))
    }

    async fn detach(&self) -> anyhow::Result<(Span, Option<Writes>)> {
        let (count, ledger, census) = (self.args.count, self.pods.ledger, &self.session.census);
        let (before, written) = (census.take().await, self.machines.written());
        let first = self.pods.delete(count).await?;
        let last = ledger.until(Stage::Detached, count, self.args.pace.timeout).await?;
        let writes = census.since(before, &[("DELETE pods", count), self.machines.wrote_since(written)]).await;
        Ok((ledger.span(Stage::Detached, first, last), writes))
    }
}
