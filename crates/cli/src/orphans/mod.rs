//! `orlop orphans`: what a driver has against what the cluster knows.
//!
//! The driver is asked in `driver.rs`, the cluster in `cluster/look.rs`; what is an orphan and what may be deleted is
//! decided in `lifecycle::orphans`. Without `--delete --yes` nothing is changed.

mod driver;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ::csi::Endpoint;
use anyhow::{Context as _, bail};
use driver_local::pool::Orphan as Leftover;
use lifecycle::orphans::{self, Orphan, Report, Twice, What};
use lifecycle::table::{Look, Paint, Tone};
use runtime::time::SystemClock;
use serde_json::{Value, json};

use crate::cluster::output::Answer;
use crate::cluster::{Cluster, ClusterArgs, Eye, OutputArgs};
use crate::{process, usage};
use driver::Connected;

/// Find volumes that the cluster does not know, and objects whose volume is gone.
///
/// What the driver has is compared with what the cluster says, snapshots included.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Socket of the driver, such as unix:///run/csi.sock.
    #[arg(long, value_name = "ADDRESS", required_unless_present = "data", conflicts_with = "data")]
    csi_address: Option<Endpoint>,
    /// Data directory of an `orlop up` that runs: its driver.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Directory of a pool of the local driver: unfinished copies and what could not be removed are listed as well. May be
    /// given more than once; --data names the pool of `orlop up`.
    #[arg(long, value_name = "DIR")]
    pool: Vec<PathBuf>,
    /// Delete what nobody knows and nothing could still mean. With --yes only; without it, it is shown.
    #[arg(long)]
    delete: bool,
    /// Really delete.
    #[arg(long, requires = "delete")]
    yes: bool,
    /// Delete only the volume or snapshot with this handle; may be given several times.
    #[arg(long, value_name = "HANDLE", requires = "delete")]
    only: Vec<String>,
    /// How long before a deletion everything is looked at for the first time: what both looks find is deleted.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = runtime::args::parse_duration)]
    settle: Duration,
    /// How long one call to the driver may take.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = runtime::args::parse_duration)]
    timeout: Duration,
    /// Of objects whose volume is gone, only those of claims and snapshots in this namespace.
    #[arg(short, long, value_name = "NAME", value_parser = usage::parse_namespace, conflicts_with = "all_namespaces")]
    namespace: Option<String>,
    /// All namespaces, which is what is shown anyway.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  orlop orphans --data ./orlop
  orlop orphans --csi-address unix:///run/csi.sock -o json
  orlop orphans --csi-address /run/csi.sock --delete --only vol-0a1b --yes

A driver whose backend serves several clusters has volumes that only the others know: never use
--delete there without --only. Volumes are kept while a provisioner may be making them, while
nodes have them, and when anything that could name them may not be read.

Exit codes: 0 driver and cluster agree, 1 something is unknown, kept or gone, or the driver cannot
list, 2 they could not be compared, or a deletion failed.";

pub(crate) fn run(args: &Args) -> ExitCode {
    process::reported("orphans", async {
        let answer = work(args).await?;
        args.output.print(&answer)?;
        let failed = answer.deletions.iter().filter(|deletion| deletion.outcome.is_err()).count();
        if failed > 0 {
            bail!("{failed} of {} could not be deleted", answer.deletions.len());
        }
        Ok(answer.report.agrees() && answer.report.unlisted.is_empty())
    })
}

async fn work(args: &Args) -> anyhow::Result<Comparison> {
    let endpoint = match (&args.csi_address, &args.data) {
        (Some(endpoint), _) => endpoint.clone(),
        (None, Some(data)) => {
            if args.cluster.kubeconfig.is_none() && !data.join("kubeconfig").exists() {
                bail!("--data {} holds no kubeconfig: name the data directory of a running `orlop up`", data.display());
            }
            let data = data.canonicalize().with_context(|| format!("--data {}", data.display()))?;
            format!("unix://{}/csi.sock", data.display()).parse().context("the socket of the data directory")?
        }
        (None, None) => {
            bail!("give the driver's socket with --csi-address, or the data directory of orlop up with --data")
        }
    };
    let leftovers = args.leftovers()?;
    let cluster = args.cluster().connect("orlop-orphans").await?;
    let driver = Connected::to(endpoint, args.timeout).await?;
    let mut report = look(args, &cluster, &driver).await;
    let mut deletions = Vec::new();
    if args.delete && args.yes && report.deletable().next().is_some() {
        tokio::time::sleep(args.settle).await;
        let again = look(args, &cluster, &driver).await;
        let chosen = |orphan: &&Orphan| args.only.is_empty() || args.only.iter().any(|it| **it == *orphan.held.handle);
        for orphan in again.deletable_since(&report).filter(chosen) {
            let outcome = driver.delete(orphan).await.map_err(|error| error.to_string());
            deletions.push(Deletion { what: orphan.what, handle: orphan.held.handle.clone(), outcome });
        }
        report = again;
        let done = |orphan: &Orphan| {
            let mut done = deletions.iter().filter(|deletion| deletion.outcome.is_ok());
            done.any(|deletion| deletion.what == orphan.what && deletion.handle == orphan.held.handle)
        };
        report.orphans.retain(|orphan| !done(orphan));
    }
    let wish = match (args.delete, args.yes) {
        (false, _) => Wish::Look,
        (true, false) => Wish::Unconfirmed,
        (true, true) => Wish::Delete,
    };
    Ok(Comparison { report, deletions, wish, leftovers })
}

