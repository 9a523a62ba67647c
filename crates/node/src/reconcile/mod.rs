//! One volume: look, decide, do one step, look again.

mod act;
mod view;

use std::sync::Arc;
use std::time::Duration;

use api::{Attachment, Key, Uid, Volume};
use lifecycle::attach::{Target, attachment_name};
use lifecycle::node::{Because, Class, Held, Origin, Step, decide};
use lifecycle::{Notice, Reason as _};
use runtime::client::Extent;
use runtime::{Verdict, work};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::Agent;
use crate::actual::{Entry, PodEntry, Told, VolumeId, What};
use crate::agent::{BACKOFF, Failed};
pub(crate) use act::{Effect, Failure, How};
pub(crate) use view::View;

/// How many steps of one volume follow each other before others have their turn.
const ROUNDS: usize = 64;

/// A failure, and whether it is another one than the last time.
struct Tellable {
    because: Because,
    news: News,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    New,
    Repeated,
}

impl Agent {
    pub(crate) async fn volume_pass(&self, id: VolumeId) -> Verdict {
        for _ in 0..ROUNDS {
            let Some(view) = self.view(&id) else {
                self.forget_failures(&id);
                return Verdict::Done;
            };
            let decision = decide(&view.observed());
            tracing::debug!(volume = %id, because = %decision.because, actions = ?decision.actions, "decided");
            self.note(&id, &view);
            let now = Instant::now();
            let Some(step) = decision.actions.into_iter().find(|step| self.may_try(&id, step, now)) else {
                return self.rest(&id, &view, now);
            };
            // On the heap: a span around it would double a large state on the stack.
            Box::pin(self.take_step(&id, &step, &view)).instrument(self.about(&step, &view)).await;
        }
        Verdict::Again(Duration::ZERO)
    }

    async fn take_step(&self, id: &VolumeId, step: &Step, view: &View) {
        let began = Instant::now();
        let ended = self.act(id, step, view).await;
        self.metrics.operated((&view.what, view.is_migrated()), step, ended.is_ok(), began.elapsed());
        let failed = self.settle(id, step, view, ended);
        if let Some(failed) = &failed {
            self.tell_failure(step, view, failed).await;
        }
        if failed.is_some() && matches!(step, Step::Stage(_) | Step::Publish(_) | Step::Republish(_)) {
            // What is in the way, or what the volume is staged on, may have died.
            self.inspect_volume(id).await;
        }
        if let Step::Unpublish(pod) = step {
            self.clear_if_orphaned(pod).await;
        }
    }

    /// What the log says a step is about. Nobody may want the volume any more; then its attachment knows what it is.
    fn about(&self, step: &Step, view: &View) -> tracing::Span {
        let kind = match step {
            Step::Unpublish(_) => "unpublish",
            Step::Stage(_) => "stage",
            Step::Publish(_) => "publish",
            Step::Republish(_) => "republish",
            Step::Expand(_) => "expand",
            Step::Unstage => "unstage",
            Step::Forget => "forget",
        };
        match (view.wish(step), &view.what) {
            (Some(wish), _) => work::on_volume(kind, &view.name(step), wish.claim.as_ref().map(|(claim, _)| claim)),
            (None, What::Csi { driver, handle, .. }) => {
                let name = attachment_name(driver.as_str(), handle, &self.options.node);
                let attachment = self.context.cache::<Attachment>().get(&Key::cluster(&name));
                let name = attachment.and_then(|attachment| attachment.volume.clone());
                let volume = name.and_then(|name| self.context.cache::<Volume>().get(&Key::cluster(&name)));
                let claim = volume.as_ref().and_then(|volume| volume.claim.as_ref()).map(|reference| &reference.key);
                match &volume {
                    Some(volume) => work::on_volume(kind, volume.name(), claim),
                    None => work::on_volume(kind, &view.name(step), None),
                }
            }
            (None, What::InTree { .. } | What::LocalDevice { .. }) => work::on_volume(kind, &view.name(step), None),
        }
    }

    /// Nothing can be done now: when is the next time?
    fn rest(&self, id: &VolumeId, view: &View, now: Instant) -> Verdict {
        let world = self.world();
        let retries =
            world.failures.get(id).into_iter().flat_map(|failures| failures.values()).map(|failed| failed.until);
        let next = retries.chain(view.next_republish()).chain(view.alone_at).filter(|at| *at > now).min();
        match next {
            Some(at) => Verdict::Again(at.saturating_duration_since(now)),
            None => Verdict::Done,
        }
    }

    fn may_try(&self, id: &VolumeId, step: &Step, now: Instant) -> bool {
        let world = self.world();
        let failed = world.failures.get(id).and_then(|failures| failures.get(step));
        failed.is_none_or(|failed| failed.until <= now)
    }

    fn forget_failures(&self, id: &VolumeId) {
        let mut world = self.world();
        world.failures.remove(id);
        world.stands.retain(|(volume, _), _| volume != id);
        world.silent.retain(|(volume, _), _| volume != id);
    }

