//! One pool: its volumes are written while it fills up, let go, and read back when there is space again.

use std::sync::Arc;

use csi::v1::VolumeCapability;
use driver_local::loss::CONDITION_PREFIX;
use driver_sdk::testing::Clients;
use tonic::{Code, Status};

use crate::matrix::{FillPace, PoolCombination, VolumeKind, VolumeProvisioning};
use crate::rig::ask::*;
use crate::rig::call::*;
use crate::rig::world::World;
use crate::rig::{MIB, Options, run};
use crate::writer::{PoolFiller, SeededNumbers, VolumeWriter, WritePlace, WriterGate, WriterReport};

/// Left to the volumes before the last part of the fill. Their writers want more.
const LEFT: u64 = 96 * MIB;
/// Below the floor of the driver, which is half of its default reserve of 64 MiB.
const BELOW_FLOOR: u64 = 24 * MIB;
/// Unstaging reports lost writes at most so often before it lets the volume go.
const MOST_REPEATS: usize = 5;
/// A call in a pool with space is refused at most so often: the driver may be freezing the volume at the time.
const MOST_REFUSALS: usize = 20_000;

/// A row of the matrix with its result: a summary, or the fault.
pub(crate) type MatrixRow = (String, Result<String, String>);

/// A volume, its two writers and their reports.
struct WrittenVolume {
    kind: VolumeKind,
    using: Use,
    writers: Vec<VolumeWriter>,
    reports: Vec<WriterReport>,
    /// DATA_LOSS answers to unstaging.
    losses_reported: usize,
    is_down: bool,
}

/// The pool and all that uses it. Dropping it ends the writers first, so that they hold nothing busy.
struct PoolSite {
    combination: PoolCombination,
    gate: Arc<WriterGate>,
    subjects: Vec<WrittenVolume>,
    filler: PoolFiller,
    world: World,
}

impl Drop for PoolSite {
    fn drop(&mut self) {
        self.gate.close();
        self.filler.free_all();
        // A driver that is killed leaves nothing frozen: its guards thaw.
        self.world.driver.kill();
        for writer in self.subjects.iter_mut().flat_map(|subject| &mut subject.writers) {
            drop(writer.join());
        }
    }
}

pub(crate) fn play(combination: PoolCombination, seed: u64) -> Vec<MatrixRow> {
    let overcommit = if combination.overcommit { "2" } else { "1" };
    let options = Options::args(["--overcommit", overcommit, "--provisioning", combination.provisioning.name()]);
    let world = World::on(combination.pool, combination.pool_bytes(), &options);
    let filler = PoolFiller::new(&world.scratch.path("pool"));
    let mut site = PoolSite { combination, gate: Arc::default(), subjects: Vec::new(), filler, world };
    run(async {
        let clients = site.world.clients().await;
        site.begin(&clients, seed).await;
        site.fill_up();
        site.gate.close();
        site.let_go_while_full(&clients).await;
        site.filler.free_all();
        site.let_go_the_rest(&clients).await;
        let rows = site.read_back(&clients).await;
        for subject in &site.subjects {
            repeated(MOST_REFUSALS, || delete(&clients, &subject.using.id)).await.unwrap();
        }
        rows
    })
}

fn capability(kind: VolumeKind) -> VolumeCapability {
    match kind {
        VolumeKind::Image(fs) => mount(fs.name()),
        VolumeKind::Block => block(),
        VolumeKind::Directory => mount(""),
    }
}

/// Was the call refused because the volume is in use, or does not finish writing?
fn is_busy(status: &Status) -> bool {
    matches!(status.code(), Code::Aborted | Code::ResourceExhausted | Code::FailedPrecondition)
}

/// Repeats a call that is refused as busy, as callers do.
async fn repeated<T, F>(most: usize, mut call: impl FnMut() -> F) -> Result<T, Status>
where
    F: Future<Output = Result<T, Status>>,
{
    let mut answer = call().await;
    for _ in 0..most {
        match &answer {
            Err(status) if is_busy(status) => answer = call().await,
            Ok(_) | Err(_) => break,
        }
    }
    answer
}

impl PoolSite {
    /// Makes the volumes and starts two writers on each.
    async fn begin(&mut self, clients: &Clients, seed: u64) {
        let mut random = SeededNumbers(seed);
        for kind in self.combination.volumes() {
            let mut request = create_request(kind.name(), kind.size(), capability(kind));
            if kind == VolumeKind::Directory {
                request.parameters = map([("kind", "directory")]);
            }
            let id = create_with(clients, request).await.unwrap().volume_id;
            let using = Use::new(&self.world.scratch, &id, capability(kind));
            repeated(MOST_REFUSALS, || bring_up(clients, &using)).await.unwrap();
            let is_device = kind == VolumeKind::Block;
            let mut start = |syncs: bool| {
                let name = if syncs { "synced" } else { "never-synced" };
                let file = if is_device { using.target.clone() } else { using.target.join(name) };
                VolumeWriter::start(WritePlace { file, is_device, key: random.next(), syncs }, seed, &self.gate)
            };
            let writers = vec![start(true), start(false)];
            self.subjects.push(WrittenVolume {
                kind,
                using,
                writers,
                reports: Vec::new(),
                losses_reported: 0,
                is_down: false,
            });
        }
    }

