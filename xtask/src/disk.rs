//! Folders and a filesystem of our own for a run, gone again when their guards are dropped.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

/// A folder with a short path, because socket paths have room for 107 bytes only. Dropping it takes away whatever is
/// mounted below it as well, in case a driver was killed while it served volumes.
#[derive(Debug)]
pub(crate) struct Scratch(tempfile::TempDir);

impl Scratch {
    pub(crate) fn make() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("orlop-").tempdir();
        Ok(Self(folder.context("making a folder for temporary files")?))
    }

    /// A folder in `home`, which must be on a disk: for pools.
    pub(crate) fn make_in(home: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(home)?;
        Ok(Self(tempfile::Builder::new().prefix("pool-").tempdir_in(home)?))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        crate::leftovers::remove(self.path());
    }
}

/// An XFS filesystem that can share blocks between files.
#[derive(Debug)]
pub(crate) struct ReflinkDisk {
    mount: PathBuf,
    image: PathBuf,
    /// Detached when this is dropped, after the filesystem on it is gone.
    device: Option<LoopDevice>,
}

/// Room for every volume a suite holds at once. Sparse: only what is written takes space.
const BYTES: u64 = 40 << 30;

impl ReflinkDisk {
    /// `image` must be on a disk, `mount` is made.
    pub(crate) fn make(image: PathBuf, mount: PathBuf) -> anyhow::Result<Self> {
        if !crate::tools::is_root() {
            bail!("mounting an XFS image needs root");
        }
        std::fs::create_dir_all(&mount)?;
        // From here on the guard exists, so that a failure half way leaves nothing.
        let mut disk = Self { mount, image, device: None };
        File::create(&disk.image).and_then(|file| file.set_len(BYTES)).context("making the image")?;
        run("mkfs.xfs", &["-q", "-f", "-m", "reflink=1"], &[&disk.image])?;
        let device = disk.device.insert(LoopDevice::attach(&disk.image)?);
        // `-w`: without it, mount falls back to a read-only mount and calls that a success.
        run("mount", &["-w"], &[device.path(), &disk.mount])?;
        Ok(disk)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.mount
    }
}

impl Drop for ReflinkDisk {
    fn drop(&mut self) {
        // Volumes that a killed driver left mounted hold loop devices on the files in here.
        crate::leftovers::remove(&self.mount.join("pool"));
        if is_mount_point(&self.mount) && run("umount", &[], &[&self.mount]).is_err() {
            eprintln!("{} is busy; unmounting it lazily", self.mount.display());
            if let Err(error) = run("umount", &["-l"], &[&self.mount]) {
                eprintln!("{error:#}; unmount it by hand");
            }
        }
        for gone in [std::fs::remove_file(&self.image), std::fs::remove_dir(&self.mount)] {
            gone.unwrap_or_else(|error| eprintln!("removing {}: {error}", self.image.display()));
        }
    }
}

/// A loop device of ours, detached when dropped.
#[derive(Debug)]
pub(crate) struct LoopDevice(PathBuf);

impl LoopDevice {
    /// Binds an image, with direct I/O where the image's filesystem can do it.
    pub(crate) fn attach(image: &Path) -> anyhow::Result<Self> {
        let losetup = crate::tools::find("losetup").context("`losetup` is missing")?;
        let output = Command::new(losetup).args(["--find", "--show", "--direct-io=on"]).arg(image).output()?;
        if !output.status.success() {
            bail!("losetup: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let device = Self(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
        // A device keeps the write protection that its last user gave it.
        run("blockdev", &["--setrw"], &[device.path()])?;
        Ok(device)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        run("losetup", &["--detach"], &[&self.0]).unwrap_or_else(|error| eprintln!("{error:#}"));
    }
}

fn is_mount_point(path: &Path) -> bool {
    let device = |path: &Path| rustix::fs::stat(path).map(|stat| stat.st_dev).ok();
    path.parent().is_some_and(|parent| device(path) != device(parent))
}

/// Runs a system program to its end.
pub(crate) fn run(program: &str, options: &[&str], paths: &[&Path]) -> anyhow::Result<()> {
    let place = crate::tools::find(program).with_context(|| format!("`{program}` is missing"))?;
    let output = Command::new(place).args(options).args(paths).output()?;
    if !output.status.success() {
        bail!("{program} {}: {}", options.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
