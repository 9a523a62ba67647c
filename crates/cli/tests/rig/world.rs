//! A driver on a pool, ready to be called, and the questions tests ask the machine about it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use driver_sdk::testing::Clients;
use linux::fs::FsType;
use linux::loopdev::{self, BackingFile, LoopStatus};

use super::{Driver, Options, Scratch};

/// A running driver and its pool. The driver ends before the folder is cleared.
#[derive(Debug)]
pub struct World {
    pub driver: Driver,
    pub scratch: Scratch,
}

impl World {
    /// On the machine's own disk.
    pub fn plain(options: &Options) -> Self {
        let scratch = Scratch::new();
        scratch.plain_pool();
        Self::over(scratch, options)
    }

    /// On a filesystem of its own.
    pub fn on(fs: FsType, size: u64, options: &Options) -> Self {
        let scratch = Scratch::new();
        scratch.pool_on(fs, size);
        Self::over(scratch, options)
    }

    pub fn over(scratch: Scratch, options: &Options) -> Self {
        Self { driver: Driver::start(&scratch, options), scratch }
    }

    pub async fn clients(&self) -> Clients {
        self.driver.clients().await
    }

    /// The driver is told to stop, stops with success, and starts again. Clients must hear of it, so they go on running
    /// meanwhile.
    pub async fn restart(&mut self, options: &Options) {
        self.driver.terminate();
        self.driver.ended().await;
        assert!(self.driver.wait().success(), "{}", self.driver.log());
        self.driver = Driver::start(&self.scratch, options);
    }

    /// The driver stops with success and leaves nothing.
    pub fn end_clean(mut self) {
        assert!(self.driver.stop(), "{}", self.driver.log());
        self.scratch.assert_clean();
    }

    pub fn volume(&self, id: &str) -> PathBuf {
        self.scratch.path("pool").join("volumes").join(id)
    }

    pub fn image(&self, id: &str) -> PathBuf {
        self.volume(id).join("image")
    }

    /// The one loop device of a volume.
    #[track_caller]
    pub fn device(&self, id: &str) -> LoopStatus {
        let image = File::open(self.image(id)).unwrap();
        let mut found = loopdev::find(BackingFile::of(&image).unwrap()).unwrap();
        assert_eq!(found.len(), 1, "loop devices of {id}: {found:?}");
        found.remove(0)
    }
}

/// Bytes a file has on disk.
pub fn on_disk(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// Writes a file and waits until it is on disk.
pub fn write_synced(path: impl AsRef<Path>, bytes: &[u8]) {
    let mut file = File::create(path).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
}

/// Writes into a block device through this node.
pub fn write_block(node: &Path, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
    let device = File::options().write(true).open(node)?;
    device.write_all_at(bytes, offset)?;
    device.sync_all()
}

pub fn read_block(node: &Path, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    File::open(node).unwrap().read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

/// Size of the filesystem that this path is on.
pub fn fs_bytes(path: &Path) -> u64 {
    let stat = rustix::fs::statvfs(path).unwrap();
    stat.f_blocks * stat.f_frsize
}

/// Is this a place at which something is mounted?
pub fn is_mounted(path: &Path) -> bool {
    linux::mounts::is_mount_point(path).unwrap_or(false)
}

/// Runs a program of the machine and gives what it printed; it must succeed.
#[track_caller]
pub fn tool<S: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = S>) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program}: {text}");
    text
}

/// Does this process (and so the drivers it starts) have CAP_SYS_RESOURCE? Growing a mounted ext4 needs it
/// (LOCAL-0.19).
pub fn has_sys_resource() -> bool {
    const CAP_SYS_RESOURCE: u64 = 24;
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(bits.trim(), 16).unwrap() >> CAP_SYS_RESOURCE & 1 == 1
}
