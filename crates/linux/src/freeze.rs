//! Freezing filesystems for the instant of a snapshot, with a second process that thaws them should we die (LOCAL-F.6).
//!
//! A frozen filesystem outlives the process that froze it, and its writers cannot even be killed (LOCAL-0.20). So
//! before anything is frozen a guard process is started. It holds the mounts open and reads a pipe whose other end only
//! we have: when we die, however we die, the pipe ends and the guard thaws. It also thaws when its budget has passed.
//!
//! # Invariants
//! 1. Nothing is frozen before the guard has said that it is ready.
//! 2. The guard lives at least as long as the freezer. After its budget it thaws and keeps watching, so that a
//!    filesystem frozen late is thawed as well.
//! 3. What was frozen is thawed on every path out, panics included ([`Frozen`] thaws on drop).
//! 4. A freeze that does not return in time is left to its thread, which thaws as soon as the freeze is complete. The guard
//!    stays until then.
//! 5. Only a volume's own filesystem is frozen, never the pool under it: cloning needs the pool (LOCAL-F.6). That is
//!    the caller's choice of mounts.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::flush::OpenMount;
use super::{SysError, ioctl};

/// The word by which the guard says that it holds every mount.
const READY: &str = "ready";

/// The word that tells the guard that everything is thawed. Without it the end of the pipe means that we died.
/// The guard must not thaw after it: by then a filesystem may be frozen by somebody else.
const DONE: &str = "done";

/// Freezes the filesystem that `mount`, any open file or directory of it, belongs to.
pub fn freeze(mount: &File) -> Result<(), SysError> {
    ioctl::freeze(mount).map_err(SysError::doing("freeze a filesystem"))
}

/// What a thaw found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thaw {
    Thawed,
    WasNotFrozen,
}

/// Thaws the filesystem that `mount` belongs to.
pub fn thaw(mount: &File) -> Result<Thaw, SysError> {
    match ioctl::thaw(mount) {
        Ok(()) => Ok(Thaw::Thawed),
        Err(Errno::INVAL) => Ok(Thaw::WasNotFrozen),
        Err(errno) => Err(SysError::new("thaw a filesystem", errno)),
    }
}

/// Thaws everything a predecessor may have left frozen (LOCAL-G.5.3) and gives back what was. Every mount is tried;
/// the first error is returned when all have been.
pub fn thaw_sweep(mounts: &[PathBuf]) -> Result<Vec<PathBuf>, SysError> {
    let mut was_frozen = Vec::new();
    let mut failed = None;
    for mount in mounts {
        match open_mount(mount).and_then(|dir| thaw(&dir)) {
            Ok(Thaw::Thawed) => was_frozen.push(mount.clone()),
            Ok(Thaw::WasNotFrozen) => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(was_frozen), Err)
}

fn open_mount(mount: &Path) -> Result<File, SysError> {
    File::open(mount).map_err(SysError::on("open", mount))
}

#[derive(Debug, thiserror::Error)]
pub enum FreezeError {
    #[error(transparent)]
    Sys(#[from] SysError),
    #[error("could not start the freeze guard")]
    Spawn(#[source] io::Error),
    #[error("the freeze guard did not become ready")]
    GuardNotReady,
    /// Should it freeze later, it is thawed at once.
    #[error(
        "freezing {} took longer than the {} ms allowed; it does not finish writing to its device, whose pool may be full",
        .place.display(),
        .budget.as_millis()
    )]
    TooSlow { place: PathBuf, budget: Duration },
    /// Somebody else has frozen it; to thaw it would be to break their snapshot.
    #[error("{} is already frozen by somebody else", .0.display())]
    AlreadyFrozen(PathBuf),
}

/// Whether the freeze held until we ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Held {
    ToTheEnd,
    /// Something was thawed before we asked: the budget ran out, or somebody else did it (LOCAL-R20). What was cloned
    /// meanwhile is consistent as after a crash, and not across filesystems.
    EndedEarly,
}

/// Filesystems that are frozen right now, and the guard that watches over them.
#[derive(Debug)]
pub struct Frozen {
    mounts: Vec<Arc<OpenMount>>,
    /// `None` once a freeze that did not return in time has taken the guard over.
    guard: Option<Guard>,
}

