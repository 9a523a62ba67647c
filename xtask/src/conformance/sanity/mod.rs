//! csi-sanity against `orlop driver`, over the run matrix of the driver specification (WIRE-C.4).
//!
//! A run passes when every active spec passed, none was skipped, no secret is in anything the driver wrote, nothing is
//! left in the pool or on the machine, and the driver stops as it should.
//!
//! Rules: WIRE-C.3, WIRE-C.4

mod junit;
mod matrix;
mod secrets;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, bail};
use tokio::process::Command;

use super::golang::Go;
use super::{Driver, Launch, Mode};
use crate::disk::{ReflinkDisk, Scratch};
use crate::leftovers;
use crate::report::{Ending, Report, Table, seconds};
use matrix::{Access, PoolKind, Run, Sockets};
use secrets::Secrets;

/// The suite, pinned: its newest version whose specs are those of the specification, section WIRE-C.3.
const SUITE: &str = "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity";
const SUITE_VERSION: &str = "v5.5.0";
/// Active specs of that version. Fewer means that the suite did not run whole.
const SPECS: usize = 95;

/// Above the smallest XFS, and small enough that clones of clones fit any disk.
const VOLUME_BYTES: u64 = 512 << 20;
const EXPANDED_BYTES: u64 = 1 << 30;

/// Specs that may be skipped for a reason that is not a missing capability, with the reason. None is known.
const EXCUSED: [(&str, &str); 0] = [];

/// What `cargo xtask conformance sanity` takes.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Only the run of this name (may be given again); a name that is not one lists them all.
    #[arg(long, value_name = "RUN")]
    only: Vec<String>,
    /// Test this program instead of building the driver; it must take the options of `orlop driver`.
    #[arg(long, value_name = "PROGRAM")]
    driver: Option<PathBuf>,
    /// Passed on to csi-sanity, such as `--ginkgo.focus=Node`; the number of specs is then not checked.
    #[arg(last = true)]
    rest: Vec<String>,
}

/// What all runs share.
struct Suite {
    sanity: PathBuf,
    driver: PathBuf,
    fixtures: PathBuf,
    logs: PathBuf,
    rest: Vec<String>,
}

pub(super) async fn run(go: &Go, args: &Args, report: &mut Report) -> anyhow::Result<()> {
    let runs = matrix::select(&args.only)?;
    let home = crate::target().join("conformance");
    let logs = home.join("logs");
    fs::create_dir_all(&logs)?;
    crate::tools::provide()?;
    let suite = Suite {
        sanity: go.install(SUITE, SUITE_VERSION, &home.join("bin"))?,
        driver: match &args.driver {
            Some(program) => program.clone(),
            None => build(Profile::Checked).await?,
        },
        fixtures: crate::root().join("tests/conformance"),
        logs,
        rest: args.rest.clone(),
    };
    let mut table = Table::new(&["csi-sanity run", "passed", "skipped", "failed", "time"]);
    for run in runs {
        let section = Report::begin(&format!("csi-sanity {}", run.name()));
        let started = Instant::now();
        let (tally, ending) = suite.run(&run).await;
        let junit::Tally { passed, skipped, failed } = &tally;
        let counts = [passed.len(), skipped.len(), failed.len()].map(|count| count.to_string());
        let mut row = vec![run.name()];
        row.extend(counts);
        row.push(seconds(started.elapsed()));
        table.row(&row);
        report.end(section, ending);
    }
    println!("\ncsi-sanity {SUITE_VERSION}, {SPECS} active specs\n{}", table.text());
    Ok(())
}

/// Which build of the program.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Profile {
    /// Fast enough, and with the checks of a debug build: what the simulator is built with, too, so that most is shared.
    Checked,
    /// As it is shipped: smaller, and slower to build.
    Dist,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Self::Checked => "sim",
            Self::Dist => "dist",
        }
    }
}

