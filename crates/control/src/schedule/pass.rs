//! One pass over a pod: find a node, do the next thing for it, look again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::{Claim, Key, Node, Pod, Volume, Word};
use lifecycle::Reason as _;
use lifecycle::schedule::place::{self, Why, place};
use lifecycle::schedule::pursue::{self, Patience, pursue};
use lifecycle::schedule::{Cluster as _, Refusal, Stage, Unready};
use runtime::Verdict;
use runtime::client::Error;
use runtime::metrics;

use super::wake::Topic;
use super::{Inner, State, writes};
use crate::Live;
use crate::bind::patches;

/// How many decisions one pass may take before others get their turn.
const MOST_ROUNDS: usize = 16;

/// Works on one pod until there is nothing to do for it.
pub(super) async fn pass(inner: &Inner, key: Key) -> Verdict {
    for _ in 0..MOST_ROUNDS {
        let pod = match inner.view.pods.get(&key) {
            Some(pod) if inner.is_ours(&pod) => pod,
            other => {
                inner.let_go(&key, other.as_deref());
                return Verdict::Done;
            }
        };
        match round(inner, &pod).await {
            Ok(Next::Again) => {}
            Ok(Next::Rest(verdict)) => return verdict,
            Err(error) => return Verdict::Failed(error.to_string()),
        }
    }
    Verdict::Again(Duration::ZERO)
}

enum Next {
    /// Something was written: decide again.
    Again,
    Rest(Verdict),
}

/// What was decided for a pod.
enum Decided {
    Place(place::Verdict),
    Pursue(pursue::Verdict),
}

async fn round(inner: &Inner, pod: &Arc<Pod>) -> Result<Next, Error> {
    match inner.decide(pod) {
        Decided::Place(verdict) => match verdict.actions.into_iter().next() {
            Some(place::Action::Unpin { claim, uid, revision, node, why }) => {
                if why == Why::NodeGone
                    && let Live::Found(_) = inner.context.read::<Node>(&Key::cluster(&node)).await?
                {
                    return Ok(Next::Again);
                }
                let patch = writes::selected_node(&uid, revision, None);
                let written = inner.context.patch::<Claim>(&claim, &patch).await.map(drop);
                again::<Claim>(inner, &claim, written).await
            }
            // It was assumed where it was decided.
            Some(place::Action::Assume(_)) => Ok(Next::Again),
            None => refused(inner, pod, &verdict.because).await,
        },
        Decided::Pursue(verdict) => match verdict.actions.into_iter().next() {
            Some(action) => act(inner, pod, action, &verdict.because).await,
            None => Ok(Next::Rest(inner.patience(pod))),
        },
    }
}

impl Inner {
    /// Places the pod if it has no node, and says what is next. One pod at a time.
    fn decide(&self, pod: &Pod) -> Decided {
        let (key, now) = (&pod.meta.key, self.now());
        let state = &mut *self.state();
        if state.book.assignment(key).is_some_and(|assignment| assignment.uid != pod.meta.uid) {
            self.release(state, key);
        }
        if let Some(assignment) = state.book.assignment_mut(key) {
            let patience = Patience { now, limit: self.options.bind_timeout };
            let verdict = pursue(assignment, pod, &self.view, patience);
            if let Some(pursue::Action::GiveUp) = verdict.actions.first() {
                state.book.failed(key);
                self.release(state, key);
            }
            return Decided::Pursue(verdict);
        }
        state.waiting.forget(key);
        let verdict = place(pod, &self.view, &state.book, now);
        match verdict.actions.first() {
            Some(place::Action::Assume(assignment)) => state.book.assume(assignment.clone(), &self.view),
            Some(place::Action::Unpin { .. }) => {}
            None => state.waiting.put(key, self.topics(pod, &verdict.because)),
        }
        Decided::Place(verdict)
    }

