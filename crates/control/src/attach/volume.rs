//! One volume: attachments are made for the nodes that want it, and pods are told what became of that.

use std::sync::Arc;
use std::time::Duration;

use api::keys::annotation;
use api::object::UnixSeconds;
use api::{Attachment, Key, Kind, Node, Pod};
use futures_util::stream::{self, StreamExt as _};
use lifecycle::attach::Target;
use lifecycle::attach::hold::Rules;
use lifecycle::attach::restored::{self, MADE_SINCE};
use lifecycle::attach::target::{Origin, Sharing};
use lifecycle::attach::wish::{self, Because, OVERDUE, Other, RestoreListing, Slot, Users, Wish};
use lifecycle::{Decision, Lookup, Reason as _};
use runtime::Verdict;
use runtime::client::Error;
use runtime::handoff::{Coming, Notes};
use serde_json::{Value, json};

use super::gate::Waiter;
use super::metrics::Operation;
use super::view::Want;
use super::{Attachments, ROUNDS};

/// How many attachments of one volume are made at once.
const AT_ONCE: usize = 16;

/// What was decided about a volume on a node.
struct Decided {
    want: Want,
    decision: Decision<wish::Action, Because>,
}

impl Attachments {
    /// Decides about a volume, on all nodes that want it.
    pub(super) async fn volume(&self, unique: Box<str>) -> Verdict {
        for _ in 0..ROUNDS {
            let mut decided = self.decide(&unique);
            let acting: Vec<&mut Decided> = decided.iter_mut().filter(|one| !one.decision.is_rest()).collect();
            // One at a time of a volume for one node: the second is decided about when the first is known (CTRL-I15).
            let exclusive = acting.iter().any(|one| one.want.target.sharing == Sharing::OneNode);
            let most = if exclusive { 1 } else { usize::MAX };
            let mut attaching = Vec::new();
            for one in acting.into_iter().take(most) {
                let (target, waiter) = (&one.want.target, Waiter::Volume(unique.clone()));
                match self.wake.gate.enter(&target.driver, &target.attachment(&one.want.node), waiter) {
                    true => attaching.push(&one.want),
                    false => {
                        let because = Because::Queued { driver: target.driver.clone(), limit: self.wake.gate.limit() };
                        one.decision = Decision::rest(because);
                    }
                }
            }
            if attaching.is_empty() {
                self.pass_on();
                return self.rest(&unique, &decided);
            }
            // Begun one by one and waited for together.
            let attaching: Vec<_> = attaching.into_iter().map(|want| self.attach(want)).collect();
            let made: Vec<Result<(), Error>> = stream::iter(attaching).buffer_unordered(AT_ONCE).collect().await;
            if let Some(error) = made.into_iter().find_map(Result::err) {
                return Verdict::Failed(error.to_string());
            }
        }
        Verdict::Again(Duration::ZERO)
    }

    fn decide(&self, unique: &str) -> Vec<Decided> {
        let wants = self.wake.view.wants(unique);
        if wants.is_empty() {
            return Vec::new();
        }
        let attachments = self.wake.view.attachments_of(unique);
        let users: Vec<Users> = wants.iter().map(|want| users(want, &wants)).collect();
        let decide = |(want, users): (Want, Users)| {
            let decision = self.decide_one(unique, &want, &users, &attachments);
            Decided { want, decision }
        };
        wants.into_iter().zip(users).map(decide).collect()
    }

