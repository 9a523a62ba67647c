//! One node: it is told what it has, and what it does not use leaves it. All of a node's status writes and detaches happen
//! here, one turn at a time, so that nothing is told to a node while it is being taken from it.

use std::sync::Arc;
use std::time::Duration;

use api::{AttachedVolume, Attachment, Key, Node, Volume};
use futures_util::stream::{self, StreamExt as _};
use lifecycle::attach::hold::{self, Evidence, Hold};
use lifecycle::attach::node::{self, Action, Freshness, Seen, View};
use lifecycle::{Lookup, Reason as _};
use runtime::client::{Deleted, Error, Preconditions};
use runtime::{Patch, Verdict, work};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::gate::Waiter;
use super::{Attachments, ROUNDS};
use crate::Live;

/// How many attachments of one node are deleted at once.
const AT_ONCE: usize = 16;

/// What came of one attempt to detach.
enum Asked {
    /// The cache knows what came of it.
    Known,
    /// The driver has enough to do; the node is called when it has not.
    Queued,
}

impl Attachments {
    /// Decides about a node until there is nothing to do.
    pub(super) async fn node(&self, name: Box<str>) -> Verdict {
        let key = Key::cluster(&name);
        let mut live: Option<Live<Node>> = None;
        for _ in 0..ROUNDS {
            let attachments = self.wake.view.attachments_on(&name);
            let known = newest(live.take(), self.wake.view.node(&name));
            if let Some(Live::Absent) = &known.node {
                self.unready.forget(&name);
            }
            let plan = self.plan(&name, &known, &attachments);
            match plan.actions.first() {
                None => {
                    self.paces.rest(&name);
                    self.pass_on();
                    return self.settled(&plan.holds);
                }
                Some(Action::ReadNode) => match self.context.read::<Node>(&key).await {
                    Ok(read) => live = Some(read),
                    Err(error) => return Verdict::Failed(error.to_string()),
                },
                Some(Action::Report { list, pace }) => {
                    if let Some(wait) = self.paces.wait(&name, *pace) {
                        return Verdict::Again(wait);
                    }
                    match self.report(&known, list).await {
                        Ok(told) => live = told,
                        Err(error) => return Verdict::Failed(error.to_string()),
                    }
                }
                Some(Action::Detach { .. }) => match self.detach_all(&attachments, &plan.actions).await {
                    Ok(Asked::Known) => {}
                    Ok(Asked::Queued) => return Verdict::Again(self.wake.gate.patience()),
                    Err(error) => return Verdict::Failed(error.to_string()),
                },
            }
        }
        Verdict::Again(Duration::ZERO)
    }

    fn plan(&self, name: &str, known: &Known, attachments: &[Arc<Attachment>]) -> node::Plan {
        let wanted = self.wake.view.wanted_on(name);
        let uniques: Vec<Option<String>> =
            attachments.iter().map(|held| wanted.get(held.name()).map(|target| target.unique())).collect();
        let seen: Vec<Seen<'_>> = attachments
            .iter()
            .zip(&uniques)
            .map(|(attachment, unique)| Seen {
                attachment,
                need: self.wake.view.need(attachment, &wanted),
                unique: unique.as_deref(),
            })
            .collect();
        let (node, freshness) = known.lookup();
        node::decide(&View {
            node,
            freshness,
            attachments: &seen,
            rules: self.rules(known.found().map(|node| &**node)),
        })
    }

    /// Writes the whole list at the revision that was decided about. Gives the node as it is after the write; its word
    /// about what it uses is as of that write.
    async fn report(&self, known: &Known, list: &[AttachedVolume]) -> Result<Option<Live<Node>>, Error> {
        let Some(node) = known.found() else { return Ok(None) };
        let entry = |held: &AttachedVolume| json!({"name": held.name, "devicePath": held.device_path});
        let list: Vec<Value> = list.iter().map(entry).collect();
        let patch = Patch::Merge(json!({
            "metadata": {"uid": node.meta.uid.as_str(), "resourceVersion": node.meta.revision.to_string()},
            "status": {"volumesAttached": list},
        }));
        let began = Instant::now();
        let answer = self.context.patch_status::<Node>(&node.meta.key, &patch).await;
        self.paces.told(node.name(), began.elapsed());
        match answer {
            Ok(told) => Ok(told.map(Live::Found)),
            Err(error) => self.context.reconsider::<Node>(&node.meta.key, error).await.map(|()| None),
        }
    }

    async fn detach_all(&self, attachments: &[Arc<Attachment>], actions: &[Action]) -> Result<Asked, Error> {
        let detaches = actions.iter().filter_map(|action| match action {
            Action::Detach { at, hold } => attachments.get(*at).map(|attachment| (attachment, hold)),
            Action::ReadNode | Action::Report { .. } => None,
        });
        let detaches: Vec<_> = detaches
            .map(|(attachment, hold)| Box::pin(self.detach(attachment, hold)).instrument(self.about_detach(attachment)))
            .collect();
        let asked: Vec<Result<Asked, Error>> = stream::iter(detaches).buffer_unordered(AT_ONCE).collect().await;
        let mut all = Asked::Known;
        for one in asked {
            if let Asked::Queued = one? {
                all = Asked::Queued;
            }
        }
        Ok(all)
    }

