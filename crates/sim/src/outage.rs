//! A process that is kept down for a while, or a machine that is suspended: it goes on where it was.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tokio::sync::Notify;

/// Whether a process is kept down. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outage(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_down: AtomicBool,
    changed: Notify,
}

impl Outage {
    /// The process ends now and stays away.
    pub(crate) fn begin(&self) {
        self.set(true);
    }

    /// The process may start again.
    pub(crate) fn end(&self) {
        self.set(false);
    }

    fn set(&self, is_down: bool) {
        self.0.is_down.store(is_down, Ordering::Relaxed);
        self.0.changed.notify_waiters();
    }

    pub(crate) async fn begun(&self) {
        self.wait_for(true).await;
    }

    pub(crate) async fn ended(&self) {
        self.wait_for(false).await;
    }

    /// Does `work`, which stands still during the outage and goes on afterwards.
    pub(crate) async fn suspend<F: Future>(&self, work: F) -> F::Output {
        let mut work = pin!(work);
        let mut resuming: Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> = None;
        poll_fn(|context| {
            if self.0.is_down.load(Ordering::Relaxed) {
                resuming.get_or_insert_with(|| Box::pin(self.ended()));
            }
            if let Some(resumed) = &mut resuming {
                if resumed.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                resuming = None;
            }
            work.as_mut().poll(context)
        })
        .await
    }

    async fn wait_for(&self, is_down: bool) {
        loop {
            let changed = self.0.changed.notified();
            if self.0.is_down.load(Ordering::Relaxed) == is_down {
                return;
            }
            changed.await;
        }
    }
}
