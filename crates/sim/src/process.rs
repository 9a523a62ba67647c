//! A process of ours in the world: the context that its controllers share, and what has to run for them.

use std::sync::Arc;

use control::Context;
use control::handoff::Handoff;
use futures_util::future::join3;
use k8s_openapi::jiff::Timestamp;
use runtime::events::{self, Writer};
use runtime::time::VirtualClock;
use runtime::{Caches, Client, Clock, Entropy, Metrics, Stop, client};

use crate::{Component, World};

/// One process. Its caches and its events run beside its work.
#[derive(Debug)]
pub struct Process {
    pub context: Context,
    writer: Writer,
}

impl Process {
    /// A process whose requests meet the component's fates. Its chance comes from the world's seed and `life`: give each
    /// restart another number.
    pub fn new(world: &World, component: &Component, life: u64) -> Self {
        let millis = i64::try_from(world.clock().now().0).unwrap_or(i64::MAX);
        let now = Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX);
        Self::with_clock(world, component, life, Arc::new(VirtualClock::starting_at(now)))
    }

    /// The same on a machine whose wall clock shows something else.
    pub(crate) fn with_clock(world: &World, component: &Component, life: u64, clock: Arc<dyn Clock>) -> Self {
        let purpose = format!("{} life {life}", component.name());
        let entropy = Entropy::seeded(world.random(&purpose).number());
        let metrics = Metrics::new(&*clock);
        let client = Client::new(component.client(), client::Options::default(), &metrics, &entropy);
        let caches = Caches::new(&client, &entropy);
        let (recorder, writer) = events::channel(component.name(), component.name(), clock.clone(), &metrics, &entropy);
        let context = Context { client, caches, recorder, metrics, entropy, clock, handoff: Handoff::default() };
        Self { context, writer }
    }

    /// Runs the caches, the events and `work`, until `work` has ended. Dropping the future is a crash.
    pub async fn run<F: Future>(self, stop: &Stop, work: F) -> F::Output {
        let Process { context, writer } = self;
        let (done, ended) = runtime::Stopper::new();
        let until = stop.or(&ended);
        let working = async {
            let output = work.await;
            done.stop();
            output
        };
        let Context { client, caches, .. } = context;
        let (output, (), ()) = join3(working, caches.run(&until), writer.run(&client, &until)).await;
        output
    }
}
