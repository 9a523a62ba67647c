//! Sources of content must not go away while something is made from them (PROVISION-2.8).
//!
//! A finalizer on the source says that somebody uses it. Upstream takes it off with the first restore that ends
//! (SIDECAR-P12); here it stays until nobody needs the source: no plan of this process is open for it ([`Holds`]), and
//! no claim that names it waits for its volume, wherever it is and whichever field it uses (SIDECAR-P11).
//!
//! # Invariants
//! 1. The finalizer is there before a plan that uses the source is given out.
//! 2. It is taken off when the last user is served: woken by events, not by a sweep.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use api::keys::{Finalizer, finalizer};
use api::{Claim, Kind, Meta, Object, Snapshot};
use lifecycle::provision::csi::outline::needs_source;
use lifecycle::provision::csi::source::Origin;
use lifecycle::provision::csi::{Ability, Plan};
use runtime::client::{Error, Selection};
use runtime::failed_writes::may_look_again;
use runtime::queue::{self, Backoff};
use runtime::{Cache, Index, Lookup, Patch, Queue, Stop, Subscription, Verdict};
use serde_json::json;

use super::waiting::What;
use super::{CsiProvisioner, Inner, wire};
use crate::Context;
use crate::provision::Unplanned;

/// How often a pass over one source writes at most before it lets others go first.
const ROUNDS: usize = 16;

/// Claims that wait for their volume, by the source they name.
const CLAIMS_BY_SOURCE: Index<Claim> = Index {
    name: "pvc-source-index",
    values: |claim, value| {
        if let Some(origin) = origin_of(claim).filter(|_| needs_source(claim)) {
            value(&text_of(&origin));
        }
    },
};

/// The object that a claim names as its source, if it is one that is guarded.
fn origin_of(claim: &Claim) -> Option<Origin> {
    let source = claim.source.as_deref()?;
    let namespace = source.namespace.as_deref().unwrap_or(claim.namespace()).to_owned();
    let name = source.name.to_string();
    if *source.kind == *Kind::SNAPSHOT.kind && *source.group == *Kind::SNAPSHOT.group {
        Some(Origin::Snapshot { namespace, name })
    } else if *source.kind == *Kind::CLAIM.kind && source.group.is_empty() {
        Some(Origin::Claim { namespace, name })
    } else {
        None
    }
}

fn text_of(origin: &Origin) -> String {
    match origin {
        Origin::Claim { .. } => format!("claim {}", origin.key()),
        Origin::Snapshot { .. } => format!("snapshot {}", origin.key()),
    }
}

fn finalizer_of(origin: &Origin) -> Finalizer {
    match origin {
        Origin::Claim { .. } => finalizer::CLONING_PROTECTION,
        Origin::Snapshot { .. } => finalizer::SNAPSHOT_SOURCE_PROTECTION,
    }
}

/// Which plans of this process use which source.
#[derive(Debug, Default)]
pub(super) struct Holds {
    by: Mutex<BTreeMap<Origin, BTreeSet<String>>>,
    /// Sources that may have become free.
    freed: Mutex<Option<Queue<Origin>>>,
}

impl Holds {
    pub(super) fn take(&self, plan: &Plan) {
        if let Some(origin) = &plan.origin {
            let mut by = self.by.lock().unwrap_or_else(PoisonError::into_inner);
            by.entry(origin.clone()).or_default().insert(plan.claim.uid.clone());
        }
    }

    pub(super) fn release(&self, plan: &Plan) {
        let Some(origin) = &plan.origin else { return };
        {
            let mut by = self.by.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(users) = by.get_mut(origin) {
                users.remove(&plan.claim.uid);
                if users.is_empty() {
                    by.remove(origin);
                }
            }
        }
        if let Some(queue) = &*self.freed.lock().unwrap_or_else(PoisonError::into_inner) {
            queue.add(origin.clone());
        }
    }

    fn held(&self, origin: &Origin) -> bool {
        self.by.lock().unwrap_or_else(PoisonError::into_inner).contains_key(origin)
    }
}

