//! An open intent on its way to its end: PROVISION-2.5 and PROVISION-2.10, and the leaks SIDECAR-P1 to SIDECAR-P9 that
//! it closes.

use std::sync::Arc;
use std::time::Duration;

use api::{Claim, Key, ReclaimPolicy, Uid, Volume};
use lifecycle::Reason as _;
use lifecycle::outcome::Retry;
use lifecycle::provision::failed;
use lifecycle::provision::intent::{Action, Attempt, Because, IntentOrigin, Seen, decide};
use runtime::metrics;
use runtime::{Stop, Verdict};

use super::Engine;
use super::claim::{Refusal, Step};
use super::memory::{Begun, Known, Made};
use super::twins::Surroundings;
use crate::provision::{self, Failed, Provisioner, Settled};

impl<P: Provisioner> Engine<P> {
    /// One step of an open intent.
    pub(super) async fn go_on(&self, uid: &Uid, begun: Begun<P::Plan>, stop: &Stop) -> Step {
        let claim = self.by_uid.first(uid.as_str());
        let key = Key::cluster(&begun.intent.volume);
        if let Known::Found = begun.known {
            return match self.context.read::<Volume>(&key).await {
                Ok(_) => {
                    self.memory.learn(uid, Known::Open);
                    Step::Continue(())
                }
                Err(error) => Step::Break(Verdict::Failed(error.to_string())),
            };
        }
        let stored = self.context.cache::<Volume>().get(&key);
        let around = match &begun.known {
            Known::Made(made) => self.surroundings(uid, &begun, (&made.volume, stored.as_deref())).await,
            // Nothing is stored or undone yet, so other volumes of the handle do not matter.
            _ => Ok(Surroundings { origin: IntentOrigin::Here, twin: None }),
        };
        let Surroundings { origin, twin } = match around {
            Ok(around) => around,
            Err(error) => return Step::Break(Verdict::Failed(error.to_string())),
        };
        let decision = decide(&Seen {
            uid,
            volume_name: &begun.intent.volume,
            claim: claim.as_deref(),
            stored: stored.as_deref(),
            twin: twin.as_deref(),
            origin,
            attempt: match &begun.known {
                Known::Found | Known::New | Known::Open => Attempt::Open,
                Known::Made(made) => Attempt::Made(&made.volume),
                Known::Refused { retry, .. } => Attempt::Refused(*retry),
                Known::Undone => Attempt::Undone,
            },
        });
        tracing::debug!(claim = %begun.intent.claim(), because = %decision.because, "an intent goes on");
        match (decision.actions.into_iter().next(), &begun.known) {
            (Some(Action::Create), _) => self.create(uid, &begun, claim.as_deref(), stop).await,
            (Some(Action::Store), Known::Made(made)) => self.store(uid, &begun, claim.as_deref(), made).await,
            (Some(Action::StoreRetained), Known::Made(made)) => {
                self.store_retained(uid, &begun, made, &decision.because).await
            }
            (Some(Action::Undo), Known::Made(made)) => self.undo(uid, &begun, claim.as_deref(), made).await,
            (Some(Action::Close), _) => {
                Step::Break(self.close(uid, &begun, claim.as_ref(), (&decision.because, stored.as_deref())).await)
            }
            (None, _) => {
                // The other volume may be deleted meanwhile; the next attempt looks for it again.
                self.memory.learn(uid, Known::Open);
                Step::Break(self.in_doubt(&begun, claim.as_deref(), decision.because.to_string()))
            }
            // Only what was made is stored or undone.
            (Some(Action::Store | Action::StoreRetained | Action::Undo), _) => Step::Break(Verdict::Done),
        }
    }

    /// Makes the volume, or finds it.
    async fn create(&self, uid: &Uid, begun: &Begun<P::Plan>, claim: Option<&Claim>, stop: &Stop) -> Step {
        // The journal may have taken long: a process that may not start anything any more leaves this to the next one.
        if stop.is_stopped() {
            return Step::Break(Verdict::Again(Duration::ZERO));
        }
        let attempt = match begun.known {
            Known::New => provision::Attempt::First,
            _ => provision::Attempt::Repeat,
        };
        // Should this future be dropped in the middle, whoever goes on must not take the next one for the first.
        self.memory.learn(uid, Known::Open);
        let message = match self.provisioner.create(&begun.intent.plan, attempt).await {
            Ok(made) => match serde_json::from_value::<Volume>(made.volume.clone()) {
                Ok(volume) => match self.memory.made(uid, Made { volume, body: made.volume }) {
                    Ok(()) => return Step::Continue(()),
                    Err(other) => {
                        format!(
                            "the driver answered with the volume that it has just made for the claim with uid {other}"
                        )
                    }
                },
                Err(error) => {
                    format!("the volume that was made cannot be written as an object: {error}; this is a bug")
                }
            },
            Err(Failed::Refused { message, retry }) => {
                self.memory.learn(uid, Known::Refused { message, retry });
                return Step::Continue(());
            }
            Err(Failed::Unknown { message } | Failed::InUse { message } | Failed::NotOurs { message }) => message,
        };
        Step::Break(self.in_doubt(begun, claim, message))
    }

    /// It did not work, and something may be there: the same again, after a while.
    fn in_doubt(&self, begun: &Begun<P::Plan>, claim: Option<&Claim>, message: String) -> Verdict {
        self.failed(claim, labels(begun), failed(&begun.intent.class, &message));
        Verdict::Failed(message)
    }