    /// What a pod without a node waits for. Its claims and the volumes that name them wake it in any case.
    fn topics(&self, pod: &Pod, because: &place::Because) -> BTreeSet<Topic> {
        let mut topics = BTreeSet::new();
        let tally = match because {
            place::Because::Refused(tally) => Some(tally),
            // A class that comes later can make an immediate claim a delayed one.
            place::Because::Unready { why: Unready::Immediate, .. } => None,
            place::Because::Unready { .. } | place::Because::Chosen { .. } | place::Because::LeadsNowhere { .. } => {
                return topics;
            }
        };
        for class in self.classes_of(pod) {
            topics.insert(Topic::Class(class.clone()));
            if let Some(tally) = tally {
                topics.insert(Topic::Volumes(class.clone()));
                if tally.has(&Refusal::NoRoom) {
                    topics.insert(Topic::Room(class));
                }
            }
        }
        let Some(tally) = tally else { return topics };
        topics.insert(Topic::Nodes);
        let limited = |why: &Refusal| matches!(why, Refusal::TooManyVolumes | Refusal::DriverMissing { .. });
        if tally.refusals.keys().any(limited) {
            topics.insert(Topic::Limits);
        }
        if tally.has(&Refusal::NoRoom) {
            topics.insert(Topic::Drivers);
        }
        topics
    }

    /// The classes of the claims of a pod that are not bound.
    fn classes_of(&self, pod: &Pod) -> BTreeSet<Word> {
        let claims = pod.claims().filter_map(|name| self.view.claim(&pod.meta.key.sibling(&name)));
        claims.filter(|claim| !claim.fully_bound()).map(|claim| Word::new(claim.class().text())).collect()
    }

    /// Others act next; if they do not, the plan is given up when its time is over.
    fn patience(&self, pod: &Pod) -> Verdict {
        let state = self.state();
        match state.book.assignment(&pod.meta.key) {
            Some(assignment) if assignment.stage == Stage::Preparing => {
                let end = assignment.since + self.options.bind_timeout;
                Verdict::Again(end.saturating_sub(self.now()))
            }
            Some(_) | None => Verdict::Done,
        }
    }

    /// The pod has a node, has ended, or is not ours: nothing is kept for it.
    fn let_go(&self, key: &Key, pod: Option<&Pod>) {
        let state = &mut *self.state();
        state.waiting.forget(key);
        state.attempts.remove(key);
        let Some(assignment) = state.book.assignment(key) else { return };
        let arrived = |pod: &&Pod| pod.meta.uid == assignment.uid && *pod.node == *assignment.node;
        let Some(pod) = pod.filter(arrived) else { return self.release(state, key) };
        if assignment.stage == Stage::Preparing {
            // The answer to our own write was lost.
            self.tell_scheduled(pod, &assignment.node);
        }
        // The objects say all of it now, and nothing comes free.
        let _ = state.book.release(key, &self.view, self.now());
    }

    fn tell_scheduled(&self, pod: &Pod, node: &Word) {
        self.count("scheduled");
        let (namespace, name) = (pod.namespace().into(), pod.name().into());
        let because = pursue::Because::Assigned { namespace, pod: name, node: node.clone() };
        if let Some(notice) = because.notice() {
            self.notices.always(pod, &notice);
        }
    }

    /// How long a pod whose plan was given up waits before the next. Each time twice as long, until it has a node: the
    /// queue would forget its failures while the pod waits for others.
    fn pause(&self, key: &Key) -> Duration {
        let mut state = self.state();
        let attempts = state.attempts.entry(key.clone()).or_default();
        let doubled = self.options.backoff.start.saturating_mul(1 << (*attempts).min(16));
        *attempts += 1;
        self.context.entropy.shorter(doubled.min(self.options.backoff.max), 0.2)
    }

    /// Gives up what was kept for a pod, and wakes those who can use it.
    pub(super) fn release(&self, state: &mut State, key: &Key) {
        let claims: Vec<Key> = match state.book.assignment(key) {
            Some(assignment) => assignment.steps.iter().map(|step| step.claim.clone()).collect(),
            None => return,
        };
        let mut topics: BTreeSet<Topic> =
            state.book.release(key, &self.view, self.now()).into_iter().map(Topic::Room).collect();
        topics.insert(Topic::Limits);
        for claim in &claims {
            self.wake_users(claim, Some(key));
            if let Some(claim) = self.view.claim(claim) {
                topics.insert(Topic::Volumes(Word::new(claim.class().text())));
            }
        }
        state.waiting.of(&topics).into_iter().for_each(|pod| self.queue.add(pod));
    }
}

/// After a write: decide again, with the truth.
async fn again<T: api::Object + Clone>(inner: &Inner, key: &Key, written: Result<(), Error>) -> Result<Next, Error> {
    if let Err(error) = written {
        inner.context.reconsider::<T>(key, error).await?;
    }
    Ok(Next::Again)
}

