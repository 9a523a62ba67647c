//! One recording of all writes for each filesystem, and disks that are put together from them.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context as _, bail};

use super::records::SeededNumbers;
use super::replay::Recording;
use super::runner::{Boot, BootEnd, DISK, DISK_BYTES, Said};
use super::{Args, DiskSeries, DiskTally, PowerRig, voice};

/// Lines of a recording.
const RECORDED_LINES: u64 = 160;

impl PowerRig {
    pub(super) async fn replays(&self, args: &Args) -> anyhow::Result<()> {
        let mut random = SeededNumbers::new(self.seed ^ 1);
        let mut tally = DiskTally::default();
        let (count, mut number) = (args.pool_fs.len() as u64, 0);
        for (at, fs) in args.pool_fs.iter().enumerate() {
            let wanted = (0..args.replays).filter(|number| *number % count == at as u64).count();
            if wanted == 0 || tally.is_enough(self.mutation) {
                continue;
            }
            let recording = self.record(fs).await?;
            for _ in 0..wanted {
                number += 1;
                tally.count(&self.replay(&recording, (fs, number), &mut random).await?);
                if tally.is_enough(self.mutation) {
                    break;
                }
            }
        }
        tally.judge(self.mutation)
    }

    /// Works once, and records every write and flush.
    async fn record(&self, fs: &str) -> anyhow::Result<Recording> {
        let series = DiskSeries::new(self, &format!("{fs}-recorded"))?;
        let boot = Boot {
            pool_fs: fs.to_owned(),
            stop_after: Some(RECORDED_LINES),
            record: true,
            mutation: self.mutation,
            ..series.boot(self)
        };
        let said = self.runner.boot(&boot).await?;
        fs::write(series.folder.join("said"), &said.text)?;
        if said.end != BootEnd::Exit(0) {
            bail!("the recording on {fs} failed ({}):\n{}", said.outcome(), said.last(40));
        }
        let recording = Recording::open(&series.folder.join(format!("{DISK}.log")))?;
        let (lines, flushes) = (said.lines().lines().count(), recording.flushes().len());
        println!("recorded on {fs}: {lines} lines, {flushes} flushes");
        Ok(recording)
    }

    async fn replay(
        &self,
        recording: &Recording,
        (fs, number): (&str, u64),
        random: &mut SeededNumbers,
    ) -> anyhow::Result<Said> {
        let folder = self.home.join(format!("replay-{number}-{fs}"));
        fs::create_dir_all(&folder)?;
        let (disk, begun) = (
            make_file(&folder.join(format!("{DISK}.raw")), DISK_BYTES)?,
            make_file(&folder.join("begun.raw"), voice::LINES_BYTES)?,
        );
        let flush = recording.choose_flush(random).context("nothing was flushed")?;
        let (kept, dropped) = recording.build(&disk, &begun, flush, random)?;
        let (all, acknowledged) = (voice::lines_of(&begun)?, voice::lines_of(&disk)?);
        fs::write(folder.join("begun"), &all)?;
        fs::write(folder.join("lines"), &acknowledged)?;
        let boot = Boot {
            state: folder.clone(),
            pool_fs: fs.to_owned(),
            begun: folder.join("begun"),
            acknowledged: folder.join("lines"),
            round: 1000 + number,
            stop_after: Some(0),
            ..Boot::new(self)
        };
        let said = self.runner.boot(&boot).await?;
        let lines = format!("{} of {} lines", acknowledged.lines().count(), all.lines().count());
        println!(
            "disk {number} on {fs}: cut after flush entry {flush}: {kept} entries kept, {dropped} left out, {lines}: {}",
            said.outcome()
        );
        if said.end == BootEnd::Exit(0) {
            fs::remove_dir_all(&folder)?;
        } else {
            println!("{}\nthe disk is kept in {}", said.last(40), folder.display());
        }
        Ok(said)
    }
}

fn make_file(path: &Path, bytes: u64) -> anyhow::Result<File> {
    let file = File::options().read(true).write(true).create_new(true).open(path)?;
    file.set_len(bytes)?;
    Ok(file)
}
