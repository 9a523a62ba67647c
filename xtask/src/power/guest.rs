//! What runs in the machine: a pool and a store on the disk, the driver and the API server on them, first a look whether all
//! that was acknowledged before the last cut is there, then work until the next cut.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use super::calls::DriverCalls;
use super::faulty_work::{self, FaultPlan};
use super::flaky::{DiskFault, FlakyDisk};
use super::inspect::Inspection;
use super::ledger::Ledger;
use super::mutation::{Mutation, without_syncs};
use super::voice::{ConsoleVoice, LINES_BYTES};
use super::work;
use crate::conformance::tail;
use crate::disk::run as run_tool;
use crate::kubernetes::{Client, Embedded};

/// Something of the disk that was made, once.
const MADE: &str = "made";
/// How often a starting driver's socket is tried.
const POLL: Duration = Duration::from_millis(50);

/// What the part in the machine takes.
#[derive(Debug, clap::Args)]
pub(crate) struct GuestArgs {
    /// The disk that is tested.
    #[arg(long)]
    disk: PathBuf,
    /// Filesystem under the pool and the store.
    #[arg(long)]
    pool_fs: String,
    /// The program.
    #[arg(long)]
    orlop: PathBuf,
    /// All lines that were printed about this disk.
    #[arg(long)]
    begun: PathBuf,
    /// The lines that count as acknowledged.
    #[arg(long)]
    acknowledged: PathBuf,
    #[arg(long)]
    round: u64,
    #[arg(long)]
    seed: u64,
    /// Write each line also to the disk.
    #[arg(long)]
    lines_on_disk: bool,
    /// End after so many lines; 0 only looks.
    #[arg(long)]
    stop_after: Option<u64>,
    /// The disk begins to fail.
    #[arg(long)]
    fault: Option<DiskFault>,
    /// It does so after so many lines of work.
    #[arg(long, default_value_t = 0)]
    fault_after: u64,
    /// The disk has failed: a volume may say that it lost writes.
    #[arg(long)]
    after_fault: bool,
    /// Make images that have all their blocks.
    #[arg(long)]
    thick: bool,
    /// Do this wrong on purpose.
    #[arg(long)]
    mutation: Option<Mutation>,
}

/// The programs on the disk.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) voice: Arc<ConsoleVoice>,
    pub(super) calls: DriverCalls,
    pub(super) api: Client,
    pub(super) pool: PathBuf,
    pub(super) run: PathBuf,
    pub(super) round: u64,
    pub(super) stop_after: Option<u64>,
    pub(super) after_fault: bool,
    flaky: Option<FlakyDisk>,
    driver: Child,
    driver_log: PathBuf,
    server: Embedded,
}

pub(crate) async fn run(args: GuestArgs) -> anyhow::Result<()> {
    let read = |path: &Path| fs::read_to_string(path).with_context(|| format!("reading {}", path.display()));
    let ledger = Ledger::read(&read(&args.begun)?, &read(&args.acknowledged)?);
    let mut machine = Machine::start(&args, &ledger).await?;
    let inspection = Inspection::make(&machine, &ledger).await?;
    for wrong in &inspection.wrong {
        println!("WRONG: {wrong}");
    }
    if !inspection.wrong.is_empty() {
        println!("the driver said:\n{}", tail(&machine.driver_log));
        bail!("{} things are not as they were acknowledged", inspection.wrong.len());
    }
    step("verified");
    println!("VERIFIED");
    if machine.stop_after == Some(0) {
        return Ok(());
    }
    let way = work::WriteWay { seed: args.seed, mutation: args.mutation, with_unsynced: args.fault.is_some() };
    let hands = work::Hands {
        voice: &machine.voice,
        calls: &machine.calls,
        api: &machine.api,
        round: machine.round,
        stop_after: machine.stop_after,
        way,
    };
    if let (Some(fault), Some(disk)) = (args.fault, &machine.flaky) {
        let plan = FaultPlan { fault, after: args.fault_after, seed: args.seed };
        let done = faulty_work::run(&machine, (hands, inspection.targets), disk, plan).await;
        println!("the driver said:\n{}", tail(&machine.driver_log));
        let panicked = fs::read_to_string(&machine.driver_log)?.lines().any(|line| line.contains("panicked at"));
        ensure!(!panicked, "WRONG: the driver panicked");
        return done;
    }
    let (driver, log) = (&mut machine.driver, machine.driver_log.clone());
    let died = async {
        let status = driver.wait().await;
        anyhow::anyhow!("the driver ended with {status:?}:\n{}", tail(&log))
    };
    tokio::select! {
        done = work::run(hands, inspection.targets) => done,
        error = died => Err(error),
        error = machine.server.died() => Err(error),
    }
}

