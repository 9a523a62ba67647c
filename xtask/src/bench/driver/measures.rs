//! The measurements themselves. Each starts from a driver without volumes and leaves it without volumes.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::future::try_join_all;

use crate::bench::calls::{Client, Made};
use crate::bench::memory::settled_rss;
use crate::bench::numbers::{Series, microseconds, milliseconds};
use crate::bench::subject::Subject;
use crate::conformance::Driver;
use crate::disk::LoopDevice;

const GIB: i64 = 1 << 30;
const DATA_BYTES: usize = 200 << 20;
const STAGES: usize = 10;
const PROBES: usize = 10_000;
/// How long volumes are created and deleted for one number.
const WINDOW: Duration = Duration::from_secs(5);
const CROWD: usize = 16;

/// What was measured. `None`: the driver does not do that.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    pub(super) snapshot_unmounted: Option<f64>,
    pub(super) snapshot_mounted: Option<f64>,
    pub(super) pairs_alone: Option<f64>,
    pub(super) pairs_crowd: Option<f64>,
    pub(super) probe_p50: Option<f64>,
    pub(super) probe_p99: Option<f64>,
    pub(super) rss: Option<f64>,
    pub(super) stage: Option<f64>,
    pub(super) stage_over_mkfs: Option<f64>,
}

/// Where a measurement happens.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) scratch: PathBuf,
    pub(super) pool: PathBuf,
}

impl Site {
    async fn start(&self, subject: &Subject) -> anyhow::Result<Driver> {
        fs::create_dir_all(&self.pool)?;
        let log = self.scratch.join("driver.log");
        Driver::start(subject.launch(self.scratch.join("csi.sock"), &self.pool, log)).await
    }
}

/// Everything that needs no reflinks, on the machine's disk.
pub(super) async fn on_plain_pool(subject: &Subject, site: &Site, numbers: &mut Numbers) -> anyhow::Result<()> {
    let driver = site.start(subject).await?;
    let pid = driver.pid().context("the driver ended")?;
    println!("idle memory");
    numbers.rss = Some(settled_rss(pid).await?);
    println!("round trips");
    let (p50, p99) = probes(&driver.socket).await?;
    (numbers.probe_p50, numbers.probe_p99) = (p50.map(microseconds), p99.map(microseconds));
    println!("create and delete");
    numbers.pairs_alone = Some(pairs_per_second(&driver.socket, 1).await?);
    numbers.pairs_crowd = Some(pairs_per_second(&driver.socket, CROWD).await?);
    // The peer formats nothing, so its staging has nothing to compare with.
    if matches!(subject, Subject::Orlop(_)) {
        println!("staging");
        let (stage, mkfs) = stages(&driver.socket, site).await?;
        numbers.stage = stage.map(milliseconds);
        numbers.stage_over_mkfs = stage.zip(mkfs).map(|(stage, mkfs)| milliseconds(stage) - milliseconds(mkfs));
    }
    driver.stop().await
}

/// Snapshots that share blocks.
pub(super) async fn on_reflink_pool(subject: &Subject, site: &Site, numbers: &mut Numbers) -> anyhow::Result<()> {
    println!("snapshots");
    let driver = site.start(subject).await?;
    let mut client = Client::connect(&driver.socket).await?;
    let (stage, target) = (site.scratch.join("stage"), site.scratch.join("target"));
    fs::create_dir_all(&stage)?;
    let mut volume = client.create("bench-snapshots", GIB).await?;
    client.attach(&mut volume).await?;
    client.stage(&volume, &stage).await?;
    client.publish(&volume, &stage, &target).await?;
    fill(&target.join("data"))?;
    numbers.snapshot_mounted = snapshots(&mut client, &volume, subject.snapshots()).await?.map(milliseconds);
    client.unpublish(&volume, &target).await?;
    client.unstage(&volume, &stage).await?;
    client.detach(&volume).await?;
    numbers.snapshot_unmounted = snapshots(&mut client, &volume, subject.snapshots()).await?.map(milliseconds);
    client.delete(&volume.id).await?;
    driver.stop().await
}

async fn snapshots(client: &mut Client, volume: &Made, count: usize) -> anyhow::Result<Option<Duration>> {
    let mut times = Series::default();
    for number in 0..count {
        let started = Instant::now();
        let id = client.snapshot(volume, &format!("bench-{number}")).await?;
        times.push(started.elapsed());
        client.delete_snapshot(id).await?;
    }
    Ok(times.median())
}

/// Data that no filesystem can keep as holes.
fn fill(file: &Path) -> anyhow::Result<()> {
    let mut file = File::create(file)?;
    let block: Vec<u8> = (0..1_u32 << 18).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    for _ in 0..DATA_BYTES / block.len() {
        file.write_all(&block)?;
    }
    Ok(file.sync_all()?)
}

async fn probes(socket: &Path) -> anyhow::Result<(Option<Duration>, Option<Duration>)> {
    let mut client = Client::connect(socket).await?;
    let mut times = Series::default();
    for _ in 0..PROBES {
        let started = Instant::now();
        client.probe().await?;
        times.push(started.elapsed());
    }
    Ok((times.median(), times.percentile(99)))
}

async fn pairs_per_second(socket: &Path, clients: usize) -> anyhow::Result<f64> {
    let started = Instant::now();
    let work = (0..clients).map(|number| async move {
        let mut client = Client::connect(socket).await?;
        let mut pairs = 0_u32;
        while started.elapsed() < WINDOW {
            let volume = client.create(&format!("bench-{number}-{pairs}"), GIB).await?;
            client.delete(&volume.id).await?;
            pairs += 1;
        }
        anyhow::Ok(pairs)
    });
    let pairs: u32 = try_join_all(work).await?.into_iter().sum();
    Ok(f64::from(pairs) / started.elapsed().as_secs_f64())
}

/// Staging a fresh volume, and mkfs alone on an equal device, in turns, so that both see the same machine.
async fn stages(socket: &Path, site: &Site) -> anyhow::Result<(Option<Duration>, Option<Duration>)> {
    let mut client = Client::connect(socket).await?;
    let path = site.scratch.join("stage");
    let (mut stage, mut mkfs) = (Series::default(), Series::default());
    for number in 0..STAGES {
        fs::create_dir_all(&path)?;
        let mut volume = client.create(&format!("bench-stage-{number}"), GIB).await?;
        client.attach(&mut volume).await?;
        let started = Instant::now();
        client.stage(&volume, &path).await?;
        stage.push(started.elapsed());
        client.unstage(&volume, &path).await?;
        client.detach(&volume).await?;
        client.delete(&volume.id).await?;
        mkfs.push(plain_mkfs(&site.pool.with_file_name("mkfs.img"))?);
    }
    Ok((stage.median(), mkfs.median()))
}

/// mkfs.ext4 with the driver's flags on a loop device like the driver's: a new sparse image, direct I/O.
fn plain_mkfs(image: &Path) -> anyhow::Result<Duration> {
    File::create(image)?.set_len(u64::try_from(GIB)?)?;
    let device = LoopDevice::attach(image)?;
    let uuid = "0f2bb1c5-5b3c-4a0e-9a53-6d1a6c1f5f00";
    let flags = ["-q", "-F", "-m0", "-b", "4096", "-E", "nodiscard", "-U", uuid];
    let started = Instant::now();
    crate::disk::run("mkfs.ext4", &flags, &[device.path()])?;
    let took = started.elapsed();
    drop(device);
    fs::remove_file(image)?;
    Ok(took)
}