impl Inner {
    /// Puts the finalizer on the plan's source.
    pub(super) async fn guard(&self, plan: &Plan) -> Result<(), Unplanned> {
        let Some(origin) = &plan.origin else {
            return Ok(());
        };
        // Held first, so that nobody takes the finalizer off between its writing and the plan's use.
        self.holds.take(plan);
        let guarded = match origin {
            Origin::Claim { .. } => put_on::<Claim>(&self.context, origin).await,
            Origin::Snapshot { .. } => match put_on::<Snapshot>(&self.context, origin).await {
                // Clusters from before this guard do not let us write it; restoring works without.
                Err(Error::Forbidden { message }) => {
                    tracing::warn!(snapshot = %origin.key(), message, "the snapshot cannot be guarded");
                    Ok(())
                }
                other => other,
            },
        };
        guarded.map_err(|error| {
            self.holds.release(plan);
            Unplanned::NotYet { message: format!("cannot guard the source {}: {error}", origin.key()) }
        })
    }
}

/// Reads the object and puts the finalizer on it, until it is there.
async fn put_on<T: Object>(context: &Context, origin: &Origin) -> Result<(), Error> {
    let (key, finalizer) = (origin.key(), finalizer_of(origin));
    let mut last = None;
    for _ in 0..ROUNDS {
        let object: T = context.client.get(T::KIND, &key).await?;
        if object.meta().has_finalizer(finalizer) {
            return Ok(());
        }
        let mut all: Vec<&str> = object.meta().finalizers.iter().map(|held| held.as_str()).collect();
        all.push(finalizer.text());
        match context.client.patch::<T>(T::KIND, &key, &finalizers(object.meta(), &all)).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_unsettled() && may_look_again(T::KIND, &key) => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(last.unwrap_or_else(|| Error::Conflict { message: "the source changes all the time".to_owned() }))
}

/// The whole list at the revision that was seen: a change by anybody else makes it a conflict.
fn finalizers(seen: &Meta, all: &[&str]) -> Patch {
    Patch::Merge(json!({"metadata": {
        "uid": seen.uid.as_str(),
        "resourceVersion": seen.revision.to_string(),
        "finalizers": all,
    }}))
}

/// Whether snapshots are watched for guards that nobody needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sweep {
    Off,
    /// Beside the events, every so often (`--snapshot-orphan-sweep-interval`).
    Every(Duration),
}

/// How guards are kept.
#[derive(Debug, Clone)]
pub struct GuardOptions {
    pub sweep: Sweep,
    /// `--cloning-protection-threads`.
    pub workers: usize,
    pub backoff: Backoff,
}

/// Takes guards off sources that nobody needs any more.
#[derive(Debug)]
pub struct Guards {
    context: Context,
    provisioner: CsiProvisioner,
    options: GuardOptions,
    queue: Queue<Origin>,
    users: Lookup<Claim>,
    /// Whether snapshots are watched already: leading may begin more than once.
    followed: OnceLock<Subscription>,
    _subscription: Subscription,
}

impl Guards {
    pub fn new(context: &Context, provisioner: &CsiProvisioner, options: GuardOptions) -> Self {
        let queue = Queue::new("sources", options.backoff, &context.metrics, &context.entropy);
        let claims = context.cache::<Claim>();
        let users = claims.index(CLAIMS_BY_SOURCE);
        *provisioner.inner.holds.freed.lock().unwrap_or_else(PoisonError::into_inner) = Some(queue.clone());
        let freed = queue.clone();
        let subscription = claims.subscribe(move |change| {
            let claim = change.object();
            // A clone's source goes when it is asked to go and when its users are served; a user's source when the user is.
            if claim.meta.is_deleting() && claim.meta.has_finalizer(finalizer::CLONING_PROTECTION) {
                let (namespace, name) = (claim.namespace().to_owned(), claim.name().to_owned());
                freed.add(Origin::Claim { namespace, name });
            }
            let served = matches!(change, runtime::Change::Removed(_)) || !needs_source(claim);
            if let Some(origin) = origin_of(claim).filter(|_| served) {
                freed.add(origin);
            }
        });
        Self {
            context: context.clone(),
            provisioner: provisioner.clone(),
            options,
            queue,
            users,
            followed: OnceLock::new(),
            _subscription: subscription,
        }
    }

    pub async fn run(&self, stop: &Stop) {
        let claims = self.context.cache::<Claim>();
        tokio::select! {
            biased;
            () = stop.stopped() => return,
            () = claims.synced() => {}
        }
        let snapshots = async {
            if self.followed.get().is_none()
                && let Some(snapshots) = self.snapshots(stop).await
            {
                self.followed.get_or_init(|| self.follow(&snapshots));
            }
        };
        tokio::join!(snapshots, queue::run(&self.queue, self.options.workers, stop, |origin| self.check(origin)));
    }

