//! A value that changes and whose readers are woken in the order in which they began to wait.
//!
//! `tokio::sync::watch` spreads its waiters over shards that it picks at random, so that two readers of one channel are
//! woken in an order that differs from run to run. A simulated world must replay from its seed; therefore everything that
//! lives in one uses this channel. Methods behave as those of the same name in `tokio::sync::watch`.

use std::fmt;
use std::ops::Deref;
use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tokio::sync::Notify;

/// Makes a channel with its first value.
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

/// All senders are gone, so the value will not change any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("all senders of the watched value are gone")]
pub struct SenderGone;

struct Shared<T> {
    state: RwLock<State<T>>,
    changed: Notify,
}

struct State<T> {
    value: T,
    version: u64,
    senders: usize,
}

impl<T> Shared<T> {
    fn read(&self) -> RwLockReadGuard<'_, State<T>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State<T>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The side that changes the value. Clones share the channel.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Sender<T> {
    /// A channel without a reader yet.
    pub fn new(value: T) -> Self {
        let state = RwLock::new(State { value, version: 0, senders: 1 });
        Self { shared: Arc::new(Shared { state, changed: Notify::new() }) }
    }

    /// A reader that has seen the present value.
    pub fn subscribe(&self) -> Receiver<T> {
        let seen = self.shared.read().version;
        Receiver { shared: self.shared.clone(), seen }
    }

    /// The present value. The channel is locked while the answer is held.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.shared.read())
    }

    /// Sets the value, wakes the readers and returns the previous value.
    pub fn send_replace(&self, value: T) -> T {
        let mut previous = value;
        self.send_modify(|held| std::mem::swap(held, &mut previous));
        previous
    }

    /// Changes the value in place and wakes the readers.
    pub fn send_modify(&self, modify: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            modify(value);
            true
        });
    }

    /// Changes the value in place; the readers are woken if `modify` answers `true`.
    pub fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
        let modified = {
            let mut state = self.shared.write();
            let modified = modify(&mut state.value);
            state.version += u64::from(modified);
            modified
        };
        if modified {
            self.shared.changed.notify_waiters();
        }
        modified
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.shared.write().senders += 1;
        Self { shared: self.shared.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let left = {
            let mut state = self.shared.write();
            state.senders -= 1;
            state.senders
        };
        if left == 0 {
            self.shared.changed.notify_waiters();
        }
    }
}

/// A side that reads the value and waits for changes.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), seen: self.seen }
    }
}

impl<T> Receiver<T> {
    /// The present value; it does not count as seen. The channel is locked while the answer is held.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.shared.read())
    }

    /// The present value, which counts as seen. The channel is locked while the answer is held.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let state = self.shared.read();
        self.seen = state.version;
        Ref(state)
    }

    /// Counts the present value as seen.
    pub fn mark_unchanged(&mut self) {
        self.seen = self.shared.read().version;
    }

    /// Whether both read the same value.
    pub fn same_channel(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Waits for a value that was not seen yet, which then counts as seen. Cancelling the wait loses nothing.
    pub async fn changed(&mut self) -> Result<(), SenderGone> {
        loop {
            let mut notified = pin!(self.shared.changed.notified());
            // Registered before the look, so that a change between the two is not missed.
            notified.as_mut().enable();
            {
                let state = self.shared.read();
                if state.version != self.seen {
                    self.seen = state.version;
                    return Ok(());
                }
                if state.senders == 0 {
                    return Err(SenderGone);
                }
            }
            notified.await;
        }
    }

    /// Waits until the value is `wanted`. The value then counts as seen.
    pub async fn wait_for(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Result<(), SenderGone> {
        loop {
            if wanted(&self.borrow_and_update()) {
                return Ok(());
            }
            self.changed().await?;
        }
    }
}

/// The value of a channel, locked while this is held.
pub struct Ref<'a, T>(RwLockReadGuard<'a, State<T>>);

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Ref<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(&*self.borrow()).finish()
    }
}

impl<T: fmt::Debug> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receiver").field(&*self.borrow()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn readers_are_woken_in_the_order_in_which_they_wait() {
        let sender = Sender::new(0);
        let woken = Arc::new(Mutex::new(Vec::new()));
        let readers = (0..32).map(|number| {
            let (mut receiver, woken) = (sender.subscribe(), woken.clone());
            tokio::spawn(async move {
                receiver.changed().await.expect("the sender lives");
                woken.lock().expect("no reader panicked").push(number);
            })
        });
        let readers: Vec<_> = readers.collect();
        tokio::task::yield_now().await;
        sender.send_replace(1);
        for reader in readers {
            reader.await.expect("no reader panicked");
        }
        assert_eq!(*woken.lock().expect("no reader panicked"), (0..32).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_change_before_the_wait_is_seen_once_and_the_end_of_the_sender_after_it() {
        let (sender, mut receiver) = channel(1);
        assert!(!sender.send_if_modified(|_| false));
        assert_eq!(sender.send_replace(2), 1);
        assert_eq!(receiver.changed().await, Ok(()));
        assert_eq!(*receiver.borrow(), 2);
        sender.send_modify(|value| *value += 1);
        assert_eq!(receiver.wait_for(|value| *value == 3).await, Ok(()));
        sender.send_modify(|value| *value += 1);
        drop(sender);
        assert_eq!(receiver.changed().await, Ok(()), "the last value is not lost");
        assert_eq!(receiver.changed().await, Err(SenderGone));
        assert_eq!(receiver.wait_for(|value| *value == 5).await, Err(SenderGone));
    }
}
