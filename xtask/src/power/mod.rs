//! `cargo xtask power`: cuts the power of a virtual machine that uses volumes and the store, again and again, and looks each
//! time whether everything is there that the machine had acknowledged on its console before the cut.
//!
//! One boot looks at what the cut before it left, and works until the next cut. After that, disks are put together from a
//! recording of all writes, as a drive leaves them that loses what it was not told to flush (`replay.rs`). Last, the disk begins
//! to fail under the running programs (`faulty_work.rs`).

mod calls;
mod faulty_disks;
mod faulty_work;
mod flaky;
mod guest;
mod inspect;
mod ledger;
mod mutation;
mod recorded_disks;
mod records;
mod replay;
mod runner;
mod voice;
mod work;

use std::fs;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use tokio::process::Command;

use crate::report::{Ending, Report};
pub(crate) use guest::{GuestArgs, run as run_guest};
use mutation::Mutation;
use records::SeededNumbers;
use runner::{Boot, BootEnd, CutAt, VmRunner};

/// A cut comes after at most so many lines of a boot.
const LONGEST_ROUND: u64 = 140;
/// One in so many cuts hits a machine that is still starting and looking.
const EARLY: u64 = 6;
const EARLY_STEPS: [&str; 4] = ["step mounted", "step served", "step staged ext4", "step staged btrfs"];

/// What `cargo xtask power` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many times the power is cut.
    #[arg(long, value_name = "N", default_value_t = 50)]
    cuts: u64,
    /// How many disks are put together from a recording of all writes.
    #[arg(long, value_name = "N", default_value_t = 12)]
    replays: u64,
    /// How many disks begin to fail under the running programs. There are 14 ways: kinds of failures, on each filesystem.
    #[arg(long, value_name = "N", default_value_t = 14)]
    faults: u64,
    /// Do something wrong on purpose, and look whether a replay or a failing disk shows it. Nothing else runs then.
    #[arg(long, value_name = "FAULT")]
    mutation: Option<Mutation>,
    /// Repeats the choices of a run (not its interleaving).
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Filesystems under the pool, in turns.
    #[arg(long, value_name = "FS", value_delimiter = ',', default_values = ["ext4", "xfs", "btrfs"], value_parser = ["ext4", "xfs", "btrfs"])]
    pool_fs: Vec<String>,
    /// Runs a script in a virtual machine. Default: `../shared/tools/vm-run`, beside the repository.
    #[arg(long, value_name = "PROGRAM")]
    vm_run: Option<PathBuf>,
    /// The program under test, which must not be in a folder for temporary files. Default: it is built.
    #[arg(long, value_name = "PROGRAM")]
    orlop: Option<PathBuf>,
}

/// A disk that lives through many cuts.
#[derive(Debug)]
struct DiskSeries {
    fs: String,
    folder: PathBuf,
    boots: u64,
    /// Cuts after which no boot has looked at everything yet.
    unverified: u64,
    passed: u64,
}

/// What all boots share.
#[derive(Debug)]
struct PowerRig {
    runner: VmRunner,
    orlop: PathBuf,
    seed: u64,
    home: PathBuf,
    mutation: Option<Mutation>,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let runner = VmRunner::find(args.vm_run.as_deref())?;
    let seed = args.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish() >> 16);
    println!("seed {seed}");
    let orlop = match &args.orlop {
        Some(program) => fs::canonicalize(program).with_context(|| format!("{}", program.display()))?,
        None => build().await?,
    };
    let home = crate::target().join("power");
    match fs::remove_dir_all(&home) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => fs::create_dir_all(&home)?,
    }
    let rig = PowerRig { runner, orlop, seed, home, mutation: args.mutation };
    let mut report = Report::default();
    if let Some(mutation) = args.mutation {
        let section = Report::begin(&format!("{} is noticed", mutation.name()));
        let noticed = if mutation.needs_fault() { rig.faults(&args).await } else { rig.replays(&args).await };
        report.end(section, Ending::from(noticed));
        return report.close("mutation");
    }
    if args.cuts > 0 {
        let section = Report::begin(&format!("{} power cuts", args.cuts));
        let ending = Ending::from(rig.cuts(&args).await);
        report.end(section, ending);
    }
    if args.replays > 0 {
        let section = Report::begin(&format!("{} disks from recordings", args.replays));
        let ending = Ending::from(rig.replays(&args).await);
        report.end(section, ending);
    }
    if args.faults > 0 {
        let section = Report::begin(&format!("{} disks that begin to fail", args.faults));
        let ending = Ending::from(rig.faults(&args).await);
        report.end(section, ending);
    }
    report.close("power")
}

/// As the tests build it, so that a machine that ran them has it.
async fn build() -> anyhow::Result<PathBuf> {
    let mut cargo = Command::from(crate::tools::cargo());
    cargo.args(["build", "--package", "orlop"]).current_dir(crate::root()).kill_on_drop(true);
    let status = cargo.status().await?;
    if !status.success() {
        bail!("cargo build: {status}");
    }
    Ok(crate::target().join("debug/orlop"))
}