    /// Remembers where each pod stands, and wakes the pods for which that is news.
    fn note(&self, id: &VolumeId, view: &View) {
        let observed = view.observed();
        let mut changed: Vec<Uid> = Vec::new();
        {
            let mut world = self.world();
            let known = world.known;
            for wanted in &view.wanted {
                let stands = lifecycle::node::standing(&observed, wanted);
                let failed = world.failures.get(id).and_then(|failures| {
                    let own = failures.iter().filter(|(step, _)| step.pod() == Some(&wanted.pod));
                    own.map(|(_, failed)| failed.because.clone()).next_back()
                });
                let silent = world.silent.get(&(id.clone(), wanted.pod.clone())).cloned();
                let stands = match (failed, &stands, silent) {
                    (Some(failed), Because::Staging | Because::Publishing, _) => failed,
                    (_, Because::Ready, Some(message)) => Because::Hung { message },
                    _ => stands,
                };
                let held = world.stands.insert((id.clone(), wanted.pod.clone()), stands.clone());
                if held.as_ref() != Some(&stands) {
                    changed.push(wanted.pod.clone());
                }
            }
            if known && view.wanted.is_empty() {
                world.stands.retain(|(volume, _), _| volume != id);
            }
        }
        for pod in changed {
            self.wake_pod(&pod);
        }
    }

    /// Takes in what became of a step. Gives what there is to tell of a failure.
    fn settle(&self, id: &VolumeId, step: &Step, view: &View, ended: Result<Effect, Failure>) -> Option<Tellable> {
        let failed = match ended {
            Ok(effect) => {
                self.succeeded(id, step, view, effect);
                None
            }
            Err(failure) => Some(self.failed(id, step, view, failure)),
        };
        if matches!(step, Step::Unpublish(_))
            && let Some(pod) = step.pod()
        {
            self.wake_pod(pod);
        }
        if *step == Step::Forget {
            self.report.notify_one();
        }
        failed
    }

    fn succeeded(&self, id: &VolumeId, step: &Step, view: &View, effect: Effect) {
        let mut world = self.world();
        if let Some(failures) = world.failures.get_mut(id) {
            // Progress in one thing says that the others may work as well, but their own failures stay counted.
            failures.remove(step);
            if failures.is_empty() {
                world.failures.remove(id);
            }
        }
        if *step == Step::Forget {
            world.actual.remove(id);
            return;
        }
        let wanted = step.pod().is_some_and(|pod| world.desired.wish(id, pod).is_some());
        let Some(entry) = world.actual.get_mut(id) else { return };
        match step {
            Step::Stage(_) => entry.device = Held::Yes,
            Step::Unstage => entry.device = Held::No,
            Step::Unpublish(pod) => {
                entry.pods.remove(pod);
                world.silent.remove(&(id.clone(), pod.clone()));
            }
            Step::Publish(pod) | Step::Republish(pod) => {
                if let Some(held) = entry.pods.get_mut(pod) {
                    held.held = Held::Yes;
                    if wanted {
                        held.told = Told::Maybe;
                    }
                    held.republish = effect.republish;
                }
                entry.size = effect.size.or(entry.size.take());
                entry.refused = effect.refused.or(entry.refused.take());
            }
            Step::Expand(_) => {
                entry.size = effect.size.or(entry.size.take());
                entry.refused = effect.refused.or(entry.refused.take());
            }
            Step::Forget => {}
        }
        drop(world);
        match (step, view.wish(step)) {
            (Step::Publish(pod), Some(wish)) => {
                self.metrics.mounted(&view.what, wish.since.elapsed());
                tracing::info!(id = %id, pod = %wish.pod.meta.key, uid = %pod, "the volume is mounted for the pod");
            }
            (Step::Stage(_), _) => tracing::info!(id = %id, "the volume is staged"),
            (Step::Unpublish(pod), _) => tracing::info!(id = %id, uid = %pod, "the volume is unmounted for the pod"),
            (Step::Unstage, _) => tracing::info!(id = %id, "the volume is unstaged"),
            (Step::Expand(_), _) => tracing::info!(id = %id, "the volume is grown on this machine"),
            (Step::Publish(_) | Step::Republish(_) | Step::Forget, _) => {}
        }
    }

