//! Ephemeral volumes: makes the claims that pods bring templates for (PROTECT-9).
//!
//! # Invariants
//! 1. A claim is made only after the server said that there is none, and that the pod lives: a cache that lags makes
//!    neither a second claim nor one for a pod that is gone.
//! 2. A claim that was not made for the pod is never touched. The pod is told, and is looked at again when that claim
//!    changes its owner or goes.
//! 3. One volume that fails does not hold up the pod's others (CTRL-14.56).

mod claim;

use std::time::Duration;

use api::{Claim, Key, Kind, Pod, PodSource, PodVolume};
use lifecycle::ephemeral::{self, Action};
use lifecycle::{Lookup, Notice, Reason as _};
use runtime::client::Error;
use runtime::failed_writes::may_look_again;
use runtime::queue::Backoff;
use runtime::{Cache, Change, Queue, Stop, Subscription, Verdict, queue};

use crate::{Context, Live, Notices, index};

const BACKOFF: Backoff = Backoff { start: Duration::from_millis(500), max: Duration::from_secs(120) };
/// How often one volume is decided about in a row. Each round after the first follows a write whose outcome had to be read.
const ROUNDS: usize = 8;

/// How ephemeral volumes are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How many pods are worked on at once: `--concurrent-ephemeralvolume-syncs`.
    pub workers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { workers: 5 }
    }
}

/// Why a volume of a pod has no claim yet.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("create PVC {claim}: {error}")]
    Create { claim: Box<str>, error: Error },
    #[error("{0}")]
    Api(#[from] Error),
    #[error("PVC {claim}: the outcome of creating it is still unknown")]
    Unsettled { claim: Box<str> },
}

/// The ephemeral volume controller.
#[derive(Debug)]
pub struct Ephemeral {
    context: Context,
    notices: Notices,
    pods: Cache<Pod>,
    claims: Cache<Claim>,
    queue: Queue<Key>,
    options: Options,
    _subscriptions: [Subscription; 2],
}

impl Ephemeral {
    pub fn new(context: &Context, options: Options) -> Self {
        let (pods, claims) = (context.cache::<Pod>(), context.cache::<Claim>());
        let queue = Queue::new("ephemeral_volume", BACKOFF, &context.metrics, &context.entropy);
        let keys = queue.clone();
        let pod_news = pods.subscribe(move |change| match change {
            Change::Added(pod) if has_ephemeral(pod) => keys.add(pod.meta.key.clone()),
            // A pod's volumes never change. That it is gone lets the pass forget it.
            Change::Removed(pod) if has_ephemeral(pod) => keys.add(pod.meta.key.clone()),
            Change::Added(_) | Change::Removed(_) | Change::Changed { .. } => {}
        });
        let users = pods.index(index::PODS_BY_CLAIM);
        let keys = queue.clone();
        let claim_news = claims.subscribe(move |change| {
            let matters = match change {
                Change::Added(_) => false,
                Change::Changed { old, new } => old.meta.owners != new.meta.owners,
                Change::Removed(_) => true,
            };
            if matters {
                let pods = users.all(&change.key().to_string());
                pods.iter().filter(|pod| has_ephemeral(pod)).for_each(|pod| keys.add(pod.meta.key.clone()));
            }
        });
        let notices = Notices::new(context.recorder.named("ephemeral_volume"));
        let subscriptions = [pod_news, claim_news];
        Self { context: context.clone(), notices, pods, claims, queue, options, _subscriptions: subscriptions }
    }

    /// Makes claims until `stop`.
    pub async fn run(&self, stop: &Stop) {
        let synced = async {
            self.pods.synced().await;
            self.claims.synced().await;
        };
        tokio::select! {
            biased;
            () = stop.stopped() => return,
            () = synced => {}
        }
        queue::run(&self.queue, self.options.workers, stop, |key| self.pass(key)).await;
    }

    async fn pass(&self, key: Key) -> Verdict {
        // PROTECT-EV1: gone is gone.
        let Some(pod) = self.pods.get(&key) else { return Verdict::Done };
        let mut failed = Vec::new();
        for volume in &pod.volumes {
            if let Err(failure) = self.volume(&pod, volume).await {
                let message = format!("ephemeral volume {}: {failure}", volume.name);
                self.notices.always(&*pod, &Notice::warning("FailedBinding", message.clone()));
                failed.push(message);
            }
        }
        match failed.is_empty() {
            true => Verdict::Done,
            false => Verdict::Failed(failed.join("; ")),
        }
    }

    /// One volume of a pod.
    async fn volume(&self, pod: &Pod, volume: &PodVolume) -> Result<(), Failure> {
        let key = index::claim_of(pod, &pod.ephemeral_claim(volume));
        let mut claim = self.claims.get(&key).map(Live::Found);
        for _ in 0..ROUNDS {
            let known = claim.as_ref().map_or(Lookup::NotCached, Live::lookup);
            let decision = ephemeral::decide(pod, volume, known);
            match decision.actions.first() {
                None => {
                    if let Some(notice) = decision.because.notice() {
                        self.notices.say(pod, notice);
                    }
                    return Ok(());
                }
                Some(Action::ReadClaim { .. }) => claim = Some(self.context.read::<Claim>(&key).await?),
                Some(Action::Create { .. }) => {
                    let Some(body) = self.body(pod, volume).await? else { return Ok(()) };
                    self.create(&key, &body).await?;
                    // Whether it is ours, or somebody was faster, or the answer was lost: the server knows.
                    claim = self.claims.get(&key).map(Live::Found);
                }
            }
        }
        Err(Failure::Unsettled { claim: key.name().into() })
    }

    /// The claim to store, if the pod still lives.
    async fn body(&self, pod: &Pod, volume: &PodVolume) -> Result<Option<serde_json::Value>, Error> {
        let Live::Found(now) = self.context.read::<Pod>(&pod.meta.key).await? else { return Ok(None) };
        // Another pod of this name is another key's work: its arrival brings it here.
        if now.meta.uid != pod.meta.uid || now.meta.is_deleting() {
            return Ok(None);
        }
        Ok(claim::body(&now, volume))
    }

    /// Stores a claim. A claim that exists already, and an answer that was lost, are for the next decision.
    async fn create(&self, key: &Key, body: &serde_json::Value) -> Result<(), Failure> {
        let metrics = &self.context.metrics.ephemeral;
        metrics.created.inc();
        let Err(error) = self.context.create::<Claim>(key.namespace(), body).await else { return Ok(()) };
        metrics.create_failed.inc();
        let unclear = error.may_have_happened() || matches!(error, Error::AlreadyExists { .. });
        match unclear && may_look_again(Kind::CLAIM, key) {
            true => Ok(()),
            false => Err(Failure::Create { claim: key.name().into(), error }),
        }
    }
}

fn has_ephemeral(pod: &Pod) -> bool {
    pod.volumes.iter().any(|volume| matches!(volume.source, PodSource::Ephemeral { .. }))
}
