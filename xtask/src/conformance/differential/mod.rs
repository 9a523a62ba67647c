//! One differential suite: the same requests to `orlop api` and to kube-apiserver, and their answers compared.
//!
//! # Invariants
//! 1. Each case and each sequence has a namespace of its own, and names of its own where there is no namespace, so that
//!    many can run at once on one pair of servers.
//! 2. A difference is a failure unless [`kept`] names it, and a name there that matches nothing is a failure too.

mod body;
mod diff;
mod kept;
mod normal;
mod play;
mod script;
mod wire;

use std::path::{Path, PathBuf};

use anyhow::bail;
use futures_util::StreamExt as _;
use serde_json::Value;

use self::diff::{Difference, Extent};
use self::kept::Ledger;
use self::play::Side;
use self::script::{Case, Step};
use super::golang::Go;
use super::{Profile, build};
use crate::disk::Scratch;
use crate::kubernetes::{ControlPlane, Durability, Embedded, Options, Program, Programs};

/// The cases, seen from the workspace.
const CASES: &str = "tests/differential";
/// How many cases run at once.
const AT_ONCE: usize = 8;

/// What `cargo xtask conformance differential` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only the cases whose name contains this, and no random sequences.
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// An `orlop` that is already built.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// Two servers under test.
struct Pair {
    ours: Side,
    theirs: Side,
}

/// What differs in one case.
struct Verdict {
    name: String,
    steps: Vec<Step>,
    differences: Vec<Difference>,
}

pub(super) async fn run(go: &Go, args: &Args) -> anyhow::Result<()> {
    let cases = script::read(&crate::root().join(CASES))?;
    let programs = Programs::build(go, &[Program::Etcd, Program::ApiServer])?;
    let program = match &args.program {
        Some(program) => program.clone(),
        None => build(Profile::Release).await?,
    };
    let scratch = Scratch::make()?;
    let (mut ours, mut theirs) = start(&program, &programs, scratch.path()).await?;
    let pair = Pair { ours: Side::new(&ours.endpoint)?, theirs: Side::new(&theirs.endpoint)? };
    let judged = tokio::select! {
        judged = judge(&pair, args, cases) => judged,
        died = ours.died() => Err(died),
        died = theirs.died() => Err(died),
    };
    theirs.stop().await?;
    ours.stop().await?;
    judged
}

/// Both servers with one administrator: the same certificate is good for both.
async fn start(program: &Path, programs: &Programs, folder: &Path) -> anyhow::Result<(Embedded, ControlPlane)> {
    let ours = Embedded::start(program, folder).await?;
    let options = Options { durability: Durability::InMemoryOnly, client_ca: Some(ours.pki.join("ca.crt")) };
    let mut theirs = ControlPlane::start(programs, folder, &options).await?;
    theirs.endpoint.credential = ours.endpoint.credential.clone();
    Ok((ours, theirs))
}

async fn judge(pair: &Pair, args: &Args, cases: Vec<Case>) -> anyhow::Result<()> {
    let wanted = |case: &Case| args.case.as_ref().is_none_or(|part| case.name.contains(part));
    let chosen: Vec<Case> = cases.into_iter().filter(wanted).collect();
    let count = chosen.len();
    let mut ledger = Ledger::default();
    let mut failed = 0;
    let named = chosen.into_iter().enumerate().map(|(at, case)| named_case(pair, at, case));
    let mut verdicts = futures_util::stream::iter(named).buffered(AT_ONCE);
    while let Some(verdict) = verdicts.next().await {
        failed += usize::from(!report(verdict?, &mut ledger));
    }
    println!("{count} named cases, {failed} differ");
    let unmet = if args.case.is_none() { ledger.unmet() } else { Vec::new() };
    unmet.iter().for_each(|entry| println!("a kept difference that is gone: {entry}"));
    if failed > 0 || !unmet.is_empty() {
        bail!("{failed} cases differ, {} kept differences are gone", unmet.len());
    }
    Ok(())
}

async fn named_case(pair: &Pair, at: usize, case: Case) -> anyhow::Result<Verdict> {
    let differences = differences(pair, &format!("d{at}"), &case.steps).await;
    let differences = differences.map_err(|error| error.context(case.name.clone()))?;
    Ok(Verdict { name: case.name, steps: case.steps, differences })
}

/// Plays the steps against both servers at once and compares what they said.
async fn differences(pair: &Pair, namespace: &str, steps: &[Step]) -> anyhow::Result<Vec<Difference>> {
    let Pair { ours, theirs } = pair;
    let played =
        futures_util::future::try_join(play::play(ours, namespace, steps), play::play(theirs, namespace, steps));
    let (said, meant) = played.await?;
    let (said, meant) = (normal::transcript(&said, &ours.address), normal::transcript(&meant, &theirs.address));
    let mut found = Vec::new();
    for (at, (step, (ours, theirs))) in steps.iter().zip(said.iter().zip(&meant)).enumerate() {
        let mut here = Vec::new();
        if let Some(pointers) = step.option("only") {
            for pointer in pointers.split(',') {
                let at = |value: &Value| value.pointer(pointer).cloned().unwrap_or(Value::Null);
                diff::compare(pointer, (&at(ours), &at(theirs)), Extent::Everything, &mut here);
            }
        } else {
            let extent = if step.option("subset").is_some() { Extent::OursInTheirs } else { Extent::Everything };
            diff::compare("", (ours, theirs), extent, &mut here);
        }
        found.extend(here.into_iter().map(|difference| Difference { step: at + 1, ..difference }));
    }
    Ok(found)
}

/// Prints what is not expected. Whether all was.
fn report(verdict: Verdict, ledger: &mut Ledger) -> bool {
    let Verdict { name, steps, differences } = verdict;
    let unexpected: Vec<&Difference> =
        differences.iter().filter(|difference| !ledger.expects(&name, difference)).collect();
    if unexpected.is_empty() {
        return true;
    }
    println!("\nDIFFERS {name}");
    let mut shown = 0;
    for difference in unexpected {
        if difference.step != shown {
            shown = difference.step;
            let line = steps.get(shown - 1).map(Step::line).unwrap_or_default();
            println!("  {shown}. {line}");
        }
        println!("{}", difference.lines());
    }
    false
}
