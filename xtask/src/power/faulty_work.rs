//! The work on a disk that begins to fail under it. Afterwards the volumes are let go of, as far as that is possible, and the
//! machine ends; its next boot looks what is there.

use std::fs::{self, File};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use tokio::task::JoinSet;
use tonic::{Code, Status};

use super::calls::KINDS;
use super::flaky::{DiskFault, FlakyDisk, SectorRange, places_of};
use super::guest::{Machine, step};
use super::mutation::Mutation;
use super::records::SeededNumbers;
use super::voice::ConsoleVoice;
use super::work::{self, Ended, Hands, WriteTarget, WriterEnd, write_records};

/// What is printed when writes begin to be dropped. Nothing that is acknowledged after it counts.
pub(super) const DROPPING: &str = "step writes are dropped";
/// The work goes on for so many lines while writes are dropped.
const DROPPED_LINES: u64 = 40;
/// How often the lines are counted.
const POLL: Duration = Duration::from_millis(20);
/// The driver answers at the latest after its own limits, of 60 seconds each.
const CALL_LIMIT: Duration = Duration::from_secs(120);
/// Unstaging reports lost writes at most so often before it lets the volume go.
const MOST_REPEATS: usize = 8;
/// The volume whose image fails is one of the first of `KINDS`. Of a raw device, the error goes to the writer that syncs, and then
/// the other records are no longer looked at.
const VICTIMS: u64 = 3;

/// When the disk fails, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct FaultPlan {
    pub(super) fault: DiskFault,
    /// It fails after so many lines.
    pub(super) after: u64,
    pub(super) seed: u64,
}

/// The writers, as far as they have ended.
type WriterEnds = Vec<(WriteTarget, WriterEnd)>;

