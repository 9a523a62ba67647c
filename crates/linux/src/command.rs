//! The one way we run an external tool.
//!
//! # Invariants
//! 1. The child leads its own process group; when the deadline passes the whole group is killed, and whatever it left
//!    behind is killed before the leader is reaped, so that the group number cannot have been reused.
//! 2. `LC_ALL=C`: we match a few messages of the tools and they must not be translated.
//! 3. A lock descriptor given to the child becomes its standard input. The child holds the open file description,
//!    hence the flock, for as long as it lives, even if we are killed (LOCAL-G.3 "mkfs running", LOCAL-R13). None of
//!    our tools reads its standard input.
//! 4. A tool that is not installed is an error that names the Debian package which has it.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// A tool and the Debian package that ships it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tool {
    pub name: &'static str,
    pub package: &'static str,
}

/// A tool that is not installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{} is not installed; on Debian it is in the package {}", .0.name, .0.package)]
pub struct MissingTool(pub Tool);

impl Tool {
    /// Looks the tool up the way the kernel's `execvp` would, plus the `sbin` directories a service may lack in `PATH`.
    pub fn find(&self) -> Result<(), MissingTool> {
        let path = search_path();
        let found = std::env::split_paths(&path).any(|dir| rustix::fs::access(dir.join(self.name), EXEC).is_ok());
        if found { Ok(()) } else { Err(MissingTool(*self)) }
    }
}

const EXEC: rustix::fs::Access = rustix::fs::Access::EXEC_OK;

/// `PATH` with the system directories appended: filesystem tools live in `sbin`.
fn search_path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    if !path.is_empty() {
        path.push(":");
    }
    path.push("/usr/sbin:/usr/bin:/sbin:/bin");
    path
}

#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error(transparent)]
    Missing(#[from] MissingTool),
    #[error("could not run {}", .tool.name)]
    Spawn { tool: Tool, source: io::Error },
    #[error("{} did not finish within {} s and was killed", .tool.name, .deadline.as_secs())]
    TimedOut { tool: Tool, deadline: Duration },
    /// The tool ran and said no.
    #[error("{} {}: {}", .tool.name, exit_phrase(*.status), one_line(text))]
    Failed { tool: Tool, status: ExitStatus, text: String },
}

impl CommandError {
    /// The exit code, when the tool ran and left with one.
    pub fn exit_code(&self) -> Option<i32> {
        match self {
            CommandError::Failed { status, .. } => status.code(),
            CommandError::Missing(_) | CommandError::Spawn { .. } | CommandError::TimedOut { .. } => None,
        }
    }

    /// What the tool printed; empty when it never ran.
    pub fn text(&self) -> &str {
        match self {
            CommandError::Failed { text, .. } => text,
            CommandError::Missing(_) | CommandError::Spawn { .. } | CommandError::TimedOut { .. } => "",
        }
    }
}

/// What a tool printed, for a message that is one line.
fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

fn exit_phrase(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// One run of a tool, built up and then [`Run::go`].
#[derive(Debug)]
pub struct Run<'a> {
    tool: Tool,
    args: Vec<OsString>,
    lock: Option<BorrowedFd<'a>>,
    deadline: Duration,
}

impl<'a> Run<'a> {
    pub fn new(tool: Tool, deadline: Duration) -> Run<'a> {
        Run { tool, args: Vec::new(), lock: None, deadline }
    }

    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Run<'a> {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    pub fn path(mut self, path: &Path) -> Run<'a> {
        self.args.push(path.into());
        self
    }

    /// The flock that must outlive us as long as the child lives.
    pub fn holding(mut self, lock: Option<BorrowedFd<'a>>) -> Run<'a> {
        self.lock = lock;
        self
    }

    /// Runs the tool to its end and gives what it printed (both streams, trimmed) when it succeeded.
    pub fn go(self) -> Result<String, CommandError> {
        let (tool, deadline) = (self.tool, self.deadline);
        let spawn_error = |source| CommandError::Spawn { tool, source };
        let mut child = self.spawn()?;
        let streams = [drain(child.stdout.take()), drain(child.stderr.take())];
        let in_time = supervise(&mut child, deadline).map_err(spawn_error);
        let status = child.wait().map_err(spawn_error)?;
        let text = streams.map(|stream| stream.join().unwrap_or_default()).concat().trim().to_owned();
        tracing::debug!(tool = tool.name, %status, "external tool finished");
        match (in_time?, status.success()) {
            (Finished::InTime, true) => Ok(text),
            (Finished::InTime, false) => Err(CommandError::Failed { tool, status, text }),
            (Finished::Killed, _) => Err(CommandError::TimedOut { tool, deadline }),
        }
    }

    fn spawn(&self) -> Result<Child, CommandError> {
        let tool = self.tool;
        let stdin = match self.lock {
            Some(lock) => lock.try_clone_to_owned().map(Stdio::from),
            None => Ok(Stdio::null()),
        };
        let stdin = stdin.map_err(|source| CommandError::Spawn { tool, source })?;
        Command::new(tool.name)
            .args(&self.args)
            .env("PATH", search_path())
            .env("LC_ALL", "C")
            // mkfs.btrfs asks libblkid whether its uuid is taken, and the cache file still lists devices that are gone.
            .env("BLKID_FILE", "/dev/null")
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => CommandError::Missing(MissingTool(tool)),
                _ => CommandError::Spawn { tool, source },
            })
    }
}

