//! One life of `orlop up`, as a process of its own: what can be killed has to be one.
//!
//! It is started by this program with the command line that a user would type, in a process group of its own, so that
//! Ctrl-C reaches the demonstration alone, which then ends everything in order. Should the demonstration be killed, its
//! child is told to end by the kernel.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use tokio::sync::mpsc;

/// The flag for a process that ends with its parent.
pub(super) const WITH_PARENT: &str = "--with-parent";
/// How many of its last lines are shown if it ends by itself.
const LAST: usize = 12;
/// How long an orderly end may take.
const END: Duration = Duration::from_secs(30);

/// Becomes `orlop WORDS`, which the kernel ends with the process that started it.
pub(super) fn become_child(words: &[String]) -> ExitCode {
    let error = match set_parent_process_death_signal(Some(Signal::TERM)) {
        Ok(()) => Command::new("/proc/self/exe").arg0("orlop").args(words).exec(),
        Err(errno) => errno.into(),
    };
    eprintln!("orlop demo: starting orlop {}: {error}", words.join(" "));
    ExitCode::FAILURE
}

/// Whether what the process logs is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Log {
    Kept,
    Shown,
}

/// A process that runs. Dropping this kills it.
#[derive(Debug)]
pub(super) struct Life {
    child: Child,
    pub(super) address: SocketAddr,
    /// Its last lines; nothing comes any more once it has ended.
    lines: mpsc::UnboundedReceiver<String>,
    last: Arc<Mutex<VecDeque<String>>>,
}

impl Life {
    /// Starts it; when this returns, it is ready. Only the main thread may call this: with it, the child ends.
    pub(super) async fn begin(data: &Path, listen: SocketAddr, (log, level): (Log, &str)) -> anyhow::Result<Self> {
        let listen = listen.to_string();
        let mut child = Command::new("/proc/self/exe")
            .arg0("orlop")
            .args(["demo", WITH_PARENT, "--", "up", "--listen", &listen, "--class", "", "--page", "off"])
            .args(["--log-level", level, "--data"])
            .arg(data)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("starting orlop up")?;
        let stderr = child.stderr.take().context("orlop up has no standard error")?;
        let (said, lines) = mpsc::unbounded_channel();
        let last = Arc::<Mutex<VecDeque<String>>>::default();
        std::thread::spawn({
            let last = last.clone();
            move || listen_to(stderr, log, &said, &last)
        });
        let mut life = Self { child, address: SocketAddr::from(([127, 0, 0, 1], 0)), lines, last };
        while let Some(line) = life.lines.recv().await {
            let Some((_, rest)) = line.split_once("ready address=") else { continue };
            let address = rest.split(' ').next().unwrap_or_default();
            life.address = address.parse().with_context(|| format!("orlop up says that it is ready at {address:?}"))?;
            return Ok(life);
        }
        Err(life.what_it_said())
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends when the process has ended, which it does not do by itself.
    pub(super) async fn failed(&mut self) -> anyhow::Error {
        while self.lines.recv().await.is_some() {}
        self.what_it_said()
    }

    fn what_it_said(&self) -> anyhow::Error {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: String = last.iter().map(|line| format!("\n  {line}")).collect();
        anyhow!("orlop up ended by itself; its last words:{lines}")
    }

    /// SIGKILL: it has no time for anything.
    pub(super) fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().context("killing orlop up")?;
        self.child.wait().context("waiting for the end of orlop up").map(drop)
    }

    /// SIGTERM, and its orderly end.
    pub(super) async fn end(mut self) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).context("ending orlop up")?;
        let ended = async { while self.lines.recv().await.is_some() {} };
        if tokio::time::timeout(END, ended).await.is_err() {
            bail!("orlop up did not end within {END:?}");
        }
        let status = self.child.wait().context("waiting for the end of orlop up")?;
        if status.success() { Ok(()) } else { Err(self.what_it_said().context(format!("orlop up: {status}"))) }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // It has ended already, or ends now; there is no third case to report.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen_to(stderr: ChildStderr, log: Log, said: &mpsc::UnboundedSender<String>, last: &Mutex<VecDeque<String>>) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        if log == Log::Shown {
            eprintln!("{line}");
        }
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() == LAST {
            last.pop_front();
        }
        last.push_back(line.clone());
        drop(last);
        // Who does not listen any more has what it wanted.
        let _ = said.send(line);
    }
}
