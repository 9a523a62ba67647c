//! Claims stay while pods use them (PROTECT-8.1, PROTECT-PC1 to PROTECT-PC4).
//!
//! A claim that the cache knows no user of waits in its namespace's batch. Each round over a namespace takes the batch as
//! it stands, then lists the namespace's pods, then lets go of those in the batch that no pod uses: mass deletion costs
//! one list per round.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::keys::finalizer;
use api::{Claim, Key, Pod, Uid};
use futures_util::future::join;
use futures_util::stream::{self, StreamExt as _};
use lifecycle::protect::{self, Action, Pods};
use runtime::client::{Error, Selection};
use runtime::{Cache, Lookup, Queue, Stop, Subscription, Verdict, queue};

use super::finalizer::{Turn, held, matters, write};
use super::{BACKOFF, LOOK_AGAIN, Options, ROUNDS, live};
use crate::{Context, index};

#[derive(Debug)]
pub(super) struct Claims {
    context: Context,
    claims: Cache<Claim>,
    pods: Cache<Pod>,
    users: Lookup<Pod>,
    queue: Queue<Key>,
    namespaces: Queue<Box<str>>,
    waiting: Waiting,
    options: Options,
    _subscriptions: [Subscription; 2],
}

/// Claims that were seen deleted and wait for a list of pods, by namespace.
#[derive(Debug, Default)]
struct Waiting(Mutex<BTreeMap<Box<str>, BTreeMap<Key, Uid>>>);

/// The scheduled pods of a namespace by the claims they name, as the server listed them.
type Listed = BTreeMap<Box<str>, Vec<Arc<Pod>>>;

impl Claims {
    pub(super) fn new(context: &Context, options: Options) -> Self {
        let (claims, pods) = (context.cache::<Claim>(), context.cache::<Pod>());
        let queue = Queue::new("pvcprotection", BACKOFF, &context.metrics, &context.entropy);
        let keys = queue.clone();
        let claim_news = claims.subscribe(move |change| {
            if let Some(claim) = change.after()
                && matters(&claim.meta, finalizer::PVC_PROTECTION)
            {
                keys.add(claim.meta.key.clone());
            }
        });
        let (keys, held_claims) = (queue.clone(), claims.clone());
        let pod_news = pods.subscribe(move |change| {
            // A pod can only let go of what it had before. Which of its changes do is decided later, and only about claims
            // that are on their way out.
            let Some(pod) = change.before() else { return };
            for claim in pod.claims() {
                let key = index::claim_of(pod, &claim);
                if held_claims.get(&key).is_some_and(|claim| held(&claim.meta, finalizer::PVC_PROTECTION)) {
                    keys.add(key);
                }
            }
        });
        let namespaces = Queue::new("pvcprotection_namespaces", BACKOFF, &context.metrics, &context.entropy);
        let users = pods.index(index::PODS_BY_CLAIM);
        Self {
            context: context.clone(),
            claims,
            pods,
            users,
            queue,
            namespaces,
            waiting: Waiting::default(),
            options,
            _subscriptions: [claim_news, pod_news],
        }
    }

    pub(super) async fn run(&self, stop: &Stop) {
        let synced = async {
            self.claims.synced().await;
            self.pods.synced().await;
        };
        tokio::select! {
            biased;
            () = stop.stopped() => return,
            () = synced => {}
        }
        let workers = self.options.workers;
        let claims = queue::run(&self.queue, workers, stop, |key| self.pass(key));
        let namespaces = queue::run(&self.namespaces, workers, stop, |namespace| self.round(namespace));
        join(claims, namespaces).await;
    }

    /// Decides about a claim from the cache.
    async fn pass(&self, key: Key) -> Verdict {
        for _ in 0..ROUNDS {
            // PROTECT-PC1.
            let Some(claim) = self.claims.get(&key) else { return Verdict::Done };
            let turn = match self.decide_from_cache(&claim) {
                None => return Verdict::Done,
                Some(Action::ListPods | Action::ListUsers) => {
                    self.waiting.add(&claim);
                    self.namespaces.add(claim.namespace().into());
                    return Verdict::Done;
                }
                Some(Action::AddFinalizer) => Turn::On,
                Some(Action::RemoveFinalizer) => Turn::Off,
            };
            if let Err(error) = self.write(&claim, turn).await {
                return Verdict::Failed(error.to_string());
            }
        }
        Verdict::Again(Duration::ZERO)
    }