impl Frozen {
    /// Starts the guard by running `argv`, then freezes the mounts in the order given, which for groups is sorted.
    ///
    /// The caller has opened the mounts and knows that they are the ones to freeze. `budget` bounds the wait for the guard
    /// and all the freezing together; `argv` carries the guard's own budget, if any.
    pub fn freeze(argv: &[OsString], mounts: &[Arc<OpenMount>], budget: Duration) -> Result<Frozen, FreezeError> {
        let mut frozen = Frozen { mounts: Vec::new(), guard: Some(Guard::start(argv, budget)?) };
        let begun = Instant::now();
        for mount in mounts {
            // On an error `frozen` is dropped, which thaws what it holds so far.
            let left = budget.saturating_sub(begun.elapsed());
            match freeze_within(mount, left, |mount| ioctl::freeze(&mount.dir), &mut frozen.guard) {
                Some(Ok(())) => frozen.mounts.push(Arc::clone(mount)),
                Some(Err(Errno::BUSY)) => return Err(FreezeError::AlreadyFrozen(mount.place.clone())),
                Some(Err(errno)) => return Err(SysError::on("freeze", &mount.place)(errno).into()),
                // The guard may have thawed the earlier ones by now: the copy would not be of one moment.
                None => return Err(FreezeError::TooSlow { place: mount.place.clone(), budget }),
            }
            if begun.elapsed() >= budget {
                return Err(FreezeError::TooSlow { place: mount.place.clone(), budget });
            }
        }
        Ok(frozen)
    }

    /// Thaws in reverse order, ends the guard, and says whether the freeze held so long.
    pub fn thaw(mut self) -> Result<Held, SysError> {
        self.thaw_all()
    }

    fn thaw_all(&mut self) -> Result<Held, SysError> {
        let mut held = Held::ToTheEnd;
        let mut failed = None;
        while let Some(mount) = self.mounts.pop() {
            match thaw(&mount.dir) {
                Ok(Thaw::Thawed) => {}
                Ok(Thaw::WasNotFrozen) => held = Held::EndedEarly,
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(mut guard) = self.guard.take() {
            guard.end(if failed.is_none() { LastWord::Done } else { LastWord::Thaw });
        }
        failed.map_or(Ok(held), Err)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if let Err(error) = self.thaw_all() {
            tracing::error!(%error, "a filesystem may still be frozen");
        }
    }
}

/// How far one freeze has come, seen by the thread that freezes and by the one that waits for it.
#[derive(Debug)]
enum Freezing {
    Waiting,
    Returned(Result<(), Errno>),
    /// The caller has stopped waiting: the thread that completes the freeze thaws it, and then ends the guard.
    Abandoned(Option<Guard>),
}

/// Freezes on a thread of its own, because a filesystem that cannot write to its device freezes only when it can. `None` when
/// that takes longer than `patience`: then the thread takes the guard over and thaws as soon as the freeze is complete.
fn freeze_within(
    mount: &Arc<OpenMount>,
    patience: Duration,
    freeze: impl FnOnce(&OpenMount) -> Result<(), Errno> + Send + 'static,
    guard: &mut Option<Guard>,
) -> Option<Result<(), Errno>> {
    let shared = Arc::new((Mutex::new(Freezing::Waiting), Condvar::new()));
    let (theirs, frozen) = (Arc::clone(&shared), Arc::clone(mount));
    std::thread::spawn(move || {
        let answer = freeze(&frozen);
        let (state, returned) = &*theirs;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, Freezing::Returned(answer)) {
            Freezing::Abandoned(guard) => {
                drop(state);
                end_abandoned(&frozen, answer, guard);
            }
            Freezing::Waiting | Freezing::Returned(_) => returned.notify_all(),
        }
    });
    let (state, returned) = &*shared;
    let waiting = state.lock().unwrap_or_else(PoisonError::into_inner);
    let waiting = returned.wait_timeout_while(waiting, patience, |state| matches!(state, Freezing::Waiting));
    let (mut state, _) = waiting.unwrap_or_else(PoisonError::into_inner);
    match &*state {
        Freezing::Returned(answer) => Some(*answer),
        Freezing::Waiting | Freezing::Abandoned(_) => {
            *state = Freezing::Abandoned(guard.take());
            None
        }
    }
}

/// The end of a freeze that its caller did not wait for.
fn end_abandoned(mount: &OpenMount, answer: Result<(), Errno>, guard: Option<Guard>) {
    let word = match answer.map_err(SysError::on("freeze", &mount.place)).and_then(|()| thaw(&mount.dir).map(drop)) {
        Ok(()) => {
            tracing::warn!(place = %mount.place.display(), "a freeze completed late and was thawed at once");
            LastWord::Done
        }
        Err(error) => {
            tracing::warn!(%error, "a freeze that took too long has ended");
            if answer.is_ok() { LastWord::Thaw } else { LastWord::Done }
        }
    };
    if let Some(mut guard) = guard {
        guard.end(word);
    }
}

/// How the guard is dismissed.
#[derive(Debug, Clone, Copy)]
enum LastWord {
    Done,
    /// We could not thaw; may the guard try.
    Thaw,
}

/// The running guard process. The end of its standard input makes it exit, and thaw unless it was told [`DONE`].
#[derive(Debug)]
struct Guard {
    child: Child,
    lifeline: Option<ChildStdin>,
}

impl Guard {
    fn start(argv: &[OsString], budget: Duration) -> Result<Guard, FreezeError> {
        let [program, args @ ..] = argv else {
            return Err(FreezeError::Spawn(io::Error::new(io::ErrorKind::InvalidInput, "no guard program given")));
        };
        let mut command = Command::new(program);
        // Its own process group: a Ctrl-C meant for us must not take the guard along.
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(FreezeError::Spawn)?;
        let (lifeline, stdout) = (child.stdin.take(), child.stdout.take());
        let mut guard = Guard { child, lifeline };
        let ready = stdout.is_some_and(|stdout| says_ready(stdout, budget));
        if ready {
            return Ok(guard);
        }
        guard.end_now();
        Err(FreezeError::GuardNotReady)
    }