    /// The cache of snapshots, if they are to be watched, there is such a kind, and we may.
    async fn snapshots(&self, stop: &Stop) -> Option<Cache<Snapshot>> {
        let facts = self.provisioner.inner.driver.facts();
        let restores = facts.is_some_and(|facts| wire::abilities(&facts.capabilities).contains(&Ability::Snapshots));
        if self.options.sweep == Sweep::Off || !restores {
            return None;
        }
        let mut pause = self.options.backoff.start;
        loop {
            let one = self.context.client.list::<Snapshot>(Kind::SNAPSHOT, &Selection::default(), 1, None).await;
            match one {
                Ok(_) => return Some(self.context.cache::<Snapshot>()),
                Err(Error::NotFound { .. } | Error::Forbidden { .. }) => {
                    tracing::info!("snapshots are not served or not shown to us; their guards go when restores end");
                    return None;
                }
                Err(error) => tracing::debug!(%error, "asking whether there are snapshots"),
            }
            tokio::select! {
                biased;
                () = stop.stopped() => return None,
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(self.options.backoff.max),
            }
        }
    }

    fn follow(&self, snapshots: &Cache<Snapshot>) -> Subscription {
        let (freed, inner) = (self.queue.clone(), Arc::downgrade(&self.provisioner.inner));
        snapshots.subscribe(move |change| {
            let meta = change.object().meta();
            if let Some(inner) = inner.upgrade() {
                inner.wake(&What::Snapshot(meta.key.clone()));
            }
            if meta.has_finalizer(finalizer::SNAPSHOT_SOURCE_PROTECTION) {
                let namespace = meta.key.namespace().unwrap_or_default().to_owned();
                freed.add(Origin::Snapshot { namespace, name: meta.key.name().to_owned() });
            }
        })
    }

    /// Takes the guard off if nobody needs it.
    async fn check(&self, origin: Origin) -> Verdict {
        for _ in 0..ROUNDS {
            if self.provisioner.inner.holds.held(&origin) || self.users.any(&text_of(&origin)) {
                // Whoever uses it wakes us when it is served.
                return match (&origin, self.options.sweep) {
                    (Origin::Snapshot { .. }, Sweep::Every(interval)) => Verdict::Again(interval),
                    (Origin::Snapshot { .. }, Sweep::Off) | (Origin::Claim { .. }, _) => Verdict::Done,
                };
            }
            let taken = match &origin {
                Origin::Claim { .. } => take_off::<Claim>(&self.context, &origin, |meta| meta.is_deleting()).await,
                Origin::Snapshot { .. } => take_off::<Snapshot>(&self.context, &origin, |_| true).await,
            };
            match taken {
                Ok(Taken::Off) => return Verdict::Done,
                Ok(Taken::Changed) => {}
                Err(Error::Forbidden { message }) => {
                    tracing::warn!(source = %origin.key(), message, "the guard cannot be taken off");
                    return Verdict::Done;
                }
                Err(error) => return Verdict::Failed(error.to_string()),
            }
        }
        Verdict::Again(Duration::ZERO)
    }
}

/// What became of one attempt to take a guard off.
enum Taken {
    /// It is not there, or has to stay.
    Off,
    /// Somebody else was faster.
    Changed,
}

async fn take_off<T: Object>(context: &Context, origin: &Origin, ripe: fn(&Meta) -> bool) -> Result<Taken, Error> {
    let (key, finalizer) = (origin.key(), finalizer_of(origin));
    let object: T = match context.client.get(T::KIND, &key).await {
        Ok(object) => object,
        Err(error) if error.is_not_found() => return Ok(Taken::Off),
        Err(error) => return Err(error),
    };
    if !object.meta().has_finalizer(finalizer) || !ripe(object.meta()) {
        return Ok(Taken::Off);
    }
    let kept = object.meta().finalizers.iter().map(|held| held.as_str()).filter(|held| *held != finalizer.text());
    let kept: Vec<&str> = kept.collect();
    match context.client.patch::<T>(T::KIND, &key, &finalizers(object.meta(), &kept)).await {
        Ok(_) => Ok(Taken::Off),
        Err(error) if error.is_unsettled() && may_look_again(T::KIND, &key) => Ok(Taken::Changed),
        Err(error) => {
            context.tell_failed_write(&object, &error);
            Err(error)
        }
    }
}
