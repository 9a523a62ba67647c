//! `orlop bench claims`: many claims at once on any cluster, until they are bound, and until nothing is left of them.
//!
//! # Invariants
//! 1. What is made belongs to the run: a namespace of its own, and what carries that namespace's name. It is taken away at
//!    the end, also after an error and after Ctrl-C.
//! 2. Times are taken when a watch shows the change, which is when any other client could act on it.

mod args;
mod ledger;
mod report;
mod site;
mod writes;

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use runtime::time::SystemClock;
use runtime::{Caches, Client, Entropy, Metrics, Stop, Stopper, stop};
use tokio::time::timeout;

pub(super) use args::Args;
use args::Output;
use ledger::{Ledger, Moment};
use report::{Report, Span};
use site::Site;
use writes::{Census, Own, Writes};

/// How long what is left may take to go before the bench gives up on it.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn run(args: Args) -> anyhow::Result<()> {
    args.check()?;
    let inner = args.kube.connect().await.map_err(|error| anyhow!(error))?;
    let (metrics, entropy) = (Metrics::new(&SystemClock), Entropy::from_system());
    let client = Client::new(inner.clone(), args.kube.client_options("orlop-bench"), &metrics, &entropy);
    let (stopper, stop) = Stopper::new();
    tokio::select! {
        biased;
        done = measure(&args, inner, client, entropy, stop) => done,
        // The second signal: whoever sends it does not want to wait for the cleaning.
        signals = stop::on_signals(stopper) => {
            signals?;
            bail!("interrupted while cleaning up; look for what is labelled {}", site::LABEL)
        }
    }
}

/// The whole run, with what follows the cluster around it.
async fn measure(args: &Args, inner: kube::Client, client: Client, entropy: Entropy, stop: Stop) -> anyhow::Result<()> {
    let caches = Caches::new(&client, &entropy);
    let site = Site::prepare(args, client).await?;
    let ledger = Ledger::follow(&caches, site.namespace(), args.count);
    let (ended, until) = Stopper::new();
    let following = tokio::spawn({
        let caches = caches.clone();
        async move { caches.run(&until).await }
    });
    let run = Run { args, site: &site, ledger: &ledger, census: Census::new(inner) };
    let measured = tokio::select! {
        biased;
        measured = run.all(&caches) => measured,
        () = stop.stopped() => Err(anyhow!("interrupted; everything this run made was taken away")),
    };
    let cleared = site.clear(&ledger, PATIENCE).await;
    ended.stop();
    following.await.context("following the cluster")?;
    let report = measured?;
    cleared?;
    match args.output {
        Output::Text => print!("{report}"),
        Output::Json => println!("{}", serde_json::to_string(&report)?),
    }
    Ok(())
}

struct Run<'a> {
    args: &'a Args,
    site: &'a Site,
    ledger: &'a Ledger,
    census: Census,
}

impl Run<'_> {
    async fn all(&self, caches: &Caches) -> anyhow::Result<Report> {
        let (args, site) = (self.args, self.site);
        timeout(PATIENCE, caches.synced()).await.context("claims and volumes cannot be watched")?;
        let volumes = args.volumes();
        let made = site.make_volumes(volumes).await?;
        // Whoever marks them as available writes once for each, and that is no part of binding.
        self.until(Moment::Available, volumes).await?;
        let (bound, bind_writes) = self.bind().await?;
        if args.pause {
            pause(args.count).await?;
        }
        let before = self.census.take().await;
        let first = site.delete_claims(self.ledger, args.count).await?;
        let gone = self.until(Moment::ClaimGone, args.count).await?;
        let released = match volumes {
            0 => first,
            _ => site.delete_volumes(self.ledger, volumes).await?,
        };
        let volumes_gone = self.until(Moment::VolumeGone, volumes.max(args.count)).await?;
        let own = Own { claims: args.count, volumes, verb: "DELETE" };
        Ok(Report {
            claims: args.count,
            volumes,
            concurrency: args.concurrency,
            provisioner: site.provisioner().to_owned(),
            volumes_per_second: made.map(|took| report::rate(volumes, took)),
            bound,
            claims_gone: Span::of(self.ledger, Moment::ClaimGone, first, gone),
            volumes_gone: Span::of(self.ledger, Moment::VolumeGone, released, volumes_gone),
            bind_writes,
            delete_writes: self.writes(before, &own).await,
        })
    }

    async fn bind(&self) -> anyhow::Result<(Span, Option<Writes>)> {
        let count = self.args.count;
        let before = self.census.take().await;
        let first = self.site.create_claims(self.ledger, count).await?;
        let last = self.until(Moment::Bound, count).await?;
        let span = Span::of(self.ledger, Moment::Bound, first, last);
        let own = Own { claims: count, volumes: 0, verb: "POST" };
        Ok((span, self.writes(before, &own).await))
    }

    /// What others wrote since `before`, once nobody writes any more.
    async fn writes(&self, before: Option<Writes>, own: &Own) -> Option<Writes> {
        let after = self.census.settled().await?;
        Some(after.since(&before?).without(own))
    }

    /// Waits until so many have come so far, and says when the last one did.
    async fn until(&self, moment: Moment, count: usize) -> anyhow::Result<tokio::time::Instant> {
        match timeout(self.args.timeout, self.ledger.reached(moment, count)).await {
            Ok(last) => Ok(last),
            Err(_) => bail!("{} after {:?}", self.ledger.complaint(moment, count), self.args.timeout),
        }
    }
}

/// Lets the user look at the cluster while everything is bound.
async fn pause(count: usize) -> anyhow::Result<()> {
    eprintln!("{count} claims are bound; press Enter to delete them");
    let (pressed, enter) = tokio::sync::oneshot::channel();
    // A thread of its own: nobody waits for it when the bench is interrupted instead.
    std::thread::spawn(move || pressed.send(std::io::stdin().read_line(&mut String::new())));
    enter.await.context("waiting for Enter")?.context("waiting for Enter").map(drop)
}