    /// One POST. What was made is never deleted because it could not be stored (PROVISION-2.10, SIDECAR-14.5.4).
    async fn store(&self, uid: &Uid, begun: &Begun<P::Plan>, claim: Option<&Claim>, made: &Made) -> Step {
        self.memory.storing(uid);
        match self.context.create::<Volume>(None, &made.body).await {
            Ok(stored) => {
                let stored = stored.as_deref().unwrap_or(&made.volume);
                Step::Break(self.stored(uid, begun, claim, stored).await)
            }
            Err(error) => {
                let message = format!("storing the PersistentVolume: {error}");
                match self.context.reconsider::<Volume>(&made.volume.meta.key, error).await {
                    Ok(()) => Step::Continue(()),
                    Err(_) => Step::Break(self.in_doubt(begun, claim, message)),
                }
            }
        }
    }

    /// Stores a volume that an earlier process began and no claim waits for, with a policy that keeps it.
    async fn store_retained(&self, uid: &Uid, begun: &Begun<P::Plan>, made: &Made, because: &Because) -> Step {
        let mut body = made.body.clone();
        body["spec"]["persistentVolumeReclaimPolicy"] = ReclaimPolicy::Retain.name().into();
        tracing::warn!(volume = begun.intent.volume, claim = %begun.intent.claim(), "{because}");
        let kept = Made { volume: made.volume.clone(), body };
        let step = self.store(uid, begun, None, &kept).await;
        if let (Some(stored), Some(notice)) =
            (self.context.cache::<Volume>().get(&made.volume.meta.key), because.notice())
        {
            self.notices.say(&*stored, notice);
        }
        step
    }

    /// Another object has the name: what was made for nobody goes again.
    async fn undo(&self, uid: &Uid, begun: &Begun<P::Plan>, claim: Option<&Claim>, made: &Made) -> Step {
        match self.provisioner.delete(&made.volume).await {
            Ok(()) => {
                self.memory.learn(uid, Known::Undone);
                Step::Continue(())
            }
            Err(error) => {
                let message =
                    format!("another PersistentVolume has the name, and what was made cannot be deleted: {error}");
                // It is looked for again before it is deleted again.
                self.memory.learn(uid, Known::Open);
                Step::Break(self.in_doubt(begun, claim, message))
            }
        }
    }

    async fn close(
        &self,
        uid: &Uid,
        begun: &Begun<P::Plan>,
        claim: Option<&Arc<Claim>>,
        (because, stored): (&Because, Option<&Volume>),
    ) -> Verdict {
        match (because, stored, &begun.known) {
            (Because::Stored { .. }, Some(stored), _) => {
                self.stored(uid, begun, claim.map(|claim| &**claim), stored).await
            }
            (Because::Refused { .. }, _, Known::Refused { message, retry }) => {
                self.nothing(uid, begun, claim, (message.clone(), *retry)).await
            }
            (because, _, _) => {
                self.provisioner.settled(&begun.intent.plan, Settled::Nothing).await;
                self.journal.close(uid);
                self.memory.end(uid);
                let message = because.to_string();
                match because.notice() {
                    Some(notice) => self.failed(claim.map(|claim| &**claim), labels(begun), notice),
                    None => tracing::debug!(message, "an intent was closed"),
                }
                Verdict::Failed(message)
            }
        }
    }

    /// There is surely nothing.
    async fn nothing(
        &self,
        uid: &Uid,
        begun: &Begun<P::Plan>,
        claim: Option<&Arc<Claim>>,
        (message, retry): (String, Retry),
    ) -> Verdict {
        self.provisioner.settled(&begun.intent.plan, Settled::Nothing).await;
        // If the node were given back first, a crash would have us repeat the old plan for the old node beside the
        // scheduler's new choice.
        match retry {
            Retry::Elsewhere => {
                if let Err(error) = self.journal.closed(uid).await {
                    return Verdict::Failed(error.to_string());
                }
            }
            Retry::Later | Retry::Changed => self.journal.close(uid),
        }
        self.memory.end(uid);
        let intent = &begun.intent;
        let (class, node, source) = (intent.class.as_str(), intent.node.as_deref(), intent.source.clone());
        self.refused(Refusal { uid, claim, class, source, node, message, retry }).await
    }

    /// The volume is an object now: from here on it is not forgotten, whatever happens to us.
    async fn stored(&self, uid: &Uid, begun: &Begun<P::Plan>, claim: Option<&Claim>, stored: &Volume) -> Verdict {
        self.provisioner.settled(&begun.intent.plan, Settled::Stored(stored)).await;
        self.journal.close(uid);
        self.memory.served(uid);
        self.memory.end(uid);
        // A process before us stored and counted what we only find.
        if let Known::Made(_) = begun.known {
            let (metrics, labels) = (&self.context.metrics.provision, labels(begun));
            metrics.provisioned.get_or_create(&labels).inc();
            metrics.provision_duration.get_or_create(&labels).observe(begun.since.elapsed().as_secs_f64());
            let because = Because::Stored { volume: begun.intent.volume.as_str().into() };
            tracing::info!(took = ?begun.since.elapsed(), "the volume is provisioned and stored");
            if let Some(claim) = claim {
                self.notices.tell(claim, &because);
            }
        }
        Verdict::Done
    }
}

fn labels<Plan>(begun: &Begun<Plan>) -> metrics::Provision {
    metrics::Provision { class: begun.intent.class.clone(), source: begun.intent.source.clone() }
}