    fn decide_from_cache(&self, claim: &Claim) -> Option<Action> {
        let pods = self.users.all(&claim.key().to_string());
        let pods: Vec<&Pod> = pods.iter().map(|pod| &**pod).collect();
        protect::claim(claim, Pods::Cached(&pods)).actions.first().copied()
    }

    /// Lists the pods of a namespace once for all claims of it that wait.
    async fn round(&self, namespace: Box<str>) -> Verdict {
        // Taken before the list is asked for: every claim in it was seen deleted by then.
        let batch = self.waiting.of(&namespace);
        if batch.is_empty() {
            return Verdict::Done;
        }
        let listed = match self.list(&namespace).await {
            Ok(listed) => listed,
            Err(error) => return Verdict::Failed(error.to_string()),
        };
        let listed = &listed;
        let settled = stream::iter(batch)
            .map(async |(key, uid)| {
                let settled = self.settle(&key, &uid, listed).await;
                if settled.is_ok() {
                    self.waiting.remove(&key, &uid);
                }
                settled
            })
            .buffer_unordered(self.options.workers);
        let mut settled = std::pin::pin!(settled);
        let mut failed = None;
        while let Some(one) = settled.next().await {
            failed = failed.or(one.err());
        }
        // Claims whose write failed wait on. The others of the batch are done, and new ones bring the namespace forward.
        failed.map_or(Verdict::Done, |error| Verdict::Failed(error.to_string()))
    }

    async fn list(&self, namespace: &str) -> Result<Listed, Error> {
        let mut listed = Listed::new();
        let selection = Selection { namespace: Some(namespace.to_owned()), ..Selection::default() };
        let keep = |pod: Pod| {
            let pod = Arc::new(pod);
            for claim in pod.claims() {
                listed.entry(claim).or_default().push(pod.clone());
            }
            ControlFlow::Continue(())
        };
        live::each(&self.context.client, &selection, keep).await?;
        Ok(listed)
    }

    /// Decides about a claim with the pods that the server listed.
    async fn settle(&self, key: &Key, uid: &Uid, listed: &Listed) -> Result<(), Error> {
        for _ in 0..ROUNDS {
            // A claim of the same name that came later was not deleted when the list was asked for.
            let Some(claim) = self.claims.get(key).filter(|claim| claim.uid() == uid) else { return Ok(()) };
            let pods = listed.get(key.name()).map(Vec::as_slice).unwrap_or_default();
            match decide_live(&claim, pods) {
                Some(Action::RemoveFinalizer) => self.write(&claim, Turn::Off).await?,
                Some(Action::AddFinalizer) => self.write(&claim, Turn::On).await?,
                Some(Action::ListPods | Action::ListUsers) => break,
                None => {
                    for pod in pods.iter().filter(|pod| protect::uses(pod, &claim)) {
                        self.pods.wrote(Pod::clone(pod));
                    }
                    break;
                }
            }
        }
        // What the list showed is in the cache now. If it has ended meanwhile, a new list is made: not at once, since a
        // list that shows more than the cache would otherwise be asked for again and again.
        self.queue.add_after(key.clone(), LOOK_AGAIN);
        Ok(())
    }

    async fn write(&self, claim: &Claim, turn: Turn) -> Result<(), Error> {
        write::<Claim>(&self.context, &claim.meta, finalizer::PVC_PROTECTION, turn).await
    }
}

fn decide_live(claim: &Claim, pods: &[Arc<Pod>]) -> Option<Action> {
    let pods: Vec<&Pod> = pods.iter().map(|pod| &**pod).collect();
    protect::claim(claim, Pods::Live(&pods)).actions.first().copied()
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<str>, BTreeMap<Key, Uid>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, claim: &Claim) {
        let mut waiting = self.lock();
        waiting.entry(claim.namespace().into()).or_default().insert(claim.key().clone(), claim.uid().clone());
    }

    fn of(&self, namespace: &str) -> BTreeMap<Key, Uid> {
        self.lock().get(namespace).cloned().unwrap_or_default()
    }

    /// Takes a claim out, unless another one of its name waits by now.
    fn remove(&self, key: &Key, uid: &Uid) {
        let mut waiting = self.lock();
        let namespace = key.namespace().unwrap_or_default();
        let Some(batch) = waiting.get_mut(namespace) else { return };
        if batch.get(key) == Some(uid) {
            batch.remove(key);
        }
        if batch.is_empty() {
            waiting.remove(namespace);
        }
    }
}
