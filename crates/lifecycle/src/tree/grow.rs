//! From a picture of the cluster to the tree.

use std::collections::BTreeSet;

use api::node::PodPhase;
use api::object::UnixSeconds;
use api::{AccessModes, Amount, Attachment, Claim, ClassName, Key, Kind, Pod, Volume};

use super::near::Surroundings;
use super::{Branch, Details, Scope, Tree, Why};
use crate::attach::Target;
use crate::attach::hold::Rules;
use crate::attach::look::Sight;
use crate::decision::{Lookup, Reason, Standing};
use crate::explain::{self, Begun, Explanation, Finding, Picture, Seen, Subject};
use crate::measured::Usages;
use crate::provision::intent;

/// The kind of a creation that was begun.
const INTENT: &str = "Intent";

/// Arranges what was seen.
pub fn grow(picture: &Picture, usages: &Usages, scope: Scope) -> Tree {
    let mut surroundings = Surroundings::new(picture);
    let mut claims: Vec<&Claim> = picture.claims.items().iter().filter(|claim| scope.has(claim.key())).collect();
    claims.sort_by(|one, other| one.key().cmp(other.key()));
    let claims: Vec<Branch> =
        claims.into_iter().map(|claim| View { picture: surroundings.of(claim), usages }.claim(claim)).collect();
    let mut shown = Shown::default();
    shown.add(&claims);
    let loose = if scope.claims.is_empty() { View { picture, usages }.loose(&scope, shown) } else { Vec::new() };
    Tree { scope, claims, loose, unseen: picture.unseen() }
}

