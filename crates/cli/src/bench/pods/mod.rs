//! `orlop bench pods`: many pods at once on any cluster, until their volumes are ready, and until nothing is attached.
//!
//! # Invariants
//! 1. What is made belongs to the run: a namespace of its own, and what carries that namespace's name. It is taken away at
//!    the end, also after an error and after Ctrl-C.
//! 2. Times are taken when a watch shows the change, which is when any other client could act on it.
//! 3. Claims of a class that binds at once are bound before the first pod is made, so that pods are measured and not
//!    provisioning.

mod args;
mod report;

use anyhow::{Context as _, bail};
use api::{CsiNode, Kind, Object as _};
use runtime::client::Selection;
use tokio::time::Instant;

use super::consumers::{Consumers, Ending, PodLedger, Stage};
use super::ledger::{Ledger, Moment};
use super::session::{self, PATIENCE, Session};
use super::site::Site;
use super::span::Span;
use super::writes::Writes;
pub(super) use args::Args;
use report::{Nodes, Report};

/// Objects of a page of a list.
const PAGE: u32 = 500;

pub(super) async fn run(args: Args) -> anyhow::Result<()> {
    args.check()?;
    session::run(&args.kube, |session| measure(&args, session)).await
}

async fn measure(args: &Args, session: Session) -> anyhow::Result<()> {
    let site = Site::prepare(&args.site(), session.client.clone()).await?;
    let claims = Ledger::follow(&session.caches, site.namespace(), args.count);
    let ledger = PodLedger::follow(&session.caches, site.namespace(), args.count, &claims);
    let pods = Consumers { site: &site, ledger: &ledger, ending: Ending::ByAgent };
    let run = Run { args, site: &site, claims: &claims, pods: &pods, session: &session };
    let clear = async {
        // Claims that pods still hold go as soon as the pods do: all are asked to go, and each says if it stays.
        let pods = pods.clear(PATIENCE).await;
        let site = site.clear(&claims, PATIENCE).await;
        pods.and(site)
    };
    let report = session.measure(run.all(), clear).await?;
    args.pace.output.print(&report)
}

struct Run<'a> {
    args: &'a Args,
    site: &'a Site,
    claims: &'a Ledger,
    pods: &'a Consumers<'a>,
    session: &'a Session,
}

/// How the pods' volumes became ready.
struct Up {
    ready: Span,
    after_bound: Span,
    writes: Option<Writes>,
}

/// How they went.
struct Down {
    gone: Span,
    detached: Option<Span>,
    writes: Option<Writes>,
}

impl Run<'_> {
    async fn all(&self) -> anyhow::Result<Report> {
        let (args, count) = (self.args, self.args.count);
        let nodes = self.nodes().await?;
        self.pods.admit().await?;
        let first = self.site.create_claims(self.claims, count).await?;
        if !self.site.binds_late() {
            self.bound(first).await?;
        }
        let up = self.up(&nodes).await?;
        let bound = self.bound(first).await?;
        if args.pace.pause {
            super::pause(&format!("the volumes of {count} pods are ready")).await?;
        }
        let down = self.down().await?;
        let first = self.site.delete_claims(self.claims, count).await?;
        let last = self.claims.until(Moment::VolumeGone, count, args.pace.timeout).await?;
        Ok(Report {
            pods: count,
            nodes,
            concurrency: args.pace.concurrency,
            provisioner: self.site.provisioner().to_owned(),
            bound,
            ready: up.ready,
            ready_after_bound: up.after_bound,
            pods_gone: down.gone,
            detached: down.detached,
            volumes_gone: self.claims.span(Moment::VolumeGone, first, last),
            ready_writes: up.writes,
            delete_writes: down.writes,
        })
    }

    async fn bound(&self, first: Instant) -> anyhow::Result<Span> {
        let last = self.claims.until(Moment::Bound, self.args.count, self.args.pace.timeout).await?;
        Ok(self.claims.span(Moment::Bound, first, last))
    }

    async fn up(&self, nodes: &Nodes) -> anyhow::Result<Up> {
        let (count, ledger, census) = (self.args.count, self.pods.ledger, &self.session.census);
        let before = census.take().await;
        let first = self.pods.create(count, |number| nodes.of(number)).await?;
        let last = ledger.until(Stage::Ready, count, self.args.pace.timeout).await?;
        Ok(Up {
            ready: ledger.span(Stage::Ready, first, last),
            after_bound: ledger.span_after_bound(first, last),
            writes: census.since(before, &[("POST pods", count)]).await,
        })
    }

    async fn down(&self) -> anyhow::Result<Down> {
        let (args, ledger, census) = (self.args, self.pods.ledger, &self.session.census);
        let before = census.take().await;
        let first = self.pods.delete(args.count).await?;
        let last = ledger.until(Stage::Gone, args.count, args.pace.timeout).await?;
        let gone = ledger.span(Stage::Gone, first, last);
        let detached = match ledger.count(Stage::Attaching) {
            0 => None,
            attachments => {
                let last = ledger.until(Stage::Detached, attachments, args.pace.timeout).await?;
                Some(ledger.span(Stage::Detached, first, last))
            }
        };
        Ok(Down { gone, detached, writes: census.since(before, &[("DELETE pods", args.count)]).await })
    }

    /// The nodes that pods are put on: those that were named, or all that have the driver.
    async fn nodes(&self) -> anyhow::Result<Nodes> {
        if self.args.schedule {
            return Ok(Nodes::Scheduled);
        }
        if !self.args.node.is_empty() {
            return Ok(Nodes::Named(self.args.node.clone()));
        }
        let (driver, everywhere) = (self.site.driver(), Selection::default());
        let (mut names, mut next) = (Vec::new(), None);
        loop {
            let page = self.site.client().list::<CsiNode>(Kind::CSI_NODE, &everywhere, PAGE, next.as_deref()).await;
            let page = page.context("listing CSINodes")?;
            let having = page.items.iter().filter(|node| node.driver(driver).is_some());
            names.extend(having.map(|node| node.key().name().to_owned()));
            match page.next {
                Some(more) => next = Some(more),
                None if names.is_empty() => bail!(
                    "no CSINode has driver {driver}; register it with a node's agent, name nodes with --node, or leave \
                     them to a scheduler with --schedule"
                ),
                None => return Ok(Nodes::Named(names)),
            }
        }
    }
}
