//! `orlop-sim`: many worlds, or one of them again.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use clap::Parser;
use sim::Seed;
use sim::storage::{self, Mutation, Report};

/// How much of a journal is shown without being asked for.
const TAIL: usize = 120;

/// Lives through storage's life in seeded worlds full of faults, and says in which of them something was wrong.
#[derive(Debug, Parser)]
#[command(name = "orlop-sim")]
struct Args {
    /// Only this world, with its whole journal.
    #[arg(long, value_name = "S", conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// How many worlds.
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    seeds: u64,
    /// The first world.
    #[arg(long, value_name = "S", default_value_t = 0)]
    from: u64,
    /// How many at once. Default: one per core.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Stop after so many wrong worlds: it is time to look at one.
    #[arg(long, value_name = "N", default_value_t = 20)]
    failures: usize,
    /// Do this wrong on purpose; every run should then fail.
    #[arg(long, value_enum, default_value_t = Mutation::None)]
    mutation: Mutation,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match args.seed {
        Some(seed) => one(Seed(seed), args.mutation),
        None => many(&args),
    }
}

/// One world, with everything that can be said about it.
fn one(seed: Seed, mutation: Mutation) -> ExitCode {
    match storage::run(seed, mutation) {
        Ok(report) => {
            report.journal.iter().for_each(|line| println!("{line}"));
            println!("seed {seed}: {:?}", report.tally);
            report.violations.iter().for_each(|violation| println!("VIOLATION {violation}"));
            if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("orlop-sim: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What many worlds came to.
#[derive(Debug, Default)]
struct Sum {
    failed: Vec<Report>,
    errors: Vec<String>,
    runs: u64,
    crashes: u64,
    creates: u64,
    deletes: u64,
    bound: u64,
    waiting: u64,
    most_written: u64,
}

impl Sum {
    fn take(&mut self, outcome: Result<Report, String>) {
        let report = match outcome {
            Ok(report) => report,
            Err(error) => return self.errors.push(error),
        };
        let tally = report.tally;
        self.runs += 1;
        self.crashes += tally.crashes;
        self.creates += tally.creates;
        self.deletes += tally.deletes;
        self.bound += tally.bound;
        self.waiting += tally.waiting;
        self.most_written = self.most_written.max(tally.most_written);
        if !report.violations.is_empty() {
            self.failed.push(report);
        }
    }

    fn wrong(&self) -> usize {
        self.failed.len() + self.errors.len()
    }
}

fn many(args: &Args) -> ExitCode {
    let threads = args.threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, Into::into));
    let (next, end) = (AtomicU64::new(args.from), args.from.saturating_add(args.seeds));
    let sum = Mutex::new(Sum::default());
    let work = || {
        while sum.lock().unwrap_or_else(PoisonError::into_inner).wrong() < args.failures {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return;
            }
            let outcome = caught(Seed(seed), args.mutation);
            sum.lock().unwrap_or_else(PoisonError::into_inner).take(outcome);
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    tell(sum.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// A panic in a world is a finding about its seed, not the end of the others.
fn caught(seed: Seed, mutation: Mutation) -> Result<Report, String> {
    match std::panic::catch_unwind(|| storage::run(seed, mutation)) {
        Ok(Ok(report)) => Ok(report),
        Ok(Err(error)) => Err(format!("orlop-sim --seed {seed}: {error}")),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            Err(format!("orlop-sim --seed {seed} panicked: {text}"))
        }
    }
}

fn tell(mut sum: Sum) -> ExitCode {
    sum.failed.sort_by_key(|report| report.seed.0);
    if let Some(report) = sum.failed.first() {
        let telling = |line: &&String| !line.contains(" BOOKMARK ");
        let lines: Vec<&String> = report.journal.iter().filter(telling).collect();
        println!("the end of the journal of seed {}:", report.seed);
        lines.iter().skip(lines.len().saturating_sub(TAIL)).for_each(|line| println!("  {line}"));
    }
    for report in &sum.failed {
        report.violations.iter().for_each(|violation| println!("seed {}: {violation}", report.seed));
    }
    sum.errors.iter().for_each(|error| println!("{error}"));
    for report in &sum.failed {
        println!("to see it again: orlop-sim --seed {}", report.seed);
    }
    println!(
        "{} worlds, {} wrong; {} crashes, {} CreateVolume, {} DeleteVolume; {} claims bound and {} waiting at the end; at most {} writes to one object",
        sum.runs,
        sum.wrong(),
        sum.crashes,
        sum.creates,
        sum.deletes,
        sum.bound,
        sum.waiting,
        sum.most_written,
    );
    if sum.failed.is_empty() && sum.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