/// Volumes, attachments and intents that are in the tree, by kind and name.
#[derive(Default)]
struct Shown(BTreeSet<(&'static str, Box<str>)>);

impl Shown {
    fn add(&mut self, branches: &[Branch]) {
        for branch in branches {
            self.0.insert((branch.subject.kind, branch.subject.name.clone()));
            self.add(&branch.below);
        }
    }

    fn has(&self, kind: &'static str, name: &str) -> bool {
        self.0.contains(&(kind, name.into()))
    }
}

/// A picture, or the part of one that a claim leads to.
pub(super) struct View<'a> {
    pub(super) picture: &'a Picture,
    pub(super) usages: &'a Usages,
}

impl View<'_> {
    pub(super) fn claim(&self, claim: &Claim) -> Branch {
        let picture = self.picture;
        let explanation = explain::claim(picture, claim);
        let mut below = Vec::new();
        let mut pods: Vec<&Pod> = picture.users(claim).collect();
        pods.sort_by(|one, other| one.meta.key.cmp(&other.meta.key));
        let mut mounts: Vec<Mount<'_>> = pods.into_iter().map(|pod| Mount { pod, claim }).collect();
        if !claim.volume_name.is_empty() {
            below.push(match picture.volume(&claim.volume_name) {
                Lookup::Found(volume) => self.volume(volume, &mut mounts),
                Lookup::Absent => only_named(&claim.volume_name, "missing"),
                Lookup::NotCached => only_named(&claim.volume_name, "unseen"),
            });
        }
        // A volume that is stored ends its creation, whether or not the journal has that yet.
        let begun =
            picture.intents.items().iter().filter(|begun| begun.claim == *claim.uid() && !picture.stored(begun));
        below.extend(begun.map(|begun| self.intent(begun, Some(claim))));
        below.extend(mounts.into_iter().map(|mount| self.mount(mount)));
        let why = told(&explanation);
        silence(&mut below, why.as_ref());
        Branch {
            subject: explanation.subject,
            state: explanation.state,
            age: self.age(claim.meta.created),
            size: size(claim.status.capacity.as_ref().or(claim.request.as_ref())),
            usage: self.usages.get(claim.key()).copied(),
            why,
            details: Details { class: class(claim.class()), access: access(claim.access), ..Details::default() },
            below,
        }
    }

    /// A volume, and of `mounts` those that its attachments lead to.
    fn volume(&self, volume: &Volume, mounts: &mut Vec<Mount<'_>>) -> Branch {
        let around = Seen(self.picture);
        let sight = self.sight(&around);
        let explanation = explain::volume(self.picture, volume);
        let target = Target::of_volume(volume).ok().flatten();
        let mut below = Vec::new();
        for attachment in self.picture.attachments.items() {
            let by_target = target.as_ref().is_some_and(|target| sight.is_of(attachment, target));
            if by_target || attachment.volume.as_deref() == Some(volume.name()) {
                let here = |mount: &Mount<'_>| *mount.pod.node == *attachment.node;
                let (there, elsewhere): (Vec<_>, Vec<_>) = mounts.drain(..).partition(here);
                *mounts = elsewhere;
                below.push(self.attachment(attachment, there));
            }
        }
        below.sort_by(|one, other| one.details.node.cmp(&other.details.node));
        below.extend(mounts.drain(..).map(|mount| self.mount(mount)));
        let why = told(&explanation);
        silence(&mut below, why.as_ref());
        Branch {
            subject: explanation.subject,
            state: explanation.state,
            age: self.age(volume.meta.created),
            size: size(volume.capacity.as_ref()),
            usage: None,
            why,
            details: Details {
                class: class(volume.class()),
                access: access(volume.access),
                reclaim: Some(volume.reclaim.name()),
                driver: target.as_ref().map(|target| target.driver.as_str().into()),
                handle: target.map(|target| target.handle),
                ..Details::default()
            },
            below,
        }
    }

    fn attachment(&self, attachment: &Attachment, mounts: Vec<Mount<'_>>) -> Branch {
        let state = match (attachment.meta.is_deleting(), attachment.attached) {
            (true, _) => "detaching",
            (false, true) => "attached",
            (false, false) => "attaching",
        };
        let why = self.why_attached(attachment);
        let mut below: Vec<Branch> = mounts.into_iter().map(|mount| self.mount(mount)).collect();
        silence(&mut below, why.as_ref());
        Branch {
            subject: Subject::of(Kind::ATTACHMENT.kind, &attachment.meta.key),
            state,
            age: self.age(attachment.meta.created),
            size: None,
            usage: None,
            why,
            details: Details {
                node: Some(attachment.node.as_str().into()),
                driver: Some(attachment.attacher.as_str().into()),
                ..Details::default()
            },
            below,
        }
    }

    fn sight<'b>(&'b self, around: &'b Seen<'b>) -> Sight<'b> {
        let Picture { nodes, attachments, pods, now, .. } = self.picture;
        // What the operator allows by flag is not known here, and is not assumed.
        let rules = Rules { now: *now, force_after: None, unready_for: None };
        Sight { around, nodes: nodes.items(), attachments: attachments.items(), pods: pods.items(), rules }
    }

    /// What the attacher said last, or else what the attach/detach controller thinks of it.
    fn why_attached(&self, attachment: &Attachment) -> Option<Why> {
        if let Some(error) = attachment.error() {
            let (node, message) = (attachment.node.as_str().into(), error.message.clone());
            return Some(why("around", &Finding::AttachFailed { node, message }));
        }
        if !(self.picture.pods.is_seen() && self.picture.nodes.is_seen()) {
            return None;
        }
        let hold = self.sight(&Seen(self.picture)).hold(attachment);
        (hold.standing() != Standing::Settled).then(|| why("attach", &hold))
    }

    fn mount(&self, Mount { pod, claim }: Mount<'_>) -> Branch {
        let explanation = explain::pod(self.picture, pod);
        Branch {
            subject: Subject::of(Kind::POD.kind, &pod.meta.key),
            state: self.mounted(pod, claim),
            age: self.age(pod.meta.created),
            size: None,
            usage: None,
            why: told(&explanation),
            details: Details { node: pod.scheduled().then(|| pod.node.clone()), ..Details::default() },
            below: Vec::new(),
        }
    }

    /// How far a pod is with a claim's volume: what its agent says, what its containers show, what its node lists.
    fn mounted(&self, pod: &Pod, claim: &Claim) -> &'static str {
        if pod.meta.is_deleting() {
            return "Terminating";
        }
        if pod.terminated() {
            return pod.phase.name();
        }
        if !pod.scheduled() {
            return "unscheduled";
        }
        match &pod.volumes_ready {
            Some(said) if said.ready => "mounted",
            Some(_) => "mounting",
            // A container runs only when all volumes are there.
            None if pod.running || pod.phase == PodPhase::Running => "mounted",
            None if self.in_use(pod, claim) => "mounting",
            None => "waiting",
        }
    }

    /// Whether the pod's node lists the volume as one that it uses or is about to use.
    fn in_use(&self, pod: &Pod, claim: &Claim) -> bool {
        let volume = self.picture.volume(&claim.volume_name).found();
        let target = volume.and_then(|volume| Target::of_volume(volume).ok().flatten());
        let node = self.picture.node(&pod.node).found();
        node.zip(target).is_some_and(|(node, target)| node.uses(&target.unique()))
    }

    fn intent(&self, begun: &Begun, claim: Option<&Claim>) -> Branch {
        let stored = self.picture.volume(&begun.volume).found();
        let seen = intent::Seen {
            uid: &begun.claim,
            volume_name: &begun.volume,
            claim,
            stored,
            twin: None,
            origin: intent::IntentOrigin::Here,
            attempt: intent::Attempt::Open,
        };
        let key = match &begun.key {
            Some(claim) => claim.sibling(&begun.volume),
            None => Key::cluster(&begun.volume),
        };
        let why = match claim {
            None if !self.picture.claims.is_seen() => None,
            Some(_) | None => Some(why("intent", &intent::decide(&seen).because)),
        };
        Branch {
            subject: Subject::of(INTENT, &key),
            state: "begun",
            age: None,
            size: None,
            usage: None,
            why,
            details: Details {
                node: begun.node.clone(),
                driver: Some(begun.by.as_str().into()),
                // Below its claim it need not be named.
                claim: begun.key.as_ref().filter(|_| claim.is_none()).map(Key::to_string),
                ..Details::default()
            },
            below: Vec::new(),
        }
    }

    /// What is left when the claims are shown.
    fn loose(&self, scope: &Scope, mut shown: Shown) -> Vec<Branch> {
        let picture = self.picture;
        let mut loose = Vec::new();
        let mut volumes: Vec<&Volume> = picture.volumes.items().iter().collect();
        volumes.sort_by(|one, other| one.meta.key.cmp(&other.meta.key));
        for volume in volumes {
            let namespace = volume.claim.as_ref().and_then(|reference| reference.key.namespace());
            let elsewhere = namespace.is_some() && !scope.has_namespace(namespace);
            if shown.has(Kind::VOLUME.kind, volume.name()) || elsewhere {
                continue;
            }
            let mut branch = self.volume(volume, &mut Vec::new());
            branch.why = branch.why.or_else(|| explain::volume(picture, volume).root().map(from_link));
            loose.push(branch);
        }
        shown.add(&loose);
        loose.extend(self.loose_attachments(scope, &shown));
        for begun in picture.intents.items() {
            if !shown.has(INTENT, &begun.volume)
                && !picture.stored(begun)
                && scope.has_namespace(begun.key.as_ref().and_then(Key::namespace))
            {
                loose.push(self.intent(begun, None));
            }
        }
        loose
    }

    /// Attachments of volumes that do not exist; and, where all pods were looked at, those of volumes inside of pods.
    fn loose_attachments(&self, scope: &Scope, shown: &Shown) -> Vec<Branch> {
        let picture = self.picture;
        let mut attachments: Vec<&Attachment> = picture.attachments.items().iter().collect();
        attachments.sort_by(|one, other| one.meta.key.cmp(&other.meta.key));
        let mut loose = Vec::new();
        for attachment in attachments {
            let missing = match &attachment.volume {
                Some(name) => matches!(picture.volume(name), Lookup::Absent),
                None => false,
            };
            let inside = attachment.volume.is_none() && scope.namespace.is_none();
            if shown.has(Kind::ATTACHMENT.kind, attachment.name()) || !(missing || inside) {
                continue;
            }
            let mut branch = self.attachment(attachment, Vec::new());
            if let (true, Some(name)) = (missing, &attachment.volume) {
                let before = branch.why.take();
                let standing = before.as_ref().map_or(Standing::Waiting, |why| why.standing.max(Standing::Waiting));
                let more = before.map(|why| format!("; {}", why.sentence)).unwrap_or_default();
                let sentence = format!("PersistentVolume {name:?} does not exist{more}");
                branch.why = Some(Why { step: "around", code: "volume_missing", standing, sentence });
            }
            loose.push(branch);
        }
        loose
    }

    fn age(&self, at: UnixSeconds) -> Option<i64> {
        // An object that says nothing of its birth was born in 1970.
        (at.0 > 0).then(|| self.picture.now.0.saturating_sub(at.0).max(0))
    }
}

