//! A filesystem of our own for a run: a sparse image, formatted, mounted, and gone again when the guard is dropped.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

/// An XFS filesystem that can share blocks between files.
#[derive(Debug)]
pub(crate) struct ReflinkDisk {
    image: PathBuf,
    mount: PathBuf,
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
        let disk = Self { image, mount };
        File::create(&disk.image).and_then(|file| file.set_len(BYTES)).context("making the image")?;
        run("mkfs.xfs", &["-q", "-f", "-m", "reflink=1"], &[&disk.image])?;
        run("mount", &["-o", "loop"], &[&disk.image, &disk.mount])?;
        Ok(disk)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.mount
    }
}

impl Drop for ReflinkDisk {
    fn drop(&mut self) {
        // `mount -o loop` sets autoclear, so the loop device goes with the mount.
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