async fn act(inner: &Inner, pod: &Arc<Pod>, action: pursue::Action, because: &pursue::Because) -> Result<Next, Error> {
    match action {
        pursue::Action::Bond { volume, claim, uid } => {
            let Some(owner) = inner.view.claim(&claim).filter(|owner| owner.meta.uid == uid) else {
                return Ok(Next::Again);
            };
            let key = Key::cluster(&volume.name);
            let patch = patches::reserve(&owner, &volume, true);
            let written = inner.context.patch::<Volume>(&key, &patch).await.map(drop);
            inner.asked(pod, &claim, &written);
            again::<Volume>(inner, &key, written).await
        }
        pursue::Action::Pin { claim, uid, revision, node } => {
            let patch = writes::selected_node(&uid, revision, Some(&node));
            let written = inner.context.patch::<Claim>(&claim, &patch).await.map(drop);
            inner.asked(pod, &claim, &written);
            again::<Claim>(inner, &claim, written).await
        }
        pursue::Action::Assign { node } => assign(inner, pod, &node).await,
        pursue::Action::GiveUp => {
            tracing::info!(pod = %pod.meta.key, %because, "looking for a node again");
            inner.count("error");
            let stage = metrics::Stage { operation: "bind" };
            inner.context.metrics.scheduler.stage_errors.get_or_create(&stage).inc();
            if let Some(notice) = because.notice() {
                inner.notices.always(&**pod, &notice);
            }
            explain(inner, pod, "SchedulerError", &because.to_string()).await?;
            Ok(Next::Rest(Verdict::Again(inner.pause(&pod.meta.key))))
        }
    }
}

impl Inner {
    /// A wish was written. Should it be missing the next time we look, somebody took it away.
    fn asked(&self, pod: &Pod, claim: &Key, written: &Result<(), Error>) {
        let mut state = self.state();
        let Some(assignment) = state.book.assignment_mut(&pod.meta.key) else { return };
        if written.is_ok() {
            assignment.steps.iter_mut().filter(|step| step.claim == *claim).for_each(|step| step.asked = true);
        }
    }
}

async fn assign(inner: &Inner, pod: &Arc<Pod>, node: &Word) -> Result<Next, Error> {
    let key = &pod.meta.key;
    let body = writes::binding(key, &pod.meta.uid, node);
    if let Err(error) = inner.context.client.create_part(api::Kind::POD, key, "binding", &body).await {
        return again::<Pod>(inner, key, Err(error)).await;
    }
    if let Some(assignment) = inner.state().book.assignment_mut(key) {
        // The answer does not hold the pod. Until the watch brings it, the book knows.
        assignment.stage = Stage::Assigned;
    }
    inner.tell_scheduled(pod, node);
    Ok(Next::Rest(Verdict::Done))
}

/// No node will have the pod: it says so itself, and waits.
async fn refused(inner: &Inner, pod: &Arc<Pod>, because: &place::Because) -> Result<Next, Error> {
    inner.notices.tell(&**pod, because);
    inner.count("unschedulable");
    explain(inner, pod, "Unschedulable", &because.to_string()).await?;
    let (state, now) = (inner.state(), inner.now());
    let settled = match because {
        place::Because::Refused(tally) if tally.has(&Refusal::NoRoom) => {
            state.book.ledger().next_settled(&inner.classes_of(pod), now)
        }
        _ => None,
    };
    Ok(Next::Rest(settled.map_or(Verdict::Done, |until| Verdict::Again(until.saturating_sub(now)))))
}

/// Writes the reason into the pod, unless it is there.
async fn explain(inner: &Inner, pod: &Arc<Pod>, reason: &str, message: &str) -> Result<(), Error> {
    if pod.unschedulable.as_deref() == Some(message) {
        return Ok(());
    }
    let patch = writes::unscheduled(pod, reason, message, &format!("{:.0}", inner.context.clock.now()));
    match inner.context.patch_status::<Pod>(&pod.meta.key, &patch).await {
        Ok(_) => Ok(()),
        // Somebody changed the pod, which wakes it: the next pass has the last word.
        Err(error) => inner.context.reconsider::<Pod>(&pod.meta.key, error).await,
    }
}