/// A pod that uses a claim.
struct Mount<'a> {
    pod: &'a Pod,
    claim: &'a Claim,
}

/// A volume of which no more than the name is known.
fn only_named(volume: &str, state: &'static str) -> Branch {
    let subject = Subject::of(Kind::VOLUME.kind, &Key::cluster(volume));
    let details = Details::default();
    Branch { subject, state, age: None, size: None, usage: None, why: None, details, below: Vec::new() }
}

/// The reason of an explanation that is not well.
fn told(explanation: &Explanation) -> Option<Why> {
    explanation.root().filter(|_| !explanation.healthy()).map(from_link)
}

fn from_link(link: &explain::Link) -> Why {
    Why { step: link.step.name(), code: link.code, standing: link.standing, sentence: link.sentence.clone() }
}

fn why(step: &'static str, reason: &dyn Reason) -> Why {
    let sentence = explain::plain(&reason.to_string());
    Why { step, code: reason.code(), standing: reason.standing(), sentence }
}

/// What a branch says is not said again below it.
fn silence(below: &mut [Branch], said: Option<&Why>) {
    let Some(said) = said else { return };
    for branch in below {
        if branch.why.as_ref().is_some_and(|why| why.sentence == said.sentence) {
            branch.why = None;
        }
        silence(&mut branch.below, Some(said));
    }
}

fn size(amount: Option<&Amount>) -> Option<(Box<str>, i64)> {
    amount.map(|amount| (amount.text().into(), amount.bytes()))
}

fn class(class: ClassName<'_>) -> Option<Box<str>> {
    Some(class.text()).filter(|name| !name.is_empty()).map(Into::into)
}

/// As kubectl abbreviates them.
fn access(modes: AccessModes) -> Option<String> {
    let short = |mode| match mode {
        api::AccessMode::ReadWriteOnce => "RWO",
        api::AccessMode::ReadOnlyMany => "ROX",
        api::AccessMode::ReadWriteMany => "RWX",
        api::AccessMode::ReadWriteOncePod => "RWOP",
    };
    let text = modes.iter().map(short).collect::<Vec<_>>().join(",");
    Some(text).filter(|text| !text.is_empty())
}
