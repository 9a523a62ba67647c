//! One differential suite: the same requests to `orlop api` and to kube-apiserver, and their answers compared.
//!
//! # Invariants
//! 1. Each case and each sequence has a namespace of its own, and names of its own where there is no namespace, so that
//!    many can run at once on one pair of servers.
//! 2. A difference is a failure unless [`kept`] names it, and a name there that matches nothing is a failure too.
//! 3. What differs is played again by itself. If it does not differ then, it is told and does not fail the run, as long as
//!    there are few of them: two servers do not share a clock.

mod body;
mod diff;
mod kept;
mod kinds;
mod normal;
mod play;
mod random;
mod script;
mod sequence;
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

/// Cases whose name starts like this change what others see, such as the default class. They run one by one.
const ALONE: &str = "alone-";
/// How many random sequences a run plays.
const SEQUENCES: u64 = 2_000;
/// Differing sequences that are printed in full; the rest only by their seeds.
const SHOWN: usize = 12;

/// How many may differ once and not again before that is a finding of its own.
const STRAYS: usize = 3;

/// What `cargo xtask conformance differential` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only the cases whose name contains this, and no random sequences.
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// How many random sequences to play.
    #[arg(long, value_name = "COUNT", default_value_t = SEQUENCES)]
    seeds: u64,
    /// Only the random sequence of this seed.
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// An `orlop` that is already built.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

impl Default for Args {
    fn default() -> Self {
        Self { case: None, seeds: SEQUENCES, seed: None, program: None }
    }
}

/// What [`kept`] calls random sequences.
const SEQUENCE: &str = "sequence";

/// Two servers under test.
struct Pair {
    ours: Side,
    theirs: Side,
}

/// What differs in one case.
struct Verdict {
    name: String,
    steps: Vec<Step>,
    /// Or why the case could not be played to its end, which counts as a difference.
    differences: anyhow::Result<Vec<Difference>>,
}

impl Verdict {
    /// The request that a difference is about.
    fn line(&self, difference: &Difference) -> String {
        self.steps.get(difference.step.saturating_sub(1)).map(Step::line).unwrap_or_default()
    }
}

