//! What the black-box tests of the driver share: pools on real filesystems, the real program as a process, clients on
//! its socket, and the promise that nothing is left on the machine, whatever happens in a test.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test support; each test file uses a part of it"
)]

pub mod ask;
pub mod call;
pub mod left;
pub mod world;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};

use csi::Endpoint;
use driver_sdk::testing::Clients;
use linux::fs::{FsType, Mkfs, Uuid, mkfs};
use linux::loopdev::{self, Attach, BackingFile, LoopSupport};
use linux::mountinfo::MountTable;
use linux::mounts::{self, MountFlags};
use linux::{image, loopdev::LoopStatus};

pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
pub const NODE: &str = "node-1";

/// Why a test that needs root, loop devices and these filesystems cannot run here.
pub fn cannot_run(needs: &[FsType]) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root".to_owned());
    }
    if let LoopSupport::No(why) = loopdev::available() {
        return Some(why);
    }
    needs.iter().flat_map(|fs| fs.missing_tools()).next().map(|tool| tool.to_string())
}

/// Says why a test does not run, also in the file that `cargo xtask test` collects reasons in.
pub fn skip(test: &str, why: &str) {
    println!("skipped: {why}");
    if let Some(log) = std::env::var_os("ORLOP_SKIP_LOG") {
        let file = std::fs::File::options().append(true).create(true).open(log);
        drop(file.and_then(|mut file| writeln!(file, "{test}: {why}")));
    }
}

/// Returns from the test with the reason, when the machine lacks what it needs.
#[macro_export]
macro_rules! needs {
    ($($fs:ident),*) => {
        if let Some(why) = $crate::rig::cannot_run(&[$(linux::fs::FsType::$fs),*]) {
            $crate::rig::skip(concat!(module_path!(), ":", line!()), &why);
            return;
        }
    };
}

/// A folder of a test with everything it makes. When it goes, so do mounts and loop devices below it.
#[derive(Debug)]
pub struct Scratch {
    dir: tempfile::TempDir,
}

