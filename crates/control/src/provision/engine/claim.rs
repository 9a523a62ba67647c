//! A claim that may want a volume: PROVISION-2.4 and the outcomes of planning in PROVISION-2.6.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use api::keys::annotation;
use api::{Claim, Class, ClassName, Key, Uid, Volume};
use lifecycle::outcome::Retry;
use lifecycle::provision::claim::{Action, Because, Beside, ClaimSeen, Held, Seen, decide};
use lifecycle::provision::failed;
use runtime::metrics;
use runtime::{Patch, Stop, Verdict, work};
use serde_json::json;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::memory;
use super::{Engine, ROUNDS, is_stale};
use crate::Live;
use crate::provision::intent::{Intent, source_kind};
use crate::provision::{Provisioner, Unplanned, Wish};

/// A step of a pass: go on, or end the pass with a verdict.
pub(super) type Step = ControlFlow<Verdict>;

/// Who is told about an attempt that failed, and what would help.
pub(super) struct Refusal<'a> {
    pub(super) uid: &'a Uid,
    /// None if it is gone: then nobody wants another attempt.
    pub(super) claim: Option<&'a Arc<Claim>>,
    pub(super) class: &'a str,
    pub(super) source: String,
    /// The node the attempt was for.
    pub(super) node: Option<&'a str>,
    pub(super) message: String,
    pub(super) retry: Retry,
}

impl<P: Provisioner> Engine<P> {
    /// Works on one claim, by its uid.
    pub(super) async fn claim(&self, uid: Uid, stop: &Stop) -> Verdict {
        let (name, claim) = match self.memory.begun(&uid) {
            Some(begun) => (begun.intent.volume.clone(), Some(begun.intent.claim())),
            None => {
                (self.options.naming.volume(&uid), self.by_uid.first(uid.as_str()).map(|claim| claim.key().clone()))
            }
        };
        let span = work::on_volume("provision", &name, claim.as_ref());
        // On the heap: a span around it would double a large state on the stack.
        Box::pin(self.claim_pass(uid, name, stop)).instrument(span).await
    }

    async fn claim_pass(&self, uid: Uid, name: String, stop: &Stop) -> Verdict {
        let _turn = self.turns.take(&name).await;
        let mut live = None;
        for _ in 0..ROUNDS {
            if stop.is_stopped() {
                return Verdict::Again(Duration::ZERO);
            }
            let step = match self.memory.begun(&uid) {
                Some(begun) => self.go_on(&uid, begun, stop).await,
                None => self.begin(&uid, &name, &mut live).await,
            };
            if let ControlFlow::Break(verdict) = step {
                return verdict;
            }
        }
        Verdict::Again(Duration::ZERO)
    }

    /// Decides about a claim for which nothing is open. `live` is what the server said in this pass.
    async fn begin(&self, uid: &Uid, name: &str, live: &mut Option<Live<Claim>>) -> Step {
        let cached = self.by_uid.first(uid.as_str());
        let claim = match live {
            Some(Live::Found(claim)) if claim.uid() == uid => Some(claim.clone()),
            Some(_) => None,
            None => cached,
        };
        if let Some(message) = self.memory.is_unreadable(uid) {
            return self.blocked(uid, claim.as_deref(), &message).await;
        }
        let class = claim.as_ref().and_then(|claim| self.class_of(claim));
        let namesake = self.context.cache::<Volume>().get(&Key::cluster(name));
        let held = self.memory.held(uid);
        let seen = Seen {
            claim: match (&claim, &live) {
                (None, _) => ClaimSeen::Gone,
                (Some(claim), Some(_)) => ClaimSeen::Live(claim),
                (Some(claim), None) if self.memory.was_served(uid) => ClaimSeen::Served(claim),
                (Some(claim), None) => ClaimSeen::Cached(claim),
            },
            class: class.as_deref(),
            namesake: namesake.as_deref(),
            names: self.names(),
            beside: match self.names().0.iter().any(|name| self.context.handoff.is_asked(name, uid)) {
                true => Beside::Asked,
                false => Beside::NotAsked,
            },
            held: held.as_deref().map(|held| Held { claim: &held.claim, class: &held.class, message: &held.message }),
        };
        let decision = decide(&seen);
        let Some(claim) = claim else { return Step::Break(Verdict::Done) };
        match decision.actions.into_iter().next() {
            Some(Action::ReadClaim { key }) => match self.context.read::<Claim>(&key).await {
                Ok(answer) => {
                    *live = Some(answer);
                    Step::Continue(())
                }
                Err(error) => Step::Break(Verdict::Failed(error.to_string())),
            },
            Some(Action::Provision { node }) => {
                self.notices.tell(&*claim, &decision.because);
                // A decision to provision has seen the class.
                let Some(class) = class else { return Step::Continue(()) };
                let wish = Wish { claim, class, node, volume_name: name.to_owned() };
                self.plan(uid, &wish).await
            }
            None => self.rest(&claim, &decision.because, held.as_deref()),
        }
    }

    fn class_of(&self, claim: &Claim) -> Option<Arc<Class>> {
        match claim.class() {
            ClassName::Unset | ClassName::None => None,
            ClassName::Named(name) => self.context.cache::<Class>().get(&Key::cluster(name)),
        }
    }

