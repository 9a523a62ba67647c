//! A pod: what it wants, what it is told, and its end (NODE-5, NODE-22).

use std::sync::Arc;

use api::keys::condition;
use api::{Key, Kind, Uid};
use lifecycle::Reason as _;
use lifecycle::health::ABNORMAL_REASON;
use lifecycle::node::Because;
use runtime::client::{Deleted, Error, Preconditions};
use runtime::{Patch, Verdict};
use serde_json::json;

use super::Agent;
use crate::desired::DesiredPod;
use crate::pods::{LocalPod, Said};

impl Agent {
    pub(super) async fn pod_pass(&self, key: Key) -> Verdict {
        match self.resolve_pod(&key).await {
            Verdict::Done => {}
            other => return other,
        }
        let Some(pod) = self.pods.get(&key) else { return Verdict::Done };
        let ended = match pod.lives() {
            true => self.attend(&pod).await,
            false => self.finish(&pod).await,
        };
        match ended {
            Ok(verdict) => verdict,
            Err(error) if error.is_not_found() => Verdict::Done,
            Err(error) => Verdict::Failed(error.to_string()),
        }
    }

    /// Looks up what a pod wants now, and wakes the volumes that this concerns.
    pub(crate) async fn resolve_pod(&self, key: &Key) -> Verdict {
        let pod = self.pods.get(key);
        // A pod of the same name that came later is another pod.
        let others: Vec<Uid> = {
            let world = self.world();
            let same = world.desired.pods().filter(|held| held.pod.meta.key == *key);
            same.map(|held| held.pod.uid().clone())
                .filter(|uid| pod.as_ref().is_none_or(|pod| pod.uid() != uid))
                .collect()
        };
        for uid in &others {
            self.unwant(uid);
        }
        let Some(pod) = pod else { return Verdict::Done };
        if !pod.lives() {
            self.unwant(pod.uid());
            return Verdict::Done;
        }
        let node = self.nodes.get(&Key::cluster(&self.options.node));
        let resolver = crate::desired::Resolver {
            context: &self.context,
            node: &self.options.node,
            labels: node.as_deref(),
            contexts: self.contexts(),
        };
        let known = self.world().desired.known(&pod);
        match resolver.pod(&pod, known.as_ref()).await {
            Ok(desired) => {
                self.want(&pod, desired);
                Verdict::Done
            }
            Err(error) => Verdict::Failed(error.to_string()),
        }
    }

    fn want(&self, pod: &Arc<LocalPod>, desired: DesiredPod) {
        self.adopt(&desired);
        self.count_mismatches(&desired);
        let mut touched = self.world().desired.set(desired);
        // The pod may have gone while its claims were looked up.
        if self.pods.get(&pod.meta.key).is_none_or(|now| now.uid() != pod.uid() || !now.lives()) {
            touched.extend(self.world().desired.remove(pod.uid()));
        }
        touched.extend(self.world().held_by(pod.uid()));
        self.wake(touched);
    }

    /// What an earlier run mounted is not asked for again, so that its size and its next refresh are learned here.
    fn adopt(&self, desired: &DesiredPod) {
        for wish in desired.volumes.values().flatten() {
            let republish = self.republish_at(wish);
            let mut world = self.world();
            let Some(entry) = world.actual.get_mut(&wish.id) else { continue };
            if entry.size.is_none() {
                entry.size = wish.claimed.clone();
            }
            if let Some(held) = entry.pods.get_mut(wish.pod.uid()).filter(|held| held.republish.is_none()) {
                held.republish = republish;
            }
        }
    }

    fn unwant(&self, uid: &Uid) {
        let touched = {
            let mut world = self.world();
            let mut touched = world.desired.remove(uid);
            touched.extend(world.held_by(uid));
            world.stands.retain(|(_, pod), _| pod != uid);
            world.conditions.retain(|(_, pod), _| pod != uid);
            touched
        };
        self.tokens.forget(uid);
        self.unwants.notify_waiters();
        self.wake(touched);
    }

    fn wake(&self, ids: Vec<crate::actual::VolumeId>) {
        if !ids.is_empty() {
            self.report.notify_one();
        }
        for id in ids {
            self.volume_queue.add(id);
        }
    }

    /// Wakes a pod by its uid: something about one of its volumes changed.
    pub(crate) fn wake_pod(&self, uid: &Uid) {
        if let Some(pod) = self.by_uid.first(uid.as_str()) {
            self.pod_queue.add(pod.meta.key.clone());
        }
    }