pub(super) async fn run(go: &Go, args: &Args) -> anyhow::Result<()> {
    let cases = script::read(&crate::root().join(CASES))?;
    let programs = Programs::build(go, &[Program::Etcd, Program::ApiServer])?;
    let program = match &args.program {
        Some(program) => program.clone(),
        None => build(Profile::Checked).await?,
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

/// What became of everything that was played.
#[derive(Debug, Default)]
struct Outcome {
    /// What differed whenever it was played, each with its first difference.
    differs: Vec<String>,
    /// What differed once and, played again by itself, did not.
    strays: Vec<String>,
}

impl Outcome {
    fn add(&mut self, Self { differs, strays }: Self) {
        self.differs.extend(differs);
        self.strays.extend(strays);
    }
}

async fn judge(pair: &Pair, args: &Args, cases: Vec<Case>) -> anyhow::Result<()> {
    let mut ledger = Ledger::default();
    let whole = args.case.is_none() && args.seed.is_none();
    let mut outcome = Outcome::default();
    if args.seed.is_none() {
        let wanted = |case: &Case| args.case.as_ref().is_none_or(|part| case.name.contains(part));
        outcome.add(named_cases(pair, cases.into_iter().filter(wanted).collect(), &mut ledger).await);
    }
    let seeds: Vec<u64> = match args.seed {
        Some(seed) => vec![seed],
        None if whole => (0..args.seeds).collect(),
        None => Vec::new(),
    };
    outcome.add(sequences(pair, seeds, &mut ledger).await);
    let unmet = if whole { ledger.unmet() } else { Vec::new() };
    unmet.iter().for_each(|entry| println!("a kept difference that is gone: {entry}"));
    verdict(&outcome, &unmet)
}

/// Fails with the names of what differs: the summary of a long run may be all that is left of it.
fn verdict(Outcome { differs, strays }: &Outcome, unmet: &[String]) -> anyhow::Result<()> {
    if !strays.is_empty() {
        println!("{} differed once and not again: {}", strays.len(), strays.join("; "));
    }
    let mut wrong = Vec::new();
    if !differs.is_empty() {
        wrong.push(format!("{} cases and sequences differ: {}", differs.len(), differs.join("; ")));
    }
    if strays.len() > STRAYS {
        wrong.push(format!("{} differed once, which is too often: {}", strays.len(), strays.join("; ")));
    }
    if !unmet.is_empty() {
        wrong.push(format!("{} kept differences are gone: {}", unmet.len(), unmet.join("; ")));
    }
    if wrong.is_empty() { Ok(()) } else { bail!(wrong.join("; ")) }
}

/// Plays the named cases.
async fn named_cases(pair: &Pair, cases: Vec<Case>, ledger: &mut Ledger) -> Outcome {
    let requests: usize = cases.iter().map(|case| case.steps.len()).sum();
    println!("{} named cases, {requests} requests", cases.len());
    let mut suspects = Vec::new();
    let (alone, together): (Vec<_>, Vec<_>) =
        cases.into_iter().enumerate().partition(|(_, case)| case.name.starts_with(ALONE));
    for (cases, at_once) in [(together, AT_ONCE), (alone, 1)] {
        let played = cases.into_iter().map(|(at, case)| async move { (at, named_case(pair, at, case).await) });
        let mut verdicts = futures_util::stream::iter(played).buffered(at_once);
        while let Some((at, verdict)) = verdicts.next().await {
            if !expected(&verdict, ledger) {
                suspects.push((at, verdict));
            }
        }
    }
    let mut outcome = Outcome::default();
    for (at, first) in suspects {
        let differences = differences(pair, &format!("d{at}-again"), &first.steps).await;
        let again = Verdict { name: first.name.clone(), steps: first.steps.clone(), differences };
        settle(&first.name, &first, &again, ledger, &mut outcome);
    }
    println!("{} named cases differ", outcome.differs.len());
    outcome
}

/// Plays the sequences of the seeds.
async fn sequences(pair: &Pair, seeds: Vec<u64>, ledger: &mut Ledger) -> Outcome {
    println!("{} random sequences", seeds.len());
    let played = seeds.into_iter().map(|seed| async move {
        let steps = sequence::of(seed);
        let differences = differences(pair, &format!("s{seed}"), &steps).await;
        (seed, Verdict { name: SEQUENCE.to_owned(), steps, differences })
    });
    let mut suspects = Vec::new();
    let mut verdicts = futures_util::stream::iter(played).buffered(AT_ONCE);
    while let Some((seed, verdict)) = verdicts.next().await {
        if !expected(&verdict, ledger) {
            suspects.push((seed, verdict));
        }
    }
    let mut outcome = Outcome::default();
    for (seed, first) in suspects {
        let name = format!("seed {seed}");
        if outcome.differs.len() >= SHOWN {
            outcome.differs.push(name);
            continue;
        }
        let steps = shrunk(pair, seed, first.steps.clone()).await;
        let differences = differences(pair, &format!("s{seed}-0"), &steps).await;
        let again = Verdict { name: SEQUENCE.to_owned(), steps, differences };
        settle(&name, &first, &again, ledger, &mut outcome);
    }
    println!("{} random sequences differ", outcome.differs.len());
    outcome
}

/// Prints what differed, and decides whether it counts. A difference of behaviour is there again when the same requests
/// are played again; one that is not came from the moment, such as a second that ended between two answers.
fn settle(name: &str, first: &Verdict, again: &Verdict, ledger: &mut Ledger, outcome: &mut Outcome) {
    println!("\n{name}:");
    match report(again, ledger) {
        Some(difference) => outcome.differs.push(format!("{name} ({difference})")),
        None => {
            println!("not again; the first time it was:");
            let difference = report(first, ledger).unwrap_or_default();
            outcome.strays.push(format!("{name} ({difference})"));
        }
    }
}

/// Whether every difference is one of the kept.
fn expected(verdict: &Verdict, ledger: &mut Ledger) -> bool {
    let Ok(differences) = &verdict.differences else { return false };
    // Every difference is looked at, because each marks its entry of the table as met.
    let unexpected = differences.iter().filter(|found| !ledger.expects(&verdict.name, &verdict.line(found), found));
    unexpected.count() == 0
}

/// The shortest form of a sequence that still differs; all of it if it does not any more.
async fn shrunk(pair: &Pair, seed: u64, steps: Vec<Step>) -> Vec<Step> {
    let mut tries = 0;
    sequence::shrink(steps, async |steps: &[Step]| {
        tries += 1;
        let differences = differences(pair, &format!("s{seed}-{tries}"), steps).await;
        let verdict = Verdict { name: SEQUENCE.to_owned(), steps: steps.to_vec(), differences };
        !expected(&verdict, &mut Ledger::default())
    })
    .await
}

async fn named_case(pair: &Pair, at: usize, case: Case) -> Verdict {
    let differences = differences(pair, &format!("d{at}"), &case.steps).await;
    Verdict { name: case.name, steps: case.steps, differences }
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
        let code = |answer: &Value| answer.get("status").cloned();
        if code(ours) != code(theirs) {
            // Nothing else can be compared: the one is an object and the other says what is wrong with it.
            let whole = |answer: &Value| Some(gist(answer));
            here.push(Difference { step: 0, path: "status".to_owned(), ours: whole(ours), theirs: whole(theirs) });
        } else if let Some(pointers) = step.option("only") {
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

/// An answer in one line: its code and what it says.
fn gist(answer: &Value) -> Value {
    let body = &answer["body"];
    let said = body.get("message").or_else(|| body.get("kind")).unwrap_or(body);
    Value::String(format!("{}: {}", answer["status"], said.as_str().unwrap_or_default()))
}

/// Prints what is not expected. The first of it in one line, if there is any.
fn report(verdict: &Verdict, ledger: &mut Ledger) -> Option<String> {
    let differences = match &verdict.differences {
        Ok(differences) => differences,
        Err(error) => {
            println!("\nSTOPS {}\n  {error:#}", verdict.name);
            return Some(format!("stops: {error:#}"));
        }
    };
    let unexpected: Vec<&Difference> =
        differences.iter().filter(|found| !ledger.expects(&verdict.name, &verdict.line(found), found)).collect();
    let first = unexpected.first()?;
    let first = format!("{} at {}: {}", verdict.line(first), first.path, first.gist());
    println!("\nDIFFERS {}", verdict.name);
    let mut shown = 0;
    for difference in unexpected {
        if difference.step != shown {
            shown = difference.step;
            println!("  {shown}. {}", verdict.line(difference));
        }
        println!("{}", difference.lines());
    }
    Some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict_of(found: &[&str]) -> Verdict {
        let differences = found.iter().map(|path| Difference {
            step: 1,
            path: (*path).to_owned(),
            ours: Some(Value::from(1)),
            theirs: Some(Value::from(2)),
        });
        Verdict { name: "c".to_owned(), steps: sequence::of(1), differences: Ok(differences.collect()) }
    }

    #[test]
    fn what_differs_each_time_fails_and_is_named() {
        let (mut ledger, mut outcome) = (Ledger::default(), Outcome::default());
        settle("c", &verdict_of(&["body.kind"]), &verdict_of(&["body.kind"]), &mut ledger, &mut outcome);
        let said = verdict(&outcome, &[]).expect_err("fails").to_string();
        assert!(said.contains("1 cases and sequences differ: c (") && said.contains("body.kind"), "{said}");
    }

    #[test]
    fn what_differs_once_is_told_and_too_many_of_them_fail() {
        let (mut ledger, mut outcome) = (Ledger::default(), Outcome::default());
        for _ in 0..STRAYS {
            settle("c", &verdict_of(&["body.kind"]), &verdict_of(&[]), &mut ledger, &mut outcome);
        }
        assert!(verdict(&outcome, &[]).is_ok());
        settle("c", &verdict_of(&["body.kind"]), &verdict_of(&[]), &mut ledger, &mut outcome);
        assert!(verdict(&outcome, &[]).is_err());
    }

    #[test]
    fn a_kept_difference_that_is_gone_fails() {
        assert!(verdict(&Outcome::default(), &["go-texts".to_owned()]).is_err());
    }
}