/// Works, lets the disk fail and work again, and lets go of the volumes.
pub(super) async fn run(
    machine: &Machine,
    (hands, targets): (Hands<'_>, Vec<WriteTarget>),
    disk: &FlakyDisk,
    plan: FaultPlan,
) -> anyhow::Result<()> {
    write_out_early()?;
    let ended = Ended(Arc::new(AtomicBool::new(false)));
    let mut writers = JoinSet::new();
    for target in targets.clone() {
        let (voice, ended, way) = (Arc::clone(hands.voice), Arc::clone(&ended.0), hands.way);
        writers.spawn_blocking(move || {
            let end = write_records(&voice, &target, way, &|| ended.load(Ordering::Relaxed));
            (target, end)
        });
    }
    let mut ends = WriterEnds::new();
    let failing = async {
        let failed = fail_and_heal(hands.voice, (&mut writers, &mut ends), (machine, disk, &targets), plan).await;
        ended.0.store(true, Ordering::Relaxed);
        failed
    };
    let calling = async {
        if let Err(error) = work::call(hands, &ended.0).await {
            println!("the calls ended: {error:#}");
        }
    };
    let (healed, ()) = tokio::join!(failing, calling);
    if !healed? {
        return Ok(());
    }
    while let Some(end) = writers.join_next().await {
        note_end(&mut ends, end?);
    }
    for (target, end) in &ends {
        let_go(machine, hands.way.mutation, target, end).await?;
    }
    step("the volumes were let go of");
    Ok(())
}

/// Answers whether the disk works again.
async fn fail_and_heal(
    voice: &ConsoleVoice,
    (writers, ends): (&mut JoinSet<(WriteTarget, WriterEnd)>, &mut WriterEnds),
    (machine, disk, targets): (&Machine, &FlakyDisk, &[WriteTarget]),
    plan: FaultPlan,
) -> anyhow::Result<bool> {
    let mut random = SeededNumbers::new(plan.seed ^ 2);
    let victim = KINDS[usize::try_from(random.below(VICTIMS))?].0;
    let until = voice.count() + plan.after;
    wait_for_lines(voice, until, (&mut *writers, &mut *ends)).await?;
    let image = if plan.fault == DiskFault::ImageErrors { image_places(machine, targets, victim)? } else { Vec::new() };
    if plan.fault == DiskFault::DroppedWrites {
        println!("{DROPPING}");
    }
    disk.fail(plan.fault, &image)?;
    let until = voice.count() + DROPPED_LINES;
    match plan.fault {
        DiskFault::DroppedWrites => {
            wait_for_lines(voice, until, (writers, ends)).await?;
            return Ok(false);
        }
        DiskFault::ImageErrors => {
            step(&format!("the disk fails under the {victim} volume"));
            // If its writer gets no error, the disk works again after some lines of the others.
            wait_for_lines(voice, until, (&mut *writers, &mut *ends)).await?;
        }
        DiskFault::WriteErrors | DiskFault::FlushErrors | DiskFault::AllErrors => {
            step("the disk fails");
            for _ in 0..=random.below(KINDS.len() as u64) {
                if let Some(end) = writers.join_next().await {
                    note_end(ends, end?);
                }
            }
        }
    }
    disk.heal()?;
    step("the disk works again");
    Ok(true)
}

/// Returns when so many lines were printed, or all writers have ended.
async fn wait_for_lines(
    voice: &ConsoleVoice,
    until: u64,
    (writers, ends): (&mut JoinSet<(WriteTarget, WriterEnd)>, &mut WriterEnds),
) -> anyhow::Result<()> {
    while voice.count() < until && !writers.is_empty() {
        while let Some(end) = writers.try_join_next() {
            note_end(ends, end?);
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

fn note_end(ends: &mut WriterEnds, (target, end): (WriteTarget, WriterEnd)) {
    match &end.done {
        Ok(()) => println!("the writer of {} ended without an error", target.kind),
        Err(error) => println!("the writer of {} ended: {error:#}", target.kind),
    }
    ends.push((target, end));
}

/// Where the image of the volume is on the disk.
fn image_places(machine: &Machine, targets: &[WriteTarget], victim: &str) -> anyhow::Result<Vec<SectorRange>> {
    let target = targets.iter().find(|target| target.kind == victim).context("every kind has a volume")?;
    places_of(&machine.pool.join("volumes").join(&target.id).join("image"))
}

/// The kernel writes what is in memory soon, so that it does so while the disk fails, and not when a sync asks for it.
fn write_out_early() -> anyhow::Result<()> {
    for name in ["dirty_writeback_centisecs", "dirty_expire_centisecs"] {
        fs::write(format!("/proc/sys/vm/{name}"), "10").with_context(|| format!("setting {name}"))?;
    }
    Ok(())
}

/// Lets go of a volume. If that succeeds, then what was written without an error must be there, or the volume is marked.
async fn let_go(
    machine: &Machine,
    mutation: Option<Mutation>,
    target: &WriteTarget,
    end: &WriterEnd,
) -> anyhow::Result<()> {
    let (kind, voice, calls) = (target.kind, &machine.voice, &machine.calls);
    if let Err(status) = calls.unpublish(&target.id, &target.path).await {
        println!("{kind} stays published: {}", said(&status));
        return Ok(());
    }
    let mut losses = 0;
    for _ in 0..MOST_REPEATS {
        let status = match tokio::time::timeout(CALL_LIMIT, calls.unstage(&target.id, &target.staging)).await {
            Err(_) => break,
            Ok(Err(status)) => status,
            Ok(Ok(())) => {
                println!("{kind} was let go of; {losses} times lost writes were answered");
                if losses > 0 && mutation == Some(Mutation::RemovedMarks) {
                    let folder = machine.pool.join("volumes").join(&target.id);
                    fs::remove_file(folder.join("loss.json")).context("removing a mark")?;
                    File::open(&folder)?.sync_all()?;
                } else if losses > 0 {
                    voice.done(&format!("marked/{kind}"), "1")?;
                }
                // The kernel tells one of the users of a raw device of a failed write, and here it told the writer.
                let is_told = end.done.is_err() && !target.sort.has_filesystem();
                if let Some(last) = end.unsynced.filter(|_| !is_told) {
                    voice.done(&format!("unsynced/{kind}"), &last.to_string())?;
                }
                return Ok(());
            }
        };
        println!("unstaging {kind}: {}", said(&status));
        if status.code() == Code::DataLoss {
            losses += 1;
        }
    }
    println!("{kind} stays staged");
    Ok(())
}

fn said(status: &Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}