    /// Writes into the pod's conditions whether its volumes are ready, and why not.
    pub(super) async fn tell(&self, pod: &Arc<LocalPod>) -> Result<(), Error> {
        let Some(desired) = self.world().desired.pod(pod.uid()).cloned() else { return Ok(()) };
        let mut waits: Vec<(&str, Because)> = Vec::new();
        let mut troubles: Vec<(&str, Box<str>)> = Vec::new();
        let mut unasked = false;
        for (name, volume) in &desired.volumes {
            if let Ok(wish) = volume {
                match self.world().conditions.get(&(wish.id.clone(), pod.uid().clone())) {
                    Some(said) => troubles.extend(said.clone().map(|message| (&**name, message))),
                    None => unasked = self.options.stats.is_some(),
                }
            }
            match volume {
                Ok(wish) => match self.stands(&wish.id, pod.uid()) {
                    Because::Ready | Because::Republishing | Because::Expanding => {}
                    because => waits.push((name, because)),
                },
                Err(because) => {
                    if let Some(notice) = because.notice() {
                        self.notices.say(&**pod, notice);
                    }
                    waits.push((name, because.clone()));
                }
            }
        }
        let said = say(&waits, &troubles);
        // What an earlier life of the agent said of a volume holds until its driver was asked again.
        let held_abnormal = |held: &Said| &*held.reason == ABNORMAL_REASON && held.status == said.status;
        if unasked && troubles.is_empty() && pod.said.as_ref().is_some_and(held_abnormal) {
            return Ok(());
        }
        if pod.said.as_ref().is_some_and(|held| {
            (&held.status, &held.reason, &held.message) == (&said.status, &said.reason, &said.message)
        }) {
            return Ok(());
        }
        let unchanged = pod.said.as_ref().filter(|held| held.status == said.status).and_then(|held| held.since.clone());
        let now = self.context.clock.now();
        let since = unchanged.map_or_else(|| format!("{now:.0}"), String::from);
        let patch = json!({"metadata": {"uid": pod.uid().as_str()}, "status": {"conditions": [{
            "type": condition::VOLUMES_READY,
            "status": said.status,
            "reason": said.reason,
            "message": said.message,
            "lastTransitionTime": since,
        }]}});
        let stored =
            self.context.client.patch_status::<LocalPod>(Kind::POD, &pod.meta.key, &Patch::Strategic(patch)).await;
        match stored {
            Ok(stored) => drop(self.pods.wrote(stored)),
            // It is gone, and its event is on its way.
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                self.context.tell_failed_write(&**pod, &error);
                return Err(error);
            }
        }
        Ok(())
    }

    /// A pod that ends: when nothing of it is left on this machine, its object may go (NODE-22).
    async fn finish(&self, pod: &Arc<LocalPod>) -> Result<Verdict, Error> {
        {
            let world = self.world();
            // Whoever learns the rest wakes it, and so does each volume that goes.
            if !world.known || !world.held_by(pod.uid()).is_empty() {
                return Ok(Verdict::Done);
            }
        }
        if !self.clear_pod_directory(pod.uid()).await {
            return Ok(Verdict::Failed("the pod's directory stays".to_owned()));
        }
        self.notices.forget(pod.uid());
        if !pod.meta.is_deleting() || !self.options.finish_pods {
            return Ok(Verdict::Done);
        }
        let ended = self.context.client.delete_now::<LocalPod>(&pod.meta.key, &Preconditions::same(&pod.meta)).await;
        match ended {
            Ok(Deleted::Gone) => self.pods.deleted(&pod.meta.key, pod.uid()),
            // Somebody's finalizer holds it; its end is his.
            Ok(Deleted::Pending(object)) => drop(self.pods.wrote(object)),
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                self.context.tell_failed_write(&**pod, &error);
                return Err(error);
            }
        }
        Ok(Verdict::Done)
    }
}

/// The condition that these reasons make. A volume that is mounted and not well does not change the status.
fn say(waits: &[(&str, Because)], troubles: &[(&str, Box<str>)]) -> Said {
    let waiting = waits.iter().map(|(name, because)| format!("{name}: {because}"));
    let sentences: Vec<String> =
        waiting.chain(troubles.iter().map(|(name, message)| format!("{name}: {message}"))).collect();
    let (status, reason) = match (waits.first(), troubles) {
        (Some((_, first)), _) => ("False", camel(first.code())),
        (None, [_, ..]) => ("True", ABNORMAL_REASON.to_owned()),
        (None, []) => ("True", "Mounted".to_owned()),
    };
    Said { status: status.into(), reason: reason.into(), message: sentences.join("; ").into(), since: None }
}

/// `not_attached` as a condition's reason is written: `NotAttached`.
fn camel(code: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect::<String>()
    };
    code.split('_').map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_names_every_volume_that_is_not_ready() {
        let waits = [("data", Because::NotAttached), ("logs", Because::Staging)];
        let said = say(&waits, &[]);
        assert_eq!((&*said.status, &*said.reason), ("False", "NotAttached"));
        assert!(said.message.contains("data: ") && said.message.contains("; logs: "), "{}", said.message);
        assert_eq!(&*say(&[], &[]).status, "True");
    }

    #[test]
    fn a_mounted_volume_that_is_not_well_is_named_and_stays_ready() {
        let said = say(&[], &[("data", "writes were lost: x".into())]);
        assert_eq!((&*said.status, &*said.reason), ("True", ABNORMAL_REASON));
        assert_eq!(&*said.message, "data: writes were lost: x");
        let both = say(&[("logs", Because::Staging)], &[("data", "pool full: x".into())]);
        assert!(&*both.status == "False" && both.message.ends_with("; data: pool full: x"), "{}", both.message);
    }
}
