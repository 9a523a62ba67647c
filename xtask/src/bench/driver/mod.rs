//! `cargo xtask bench driver`: the numbers the driver is held to.

mod measures;

use std::path::PathBuf;

use anyhow::Context as _;

use super::comparison::{Comparison, Row};
use super::machine;
use super::numbers::{Goal, Unit};
use super::subject::{self, Subject};
use crate::conformance::{Profile, build};
use crate::disk::{ReflinkDisk, Scratch};
use measures::{Numbers, Site};

/// What `cargo xtask bench driver` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Measure this program instead of building the driver; it must take the options of `orlop driver`.
    #[arg(long, value_name = "PROGRAM")]
    driver: Option<PathBuf>,
    /// A host-path driver to compare with, already built. Default: build it from its Go module.
    #[arg(long, value_name = "PROGRAM")]
    peer: Option<PathBuf>,
    /// Fail when a goal is missed.
    #[arg(long)]
    enforce: bool,
}

const ROWS: [Row<Numbers>; 9] = [
    Row {
        what: "snapshot of a 1 GiB volume with 200 MiB of data, reflink, unmounted (median of 20)",
        unit: Unit::Milliseconds,
        goal: Goal::AtMost(5.0),
        value: |numbers| numbers.snapshot_unmounted,
    },
    Row {
        what: "the same while mounted, freezing included (median of 20)",
        unit: Unit::Milliseconds,
        goal: Goal::Open,
        value: |numbers| numbers.snapshot_mounted,
    },
    Row {
        what: "create and delete a thin volume, 1 client",
        unit: Unit::PerSecond,
        goal: Goal::Open,
        value: |numbers| numbers.pairs_alone,
    },
    Row {
        what: "create and delete a thin volume, 16 clients",
        unit: Unit::PerSecond,
        goal: Goal::AtLeast(500.0),
        value: |numbers| numbers.pairs_crowd,
    },
    Row {
        what: "Probe round trip, p50 of 10,000",
        unit: Unit::Microseconds,
        goal: Goal::AtMost(150.0),
        value: |numbers| numbers.probe_p50,
    },
    Row {
        what: "Probe round trip, p99 of 10,000",
        unit: Unit::Microseconds,
        goal: Goal::Open,
        value: |numbers| numbers.probe_p99,
    },
    Row { what: "idle memory (RSS)", unit: Unit::Megabytes, goal: Goal::AtMost(8.0), value: |numbers| numbers.rss },
    Row {
        what: "first stage of a 1 GiB ext4 volume (median of 10)",
        unit: Unit::Milliseconds,
        goal: Goal::Open,
        value: |numbers| numbers.stage,
    },
    Row {
        what: "the same less a plain mkfs.ext4 (median of 10)",
        unit: Unit::Milliseconds,
        goal: Goal::AtMost(10.0),
        value: |numbers| numbers.stage_over_mkfs,
    },
];

pub(super) async fn run(Args { driver, peer, enforce }: Args) -> anyhow::Result<()> {
    crate::tools::provide()?;
    let program = match driver {
        Some(program) => program,
        None => build(Profile::Dist).await?,
    };
    let ours = measure(&Subject::Orlop(program.clone())).await.context("measuring orlop")?;
    let theirs = match subject::peer(peer) {
        Ok(subject) => measure(&subject).await.context("measuring the host-path driver"),
        Err(error) => Err(error),
    };
    if let Err(error) = &theirs {
        println!("no comparison with the Go host-path driver: {error:#}");
    }
    let comparison = Comparison { rows: &ROWS, ours: &ours, theirs: theirs.as_ref().ok(), peer: "host-path (Go)" };
    comparison.close(&machine::describe(&program, &[]), enforce)
}

async fn measure(subject: &Subject) -> anyhow::Result<Numbers> {
    let scratch = Scratch::make()?;
    let folder = Scratch::make_in(&crate::target().join("bench"))?;
    let disk = ReflinkDisk::make(folder.path().join("xfs.img"), scratch.path().join("xfs"))?;
    let site = |pool: PathBuf| Site { scratch: scratch.path().to_path_buf(), pool };
    let mut numbers = Numbers::default();
    measures::on_plain_pool(subject, &site(folder.path().join("pool")), &mut numbers).await?;
    measures::on_reflink_pool(subject, &site(disk.path().join("pool")), &mut numbers).await?;
    Ok(numbers)
}
