//! Volumes stay while a claim has them (PROTECT-8.2).

use api::keys::finalizer;
use api::{Key, Volume};
use lifecycle::protect::{self, Action};
use runtime::{Cache, Queue, Stop, Subscription, Verdict, queue};

use super::finalizer::{Turn, matters, write};
use super::{BACKOFF, Options, ROUNDS};
use crate::Context;

#[derive(Debug)]
pub(super) struct Volumes {
    context: Context,
    volumes: Cache<Volume>,
    queue: Queue<Key>,
    options: Options,
    _subscription: Subscription,
}

impl Volumes {
    pub(super) fn new(context: &Context, options: Options) -> Self {
        let volumes = context.cache::<Volume>();
        let queue = Queue::new("pvprotection", BACKOFF, &context.metrics, &context.entropy);
        let keys = queue.clone();
        let subscription = volumes.subscribe(move |change| {
            if let Some(volume) = change.after()
                && matters(&volume.meta, finalizer::PV_PROTECTION)
            {
                keys.add(volume.meta.key.clone());
            }
        });
        Self { context: context.clone(), volumes, queue, options, _subscription: subscription }
    }

    pub(super) async fn run(&self, stop: &Stop) {
        tokio::select! {
            biased;
            () = stop.stopped() => return,
            () = self.volumes.synced() => {}
        }
        queue::run(&self.queue, self.options.workers, stop, |key| self.pass(key)).await;
    }

    async fn pass(&self, key: Key) -> Verdict {
        for _ in 0..ROUNDS {
            let Some(volume) = self.volumes.get(&key) else { return Verdict::Done };
            let turn = match protect::volume(&volume).actions.first() {
                Some(Action::AddFinalizer) => Turn::On,
                Some(Action::RemoveFinalizer) => Turn::Off,
                // Nothing but the volume itself is asked about, so that there is nobody to list.
                Some(Action::ListPods | Action::ListUsers) | None => return Verdict::Done,
            };
            if let Err(error) = write::<Volume>(&self.context, &volume.meta, finalizer::PV_PROTECTION, turn).await {
                return Verdict::Failed(error.to_string());
            }
        }
        Verdict::Again(std::time::Duration::ZERO)
    }
}