impl Boot {
    fn new(rig: &PowerRig) -> Self {
        Self { orlop: rig.orlop.clone(), seed: rig.seed, ..Self::default() }
    }
}

impl DiskSeries {
    fn new(rig: &PowerRig, fs: &str) -> anyhow::Result<Self> {
        let folder = rig.home.join(fs);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("lines"), "")?;
        Ok(Self { fs: fs.to_owned(), folder, boots: 0, unverified: 0, passed: 0 })
    }

    fn boot(&self, rig: &PowerRig) -> Boot {
        Boot {
            state: self.folder.clone(),
            pool_fs: self.fs.clone(),
            begun: self.folder.join("lines"),
            acknowledged: self.folder.join("lines"),
            round: self.boots,
            seed: rig.seed ^ self.boots,
            ..Boot::new(rig)
        }
    }

    /// Keeps what a boot said. Counts the cuts that a whole look has passed.
    fn note(&mut self, said: &runner::Said) -> anyhow::Result<()> {
        fs::write(self.folder.join(format!("said-{}", self.boots)), &said.text)?;
        self.boots += 1;
        let lines = self.folder.join("lines");
        let mut text = fs::read_to_string(&lines)?;
        text.push_str(&said.lines());
        fs::write(&lines, text)?;
        if said.is_verified() {
            self.passed += std::mem::take(&mut self.unverified);
        }
        Ok(())
    }

    /// Something was wrong: the disk is kept for a look, and an empty one takes its place.
    fn set_aside(&mut self, rig: &PowerRig, cut: u64, said: &runner::Said) -> anyhow::Result<()> {
        let kept = rig.home.join(format!("failed-{cut}-{}", self.fs));
        fs::rename(&self.folder, &kept)?;
        println!("{}\nthe disk is kept in {}", said.last(40), kept.display());
        let passed = self.passed;
        *self = Self::new(rig, &self.fs)?;
        self.passed = passed;
        Ok(())
    }
}

impl PowerRig {
    async fn cuts(&self, args: &Args) -> anyhow::Result<()> {
        let mut random = SeededNumbers::new(self.seed);
        let mut disks = args.pool_fs.iter().map(|fs| DiskSeries::new(self, fs)).collect::<Result<Vec<_>, _>>()?;
        let count = disks.len();
        for cut in 1..=args.cuts {
            let series = &mut disks[usize::try_from(cut)? % count];
            let at = match random.below(EARLY) {
                0 => CutAt(EARLY_STEPS[usize::try_from(random.below(EARLY_STEPS.len() as u64))?].to_owned()),
                _ => CutAt(format!("@{} ", 1 + random.below(LONGEST_ROUND))),
            };
            let boot = Boot { cut: Some(at.clone()), ..series.boot(self) };
            let said = self.runner.boot(&boot).await?;
            let lines = said.lines().lines().count();
            println!("cut {cut} of {}: {} at {:?}: {lines} lines, {}", args.cuts, series.fs, at.0, said.outcome());
            series.note(&said)?;
            match said.end {
                BootEnd::Cut => series.unverified += 1,
                BootEnd::Exit(_) => series.set_aside(self, cut, &said)?,
            }
        }
        for series in disks.iter_mut().filter(|series| series.unverified > 0) {
            let boot = Boot { stop_after: Some(0), ..series.boot(self) };
            let said = self.runner.boot(&boot).await?;
            println!("last look at {}: {}", series.fs, said.outcome());
            series.note(&said)?;
            if said.end != BootEnd::Exit(0) {
                series.set_aside(self, args.cuts + 1, &said)?;
            }
        }
        let passed: u64 = disks.iter().map(|series| series.passed).sum();
        println!("{passed} of {} cuts lost nothing", args.cuts);
        if passed == args.cuts { Ok(()) } else { bail!("{} of {} cuts failed", args.cuts - passed, args.cuts) }
    }
}

/// What the disks of a section showed.
#[derive(Debug, Default)]
struct DiskTally {
    right: u64,
    wrong: u64,
    /// The machine failed otherwise.
    broken: u64,
}

impl DiskTally {
    fn count(&mut self, said: &runner::Said) -> bool {
        let is_right = said.end == BootEnd::Exit(0);
        match (is_right, said.found_wrong()) {
            (true, _) => self.right += 1,
            (false, true) => self.wrong += 1,
            (false, false) => self.broken += 1,
        }
        is_right
    }

    /// With a mutation, one disk must have shown it.
    fn judge(&self, mutation: Option<Mutation>) -> anyhow::Result<()> {
        let Self { right, wrong, broken } = self;
        println!("{right} of {} disks have all that they must have", right + wrong + broken);
        match mutation {
            _ if *broken > 0 => bail!("{broken} disks could not be looked at"),
            None if *wrong > 0 => bail!("{wrong} disks lack something"),
            Some(mutation) if *wrong == 0 => bail!("{} was not noticed", mutation.name()),
            None | Some(_) => Ok(()),
        }
    }

    /// One disk that shows a mutation is enough.
    fn is_enough(&self, mutation: Option<Mutation>) -> bool {
        mutation.is_some() && self.wrong > 0
    }
}
