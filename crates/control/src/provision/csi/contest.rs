//! Several instances, one per node, and a claim that nobody was selected for: who has room takes it (PROVISION-2.13).
//!
//! Upstream sleeps inside a worker. Here the wait is an entry in a queue: it costs nothing, and by the time it is over
//! the cache says whether somebody else was faster.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::keys::annotation;
use api::{Claim, Class, Key};
use csi::v1;
use lifecycle::provision::csi::outline::Findings;
use runtime::queue::{self, Backoff};
use runtime::{Entropy, Patch, Queue, Stop, Verdict};
use serde_json::json;

use super::{Inner, wire};
use crate::Context;
use crate::provision::Wish;

/// This instance serves one node.
#[derive(Debug, Clone)]
pub struct NodeMode {
    /// Its name, `NODE_NAME`.
    pub name: String,
    /// `--node-deployment-immediate-binding`.
    pub immediate: bool,
    /// `--node-deployment-base-delay`.
    pub base_delay: Duration,
    /// `--node-deployment-max-delay`.
    pub max_delay: Duration,
}

/// How often in a row this instance came late.
type Rounds = Mutex<BTreeMap<Key, u32>>;

#[derive(Debug)]
pub(super) struct Contest {
    node: NodeMode,
    queue: Queue<Key>,
    entropy: Entropy,
    rounds: Rounds,
}

impl Contest {
    pub(super) fn new(context: &Context, node: NodeMode, backoff: Backoff) -> Self {
        let queue = Queue::new("ownership", backoff, &context.metrics, &context.entropy);
        Self { node, queue, entropy: context.entropy.fork(), rounds: Rounds::default() }
    }

    pub(super) fn node(&self) -> &NodeMode {
        &self.node
    }

    /// A claim that nobody was selected for.
    pub(super) fn enter(&self, claim: &Claim) {
        if self.queue.planned(claim.key()).is_none() {
            self.queue.add_after(claim.key().clone(), self.delay(0));
        }
    }

    /// `min(base * 2^n, max)`, less up to one base delay that is left to chance.
    fn delay(&self, round: u32) -> Duration {
        let doubled = self.node.base_delay.saturating_mul(1u32.checked_shl(round).unwrap_or(u32::MAX));
        let chance = self.node.base_delay.mul_f64(self.entropy.fraction());
        doubled.min(self.node.max_delay).saturating_sub(chance)
    }

    pub(super) async fn run(&self, inner: &Arc<Inner>, stop: &Stop) {
        queue::run(&self.queue, 1, stop, |key| self.compete(inner, key)).await;
    }

    /// Takes a claim that is still nobody's, if there is room for it here.
    async fn compete(&self, inner: &Arc<Inner>, key: Key) -> Verdict {
        let context = &inner.context;
        let Some(claim) = context.cache::<Claim>().get(&key) else {
            self.forget(&key);
            return Verdict::Done;
        };
        let class = context.cache::<Class>().get(&Key::cluster(claim.class().text()));
        let open = claim.volume_name.is_empty() && claim.selected_node().is_none() && !claim.meta.is_deleting();
        let (true, Some(class)) = (open, class) else {
            self.forget(&key);
            return Verdict::Done;
        };
        if let Some(why) = self.no_room(inner, &claim, &class).await {
            return Verdict::Failed(why);
        }
        let patch = Patch::Merge(json!({"metadata": {
            "uid": claim.uid().as_str(),
            "resourceVersion": claim.meta.revision.to_string(),
            "annotations": {annotation::SELECTED_NODE.text(): self.node.name},
        }}));
        match context.patch::<Claim>(&key, &patch).await {
            Ok(_) => {
                self.forget(&key);
                Verdict::Done
            }
            Err(error) => match context.reconsider::<Claim>(&key, error).await {
                Ok(()) => Verdict::Again(self.delay(self.lost(&key))),
                Err(error) => Verdict::Failed(error.to_string()),
            },
        }
    }

    /// Why the claim does not fit here. What cannot be found out does not stand in the way.
    async fn no_room(&self, inner: &Arc<Inner>, claim: &Arc<Claim>, class: &Arc<Class>) -> Option<String> {
        let facts = inner.driver.facts()?;
        let wish =
            Wish { claim: claim.clone(), class: class.clone(), node: None, volume_name: claim.uid().to_string() };
        // Nothing is guarded for a claim that another node may win (SIDECAR-P14).
        let plan = inner.outline(&wish, &facts, &[]).ok()?.plan(Findings::default());
        let place = inner.places.own(&inner.driver, inner.options.timeout).await.ok()?;
        let request = v1::GetCapacityRequest {
            volume_capabilities: wire::capabilities(&plan),
            parameters: plan.parameters.clone(),
            accessible_topology: Some(wire::topology(&place)),
        };
        let answer = inner.driver.get_capacity(request, inner.options.timeout).await.ok()?;
        let fits = answer.available_capacity >= plan.bytes;
        (!fits).then(|| format!("{} bytes are left, and {} are asked for", answer.available_capacity, plan.bytes))
    }

    fn lost(&self, key: &Key) -> u32 {
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        let round = rounds.entry(key.clone()).or_default();
        *round = round.saturating_add(1);
        *round
    }

    fn forget(&self, key: &Key) {
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}
