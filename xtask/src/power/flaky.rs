//! A disk that begins to fail on request: device-mapper's targets `flakey` and `error` over the tested disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

const NAME: &str = "power";
const END_SECTORS: u64 = 8;

/// How the disk fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DiskFault {
    /// Writes end with an error, everywhere; reads work.
    WriteErrors,
    /// Reads and writes end with an error, everywhere.
    AllErrors,
    /// Flushes end with an error; reads and writes work.
    FlushErrors,
    /// Reads and writes end with an error where one volume has its image. The filesystem under the pool itself is not hit.
    ImageErrors,
    /// Writes are answered as done and dropped, until the machine ends.
    DroppedWrites,
}

impl DiskFault {
    pub(super) const ALL: [Self; 5] =
        [Self::ImageErrors, Self::FlushErrors, Self::WriteErrors, Self::AllErrors, Self::DroppedWrites];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::WriteErrors => "write-errors",
            Self::AllErrors => "all-errors",
            Self::FlushErrors => "flush-errors",
            Self::ImageErrors => "image-errors",
            Self::DroppedWrites => "dropped-writes",
        }
    }

    /// The target for a part that fails, which begins at this sector of the disk below.
    fn target(self, below: &Path, first: u64) -> String {
        let feature = match self {
            // A flush asks every target of a disk but this one.
            Self::ImageErrors => return "error".to_owned(),
            Self::WriteErrors | Self::FlushErrors => "1 error_writes",
            Self::AllErrors => "0",
            Self::DroppedWrites => "1 drop_writes",
        };
        // It works for 0 seconds and then fails for 1 second, again and again.
        format!("flakey {} {first} 0 1 {feature}", below.display())
    }
}

/// Sectors of the disk: the first one and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SectorRange {
    pub(super) first: u64,
    pub(super) count: u64,
}

/// The device-mapper disk. It passes everything on until it is told to fail.
#[derive(Debug)]
pub(super) struct FlakyDisk {
    below: PathBuf,
    sectors: u64,
}

impl FlakyDisk {
    pub(super) fn make(below: &Path) -> anyhow::Result<Self> {
        let name = below.file_name().context("a disk has a name")?.to_string_lossy().into_owned();
        let size = fs::read_to_string(format!("/sys/class/block/{name}/size")).context("the size of the disk")?;
        let disk = Self { below: below.to_owned(), sectors: size.trim().parse()? };
        disk.dmsetup(&["create", NAME, "--table", &disk.linear_table()])?;
        Ok(disk)
    }

    pub(super) fn path() -> PathBuf {
        Path::new("/dev/mapper").join(NAME)
    }

    /// From now on the disk fails. `image` is where the volume has its image whose places fail, if only those do.
    pub(super) fn fail(&self, fault: DiskFault, image: &[SectorRange]) -> anyhow::Result<()> {
        let whole = [SectorRange { first: 0, count: self.sectors }];
        // No filesystem writes to the end of the disk, and a flush asks this part too.
        let end = [SectorRange { first: self.sectors.saturating_sub(END_SECTORS), count: END_SECTORS }];
        let parts = match fault {
            DiskFault::ImageErrors => image,
            DiskFault::FlushErrors => &end,
            DiskFault::WriteErrors | DiskFault::AllErrors | DiskFault::DroppedWrites => &whole,
        };
        self.switch(&self.failing_table(fault, parts))
    }

    pub(super) fn heal(&self) -> anyhow::Result<()> {
        self.switch(&self.linear_table())
    }

    fn linear_table(&self) -> String {
        format!("0 {} linear {} 0", self.sectors, self.below.display())
    }

    /// The parts in their order; what is between them works.
    fn failing_table(&self, fault: DiskFault, parts: &[SectorRange]) -> String {
        let below = self.below.display();
        let mut parts = parts.to_vec();
        parts.sort_by_key(|part| part.first);
        let (mut lines, mut at) = (Vec::new(), 0);
        for SectorRange { first, count } in parts {
            if first > at {
                lines.push(format!("{at} {} linear {below} {at}", first - at));
            }
            lines.push(format!("{first} {count} {}", fault.target(&self.below, first)));
            at = first + count;
        }
        if at < self.sectors {
            lines.push(format!("{at} {} linear {below} {at}", self.sectors - at));
        }
        lines.join("\n")
    }

