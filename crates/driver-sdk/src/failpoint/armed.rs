//! What failpoints do in a debug build.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::{Action, Injected};

/// Where `ORLOP_FAILPOINT` wants the process to die.
#[derive(Debug, PartialEq, Eq)]
struct Kill {
    name: String,
    /// Counted down to the hit that kills.
    hits_left: u64,
}

struct Log {
    file: File,
    seen: BTreeSet<&'static str>,
}

#[derive(Default)]
struct State {
    kill: Option<Kill>,
    log: Option<Log>,
    actions: BTreeMap<&'static str, Action>,
}

/// How many things `STATE` waits for, so that an unarmed mark does not take its lock.
static INTERESTS: AtomicUsize = AtomicUsize::new(0);
static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| Mutex::new(from_environment()));

pub(super) fn hit(name: &'static str) {
    // A place that cannot fail passes over an armed error: there is nobody to give it to.
    let _ = try_hit(name);
}

pub(super) fn try_hit(name: &'static str) -> Result<(), Injected> {
    LazyLock::force(&STATE);
    if INTERESTS.load(Ordering::Acquire) == 0 {
        return Ok(());
    }
    let action = {
        let mut state = lock();
        if let Some(log) = &mut state.log {
            log.note(name);
        }
        if let Some(kill) = &mut state.kill
            && kill.is_due(name)
        {
            kill_self();
        }
        state.actions.get(name).copied()
    };
    match action {
        None => Ok(()),
        Some(Action::Error) => Err(Injected { name }),
        Some(Action::Panic) => panic!("failpoint {name} is armed with a panic"),
    }
}

pub(super) fn arm(name: &'static str, action: Action) {
    let mut state = lock();
    if state.actions.insert(name, action).is_none() {
        INTERESTS.fetch_add(1, Ordering::Release);
    }
}

pub(super) fn disarm(name: &'static str) {
    let mut state = lock();
    if state.actions.remove(name).is_some() {
        INTERESTS.fetch_sub(1, Ordering::Release);
    }
}

/// A panic at a mark happens after the lock was released, so a poisoned lock still guards a sound state.
fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn from_environment() -> State {
    let kill = std::env::var("ORLOP_FAILPOINT").ok().and_then(|text| Kill::parse(&text));
    let log = std::env::var_os("ORLOP_FAILPOINT_LOG").and_then(|path| {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        if let Err(error) = &file {
            tracing::error!(path = %path.display(), %error, "cannot open the failpoint log");
        }
        file.ok().map(|file| Log { file, seen: BTreeSet::new() })
    });
    INTERESTS.fetch_add(usize::from(kill.is_some()) + usize::from(log.is_some()), Ordering::Release);
    State { kill, log, actions: BTreeMap::new() }
}

impl Kill {
    /// `name` or `name:count`. A count that is no positive number is a mistake of the test, told by never dying.
    fn parse(text: &str) -> Option<Self> {
        let (name, hits_left) = match text.rsplit_once(':') {
            None => (text, 1),
            Some((name, count)) => (name, count.parse().ok().filter(|count| *count > 0)?),
        };
        (!name.is_empty()).then(|| Self { name: name.to_owned(), hits_left })
    }

    fn is_due(&mut self, name: &str) -> bool {
        if self.name != name {
            return false;
        }
        self.hits_left = self.hits_left.saturating_sub(1);
        self.hits_left == 0
    }
}

impl Log {
    fn note(&mut self, name: &'static str) {
        if self.seen.insert(name)
            && let Err(error) = writeln!(self.file, "{name}")
        {
            tracing::error!(%error, "cannot write the failpoint log");
        }
    }
}

/// SIGKILL cannot be caught, so the loop ends as soon as the signal is delivered.
fn kill_self() -> ! {
    loop {
        if rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).is_err() {
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_names_the_hit_that_kills() {
        let mut kill = Kill::parse("store.rename:3").unwrap();
        assert!(!kill.is_due("store.rename"));
        assert!(!kill.is_due("store.fsync"));
        assert!(!kill.is_due("store.rename"));
        assert!(kill.is_due("store.rename"));
    }

    #[test]
    fn a_name_without_a_count_kills_at_once() {
        assert!(Kill::parse("a").unwrap().is_due("a"));
        for bad in ["", ":1", "a:0", "a:x"] {
            assert_eq!(Kill::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn an_armed_error_acts_only_where_an_error_can_be_returned() {
        let guard = super::super::arm("test.error", Action::Error);
        hit("test.error");
        assert_eq!(try_hit("test.error"), Err(Injected { name: "test.error" }));
        assert_eq!(try_hit("test.other"), Ok(()));
        drop(guard);
        assert_eq!(try_hit("test.error"), Ok(()));
    }

    #[test]
    fn an_armed_panic_panics_and_disarms_with_its_guard() {
        let guard = super::super::arm("test.panic", Action::Panic);
        assert!(std::panic::catch_unwind(|| hit("test.panic")).is_err());
        drop(guard);
        hit("test.panic");
    }
}
