//! `cargo xtask bench api`: the numbers the API server is held to, beside those of kube-apiserver with etcd.
//!
//! Both servers run at the same time and take turns in every measurement, so that whatever else the machine does happens
//! to both. Both sync every write to the same disk before they answer.

mod fanout;
mod load;
mod side;

use std::path::PathBuf;

use anyhow::Context as _;

use super::comparison::{Comparison, Row};
use super::machine;
use super::numbers::{Goal, Series, Unit, milliseconds};
use crate::conformance::golang::Go;
use crate::conformance::{Profile, build};
use crate::disk::Scratch;
use crate::kubernetes::{Program, Programs};
use load::Read;
use side::Side;

/// What `cargo xtask bench api` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Measure this program instead of building it; it must take the options of `orlop`.
    #[arg(long, value_name = "PROGRAM")]
    orlop: Option<PathBuf>,
    /// A folder with `etcd` and `kube-apiserver` to compare with, already built. Default: build them from their Go modules.
    #[arg(long, value_name = "FOLDER", conflicts_with = "peer_less")]
    peer: Option<PathBuf>,
    /// Measure `orlop api` alone.
    #[arg(long)]
    peer_less: bool,
    /// Fail when a goal is missed.
    #[arg(long)]
    enforce: bool,
}

/// What was measured. `None`: not measured.
#[derive(Debug, Default)]
struct Numbers {
    creates: Option<f64>,
    list: Option<f64>,
    list_unversioned: Option<f64>,
    list_pages: Option<f64>,
    list_table: Option<f64>,
    fanout_p50: Option<f64>,
    fanout_p99: Option<f64>,
    written_p99: Option<f64>,
    fanout_rate: Option<f64>,
    rss: Option<f64>,
    rss_restarted: Option<f64>,
    start: Option<f64>,
}

const ROWS: [Row<Numbers>; 12] = [
    Row {
        what: "durable creates of claims, 16 clients",
        unit: Unit::PerSecond,
        goal: Goal::TimesPeer(10.0),
        value: |numbers| numbers.creates,
    },
    Row {
        what: "list of 10,000 claims, JSON",
        unit: Unit::Milliseconds,
        goal: Goal::TimesPeer(5.0),
        value: |numbers| numbers.list,
    },
    Row {
        what: "the same with resourceVersion=0",
        unit: Unit::Milliseconds,
        goal: Goal::Open,
        value: |numbers| numbers.list_unversioned,
    },
    Row {
        what: "the same in pages of 500",
        unit: Unit::Milliseconds,
        goal: Goal::Open,
        value: |numbers| numbers.list_pages,
    },
    Row {
        what: "the same as a Table",
        unit: Unit::Milliseconds,
        goal: Goal::Open,
        value: |numbers| numbers.list_table,
    },
    Row {
        what: "acknowledged write to 100 watchers at 1,000 writes/s, p99",
        unit: Unit::Milliseconds,
        goal: Goal::AtMost(10.0),
        value: |numbers| numbers.fanout_p99,
    },
    Row { what: "the same, p50", unit: Unit::Milliseconds, goal: Goal::Open, value: |numbers| numbers.fanout_p50 },
    Row {
        what: "the same from sending the write, p99",
        unit: Unit::Milliseconds,
        goal: Goal::Open,
        value: |numbers| numbers.written_p99,
    },
    Row {
        what: "writes meanwhile",
        unit: Unit::PerSecond,
        goal: Goal::AtLeast(990.0),
        value: |numbers| numbers.fanout_rate,
    },
    Row {
        what: "memory (RSS) with 10,000 claims and 10,000 volumes, after all that",
        unit: Unit::Megabytes,
        goal: Goal::AtMost(80.0),
        value: |numbers| numbers.rss,
    },
    Row {
        what: "memory (RSS) of the same after a restart",
        unit: Unit::Megabytes,
        goal: Goal::Open,
        value: |numbers| numbers.rss_restarted,
    },
    Row {
        what: "start to ready on that store (median of 5)",
        unit: Unit::Milliseconds,
        goal: Goal::AtMost(200.0),
        value: |numbers| numbers.start,
    },
];

/// Rounds in which claims are created.
const CREATE_ROUNDS: usize = 5;
const CLAIMS: usize = 10_000;
const VOLUMES: usize = 10_000;
/// Rounds of each kind of list. The first does not count: the answer must be warm.
const LIST_ROUNDS: usize = 10;
const STARTS: usize = 5;
const WANTED: [Program; 2] = [Program::Etcd, Program::ApiServer];