    fn switch(&self, table: &str) -> anyhow::Result<()> {
        let file = Path::new("/run/power").join("table");
        fs::write(&file, format!("{table}\n"))?;
        // Freezing the filesystem would write it out first.
        self.dmsetup(&["load", NAME, &file.display().to_string()])?;
        self.dmsetup(&["suspend", "--nolockfs", NAME])?;
        self.dmsetup(&["resume", NAME])
    }

    fn dmsetup(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let program = crate::tools::find("dmsetup").context("`dmsetup` is missing")?;
        // The machine has no udev; the program makes the device nodes itself.
        let output = Command::new(program).args(arguments).env("DM_DISABLE_UDEV", "1").output()?;
        if !output.status.success() {
            bail!("dmsetup {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }
}

/// Where the filesystem has this file on its disk, in sectors. Right on filesystems whose addresses are those of the disk: ext4
/// and XFS, and not btrfs.
pub(super) fn places_of(file: &Path) -> anyhow::Result<Vec<SectorRange>> {
    let program = crate::tools::find("filefrag").context("`filefrag` is missing")?;
    let output = Command::new(program).args(["-v", "-b512"]).arg(file).output()?;
    if !output.status.success() {
        bail!("filefrag: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let found = places_in(&String::from_utf8_lossy(&output.stdout));
    if found.is_empty() {
        bail!("{} has no place on the disk:\n{}", file.display(), String::from_utf8_lossy(&output.stdout));
    }
    Ok(found)
}

/// Reads rows such as `   0:        0..    1023:      34816..     35839:   1024:     unwritten`.
fn places_in(table: &str) -> Vec<SectorRange> {
    let row = |line: &str| {
        let mut columns = line.split(':').map(str::trim);
        columns.next()?.parse::<u64>().ok()?;
        let (first, last) = columns.nth(1)?.split_once("..")?;
        let (first, last) = (first.trim().parse::<u64>().ok()?, last.trim().parse::<u64>().ok()?);
        Some(SectorRange { first, count: (last + 1).checked_sub(first)? })
    };
    table.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_failing_parts_are_where_the_file_is_and_the_rest_works() {
        let table = "Filesystem type is: ef53\nFile size of image is 4194304 (8192 blocks of 512 bytes)\n ext:     \
                     logical_offset:        physical_offset: length:   expected: flags:\n   0:        0..    1023:      \
                     34816..     35839:   1024:             unwritten\n   1:     1024..    8191:      2048..      9215:   \
                     7168:      35840: last,eof\nimage: 2 extents found\n";
        let places = places_in(table);
        assert_eq!(
            places,
            [SectorRange { first: 34_816, count: 1024 }, SectorRange { first: 2048, count: 7168 }],
            "in the order of the file"
        );
        let disk = FlakyDisk { below: "/dev/x1".into(), sectors: 50_000 };
        let lines = [
            "0 2048 linear /dev/x1 0",
            "2048 7168 error",
            "9216 25600 linear /dev/x1 9216",
            "34816 1024 error",
            "35840 14160 linear /dev/x1 35840",
        ];
        assert_eq!(disk.failing_table(DiskFault::ImageErrors, &places), lines.join("\n"));
    }

    #[test]
    fn a_whole_disk_fails_in_one_part() {
        let disk = FlakyDisk { below: "/dev/x1".into(), sectors: 8 };
        let whole = [SectorRange { first: 0, count: 8 }];
        assert_eq!(disk.failing_table(DiskFault::AllErrors, &whole), "0 8 flakey /dev/x1 0 0 1 0");
        assert_eq!(disk.failing_table(DiskFault::WriteErrors, &whole), "0 8 flakey /dev/x1 0 0 1 1 error_writes");
    }
}