    fn end(&mut self, word: LastWord) {
        if let (Some(mut lifeline), LastWord::Done) = (self.lifeline.take(), word) {
            // A guard that is gone already does not hear it and does not need to.
            let _ = writeln!(lifeline, "{DONE}");
        }
        // It has nothing left to do but exit; a zombie would be the only thing to gain from not waiting.
        let _ = self.child.wait();
    }

    /// For a guard that never got ready: nothing is frozen yet, so it may be killed.
    fn end_now(&mut self) {
        let _ = self.child.kill();
        self.end(LastWord::Done);
    }
}

/// Waits for the guard's word. The reading thread ends when the guard does, at the latest.
fn says_ready(stdout: impl Read + Send + 'static, budget: Duration) -> bool {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        let ready = lines.any(|line| line.trim() == READY);
        let _ = send.send(ready);
        // Keep the pipe open and empty, so that the guard never meets a broken one.
        lines.for_each(drop);
    });
    receive.recv_timeout(budget).unwrap_or(false)
}

/// The whole life of a guard process: `main` of the hidden subcommand calls this.
///
/// It thaws when its standard input ends without the word [`DONE`], and every time `budget` passes before that.
pub fn guard_main(mounts: &[PathBuf], budget: Duration) -> ExitCode {
    let opened: Result<Vec<File>, SysError> = mounts.iter().map(|mount| open_mount(mount)).collect();
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) => {
            tracing::error!(%error, "the freeze guard cannot watch");
            return ExitCode::FAILURE;
        }
    };
    if writeln!(io::stdout(), "{READY}").and_then(|()| io::stdout().flush()).is_err() {
        return ExitCode::FAILURE;
    }
    let last_word = last_word_of_parent();
    loop {
        match last_word.recv_timeout(budget) {
            Ok(LastWord::Done) => return ExitCode::SUCCESS,
            Ok(LastWord::Thaw) | Err(RecvTimeoutError::Disconnected) => {
                let thawed = opened.iter().map(thaw).filter(Result::is_ok).count();
                return if thawed == opened.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
            }
            // Past the budget we thaw and stay: whatever is frozen after this is thawed in the next round.
            Err(RecvTimeoutError::Timeout) => opened.iter().for_each(|mount| drop(thaw(mount))),
        }
    }
}

/// Reads standard input to its end on a thread and passes on what it ended with.
fn last_word_of_parent() -> mpsc::Receiver<LastWord> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = io::stdin().lock().lines().map_while(Result::ok);
        let done = lines.any(|line| line.trim() == DONE);
        let _ = send.send(if done { LastWord::Done } else { LastWord::Thaw });
    });
    receive
}

#[cfg(test)]
#[path = "freeze_tests.rs"]
mod tests;