    /// Nothing to do now. Changes of the claim, its class or the volume come by themselves.
    fn rest(&self, claim: &Claim, because: &Because, held: Option<&memory::Held>) -> Step {
        let labels = || metrics::Provision { class: claim.class().text().to_owned(), source: source_kind(claim) };
        match because {
            Because::HeldBack { .. } => {
                let until = held.map_or_else(Instant::now, |held| held.until);
                return Step::Break(Verdict::Again(until.saturating_duration_since(Instant::now())));
            }
            Because::NameTaken { .. } => {
                self.notices.tell(claim, because);
                self.context.metrics.provision.provision_failed.get_or_create(&labels()).inc();
                return Step::Break(Verdict::Failed(because.to_string()));
            }
            Because::ClassMissing { .. } => {
                self.context.metrics.provision.provision_failed.get_or_create(&labels()).inc();
            }
            Because::ClaimGone | Because::HasVolume { .. } => self.notices.forget(claim.uid()),
            Because::ClaimGoing
            | Because::NotAsked
            | Because::NoClass
            | Because::ClassOfAnother { .. }
            | Because::NoNode { .. }
            | Because::Provisioned { .. }
            | Because::CacheMayLag { .. }
            | Because::Wanted { .. } => {}
        }
        tracing::trace!(claim = %claim.key(), %because, "nothing to provision");
        Step::Break(Verdict::Done)
    }

    /// Something was begun for the claim that we cannot understand, so nothing may be begun now.
    async fn blocked(&self, uid: &Uid, claim: Option<&Claim>, message: &str) -> Step {
        match self.journal.is_left(uid).await {
            Ok(true) => {}
            Ok(false) => {
                self.memory.readable(uid);
                return Step::Continue(());
            }
            Err(error) => return Step::Break(Verdict::Failed(error.to_string())),
        }
        let Some(claim) = claim else { return Step::Break(Verdict::Done) };
        let class = claim.class().text();
        let labels = metrics::Provision { class: class.to_owned(), source: source_kind(claim) };
        self.failed(Some(claim), labels, failed(class, message));
        Step::Break(Verdict::Failed(message.to_owned()))
    }

    /// Plans, and writes the plan down before anything is made.
    async fn plan(&self, uid: &Uid, wish: &Wish) -> Step {
        let refusal = |message: String, retry: Retry| Refusal {
            uid,
            claim: Some(&wish.claim),
            class: wish.class.name(),
            source: source_kind(&wish.claim),
            node: wish.node.as_deref(),
            message,
            retry,
        };
        let plan = match self.provisioner.plan(wish).await {
            Ok(plan) => plan,
            Err(Unplanned::Ignored { message, notice }) => {
                tracing::debug!(claim = %wish.claim.key(), message, "not ours to provision");
                if let Some(notice) = notice {
                    self.notices.say(&*wish.claim, notice);
                }
                return Step::Break(Verdict::Done);
            }
            Err(Unplanned::Refused { message, retry }) => {
                return Step::Break(self.refused(refusal(message, retry)).await);
            }
            Err(Unplanned::NotYet { message }) => {
                return Step::Break(self.refused(refusal(message, Retry::Later)).await);
            }
        };
        let intent = Intent::new(wish, plan);
        let written = match intent.write() {
            Ok(text) => self.journal.open(uid, &text).await.map_err(|error| error.to_string()),
            Err(error) => Err(format!("the plan cannot be written down: {error}; this is a bug")),
        };
        match written {
            Ok(()) => {
                self.memory.begin(uid, Arc::new(intent), memory::Known::New);
                Step::Continue(())
            }
            Err(message) => Step::Break(self.refused(refusal(message, Retry::Later)).await),
        }
    }

    /// An attempt failed, and surely nothing was made: tells it, and says when the next one is (PROVISION-2.5).
    pub(super) async fn refused(&self, refusal: Refusal<'_>) -> Verdict {
        let Refusal { uid, claim, class, source, node, message, retry } = refusal;
        let labels = metrics::Provision { class: class.to_owned(), source };
        let text = match retry {
            Retry::Changed => format!("{message} (retries are delayed until the claim or its class has changed)"),
            Retry::Later | Retry::Elsewhere => message.clone(),
        };
        self.failed(claim.map(|claim| &**claim), labels, failed(class, &text));
        let Some(claim) = claim else { return Verdict::Done };
        match (retry, node) {
            (Retry::Changed, _) => {
                let class = self.class_of(claim).map(|class| class.meta.uid.clone()).unwrap_or_default();
                let wait = self.options.backoff.max;
                let until = Instant::now() + wait;
                self.memory.hold(uid, memory::Held { claim: claim.clone(), class, message, until });
                Verdict::Again(wait)
            }
            (Retry::Elsewhere, Some(node)) => self.reschedule(claim, node, message).await,
            (Retry::Elsewhere, None) | (Retry::Later, _) => Verdict::Failed(message),
        }
    }

    /// PROVISION-2.5: takes the node off the claim, if it is still the one that had no room, so that another one is
    /// chosen.
    async fn reschedule(&self, claim: &Claim, node: &str, message: String) -> Verdict {
        let pointer = format!("/metadata/annotations/{}", annotation::SELECTED_NODE.text().replace('/', "~1"));
        let patch = Patch::Json(json!([
            {"op": "test", "path": "/metadata/uid", "value": claim.uid()},
            {"op": "test", "path": pointer, "value": node},
            {"op": "remove", "path": pointer},
        ]));
        match self.context.patch::<Claim>(claim.key(), &patch).await {
            Ok(_) => Verdict::Done,
            // Somebody else took it off or chose another: the change wakes us, if there is anything to do.
            Err(error) if is_stale(&error) => match self.context.read::<Claim>(claim.key()).await {
                Ok(Live::Found(now)) if now.selected_node() == Some(node) => Verdict::Failed(message),
                Ok(Live::Found(_) | Live::Absent) => Verdict::Again(Duration::ZERO),
                Err(error) => Verdict::Failed(format!("{message}; and then: {error}")),
            },
            Err(error) => Verdict::Failed(format!("{message}; and its node could not be taken off the claim: {error}")),
        }
    }
}
