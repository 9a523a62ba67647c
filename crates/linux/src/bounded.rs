//! Requests to the kernel that may never return, such as writing a filesystem to a device that takes nothing: they run on a
//! thread of their own, and the caller waits for a limited time.
//!
//! A thread that waits in the kernel cannot be ended. Therefore at most one such thread runs for each key: a repeated request
//! waits for the earlier one and starts no second thread while the first one waits.

use std::collections::BTreeSet;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What came of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Bounded<T> {
    Done(T),
    /// The request, or an earlier one with the same key, has not returned. Its thread goes on waiting.
    StillRunning,
}

static RUNNING: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
static ENDED: Condvar = Condvar::new();

fn running() -> MutexGuard<'static, BTreeSet<String>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the key when the thread ends, also by a panic.
struct Registration(String);

impl Drop for Registration {
    fn drop(&mut self) {
        running().remove(&self.0);
        ENDED.notify_all();
    }
}

/// Runs `request` and waits for it no longer than `patience`.
pub fn within<T: Send + 'static>(
    key: &str,
    patience: Duration,
    request: impl FnOnce() -> T + Send + 'static,
) -> Bounded<T> {
    let until = Instant::now() + patience;
    let registration = {
        let waiting = ENDED.wait_timeout_while(running(), patience, |keys| keys.contains(key));
        let (mut keys, _) = waiting.unwrap_or_else(PoisonError::into_inner);
        if !keys.insert(key.to_owned()) {
            return Bounded::StillRunning;
        }
        Registration(key.to_owned())
    };
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let answer = request();
        drop(registration);
        // The caller may have stopped waiting.
        let _ = send.send(answer);
    });
    match receive.recv_timeout(until.saturating_duration_since(Instant::now())) {
        Ok(answer) => Bounded::Done(answer),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Bounded::StillRunning,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_millis(20);
    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_request_that_hangs_is_left_alone_and_a_repeat_starts_no_second_one() {
        let (release, hanging) = mpsc::channel::<()>();
        let key = format!("hangs-{}", std::process::id());
        assert_eq!(within(&key, MOMENT, move || hanging.recv().is_ok()), Bounded::StillRunning);
        assert_eq!(within(&key, MOMENT, || panic!("a second request was started")), Bounded::<()>::StillRunning);
        assert_eq!(within(&format!("{key}-other"), MINUTE, || 1), Bounded::Done(1), "another key is not held up");
        release.send(()).unwrap();
        assert_eq!(within(&key, MINUTE, || 2), Bounded::Done(2), "after the first has returned the key is free");
    }
}