enum Finished {
    InTime,
    Killed,
}

/// Waits until the child has exited (but is not reaped) or the deadline has passed, then kills its whole group.
///
/// Killing after a normal exit is deliberate: a straggler would keep our pipes and the lock.
fn supervise(child: &mut Child, deadline: Duration) -> io::Result<Finished> {
    let pid = Pid::from_child(child);
    let waited = wait_for_exit(pid, deadline);
    // The leader is a zombie or alive, so the group still is ours. ESRCH cannot say more than "already gone".
    let _ = kill_process_group(pid, Signal::KILL);
    waited
}

fn wait_for_exit(pid: Pid, deadline: Duration) -> io::Result<Finished> {
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let until = Instant::now() + deadline;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Ok(Finished::Killed),
            Ok(_) => return Ok(Finished::InTime),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Reads a stream to its end on a thread of its own, keeping the first 64 KiB: an error message, not a data channel.
fn drain(stream: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    const KEEP: usize = 64 << 10;
    std::thread::spawn(move || {
        let Some(mut stream) = stream else { return String::new() };
        let mut kept = Vec::new();
        let mut chunk = [0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut chunk) {
            let room = KEEP.saturating_sub(kept.len());
            kept.extend_from_slice(&chunk[..read.min(room)]);
        }
        String::from_utf8_lossy(&kept).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FlockOperation, flock};
    use std::fs::File;

    const SH: Tool = Tool { name: "sh", package: "dash" };

    fn sh(script: &str, deadline: Duration) -> Result<String, CommandError> {
        Run::new(SH, deadline).args(["-c", script]).go()
    }

    #[test]
    fn output_and_exit_code_reach_the_error() {
        let error = sh("echo why >&2; exit 7", Duration::from_secs(10)).unwrap_err();
        assert_eq!(error.exit_code(), Some(7));
        assert_eq!(error.to_string(), "sh exited with code 7: why");
        assert_eq!(sh("echo $LC_ALL", Duration::from_secs(10)).unwrap(), "C");
    }

    #[test]
    fn a_missing_tool_names_its_package() {
        let tool = Tool { name: "mkfs.nosuchfs", package: "nosuchfs-tools" };
        let error = Run::new(tool, Duration::from_secs(1)).go().unwrap_err();
        assert_eq!(error.to_string(), "mkfs.nosuchfs is not installed; on Debian it is in the package nosuchfs-tools");
        assert_eq!(tool.find(), Err(MissingTool(tool)));
        assert_eq!(SH.find(), Ok(()));
    }

    #[test]
    fn past_the_deadline_the_whole_group_is_killed() {
        // The grandchild holds our pipes: were it left alive, `go` would hang on reading them.
        let error = sh("sleep 600 & sleep 600", Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, CommandError::TimedOut { .. }), "{error}");
    }

    /// Rule: LOCAL-R13
    #[test]
    fn the_child_holds_the_lock_it_was_given() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = File::create(&path).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        let run = Run::new(SH, Duration::from_secs(60)).args(["-c", "exec sleep 600"]).holding(Some(lock.as_fd()));
        let mut spawned = run.spawn().unwrap();
        drop(lock);
        let other = File::open(&path).unwrap();
        assert_eq!(flock(&other, FlockOperation::NonBlockingLockExclusive), Err(rustix::io::Errno::WOULDBLOCK));
        spawned.kill().unwrap();
        spawned.wait().unwrap();
        // This blocks until the lock is free: a child that another test is just forking may hold it a little longer.
        flock(&other, FlockOperation::LockExclusive).expect("the lock dies with the child");
    }
}