    fn decide_one(
        &self,
        unique: &str,
        want: &Want,
        users: &Users,
        attachments: &[Arc<Attachment>],
    ) -> Decision<wish::Action, Because> {
        let name = want.target.attachment(&want.node);
        let own = attachments.iter().find(|held| held.name() == name);
        // Shared volumes may have very many, and need to know of none.
        let elsewhere = attachments.iter().filter(|held| {
            want.target.sharing == Sharing::OneNode && held.name() != name && held.node.as_str() != &*want.node
        });
        let others: Vec<Other<'_>> = elsewhere.map(|attachment| self.other(unique, attachment)).collect();
        let doubts = match want.target.sharing {
            Sharing::OneNode => self.wake.view.doubts(unique, &want.node),
            Sharing::ManyNodes => Vec::new(),
        };
        let doubtful: Vec<&Attachment> = doubts.iter().map(|held| &**held).collect();
        let waited = match own {
            Some(own) if !own.attached && !own.meta.is_deleting() => self.wake.ends.attaching.waiting(&name),
            Some(_) | None => Duration::ZERO,
        };
        let node = self.wake.view.node(&want.node);
        let decision = wish::decide(&Wish {
            target: &want.target,
            node_name: &want.node,
            node: node.as_deref().map_or(Lookup::NotCached, Lookup::Found),
            own: own.map(|own| &**own),
            others: &others,
            doubts: &doubtful,
            unconfirmed: &self.wake.view.unconfirmed(&want.node, unique),
            listing: RestoreListing::of(node.as_deref().is_some_and(|node| restored::lists(node, unique))),
            users,
            slot: Slot::Free,
            waited,
        });
        if let Because::Doubtful { .. } = decision.because {
            doubts.iter().for_each(|held| self.wake.blocked.add(&held.meta.key, unique));
        }
        if matches!(decision.because, Because::Held { .. } | Because::Second { .. }) {
            others.iter().for_each(|other| self.wake.blocked.add(&other.attachment.meta.key, unique));
        }
        decision
    }