impl Scratch {
    pub fn new() -> Self {
        Self { dir: tempfile::Builder::new().prefix("orlop-test-").tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    pub fn dir(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    /// A pool directory on the machine's own disk, where copies are full copies.
    pub fn plain_pool(&self) -> PathBuf {
        self.dir("pool")
    }

    /// A pool directory on a filesystem of its own, in a sparse file.
    pub fn pool_on(&self, fs: FsType, size: u64) -> PathBuf {
        let image = image::create_sparse(&self.path("pool.img"), size).unwrap();
        let how = Attach { read_only: false, autoclear: true, direct_io: false, block_size: 512 };
        let attached = loopdev::attach(&image, how).unwrap();
        let mut bytes = [0u8; 16];
        bytes[..8].copy_from_slice(
            &std::fs::metadata(self.dir.path()).map(|m| std::os::unix::fs::MetadataExt::ino(&m)).unwrap().to_le_bytes(),
        );
        let how = Mkfs { uuid: Uuid::from_digest(bytes), sector_size: 512, lock: None };
        mkfs(fs, &attached.device.path, &how, std::time::Duration::from_secs(60)).unwrap();
        self.mount_pool(fs)
    }

    /// Mounts the filesystem that [`Self::pool_on`] made, from the device that it has or from a new one.
    pub fn mount_pool(&self, fs: FsType) -> PathBuf {
        let image = std::fs::File::options().read(true).write(true).open(self.path("pool.img")).unwrap();
        let found = loopdev::find(BackingFile::of(&image).unwrap()).unwrap();
        let how = Attach { read_only: false, autoclear: true, direct_io: false, block_size: 512 };
        let attached = found.is_empty().then(|| loopdev::attach(&image, how).unwrap());
        let device = attached.as_ref().map_or_else(|| &found[0].device.path, |attached| &attached.device.path);
        let mount = self.dir("pool");
        mounts::mount_fs(device, &mount, fs.name(), &MountFlags::default()).unwrap();
        mount
    }

    /// Loop devices on images of the pool, as the kernel has them now.
    pub fn pool_loops(&self) -> Vec<LoopStatus> {
        loops_of(&self.path("pool"))
    }

    /// Mounts below the scratch folder, the pool's own left out.
    pub fn mounts(&self) -> Vec<PathBuf> {
        let root = self.path("");
        let table = MountTable::read().unwrap();
        table.below(&root).map(|mount| mount.mount_point.clone()).filter(|place| *place != self.path("pool")).collect()
    }

    /// Fails unless the pool holds exactly these numbers of volumes, snapshots and groups, and nothing hidden.
    pub fn assert_pool_holds(&self, volumes: usize, snapshots: usize, groups: usize) {
        let count = |folder: &str| std::fs::read_dir(self.path("pool").join(folder)).unwrap().count();
        let found = (count("volumes"), count("snapshots"), count("groups"), count(".tmp"), count(".trash"));
        assert_eq!(found, (volumes, snapshots, groups, 0, 0), "volumes, snapshots, groups, .tmp, .trash");
    }

    /// Fails if anything of a driver is left: objects, loop devices or mounts.
    pub fn assert_clean(&self) {
        self.assert_pool_holds(0, 0, 0);
        assert_eq!(self.mounts(), Vec::<PathBuf>::new(), "mounts are left");
        assert!(self.pool_loops().is_empty(), "loop devices are left: {:?}", self.pool_loops());
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let Ok(root) = self.dir.path().canonicalize() else { return };
        let Ok(table) = MountTable::read() else { return };
        let mut places: Vec<PathBuf> = table.below(&root).map(|mount| mount.mount_point.clone()).collect();
        // Deepest first; the pool itself goes last, after the loop devices on its images.
        places.sort_by_key(|place| std::cmp::Reverse(place.components().count()));
        let frozen: Vec<PathBuf> = places.clone();
        drop(linux::freeze::thaw_sweep(&frozen));
        let pool = root.join("pool");
        for place in places.iter().filter(|place| **place != pool) {
            drop(mounts::unmount_all(place));
        }
        detach_loops(&pool);
        drop(mounts::unmount_all(&pool));
    }
}

/// Loop devices on images of a pool, as the kernel has them now.
fn loops_of(pool: &Path) -> Vec<LoopStatus> {
    let mut found = Vec::new();
    for folder in ["volumes", "snapshots", "groups", ".tmp", ".trash"] {
        let Ok(entries) = std::fs::read_dir(pool.join(folder)) else { continue };
        for entry in entries.flatten() {
            if let Ok(image) = std::fs::File::open(entry.path().join("image")) {
                found.extend(loopdev::find(BackingFile::of(&image).unwrap()).unwrap());
            }
        }
    }
    found
}

/// Takes loop devices off the images of a pool, as far as nothing is mounted from them.
pub fn detach_loops(pool: &Path) {
    for status in loops_of(pool) {
        drop(loopdev::detach_and_wait(&status.device, status.backing, std::time::Duration::from_secs(2)));
    }
}

/// What the driver wrote to its log so far, and who waits for a line of it.
#[derive(Debug, Default)]
struct Log {
    text: Mutex<(String, bool)>,
    grown: Condvar,
}

/// A running `orlop driver`. Dropping it kills it.
#[derive(Debug)]
pub struct Driver {
    child: Child,
    log: Arc<Log>,
    pub socket: PathBuf,
}

/// How to run the driver.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Name of the socket in the scratch folder; `csi.sock` if empty.
    pub socket: String,
}

impl Options {
    pub fn args<const N: usize>(args: [&str; N]) -> Self {
        Self { args: args.map(str::to_owned).to_vec(), ..Default::default() }
    }

    pub fn env(mut self, key: &str, value: impl Into<String>) -> Self {
        self.env.push((key.to_owned(), value.into()));
        self
    }
}

impl Driver {
    /// Starts the driver on the scratch folder's pool and waits until it serves.
    pub fn start(scratch: &Scratch, options: &Options) -> Self {
        match Self::try_start(scratch, options) {
            Ok(driver) => driver,
            Err(log) => panic!("the driver ended before it served:\n{log}"),
        }
    }

    /// As [`Self::start`]; a driver that ends before it serves gives its log.
    pub fn try_start(scratch: &Scratch, options: &Options) -> Result<Self, String> {
        let name = if options.socket.is_empty() { "csi.sock" } else { &options.socket };
        let socket = scratch.path(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
        command.args(["driver", "--node-id", NODE, "--log-level", "debug"]);
        command.arg("--endpoint").arg(format!("unix://{}", socket.display()));
        command.arg("--pool").arg(format!("p={}", scratch.path("pool").display()));
        command.env("ORLOP_STATE_DIR", scratch.path("state"));
        command.args(&options.args).envs(options.env.iter().map(|(key, value)| (key, value)));
        command.stdout(Stdio::null());
        Self::launch(command, socket)
    }

    /// Runs a whole command line that ends in a driver on this socket, and waits until it serves.
    pub fn launch(mut command: Command, socket: PathBuf) -> Result<Self, String> {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Log::default());
        let (stderr, shared) = (child.stderr.take().unwrap(), Arc::clone(&log));
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut text = shared.text.lock().unwrap();
                text.0.push_str(&line);
                text.0.push('\n');
                shared.grown.notify_all();
            }
            shared.text.lock().unwrap().1 = true;
            shared.grown.notify_all();
        });
        let driver = Self { child, log, socket };
        // As the text log and as the JSON log have it.
        if driver.wait_for_any(&[" serving ", "\"serving\""]) { Ok(driver) } else { Err(driver.log()) }
    }

    /// Waits until the log has this text; false when the driver ended without it.
    pub fn wait_for_log(&self, wanted: &str) -> bool {
        self.wait_for_any(&[wanted])
    }

    /// As [`Self::wait_for_log`], for the first of several texts.
    pub fn wait_for_any(&self, wanted: &[&str]) -> bool {
        let mut text = self.log.text.lock().unwrap();
        loop {
            if wanted.iter().any(|wanted| text.0.contains(wanted)) {
                return true;
            }
            if text.1 {
                return false;
            }
            text = self.log.grown.wait(text).unwrap();
        }
    }

    pub fn log(&self) -> String {
        self.log.text.lock().unwrap().0.clone()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// Waits for the driver to end by itself (a failpoint killed it).
    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }

    /// SIGTERM, and waits; true when it ended with success.
    pub fn stop(&mut self) -> bool {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap().success()
    }

    /// SIGTERM, without waiting.
    pub fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// Waits for the end of the process without taking its exit status, which [`Self::wait`] gives.
    pub async fn ended(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        let wait = move || rustix::process::waitid(rustix::process::WaitId::Pid(pid), options);
        tokio::task::spawn_blocking(wait).await.unwrap().unwrap();
    }

    pub async fn clients(&self) -> Clients {
        connect(&self.socket).await
    }
}

pub async fn connect(socket: &Path) -> Clients {
    let endpoint: Endpoint = Endpoint::unix(socket).unwrap();
    Clients::over(csi::connect(&endpoint).await.unwrap())
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs an async test body. No timers are waited for; the runtime only carries the calls.
pub fn run<T>(body: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(body)
}