pub(super) async fn run(args: Args) -> anyhow::Result<()> {
    let program = match args.orlop {
        Some(program) => program,
        None => build(Profile::Dist).await?,
    };
    let peers = match (args.peer_less, args.peer) {
        (true, _) => Err(anyhow::anyhow!("it was not asked for")),
        (false, Some(folder)) => Programs::found_in(&folder, &WANTED),
        (false, None) => match Go::find() {
            Some(go) => Programs::build(&go, &WANTED),
            None => Err(anyhow::anyhow!("there is no `go` on the path")),
        },
    };
    if let Err(error) = &peers {
        println!("no comparison with kube-apiserver: {error:#}");
    }
    let home = Scratch::make_in(&crate::target().join("bench"))?;
    let mut sides = vec![Side::orlop(&program, &home.path().join("orlop")).await?];
    let mut versions = Vec::new();
    if let Ok(programs) = peers {
        for program in WANTED {
            let said = machine::said(&programs.path(program)?.display().to_string(), &["--version"]);
            versions.push((program.name(), said.lines().next().unwrap_or_default().to_owned()));
        }
        sides.push(Side::kubernetes(programs, &home.path().join("kubernetes")).await?);
    }
    let mut numbers = measure(&mut sides).await?.into_iter();
    let (ours, theirs) = (numbers.next().context("our own numbers")?, numbers.next());
    let comparison =
        Comparison { rows: &ROWS, ours: &ours, theirs: theirs.as_ref(), peer: "kube-apiserver with etcd (Go)" };
    comparison.close(&machine::describe(&program, &versions), args.enforce)
}

/// All measurements of all sides, in turns.
async fn measure(sides: &mut [Side]) -> anyhow::Result<Vec<Numbers>> {
    let mut numbers: Vec<Numbers> = sides.iter().map(|_| Numbers::default()).collect();
    creates(sides, &mut numbers).await?;
    println!("volumes");
    for side in sides.iter() {
        load::create_volumes(side, VOLUMES).await?;
    }
    lists(sides, &mut numbers).await?;
    println!("watches");
    for (side, numbers) in sides.iter().zip(&mut numbers) {
        let seen = match fanout::measure(side).await {
            Ok(seen) => seen,
            // kube-apiserver ends the watches of clients that it finds too slow, and then there is nothing to compare.
            Err(error) if side.is_peer() => {
                println!("  {}: {error:#}", side.name);
                continue;
            }
            Err(error) => return Err(error.context("watching orlop")),
        };
        (numbers.fanout_p50, numbers.fanout_p99) = (seen.p50, seen.p99);
        (numbers.written_p99, numbers.fanout_rate) = (seen.written_p99, Some(seen.rate));
    }
    println!("memory");
    for (side, numbers) in sides.iter().zip(&mut numbers) {
        numbers.rss = Some(side.rss().await?);
    }
    println!("starts");
    starts(sides, &mut numbers).await?;
    for (side, numbers) in sides.iter().zip(&mut numbers) {
        numbers.rss_restarted = Some(side.rss().await?);
    }
    Ok(numbers)
}

async fn creates(sides: &[Side], numbers: &mut [Numbers]) -> anyhow::Result<()> {
    println!("creates");
    let mut rates = vec![Vec::new(); sides.len()];
    for side in sides {
        load::create_namespace(side).await?;
    }
    for round in 0..CREATE_ROUNDS {
        for (side, rates) in sides.iter().zip(&mut rates) {
            let rate = load::create_claims(side, round, CLAIMS / CREATE_ROUNDS).await?;
            println!("  {}: {rate:.0}/s", side.name);
            rates.push(rate);
        }
    }
    for (rates, numbers) in rates.into_iter().zip(numbers) {
        let mut rates = rates;
        rates.sort_by(f64::total_cmp);
        numbers.creates = rates.get(rates.len() / 2).copied();
    }
    Ok(())
}

async fn lists(sides: &[Side], numbers: &mut [Numbers]) -> anyhow::Result<()> {
    type Place = fn(&mut Numbers) -> &mut Option<f64>;
    let kinds: [(Read, Place); 4] = [
        (Read::Whole, |numbers| &mut numbers.list),
        (Read::Unversioned, |numbers| &mut numbers.list_unversioned),
        (Read::Pages, |numbers| &mut numbers.list_pages),
        (Read::Table, |numbers| &mut numbers.list_table),
    ];
    for (read, place) in kinds {
        println!("lists: {read:?}");
        let mut times: Vec<Series> = sides.iter().map(|_| Series::default()).collect();
        for round in 0..=LIST_ROUNDS {
            for (side, times) in sides.iter().zip(&mut times) {
                let (took, bytes) = load::list(side, read).await?;
                match round {
                    0 => println!("  {}: {bytes} bytes", side.name),
                    _ => times.push(took),
                }
            }
        }
        for (times, numbers) in times.iter().zip(numbers.iter_mut()) {
            *place(numbers) = times.median().map(milliseconds);
        }
    }
    Ok(())
}

async fn starts(sides: &mut [Side], numbers: &mut [Numbers]) -> anyhow::Result<()> {
    let mut times: Vec<Series> = sides.iter().map(|_| Series::default()).collect();
    for _ in 0..STARTS {
        for (side, times) in sides.iter_mut().zip(&mut times) {
            times.push(side.restart().await?);
        }
    }
    for (times, numbers) in times.iter().zip(numbers) {
        numbers.start = times.median().map(milliseconds);
    }
    Ok(())
}