    /// What the log says a detach is about.
    fn about_detach(&self, attachment: &Attachment) -> tracing::Span {
        let name = attachment.volume.as_deref().unwrap_or(attachment.name());
        let volume = self.wake.view.volumes.get(&Key::cluster(name));
        let claim = volume.as_ref().and_then(|volume| volume.claim.as_ref()).map(|reference| &reference.key);
        work::on_volume("ask-detach", name, claim)
    }

    /// Asks for the end of an attachment as it was decided about: whatever happens to it meanwhile makes this fail.
    async fn detach(&self, attachment: &Arc<Attachment>, hold: &Hold) -> Result<Asked, Error> {
        let (meta, node) = (&attachment.meta, attachment.node.as_str());
        if !self.wake.gate.enter(&attachment.attacher, attachment.name(), Waiter::Node(node.into())) {
            return Ok(Asked::Queued);
        }
        // What was on its way until now has never been there: nothing is forced by calling it back.
        let was_coming = self.wake.ends.attaching.arrived(attachment.name()).is_some();
        self.wake.ends.detaching.waiting(attachment.name());
        tracing::debug!(attachment = attachment.name(), node, because = hold.code(), "detaching");
        match self.context.client.delete::<Attachment>(&meta.key, &Preconditions::unchanged(meta)).await {
            Ok(Deleted::Gone) => self.context.gone::<Attachment>(meta),
            Ok(Deleted::Pending(object)) => drop(self.wake.view.attachments.wrote(object)),
            Err(error) => {
                let reconsidered = self.context.reconsider::<Attachment>(&meta.key, error).await;
                if let Some(now) = self.wake.view.attachments.get(&meta.key).filter(|now| !now.meta.is_deleting()) {
                    self.wake.ends.detaching.arrived(now.name());
                    self.wake.queues.call(self.wake.gate.leave(&now.attacher, now.name()));
                    return reconsidered.map(|()| Asked::Known);
                }
                reconsidered?;
            }
        }
        match hold {
            Hold::Forced { evidence: Evidence::Unpublished } if was_coming => {}
            Hold::Forced { evidence } => self.forced(attachment, *evidence),
            _ => {}
        }
        Ok(Asked::Known)
    }

    fn forced(&self, attachment: &Attachment, evidence: Evidence) {
        self.wake.ends.metrics.forced(evidence);
        let notice = hold::forced(attachment, evidence);
        tracing::warn!(node = attachment.node.as_str(), %evidence, "{}", notice.message);
        let volume = attachment.volume.as_deref().and_then(|name| self.wake.view.volumes.get(&Key::cluster(name)));
        match volume {
            Some(volume) => self.wake.told.notices().always::<Volume>(&volume, &notice),
            None => self.wake.told.notices().always(attachment, &notice),
        }
    }

    fn settled(&self, holds: &[Hold]) -> Verdict {
        let forced = holds.iter().filter_map(|hold| match hold {
            Hold::InUse { force_in, .. } => *force_in,
            _ => None,
        });
        forced.min().map_or(Verdict::Done, Verdict::Again)
    }
}

/// What is known of a node in a turn.
struct Known {
    node: Option<Live<Node>>,
    freshness: Freshness,
}

impl Known {
    fn lookup(&self) -> (Lookup<'_, Node>, Freshness) {
        (self.node.as_ref().map_or(Lookup::NotCached, Live::lookup), self.freshness)
    }

    fn found(&self) -> Option<&Arc<Node>> {
        match &self.node {
            Some(Live::Found(node)) => Some(node),
            Some(Live::Absent) | None => None,
        }
    }
}

/// What the server said in this turn, or the cache if it knows something newer.
fn newest(live: Option<Live<Node>>, cached: Option<Arc<Node>>) -> Known {
    let fresh = |node| Known { node: Some(node), freshness: Freshness::Live };
    let from_cache = |node: Arc<Node>| Known { node: Some(Live::Found(node)), freshness: Freshness::Cached };
    match (live, cached) {
        (Some(Live::Found(live)), Some(cached)) if cached.meta.uid != live.meta.uid => from_cache(cached),
        // What came after the answer was said after it, too.
        (Some(Live::Found(live)), Some(cached)) if cached.meta.revision > live.meta.revision => {
            fresh(Live::Found(cached))
        }
        (Some(Live::Absent), Some(cached)) => from_cache(cached),
        (Some(live), _) => fresh(live),
        (None, Some(cached)) => from_cache(cached),
        (None, None) => Known { node: None, freshness: Freshness::Cached },
    }
}
