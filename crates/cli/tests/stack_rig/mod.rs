//! What the tests of the whole stack share: `orlop up` as a process whose log is read.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test support; each test file uses a part of it"
)]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc;

/// A stack as a process. Dropping it kills it, and takes away what it mounted.
pub struct Up {
    child: Child,
    data: PathBuf,
    log: mpsc::UnboundedReceiver<String>,
}

impl Up {
    /// On a free port and without a page unless the flags ask for one.
    pub fn start(data: &Path, flags: &[&str]) -> Self {
        Self::spawn(Command::new(env!("CARGO_BIN_EXE_orlop")), data, flags)
    }

    /// The same by a command that becomes the program with the words that are added to it.
    pub fn spawn(mut command: Command, data: &Path, flags: &[&str]) -> Self {
        let page: &[&str] = if flags.contains(&"--page") { &[] } else { &["--page", "off"] };
        command.args(["up", "--listen", "127.0.0.1:0", "--data"]).arg(data).args(page).args(flags);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the binary was just built");
        let lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let (heard, log) = mpsc::unbounded_channel();
        // Whatever it says is read, so that it never waits for a reader.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(heard.send(line))));
        Self { child, data: data.to_owned(), log }
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.data.join("kubeconfig")
    }

    /// The next line of its log; `None` when it has ended.
    pub async fn line(&mut self) -> Option<String> {
        self.log.recv().await
    }

    /// Its address, once it is ready, from a log in text.
    pub async fn address(&mut self) -> String {
        let mut heard = String::new();
        let ready = async {
            while let Some(line) = self.line().await {
                heard += &format!("{line}\n");
                if let Some(rest) = line.split("ready address=").nth(1) {
                    return rest.split(' ').next().map(str::to_owned);
                }
            }
            None
        };
        let address = tokio::time::timeout(Duration::from_secs(120), ready).await.ok().flatten();
        address.unwrap_or_else(|| panic!("it never became ready: {heard}"))
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is our child");
    }

    /// SIGTERM, and its end.
    pub fn stop(mut self) {
        self.signal(Signal::TERM);
        assert!(self.child.wait().expect("it is our child").success());
    }

    /// Waits for its end: the exit code, and what it said meanwhile.
    pub async fn ended(mut self) -> (Option<i32>, String) {
        let mut heard = String::new();
        let silent = async {
            while let Some(line) = self.line().await {
                heard += &format!("{line}\n");
            }
        };
        let silent = tokio::time::timeout(Duration::from_secs(120), silent).await;
        assert!(silent.is_ok(), "it never ended: {heard}");
        (self.child.wait().expect("it is our child").code(), heard)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // What the agent mounts outlives it, its own directory as well; a directory that goes must have neither.
        for point in mounts_under(&self.data) {
            let _ = Command::new("umount").arg("--lazy").arg(point).status();
        }
    }
}

/// A filesystem of its own that is soon full. Dropping it takes it away, with what is mounted in it.
pub struct SmallDisk {
    place: tempfile::TempDir,
}

impl SmallDisk {
    /// Of so many MiB; `None` where nothing can be mounted.
    pub fn new(mib: u32) -> Option<Self> {
        let place = tempfile::tempdir().expect("a directory can be made");
        let options = format!("size={mib}m,mode=0700");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(place.path()).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Self { place })
    }

    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// Takes what is left of it. Gives the file that has it.
    pub fn fill(&self) -> PathBuf {
        let path = self.path().join("everything");
        let mut file = std::fs::File::create(&path).expect("it can be made");
        for size in [1 << 16, 1] {
            while std::io::Write::write(&mut file, &vec![0; size]).is_ok_and(|written| written > 0) {}
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        for point in mounts_under(self.path()).into_iter().chain([self.path().to_owned()]) {
            let _ = Command::new("umount").arg("--lazy").arg(point).status();
        }
    }
}

/// What is mounted below a directory, the deepest first.
pub fn mounts_under(directory: &Path) -> Vec<PathBuf> {
    let table = linux::mountinfo::MountTable::read().expect("there is a mount table");
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let mut points: Vec<_> = table.below(&directory).map(|mount| mount.mount_point.clone()).collect();
    points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    points
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Says why a test does not run, also to whoever counts such reasons.
pub fn skip(why: &str) {
    println!("skipped: {why}");
    if let Some(log) = std::env::var_os("ORLOP_SKIP_LOG") {
        let line = format!("{why}\n");
        let file = std::fs::OpenOptions::new().append(true).create(true).open(log);
        drop(file.and_then(|mut file| std::io::Write::write_all(&mut file, line.as_bytes())));
    }
}

/// Whether a program is on the path.
pub fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}
