//! A pod that waits: it is told what for, and given back if its volumes find no slot here (NODE-4.4, NODE-32.20).

use std::sync::Arc;

use api::Kind;
use lifecycle::Notice;
use lifecycle::node::slots::{self, Fate, Lack, Limit};
use runtime::client::Error;
use runtime::{Patch, Verdict};
use serde_json::json;

use super::Agent;
use crate::desired::Wish;
use crate::pods::LocalPod;

impl Agent {
    /// A pod that lives.
    pub(super) async fn attend(&self, pod: &Arc<LocalPod>) -> Result<Verdict, Error> {
        match self.fate(pod) {
            Fate::Stays => self.tell(pod).await.map(|()| Verdict::Done),
            Fate::Waits(left) => self.tell(pod).await.map(|()| Verdict::Again(left)),
            Fate::Rejected(message) => self.reject(pod, &message).await.map(|()| Verdict::Done),
        }
    }

    fn fate(&self, pod: &LocalPod) -> Fate {
        let Some(desired) = self.world().desired.pod(pod.uid()).cloned() else { return Fate::Stays };
        let waits: Vec<_> = desired
            .volumes
            .values()
            .flatten()
            .map(|wish| (wish, self.stands(&wish.id, pod.uid()), self.limit(wish)))
            .collect();
        let lacks = waits.iter().map(|(wish, because, limit)| Lack {
            volume: &wish.volume,
            because,
            limit: *limit,
            waited: wish.since.elapsed(),
        });
        slots::fate(lacks, self.options.slot_wait)
    }

    fn limit(&self, wish: &Wish) -> Limit {
        let object = wish.what.driver().and_then(|driver| self.driver_object(driver.as_str()));
        let period = object.and_then(|object| object.spec.node_allocatable_update_period_seconds);
        if period.is_some() { Limit::Followed } else { Limit::Fixed }
    }

    /// The pod has failed, as one that a kubelet does not admit; whoever made it makes another. What it has here goes.
    async fn reject(&self, pod: &Arc<LocalPod>, message: &str) -> Result<(), Error> {
        let patch = json!({"metadata": {"uid": pod.uid().as_str()}, "status": {
            "phase": "Failed",
            "reason": slots::REASON,
            "message": format!("Pod was rejected: {message}"),
        }});
        let stored =
            self.context.client.patch_status::<LocalPod>(Kind::POD, &pod.meta.key, &Patch::Strategic(patch)).await;
        match stored {
            Ok(stored) => {
                tracing::warn!(pod = %pod.meta.key, message, "the pod was given back");
                self.notices.always(&**pod, &Notice::warning(slots::REASON, message.to_owned()));
                self.metrics.rejected(slots::REASON);
                self.pods.wrote(stored);
                self.pod_queue.add(pod.meta.key.clone());
                Ok(())
            }
            // It is gone, and its event is on its way.
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => {
                self.context.tell_failed_write(&**pod, &error);
                Err(error)
            }
        }
    }
}