    /// Notes a failure, and gives what there is to tell of it.
    fn failed(&self, id: &VolumeId, step: &Step, view: &View, failure: Failure) -> Tellable {
        let because = Because::Failed {
            stage: failure.stage,
            volume: view.name(step).into(),
            message: failure.message.as_str().into(),
        };
        tracing::warn!(id = %id, ?step, class = ?failure.class, %because, "a step failed");
        if let Some(entry) = self.world().actual.get_mut(id) {
            after_failure(entry, step, &failure);
        }
        let told = because.clone();
        let because = match failure.how {
            How::Hung => Because::Hung { message: because.to_string().into() },
            How::WrongFilesystem => {
                self.tell_mismatch(step, view, &because);
                because
            }
            How::Plain => because,
        };
        let mut world = self.world();
        let before = world.failures.get(id).and_then(|failures| failures.get(step));
        let news = match before.is_some_and(|before| before.because == because) {
            true => News::Repeated,
            false => News::New,
        };
        let times = before.map_or(0, |failed| failed.times).saturating_add(1);
        let wait = BACKOFF.start.saturating_mul(1u32.checked_shl(times - 1).unwrap_or(u32::MAX)).min(BACKOFF.max);
        let failed = Failed { times, until: Instant::now() + wait, because };
        world.failures.entry(id.clone()).or_default().insert(step.clone(), failed);
        // What was tried for a pod that is gone is of no interest any more.
        let wanted: Vec<Uid> = view.wanted.iter().map(|wanted| wanted.pod.clone()).collect();
        if let Some(failures) = world.failures.get_mut(id) {
            failures.retain(|step, _| match step {
                Step::Stage(pod) | Step::Publish(pod) | Step::Republish(pod) | Step::Expand(pod) => {
                    wanted.contains(pod)
                }
                Step::Unpublish(_) | Step::Unstage | Step::Forget => true,
            });
        }
        Tellable { because: told, news }
    }

    /// The volume hears of it, too: whoever made it knows what should be on it (NODE-26, NODE-29.5).
    fn tell_mismatch(&self, step: &Step, view: &View, because: &Because) {
        let volume = view.wish(step).and_then(|wish| wish.volume_key.clone());
        if let Some(volume) = volume.and_then(|key| self.context.cache::<api::Volume>().get(&key)) {
            self.notices.always(&*volume, &Notice::warning("FailedMountOnFilesystemMismatch", because.to_string()));
        }
    }

    /// The event on the pod. Who takes a pod's volume away tells it, too (NODE-31.22).
    async fn tell_failure(&self, step: &Step, view: &View, failed: &Tellable) {
        let Tellable { because, news } = failed;
        let Some(notice) = because.notice() else { return };
        let about = step.pod().and_then(|uid| self.by_uid.first(uid.as_str()));
        if let Some(pod) = about {
            self.notices.always(&*pod, &notice);
        }
        // What no pod has any more is told where its administrator looks. Finding that may take a search through all volumes
        // of the cluster, which is not made for each attempt.
        if matches!(step, Step::Unstage | Step::Forget)
            && *news == News::New
            && let Some(volume) = self.volume_of(&view.what).await
        {
            self.notices.always(&*volume, &notice);
        }
        if let Step::Expand(_) = step
            && let Some(claim) = view.wish(step).and_then(|wish| wish.claim.clone())
            && let Some(claim) = self.context.cache::<api::Claim>().get(&claim.0)
        {
            self.notices.always(&*claim, &Notice::warning("FileSystemResizeFailed", because.to_string()));
        }
    }
}

impl Agent {
    /// The PersistentVolume that a volume of this machine is. An agent that keeps only its pods' has to ask for the others.
    pub(crate) async fn volume_of(&self, what: &What) -> Option<Arc<Volume>> {
        let is_it = |volume: &Volume| match what {
            What::Csi { driver, handle, .. } => {
                let target = Target::of_volume(volume).ok().flatten();
                target.is_some_and(|target| *target.driver == *driver.as_str() && target.handle == *handle)
            }
            What::InTree { name, .. } | What::LocalDevice { name } => volume.name() == name.as_str(),
        };
        let cache = self.context.cache::<Volume>();
        match cache.walk().find(|volume| is_it(volume)) {
            None if cache.extent() == Extent::Wanted => {
                self.search_volumes(|volume| is_it(volume).then(|| volume.clone())).await.map(Arc::new)
            }
            held => held,
        }
    }
}

/// The transitions of NODE-6.3.
fn after_failure(entry: &mut Entry, step: &Step, failure: &Failure) {
    let failed = |held: Held| match failure.seen && held != Held::Yes {
        true => Held::Maybe(Origin::Seen),
        false => held.after_failure(failure.class),
    };
    match step {
        Step::Stage(_) => entry.device = failed(entry.device),
        Step::Unstage => entry.device = entry.device.after_failed_removal(),
        Step::Publish(pod) => {
            if let Some(held) = entry.pods.get_mut(pod) {
                held.held = failed(held.held);
                if held.held.is_none() {
                    entry.pods.remove(pod);
                }
            }
        }
        // A failed repetition takes nothing away (NODE-6.3, NODE-16, NODE-30.12).
        Step::Republish(_) | Step::Expand(_) | Step::Forget => {}
        Step::Unpublish(pod) => {
            // What never reached the driver changed nothing on the way to it.
            if let Some(held) = entry.pods.get_mut(pod).filter(|_| failure.class != Class::Transient) {
                held.held = held.held.after_failed_removal();
            }
        }
    }
}

/// Makes sure that a pod that gets a volume is remembered before the driver is asked.
pub(crate) fn remember(entry: &mut Entry, pod: &Uid, spec: &crate::layout::Name) {
    let fresh = || PodEntry { spec: spec.clone(), held: Held::No, told: Told::Never, republish: None };
    entry.pods.entry(pod.clone()).or_insert_with(fresh);
}
