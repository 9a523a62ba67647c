//! `orlop-sim`: many worlds, or one of them again.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use clap::{Parser, ValueEnum};
use sim::{Number, Seed, nodes, storage};

/// How much of a journal is shown without being asked for.
const TAIL: usize = 120;

/// Lives through seeded worlds full of faults, and says in which of them something was wrong.
#[derive(Debug, Parser)]
#[command(name = "orlop-sim")]
struct Args {
    /// Which worlds: of claims and volumes, or of pods on nodes.
    #[arg(long, value_enum, default_value_t = Kind::Storage)]
    world: Kind,
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
    /// Do this wrong on purpose; every run should then fail. Each kind of world has its own.
    #[arg(long, default_value = "none")]
    mutation: String,
    /// What happens besides in worlds of nodes; may be given several times.
    #[arg(long, value_enum)]
    also: Vec<nodes::Also>,
}

/// What a world is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Storage,
    Nodes,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Storage => "storage",
            Self::Nodes => "nodes",
        }
    }

    /// How to see a world again.
    fn again(self, seed: Seed) -> String {
        format!("orlop-sim --world {} --seed {seed}", self.name())
    }
}

/// A kind of world, and what is wrong in it.
#[derive(Debug, Clone)]
enum Play {
    Storage(storage::Mutation),
    Nodes(nodes::Mutation, Vec<nodes::Also>),
}

impl Play {
    fn of(args: &Args) -> Result<Self, String> {
        let name = &args.mutation;
        let wrong = |names: Vec<String>| format!("there is no mutation {name:?}; one of {}", names.join(", "));
        match args.world {
            Kind::Storage => storage::Mutation::from_str(name, true)
                .map(Self::Storage)
                .map_err(|_| wrong(names::<storage::Mutation>())),
            Kind::Nodes => {
                let mutation = nodes::Mutation::from_str(name, true);
                mutation
                    .map(|mutation| Self::Nodes(mutation, args.also.clone()))
                    .map_err(|_| wrong(names::<nodes::Mutation>()))
            }
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Storage(_) => Kind::Storage,
            Self::Nodes(..) => Kind::Nodes,
        }
    }

    fn run(&self, seed: Seed) -> Result<Lived, String> {
        let told = |error: sim::WorldError| format!("{}: {error}", self.kind().again(seed));
        Ok(match self {
            Self::Storage(mutation) => {
                let storage::Report { violations, journal, tally, .. } = storage::run(seed, *mutation).map_err(told)?;
                Lived { seed, violations, journal, numbers: tally.numbers() }
            }
            Self::Nodes(mutation, also) => {
                let report = nodes::run_with(seed, *mutation, also).map_err(told)?;
                let nodes::Report { violations, journal, tally, .. } = report;
                Lived { seed, violations, journal, numbers: tally.numbers() }
            }
        })
    }
}

fn names<T: ValueEnum>() -> Vec<String> {
    let name = |variant: &T| variant.to_possible_value().map(|value| value.get_name().to_owned());
    T::value_variants().iter().filter_map(name).collect()
}

/// How a run ended, whatever it was about.
#[derive(Debug)]
struct Lived {
    seed: Seed,
    violations: Vec<String>,
    journal: Vec<String>,
    numbers: Vec<Number>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let play = match Play::of(&args) {
        Ok(play) => play,
        Err(error) => {
            eprintln!("orlop-sim: {error}");
            return ExitCode::FAILURE;
        }
    };
    match args.seed {
        Some(seed) => one(Seed(seed), &play),
        None => many(&args, &play),
    }
}

/// One world, with everything that can be said about it.
fn one(seed: Seed, play: &Play) -> ExitCode {
    match play.run(seed) {
        Ok(lived) => {
            lived.journal.iter().for_each(|line| println!("{line}"));
            println!("seed {seed}: {}", text(&lived.numbers));
            lived.violations.iter().for_each(|violation| println!("VIOLATION {violation}"));
            if lived.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn text(numbers: &[Number]) -> String {
    let one = |number: &Number| match number.total {
        sim::Total::Sum => format!("{} {}", number.value, number.what),
        sim::Total::Most => format!("at most {} {}", number.value, number.what),
    };
    numbers.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// What many worlds came to.
#[derive(Debug, Default)]
struct Sum {
    failed: Vec<Lived>,
    errors: Vec<String>,
    runs: u64,
    numbers: Vec<Number>,
}

impl Sum {
    fn take(&mut self, outcome: Result<Lived, String>) {
        let lived = match outcome {
            Ok(lived) => lived,
            Err(error) => return self.errors.push(error),
        };
        self.runs += 1;
        match self.numbers.is_empty() {
            true => self.numbers.clone_from(&lived.numbers),
            false => {
                let pairs = self.numbers.iter_mut().zip(&lived.numbers);
                pairs.for_each(|(sum, number)| sum.add(number.value));
            }
        }
        if !lived.violations.is_empty() {
            self.failed.push(lived);
        }
    }

    fn wrong(&self) -> usize {
        self.failed.len() + self.errors.len()
    }
}

fn many(args: &Args, play: &Play) -> ExitCode {
    let threads = args.threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, Into::into));
    let (next, end) = (AtomicU64::new(args.from), args.from.saturating_add(args.seeds));
    let sum = Mutex::new(Sum::default());
    let work = || {
        while sum.lock().unwrap_or_else(PoisonError::into_inner).wrong() < args.failures {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return;
            }
            let outcome = caught(Seed(seed), play);
            sum.lock().unwrap_or_else(PoisonError::into_inner).take(outcome);
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    tell(sum.into_inner().unwrap_or_else(PoisonError::into_inner), play.kind())
}

/// A panic in a world is a finding about its seed, not the end of the others.
fn caught(seed: Seed, play: &Play) -> Result<Lived, String> {
    std::panic::catch_unwind(|| play.run(seed)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        Err(format!("{} panicked: {text}", play.kind().again(seed)))
    })
}

fn tell(mut sum: Sum, kind: Kind) -> ExitCode {
    sum.failed.sort_by_key(|lived| lived.seed.0);
    if let Some(lived) = sum.failed.first() {
        let telling = |line: &&String| !line.contains(" BOOKMARK ");
        let lines: Vec<&String> = lived.journal.iter().filter(telling).collect();
        println!("the end of the journal of seed {}:", lived.seed);
        lines.iter().skip(lines.len().saturating_sub(TAIL)).for_each(|line| println!("  {line}"));
    }
    for lived in &sum.failed {
        lived.violations.iter().for_each(|violation| println!("seed {}: {violation}", lived.seed));
    }
    sum.errors.iter().for_each(|error| println!("{error}"));
    for lived in &sum.failed {
        println!("to see it again: {}", kind.again(lived.seed));
    }
    println!("{} {} worlds, {} wrong; {}", sum.runs, kind.name(), sum.wrong(), text(&sum.numbers));
    if sum.failed.is_empty() && sum.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