/// Builds the program. The simulator is built with it: what both stand on is then built once.
pub(crate) async fn build(profile: Profile) -> anyhow::Result<PathBuf> {
    let arguments = match profile {
        Profile::Checked => {
            vec!["build", "--bins", "--profile", profile.name(), "--package", "orlop", "--package", "orlop-sim"]
        }
        Profile::Dist => crate::dist::arguments(),
    };
    let profile = profile.name();
    let mut cargo = Command::from(crate::tools::cargo());
    cargo.args(arguments).current_dir(crate::root()).kill_on_drop(true);
    let status = cargo.status().await?;
    if !status.success() {
        bail!("cargo build --profile {profile}: {status}");
    }
    Ok(crate::target().join(profile).join("orlop"))
}

impl Suite {
    /// One run with everything it needs. The tally is there also when the run failed for another reason.
    async fn run(&self, run: &Run) -> (junit::Tally, Ending) {
        let mut tally = junit::Tally::default();
        let result = self.prepare_and_run(run, &mut tally).await;
        (tally, Ending::from(result))
    }

    async fn prepare_and_run(&self, run: &Run, tally: &mut junit::Tally) -> anyhow::Result<()> {
        let logs = self.logs.join(run.name());
        fs::create_dir_all(&logs)?;
        // Sockets need a short path, pools a disk: the one is in the folder for temporary files, the other is not.
        let scratch = Scratch::make()?;
        let disk_folder = Scratch::make_in(&crate::target().join("conformance"))?;
        let disk = match run.pool {
            PoolKind::Plain => None,
            PoolKind::Reflink => {
                Some(ReflinkDisk::make(disk_folder.path().join("xfs.img"), scratch.path().join("xfs"))?)
            }
        };
        let pool = disk.as_ref().map_or(disk_folder.path(), ReflinkDisk::path).join("pool");
        fs::create_dir(&pool)?;
        let place = Place { pool, scratch: scratch.path().to_path_buf(), logs };
        let known = leftovers::under(&place.folders());
        let secrets = Secrets::invent();

        let mut faults: Vec<String> = Vec::new();
        let mut note = |result: anyhow::Result<()>| faults.extend(result.err().map(|error| format!("{error:#}")));
        let ran = self.drive(run, &place, &secrets).await;
        let report = fs::read_to_string(place.junit()).unwrap_or_default();
        *tally = junit::tally(&report);
        note(ran);
        note(self.judge(tally));
        note(secrets.absent_from(&place.driver_logs(run)));
        note(place.is_clean());
        let left: Vec<String> =
            leftovers::under(&place.folders()).difference(&known).map(ToString::to_string).collect();
        if !left.is_empty() {
            note(Err(anyhow::anyhow!("left on the machine: {}", left.join(", "))));
        }
        drop(disk);
        if faults.is_empty() { Ok(()) } else { bail!("{}\nlogs: {}", faults.join("\n"), place.logs.display()) }
    }

    /// Starts the driver, runs csi-sanity, stops the driver.
    async fn drive(&self, run: &Run, place: &Place, secrets: &Secrets) -> anyhow::Result<()> {
        let mut drivers = Vec::new();
        for mode in run.modes() {
            let launch = Launch::orlop(&self.driver, *mode, place.socket(*mode), &place.pool, place.log(*mode));
            drivers.push(Driver::start(launch.with_debug_log()).await?);
        }
        let secrets_file = place.scratch.join("secrets.yaml");
        fs::write(&secrets_file, secrets.yaml())?;
        let mut sanity = self.command(run, place, &secrets_file)?;
        let status = {
            let died = futures_util::future::select_all(drivers.iter_mut().map(|driver| Box::pin(driver.died())));
            tokio::select! {
                status = sanity.status() => status.context("starting csi-sanity")?,
                (died, _, _) = died => return Err(died),
            }
        };
        for driver in drivers {
            driver.stop().await?;
        }
        if status.success() {
            Ok(())
        } else {
            bail!("csi-sanity ended with {status}; see {}", place.sanity_log().display())
        }
    }

