//! Disks that begin to fail under the running programs: one boot in which the disk fails, and one that looks what is there.

use std::fs;

use anyhow::bail;

use super::faulty_work::DROPPING;
use super::flaky::DiskFault;
use super::records::SeededNumbers;
use super::runner::{Boot, BootEnd, Said};
use super::{Args, DiskSeries, DiskTally, PowerRig};

/// The disk fails after at most so many lines of work.
const LATEST_FAULT: u64 = 60;

/// All ways in which a disk fails, with the filesystem under the pool.
fn all_ways(filesystems: &[String]) -> Vec<(DiskFault, &str)> {
    let ways = DiskFault::ALL.into_iter().flat_map(|fault| filesystems.iter().map(move |fs| (fault, fs.as_str())));
    // Where btrfs has a file on its disk is not known to the test.
    ways.filter(|way| *way != (DiskFault::ImageErrors, "btrfs")).collect()
}

impl PowerRig {
    pub(super) async fn faults(&self, args: &Args) -> anyhow::Result<()> {
        let mut random = SeededNumbers::new(self.seed ^ 3);
        let mut tally = DiskTally::default();
        let ways = all_ways(&args.pool_fs);
        for (number, (fault, fs)) in (1..=args.faults).zip(ways.iter().cycle()) {
            let after = 1 + random.below(LATEST_FAULT);
            let said = self.fault(number, (*fault, after), fs).await?;
            if !tally.count(&said) {
                println!("{}", said.last(40));
            }
            if tally.is_enough(self.mutation) {
                break;
            }
        }
        tally.judge(self.mutation)
    }

    /// Gives what the boot after the failure said.
    async fn fault(&self, number: u64, (fault, after): (DiskFault, u64), fs: &str) -> anyhow::Result<Said> {
        let mut series = DiskSeries::new(self, &format!("fault-{number}-{}-{fs}", fault.name()))?;
        let common = Boot {
            pool_fs: fs.to_owned(),
            thick: fault == DiskFault::ImageErrors,
            seed: self.seed ^ number,
            ..series.boot(self)
        };
        let boot = Boot { fault: Some((fault, after)), mutation: self.mutation, ..common.clone() };
        let failing = self.runner.boot(&boot).await?;
        series.note(&failing)?;
        let seen = summary(&failing.text);
        if failing.end != BootEnd::Exit(0) {
            bail!("{} on {fs}: the machine did not get to its end:\n{}", fault.name(), failing.last(60));
        }
        // What was answered while writes were dropped is no promise.
        let acknowledged = series.folder.join("acknowledged");
        fs::write(&acknowledged, Said { text: before_dropping(&failing.text).to_owned(), ..failing }.lines())?;
        let look = Boot { acknowledged, round: 1, stop_after: Some(0), after_fault: true, ..common };
        let said = self.runner.boot(&look).await?;
        fs::write(series.folder.join("said-1"), &said.text)?;
        println!("disk {number}: {} on {fs}, after {after} lines: {seen}: {}", fault.name(), said.outcome());
        if said.end == BootEnd::Exit(0) {
            fs::remove_file(series.folder.join(format!("{}.raw", super::runner::DISK)))?;
        } else {
            println!("the disk is kept in {}", series.folder.display());
        }
        Ok(said)
    }
}

/// What the failure did to the machine.
fn summary(text: &str) -> String {
    let count = |is_it: &dyn Fn(&str) -> bool| text.lines().filter(|line| is_it(line)).count();
    let errors = count(&|line| line.starts_with("the writer of ") && !line.ends_with("without an error"));
    let let_go = count(&|line| line.contains(" was let go of; "));
    let marked = count(&|line| line.contains(" done marked/"));
    format!("{errors} writers got an error, {let_go} volumes let go of, {marked} of them marked")
}

fn before_dropping(text: &str) -> &str {
    text.find(DROPPING).map_or(text, |at| text.get(..at).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_meets_each_filesystem_where_it_can() {
        let all = ["ext4", "xfs", "btrfs"].map(str::to_owned);
        assert_eq!(all_ways(&all).len(), 14);
        assert_eq!(all_ways(&all[2..]).len(), 4);
    }

    #[test]
    fn a_failure_is_summed_up() {
        let text = "the writer of xfs ended: syncing: error\nthe writer of ext4 ended without an error\nxfs was let go of; 1 \
                    times\n@7 done marked/xfs 1\n";
        assert_eq!(summary(text), "1 writers got an error, 1 volumes let go of, 1 of them marked");
    }

    #[test]
    fn what_is_acknowledged_while_writes_are_dropped_does_not_count() {
        let text = format!("@1 done a b\n{DROPPING}\n@2 done a c\n");
        assert_eq!(before_dropping(&text), "@1 done a b\n");
        assert_eq!(before_dropping("@1 done a b\n"), "@1 done a b\n");
    }
}