    fn other<'a>(&self, unique: &str, attachment: &'a Attachment) -> Other<'a> {
        let node = self.wake.view.node(&attachment.node);
        let hold = self.wake.view.hold(attachment, self.rules(node.as_deref()));
        Other { attachment, hold, told: self.wake.view.told(&attachment.node, unique) }
    }

    /// The rules for what is attached to a node, as far as the node is known.
    pub(super) fn rules(&self, node: Option<&Node>) -> Rules {
        let now = UnixSeconds(self.context.clock.now().as_second());
        let force_after = self.options.force_after;
        let unready_for = force_after.and(node).map(|node| self.unready.seen(node));
        Rules { now, force_after, unready_for }
    }

    /// What this pass was called for may be no use to it: others are called.
    pub(super) fn pass_on(&self) {
        self.wake.gate.pass_on().into_iter().for_each(|waiter| self.wake.queues.call(Some(waiter)));
    }

    /// Makes the attachment. `Ok` means that the cache knows what came of it: decide again.
    async fn attach(&self, want: &Want) -> Result<(), Error> {
        let name = want.target.attachment(&want.node);
        self.wake.ends.attaching.waiting(&name);
        let node = self.wake.view.node(&want.node);
        let may_be_there = node.is_some_and(|node| restored::may_have(&node, &want.target.unique()));
        let mut body = body(want, &name, self.foreseen(want));
        if may_be_there {
            body["metadata"]["annotations"][annotation::RESTORED.text()] = MADE_SINCE.into();
        }
        let Err(error) = self.context.create::<Attachment>(None, &body).await else { return Ok(()) };
        let key = Key::cluster(&name);
        let message = error.to_string();
        match self.context.reconsider::<Attachment>(&key, error).await {
            // Whether somebody was faster, or the answer was lost: the server said what there is.
            Ok(()) => {
                if self.wake.view.attachments.get(&key).is_none() {
                    self.not_begun(want, &name);
                }
                Ok(())
            }
            Err(error) => {
                self.not_begun(want, &name);
                let notice = wish::refused(want.target.name(), &message);
                for pod in &want.pods {
                    self.wake.told.say(pod, &want.target.unique(), &notice);
                }
                Err(error)
            }
        }
    }

    /// There is no attachment: nothing is on its way, and nobody may be left to ask for it again.
    fn not_begun(&self, want: &Want, name: &str) {
        self.wake.ends.attaching.arrived(name);
        self.wake.queues.call(self.wake.gate.leave(&want.target.driver, name));
    }

    /// What the driver's attacher would write on the attachment first, if it works in this process.
    fn foreseen(&self, want: &Want) -> Option<Notes> {
        let Target { driver, handle, origin, .. } = &want.target;
        match origin {
            Origin::Volume { name } => {
                self.context.handoff.notes(driver, Coming { volume: name, handle, node: &want.node })
            }
            Origin::Inline { .. } => None,
        }
    }

    /// Nothing more to do now: tells everybody, and says when to look again.
    fn rest(&self, unique: &str, decided: &[Decided]) -> Verdict {
        let again = decided.iter().filter_map(|Decided { want, decision }| {
            self.tell(unique, want, &decision.because);
            let name = want.target.attachment(&want.node);
            match &decision.because {
                Because::Attaching { .. } => Some(OVERDUE.saturating_sub(self.wake.ends.attaching.waiting(&name))),
                Because::Queued { .. } => Some(self.wake.gate.patience()),
                _ => None,
            }
        });
        // A moment more, so that the time is over when it is looked at.
        again.min().map_or(Verdict::Done, |wait| Verdict::Again(wait + Duration::from_millis(1)))
    }

    fn tell(&self, unique: &str, want: &Want, because: &Because) {
        let name = want.target.attachment(&want.node);
        match because {
            Because::Unreported { node, volume } => {
                self.wake.queues.nodes.add(node.clone());
                self.arrived(unique, want, &Because::Attached { volume: volume.clone(), node: node.clone() });
            }
            Because::Attached { .. } => self.arrived(unique, want, because),
            _ => match because.notice() {
                Some(notice) => {
                    let news = want.pods.iter().filter(|pod| self.wake.told.say(pod, unique, &notice)).count() > 0;
                    if news && matches!(because, Because::Failed { .. } | Because::Overdue { .. }) {
                        self.wake.ends.metrics.failed(
                            &want.target.driver,
                            Operation::Attach,
                            self.wake.ends.attaching.waiting(&name),
                        );
                    }
                }
                None => want.pods.iter().for_each(|pod| self.wake.told.clear(pod, unique)),
            },
        }
    }

    /// It is attached. That is an event only for who saw that it was not.
    fn arrived(&self, unique: &str, want: &Want, because: &Because) {
        want.pods.iter().for_each(|pod| self.wake.told.clear(pod, unique));
        let Some(took) = self.wake.ends.attaching.arrived(&want.target.attachment(&want.node)) else { return };
        self.wake.ends.metrics.succeeded(&want.target.driver, Operation::Attach, took);
        if let Some(notice) = because.notice() {
            want.pods.iter().for_each(|pod| self.wake.told.notices().always(&**pod, &notice));
        }
    }
}

/// Who uses the volume on other nodes, as the pods of `want` may know it.
fn users(want: &Want, wants: &[Want]) -> Users {
    let namespace = want.pods.first().map(|pod| pod.namespace()).unwrap_or_default();
    let others = wants.iter().filter(|other| other.node != want.node).flat_map(|other| &other.pods);
    let (here, elsewhere): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) = others.partition(|pod| pod.namespace() == namespace);
    let mut here: Vec<Box<str>> = here.into_iter().map(|pod| pod.name().into()).collect();
    here.sort();
    Users { here, elsewhere: elsewhere.len() }
}

fn body(want: &Want, name: &str, noted: Option<Notes>) -> Value {
    let source = match &want.target.origin {
        Origin::Volume { name } => json!({"persistentVolumeName": name}),
        Origin::Inline { spec, .. } => json!({"inlineVolumeSpec": spec}),
    };
    let metadata = match noted {
        Some(Notes { finalizer, annotations }) => {
            json!({"name": name, "finalizers": [finalizer], "annotations": annotations})
        }
        None => json!({"name": name}),
    };
    json!({
        "apiVersion": Kind::ATTACHMENT.api_version(),
        "kind": Kind::ATTACHMENT.kind,
        "metadata": metadata,
        "spec": {"attacher": want.target.driver.as_str(), "nodeName": want.node, "source": source},
    })
}
