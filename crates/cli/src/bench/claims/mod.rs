//! `orlop bench claims`: many claims at once on any cluster, until they are bound, and until nothing is left of them.
//!
//! # Invariants
//! 1. What is made belongs to the run: a namespace of its own, and what carries that namespace's name. It is taken away at
//!    the end, also after an error and after Ctrl-C.
//! 2. Times are taken when a watch shows the change, which is when any other client could act on it.

mod args;
mod report;

use super::ledger::{Ledger, Moment};
use super::session::{self, PATIENCE, Session};
use super::site::Site;
use super::span::{self, Span};
use super::writes::Writes;
pub(super) use args::Args;
use report::Report;

pub(super) async fn run(args: Args) -> anyhow::Result<()> {
    args.check()?;
    session::run(&args.kube, |session| measure(&args, session)).await
}

async fn measure(args: &Args, session: Session) -> anyhow::Result<()> {
    let site = Site::prepare(&args.site(), session.client.clone()).await?;
    let ledger = Ledger::follow(&session.caches, site.namespace(), args.count);
    let run = Run { args, site: &site, ledger: &ledger, session: &session };
    let report = session.measure(run.all(), site.clear(&ledger, PATIENCE)).await?;
    args.pace.output.print(&report)
}

struct Run<'a> {
    args: &'a Args,
    site: &'a Site,
    ledger: &'a Ledger,
    session: &'a Session,
}

impl Run<'_> {
    async fn all(&self) -> anyhow::Result<Report> {
        let (args, site, ledger) = (self.args, self.site, self.ledger);
        let volumes = args.volumes();
        let made = site.make_volumes(volumes).await?;
        // Whoever marks them as available writes once for each, and that is no part of binding.
        ledger.until(Moment::Available, volumes, args.pace.timeout).await?;
        let (bound, bind_writes) = self.bind().await?;
        if args.pace.pause {
            super::pause(&format!("{} claims are bound", args.count)).await?;
        }
        let before = self.session.census.take().await;
        let first = site.delete_claims(ledger, args.count).await?;
        let gone = ledger.until(Moment::ClaimGone, args.count, args.pace.timeout).await?;
        let released = match volumes {
            0 => first,
            _ => site.delete_volumes(ledger, volumes).await?,
        };
        let volumes_gone = ledger.until(Moment::VolumeGone, volumes.max(args.count), args.pace.timeout).await?;
        let own = [("DELETE persistentvolumeclaims", args.count), ("DELETE persistentvolumes", volumes)];
        Ok(Report {
            claims: args.count,
            volumes,
            concurrency: args.pace.concurrency,
            provisioner: site.provisioner().to_owned(),
            volumes_per_second: made.map(|took| span::rate(volumes, took)),
            bound,
            claims_gone: ledger.span(Moment::ClaimGone, first, gone),
            volumes_gone: ledger.span(Moment::VolumeGone, released, volumes_gone),
            bind_writes,
            delete_writes: self.session.census.since(before, &own).await,
        })
    }

    async fn bind(&self) -> anyhow::Result<(Span, Option<Writes>)> {
        let (count, census) = (self.args.count, &self.session.census);
        let before = census.take().await;
        let first = self.site.create_claims(self.ledger, count).await?;
        let last = self.ledger.until(Moment::Bound, count, self.args.pace.timeout).await?;
        let span = self.ledger.span(Moment::Bound, first, last);
        Ok((span, census.since(before, &[("POST persistentvolumeclaims", count)]).await))
    }
}