    /// The other writer takes all space while the volumes are written.
    fn fill_up(&mut self) {
        for writer in self.subjects.iter().flat_map(|subject| &subject.writers) {
            writer.wait_until_begun();
        }
        match self.combination.fill {
            FillPace::Gradual => {
                self.filler.leave(BELOW_FLOOR);
                let driver = &self.world.driver;
                assert!(driver.wait_for_any(&["the volume is frozen", "too little space is left"]), "{}", driver.log());
                assert!(driver.log().contains("the volume is frozen"), "{}", driver.log());
                self.gate.open();
            }
            FillPace::Sudden => {
                self.gate.open();
                self.filler.leave(LEFT);
            }
        }
        self.filler.fill();
    }

    /// Volumes whose writers have ended are let go of in the full pool.
    async fn let_go_while_full(&mut self, clients: &Clients) {
        for subject in &mut self.subjects {
            match unpublish(clients, &subject.using).await {
                Ok(()) => subject.unstage(clients, 0).await,
                Err(status) => assert!(is_busy(&status), "{}: {status}", subject.kind.name()),
            }
        }
    }

    /// With space again, every writer ends and every volume can be let go.
    async fn let_go_the_rest(&mut self, clients: &Clients) {
        for subject in self.subjects.iter_mut() {
            while !subject.is_down {
                // Thaws it, so that its writers come to their end.
                let unpublished = unpublish(clients, &subject.using).await;
                if subject.writers.iter().all(VolumeWriter::has_ended) {
                    unpublished.or_else(|status| if is_busy(&status) { Ok(()) } else { Err(status) }).unwrap();
                    repeated(MOST_REFUSALS, || unpublish(clients, &subject.using)).await.unwrap();
                    subject.unstage(clients, MOST_REFUSALS).await;
                    assert!(subject.is_down, "{} cannot be let go", subject.kind.name());
                }
            }
            subject.reports = subject.writers.iter_mut().map(VolumeWriter::join).collect();
        }
    }

    /// Stages all volumes again and judges what is in them.
    async fn read_back(&mut self, clients: &Clients) -> Vec<MatrixRow> {
        let mut rows = Vec::new();
        for subject in &self.subjects {
            let row = self.combination.row(subject.kind);
            let (abnormal, why) = condition(clients, &subject.using.id).await;
            let is_marked = abnormal && why.starts_with(CONDITION_PREFIX);
            let verdict = match repeated(MOST_REFUSALS, || bring_up(clients, &subject.using)).await {
                Err(status) => Err(format!("it cannot be staged again (marked: {is_marked}): {}", status.message())),
                Ok(()) => {
                    let judged = subject.judge(is_marked);
                    repeated(MOST_REFUSALS, || bring_down(clients, &subject.using)).await.unwrap();
                    judged
                }
            };
            let verdict = verdict.and_then(|()| self.must_be_whole(subject, is_marked));
            rows.push((row, verdict.map(|()| subject.summary(is_marked))));
        }
        rows
    }

    /// A full pool does not reach a volume that has all its blocks.
    fn must_be_whole(&self, subject: &WrittenVolume, is_marked: bool) -> Result<(), String> {
        let has_blocks = self.combination.provisioning == VolumeProvisioning::Thick;
        let is_touched = is_marked || subject.reports.iter().any(|report| report.error.is_some());
        if has_blocks && is_touched {
            return Err(format!("it has all its blocks, and its pool's being full reached it: {:?}", subject.reports));
        }
        Ok(())
    }
}

impl WrittenVolume {
    /// Unstages, as a caller does that repeats its call after the answer DATA_LOSS, and so often after a refusal.
    async fn unstage(&mut self, clients: &Clients, most_refusals: usize) {
        for _ in 0..MOST_REPEATS {
            match repeated(most_refusals, || unstage(clients, &self.using)).await {
                Ok(()) => {
                    detach(clients, &self.using.id).await.unwrap();
                    self.is_down = true;
                    return;
                }
                Err(status) if status.code() == Code::DataLoss => self.losses_reported += 1,
                Err(status) => {
                    assert!(is_busy(&status), "{}: {status}", self.kind.name());
                    return;
                }
            }
        }
    }

    fn judge(&self, is_marked: bool) -> Result<(), String> {
        if self.losses_reported > 0 && !is_marked {
            return Err("unstaging answered DATA_LOSS and the volume is not marked".to_owned());
        }
        // A raw device has one record of failed writes for all its writers. The fsync of one of them takes the error, and then neither
        // the other writer nor the driver gets it (docs/data-safety.md).
        let device_reported =
            self.kind == VolumeKind::Block && self.reports.iter().any(|report| report.error.is_some());
        let mut both = self.writers.iter().zip(&self.reports);
        both.try_for_each(|(writer, report)| writer.place.judge(report, is_marked, device_reported))
            .map_err(|fault| format!("{fault} ({})", self.summary(is_marked)))
    }

    fn summary(&self, is_marked: bool) -> String {
        let writers: Vec<String> = self
            .reports
            .iter()
            .map(|WriterReport { synced, written, error }| match error {
                Some(error) => format!("{written} written, {synced} synced, then: {}", error.text),
                None => format!("{written} written, {synced} synced"),
            })
            .collect();
        format!("{}; {}", writers.join(" | "), if is_marked { "marked" } else { "not marked" })
    }
}