async fn look(args: &Args, cluster: &Cluster, driver: &Connected) -> Report {
    let before = driver.list().await;
    let (picture, contents) = Eye::new(&cluster.client, &SystemClock).names_of_volumes().await;
    let after = driver.list().await;
    let mut report = orphans::compare(Twice { before: &before, after: &after }, &picture, &contents);
    if let Some(namespace) = args.namespace.as_deref() {
        let here = |user: &Option<api::Key>| user.as_ref().and_then(api::Key::namespace) == Some(namespace);
        report.gone.retain(|gone| here(&gone.user));
    }
    report
}

impl Args {
    /// What waits in the pools that are named.
    fn leftovers(&self) -> anyhow::Result<Vec<Leftover>> {
        let own = self.data.iter().map(|data| data.join("pool")).filter(|pool| pool.is_dir());
        let mut found = Vec::new();
        for pool in own.chain(self.pool.iter().cloned()) {
            let left = driver_local::pool::leftovers(&pool);
            found.extend(left.with_context(|| format!("reading the pool {}", pool.display()))?);
        }
        Ok(found)
    }

    /// The cluster of a data directory is the one that its kubeconfig leads to.
    fn cluster(&self) -> ClusterArgs {
        let mut cluster = self.cluster.clone();
        if let (None, Some(data)) = (&cluster.kubeconfig, &self.data) {
            cluster.kubeconfig = Some(data.join("kubeconfig"));
        }
        cluster
    }
}

/// What was asked for beside looking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Look,
    /// To delete, and nobody said yes.
    Unconfirmed,
    Delete,
}

#[derive(Debug)]
struct Deletion {
    what: What,
    handle: Box<str>,
    outcome: Result<(), String>,
}

#[derive(Debug)]
struct Comparison {
    report: Report,
    deletions: Vec<Deletion>,
    wish: Wish,
    /// What is hidden in pools of the local driver.
    leftovers: Vec<Leftover>,
}

impl Comparison {
    /// What was done, or how it would be.
    fn done(&self, paint: Paint) -> String {
        let mut text = String::new();
        for Deletion { what, handle, outcome } in &self.deletions {
            let line = match outcome {
                Ok(()) => format!("{} {handle} is deleted", what.name()),
                Err(error) => paint.text(&format!("{} {handle} is not deleted: {error}", what.name()), Tone::Bad),
            };
            text.push_str(&format!("{line}\n"));
        }
        let left = self.report.deletable().count();
        let closing = match (self.wish, left) {
            (Wish::Look, 1..) => format!("Nothing was changed. --delete --yes deletes the {left} that nobody knows."),
            (Wish::Unconfirmed, 1..) => {
                format!("Nothing was deleted: add --yes to delete the {left} that nobody knows.")
            }
            (Wish::Unconfirmed, 0) => "There is nothing to delete.".to_owned(),
            (Wish::Delete, 0) if self.deletions.is_empty() => "There is nothing to delete.".to_owned(),
            (Wish::Look | Wish::Delete, _) => String::new(),
        };
        if !closing.is_empty() {
            text.push_str(&format!("{closing}\n"));
        }
        if text.is_empty() { text } else { format!("\n{text}") }
    }
}

impl Answer for Comparison {
    fn text(&self, look: Look) -> String {
        let mut text = self.report.text(look) + &self.done(look.paint);
        if !self.leftovers.is_empty() {
            text.push_str("\nHidden in the pool; no list of the driver shows it:\n");
        }
        for Leftover { path, why } in &self.leftovers {
            text.push_str(&format!("  {}: {why}\n", path.display()));
        }
        text
    }

    fn value(&self) -> Value {
        let mut value = self.report.value();
        let deletions = self.deletions.iter().map(|deletion| {
            let error = deletion.outcome.as_ref().err();
            json!({"kind": deletion.what.name(), "handle": deletion.handle, "error": error})
        });
        value["deletions"] = deletions.collect();
        let leftovers = self.leftovers.iter().map(|left| json!({"path": left.path, "why": left.why}));
        value["leftovers"] = leftovers.collect();
        value
    }
}