impl Machine {
    async fn start(args: &GuestArgs, ledger: &Ledger) -> anyhow::Result<Self> {
        let run = PathBuf::from("/run/power");
        let mount = run.join("disk");
        fs::create_dir_all(&mount)?;
        // A machine without an init system has no loopback address.
        run_tool("busybox", &["ip", "link", "set", "lo", "up"], &[])?;
        let voice = Arc::new(ConsoleVoice::new(args.lines_on_disk.then_some(args.disk.as_path()))?);
        let flaky = mount_disk(args, ledger, &voice, &mount)?;
        step("mounted");

        let (pool, store, socket) = (mount.join("pool"), mount.join("store"), run.join("csi.sock"));
        let store_made = ledger.key("disk/store").is_surely(MADE);
        if store_made {
            check_store(&args.orlop, &store.join("api"))?;
        }
        let pool_made = ledger.key("disk/pool").is_surely(MADE);
        for (is_made, key) in [(pool_made, "disk/pool"), (store_made, "disk/store")] {
            if !is_made {
                voice.start(key, MADE)?;
            }
        }
        fs::create_dir_all(&store)?;
        let driver_log = run.join("driver.log");
        let program = |mutation: Mutation| {
            if args.mutation == Some(mutation) { without_syncs(&args.orlop, &run) } else { Ok(args.orlop.clone()) }
        };
        let (driver_program, api_program) = (program(Mutation::UnsyncedPool)?, program(Mutation::UnsyncedStore)?);
        let mut driver = start_driver(&driver_program, (&pool, pool_made), &socket, &driver_log)?;
        let (server, ()) =
            tokio::try_join!(Embedded::start(&api_program, &store), until_served(&mut driver, &socket, &driver_log))?;
        step("served");
        for (is_made, key) in [(pool_made, "disk/pool"), (store_made, "disk/store")] {
            if !is_made {
                voice.done(key, MADE)?;
            }
        }
        let provisioning = if args.thick { "thick" } else { "thin" };
        let calls = DriverCalls::connect(&socket, provisioning).await?;
        let api = Client::new(&server.endpoint)?;
        let (round, stop_after, after_fault) = (args.round, args.stop_after, args.after_fault);
        Ok(Self { voice, calls, api, pool, run, round, stop_after, after_fault, flaky, driver, driver_log, server })
    }
}

/// Makes the filesystem, once, and mounts it.
fn mount_disk(
    args: &GuestArgs,
    ledger: &Ledger,
    voice: &ConsoleVoice,
    mount: &Path,
) -> anyhow::Result<Option<FlakyDisk>> {
    let part = filesystem_part(&args.disk)?;
    let flaky = args.fault.map(|_| FlakyDisk::make(&part)).transpose()?;
    let part = if flaky.is_some() { FlakyDisk::path() } else { part };
    if !ledger.key("disk/filesystem").is_surely(MADE) {
        voice.start("disk/filesystem", MADE)?;
        let force = if args.pool_fs == "ext4" { "-F" } else { "-f" };
        run_tool(&format!("mkfs.{}", args.pool_fs), &["-q", force], &[&part])?;
        run_tool("sync", &[], &[])?;
        voice.done("disk/filesystem", MADE)?;
    }
    run_tool("mount", &["-w", "-t", &args.pool_fs], &[&part, mount])?;
    Ok(flaky)
}

/// Says how far the start is. The emulator's speed varies; the time since the boot is said for those who wonder.
pub(super) fn step(what: &str) {
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    println!("step {what} at {} s", uptime.split(' ').next().unwrap_or_default());
}

/// The disk behind the place for lines, as a partition. It has no partition table; the kernel is told.
fn filesystem_part(disk: &Path) -> anyhow::Result<PathBuf> {
    let disk = fs::canonicalize(disk).with_context(|| format!("the disk {}", disk.display()))?;
    let name = disk.file_name().context("a disk has a name")?.to_string_lossy().into_owned();
    let size = fs::read_to_string(format!("/sys/block/{name}/size")).context("the size of the disk")?;
    let (sectors, first) = (size.trim().parse::<u64>()?, LINES_BYTES / 512);
    let part = PathBuf::from(format!("{}1", disk.display()));
    if !part.exists() {
        let numbers = ["1".to_owned(), first.to_string(), (sectors - first).to_string()];
        let status = std::process::Command::new("addpart").arg(&disk).args(numbers).status().context("addpart")?;
        if !status.success() {
            bail!("addpart: {status}");
        }
    }
    Ok(part)
}

/// `orlop check` must find nothing wrong in a store that was acknowledged.
fn check_store(orlop: &Path, data: &Path) -> anyhow::Result<()> {
    let output =
        std::process::Command::new(orlop).arg("check").arg("--data").arg(data).output().context("orlop check")?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        bail!("WRONG: orlop check: {}: {}", output.status, String::from_utf8_lossy(&said).trim());
    }
    Ok(())
}

/// A pool that was acknowledged must be there: the driver may not make another one.
fn start_driver(program: &Path, (pool, is_made): (&Path, bool), socket: &Path, log: &Path) -> anyhow::Result<Child> {
    let output = fs::File::create(log)?;
    let mut command = Command::new(program);
    command.args(["driver", "--node-id", "power", "--no-attach", "--endpoint"]);
    command.arg(format!("unix://{}", socket.display())).arg("--pool").arg(format!("p={}", pool.display()));
    command.arg("--state-dir").arg(log.with_file_name("known-pools"));
    if is_made {
        command.arg("--no-init");
    }
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).kill_on_drop(true);
    command.spawn().context("starting the driver")
}

/// The emulator is slow, and whoever started it has a limit; here is none.
async fn until_served(driver: &mut Child, socket: &Path, log: &Path) -> anyhow::Result<()> {
    let connects = async {
        while UnixStream::connect(socket).await.is_err() {
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::select! {
        () = connects => Ok(()),
        status = driver.wait() => bail!("WRONG: the driver ended with {} at its start:\n{}", status?, tail(log)),
    }
}
