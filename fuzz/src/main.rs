//! The fuzzer as a program; `cargo xtask fuzz` builds and runs it.
//!
//! Before a case is run it is written to a file, so that also a case that kills the process is known. The process limits
//! itself: endless work and endless memory end it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Parser;
use fuzz::case::Case;
use fuzz::generate::Target;
use fuzz::meter;
use fuzz::run::{Finding, Run, judge, smaller, take_panic};
use rustix::process::{Resource, Rlimit, setrlimit};

#[global_allocator]
static ALLOCATOR: peak_alloc::PeakAlloc = peak_alloc::PeakAlloc;

/// The stack of the threads of the real server.
const STACK: usize = 2 << 20;
/// More address space than any case may need.
const ADDRESS_SPACE: u64 = 12 << 30;
/// More processor time than any case may need; the kernel ends the process after it.
const ENDLESS_SECONDS: u64 = 180;

#[derive(Debug, Parser)]
#[command(about = "Fuzzes what Orlop reads from outside")]
struct Args {
    /// What to fuzz.
    #[arg(value_enum, required_unless_present = "replay")]
    target: Option<Target>,
    /// End after this many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    time: u64,
    /// End after this many cases, however long they take.
    #[arg(long, value_name = "N")]
    runs: Option<u64>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where cases go that found something.
    #[arg(long, value_name = "FOLDER", default_value = "target/fuzz-cases")]
    out: PathBuf,
    /// Run these cases, once each, and say what they took.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    replay: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let limit = Rlimit { current: Some(ADDRESS_SPACE), maximum: Some(ADDRESS_SPACE) };
    if let Err(error) = setrlimit(Resource::As, limit) {
        eprintln!("fuzz: the address space stays unlimited: {error}");
    }
    let work = std::thread::Builder::new().stack_size(STACK).spawn(move || work(&args));
    let found = work.map_err(anyhow::Error::from).and_then(|thread| match thread.join() {
        Ok(found) => found,
        Err(_) => anyhow::bail!("the fuzzer itself panicked: {}", take_panic().unwrap_or_default()),
    });
    match found {
        Ok(0) => ExitCode::SUCCESS,
        Ok(count) => {
            eprintln!("fuzz: {count} findings");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("fuzz: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn work(args: &Args) -> anyhow::Result<usize> {
    match args.target {
        _ if !args.replay.is_empty() => replay(&args.replay),
        Some(target) => explore(args, target),
        None => Ok(0),
    }
}

fn replay(files: &[PathBuf]) -> anyhow::Result<usize> {
    let mut findings = 0;
    for file in files {
        let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        let case: Case = serde_json::from_str(&text).with_context(|| format!("reading {}", file.display()))?;
        arm();
        let outcome = judge(&case);
        let time = outcome.used.time.unwrap_or_default();
        println!("{}: {} bytes in, {} bytes at the peak, {time:?}", file.display(), case.size(), outcome.used.peak);
        outcome.said.iter().for_each(|said| println!("  {said}"));
        if let Some(finding) = outcome.finding {
            println!("  FOUND {finding}");
            findings += 1;
        }
    }
    Ok(findings)
}

fn explore(args: &Args, target: Target) -> anyhow::Result<usize> {
    fs::create_dir_all(&args.out).with_context(|| format!("making {}", args.out.display()))?;
    let current = args.out.join(format!("current-{target:?}.json").to_lowercase());
    let mut run = Run::new(target, args.seed);
    let (start, mut told) = (Instant::now(), Duration::ZERO);
    let mut found = BTreeSet::new();
    println!("{target:?} from seed {}", args.seed);
    loop {
        let (cases, answers) = run.progress();
        let over = args.runs.map_or(start.elapsed().as_secs() >= args.time, |runs| cases >= runs);
        if over || start.elapsed() >= told + Duration::from_secs(30) {
            told = start.elapsed();
            println!(
                "{target:?}: {cases} cases in {} s, {answers} different answers, {} findings",
                told.as_secs(),
                found.len()
            );
        }
        if over {
            return Ok(found.len());
        }
        let case = run.next_case();
        fs::write(&current, serde_json::to_vec(&case)?)?;
        arm();
        let outcome = judge(&case);
        run.learn(&case, &outcome);
        if let Some(finding) = outcome.finding
            && found.insert(name(&finding, target))
        {
            keep(&args.out, &case, &finding, &name(&finding, target))?;
        }
    }
}

/// One name for findings that are probably the same.
fn name(finding: &Finding, target: Target) -> String {
    let text = match finding {
        Finding::Panic { message } => format!("panic {message}"),
        Finding::Failed { answer } => format!("failed {answer}"),
        Finding::Memory { .. } => "memory".to_owned(),
        Finding::Time { .. } => "time".to_owned(),
        Finding::Growth { .. } => "growth".to_owned(),
    };
    let plain: String =
        text.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).take(70).collect();
    format!("{target:?}-{plain}").to_lowercase()
}

fn keep(folder: &Path, case: &Case, finding: &Finding, name: &str) -> anyhow::Result<()> {
    let case = smaller(case, finding);
    let file = folder.join(format!("{name}.json"));
    fs::write(&file, serde_json::to_vec_pretty(&case)?)?;
    println!("FOUND {finding}\n  kept as {}", file.display());
    Ok(())
}

/// Gives the next case its processor time.
fn arm() {
    let used = meter::thread_time().unwrap_or_default().as_secs();
    let limit = Rlimit { current: Some(used + ENDLESS_SECONDS), maximum: None };
    // Without the limit an endless case is endless; nothing else changes.
    let _ = setrlimit(Resource::Cpu, limit);
}