    fn command(&self, run: &Run, place: &Place, secrets: &Path) -> anyhow::Result<Command> {
        let mut command = Command::new(&self.sanity);
        let endpoint = |mode| format!("unix://{}", place.socket(mode).display());
        match run.sockets {
            Sockets::Unified => drop(command.arg(format!("--csi.endpoint={}", endpoint(Mode::All)))),
            Sockets::Split => {
                command.arg(format!("--csi.endpoint={}", endpoint(Mode::Node)));
                command.arg(format!("--csi.controllerendpoint={}", endpoint(Mode::Controller)));
            }
        }
        command.arg(format!("--csi.testvolumesize={VOLUME_BYTES}"));
        command.arg(format!("--csi.testvolumeexpandsize={EXPANDED_BYTES}"));
        command.arg(format!("--csi.testvolumeaccesstype={}", run.access.name()));
        command.arg(format!("--csi.mountdir={}", place.scratch.join("mount").display()));
        command.arg(format!("--csi.stagingdir={}", place.scratch.join("stage").display()));
        command.arg(format!("--csi.secrets={}", secrets.display()));
        command.arg("--csi.testnodevolumeattachlimit");
        let mutable = self.fixtures.join("mutable-parameters.yaml");
        command.arg(format!("--csi.testvolumemutableparameters={}", mutable.display()));
        if let (Access::Mount, Some(file)) = (run.access, run.parameters_file()) {
            command.arg(format!("--csi.testvolumeparameters={}", self.fixtures.join(file).display()));
        }
        command.args(["--ginkgo.no-color", "--ginkgo.timeout=20m"]);
        command.arg(format!("--ginkgo.junit-report={}", place.junit().display())).args(&self.rest);
        let log = File::create(place.sanity_log())?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        Ok(command)
    }

    fn judge(&self, tally: &junit::Tally) -> anyhow::Result<()> {
        let mut faults: Vec<String> = tally.failed.iter().map(|name| format!("failed: {name}")).collect();
        for (name, reason) in &tally.skipped {
            match EXCUSED.iter().find(|(excused, _)| excused == name) {
                Some((_, why)) => println!("skipped: {name}: {why} (csi-sanity: {reason})"),
                None if self.rest.is_empty() => faults.push(format!("skipped: {name}: {reason}")),
                None => {}
            }
        }
        if self.rest.is_empty() && tally.passed.len() + EXCUSED.len() < SPECS {
            faults.push(format!("{} specs passed, {SPECS} must", tally.passed.len()));
        }
        if faults.is_empty() { Ok(()) } else { bail!("{}", faults.join("\n")) }
    }
}

/// Where one run keeps its things.
struct Place {
    pool: PathBuf,
    scratch: PathBuf,
    logs: PathBuf,
}

impl Place {
    fn socket(&self, mode: Mode) -> PathBuf {
        self.scratch.join(format!("{}.sock", mode.name()))
    }

    fn log(&self, mode: Mode) -> PathBuf {
        self.logs.join(format!("driver-{}.log", mode.name()))
    }

    fn driver_logs(&self, run: &Run) -> Vec<PathBuf> {
        run.modes().iter().map(|mode| self.log(*mode)).collect()
    }

    fn sanity_log(&self) -> PathBuf {
        self.logs.join("csi-sanity.log")
    }

    fn junit(&self) -> PathBuf {
        self.logs.join("junit.xml")
    }

    fn folders(&self) -> [PathBuf; 2] {
        [self.pool.clone(), self.scratch.clone()]
    }

    /// Every volume and snapshot was deleted, so their folders hold nothing, nor do those of work in progress.
    fn is_clean(&self) -> anyhow::Result<()> {
        let mut left = Vec::new();
        for folder in ["volumes", "snapshots", "groups", ".tmp", ".trash"].map(|name| self.pool.join(name)) {
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            left.extend(entries.map(|entry| entry.path().display().to_string()));
        }
        if left.is_empty() { Ok(()) } else { bail!("left in the pool: {}", left.join(", ")) }
    }
}
