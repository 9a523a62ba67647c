//! Explain: why a claim, a volume or a pod's volumes are where they are, in a person's words, with the evidence and what to do.
//!
//! The reasons are not invented here. What a [`Picture`] of the cluster shows is given to the very functions that the
//! controllers use, and their reason begins the answer. `explain` follows it: whom the claim waits for, whom that one waits
//! for, what was seen of each, and what a person can do. Where no controller of ours decides (a pod that nobody schedules, a
//! provisioner that does not run) the reason is a [`Finding`].
//!
//! # Invariants
//! 1. No second opinion: a link of the chain carries the code, the standing and the sentence of a decision's reason.
//! 2. Every reason has its evidence and its fix in a total match, so that a new reason does not compile without them.
//! 3. What could not be looked at is said, and never taken for absent ([`Listing`]).

mod advice;
mod around;
mod bind;
mod condition;
mod finding;
mod going;
mod growing;
mod missing;
mod near;
mod picture;
mod place;
mod pod;
mod pods;
mod presence;
mod provision;
mod release;
mod scheduled;
mod source;
mod text;

#[cfg(test)]
mod tests;

use api::{Claim, Key, Pod, Volume};

pub(crate) use condition::name_conflict;
pub use finding::{Finding, PodTrouble};
pub use growing::Growth;
pub use missing::missing;
pub use picture::{Begun, Listing, Picture, Unseen};
pub(crate) use pod::Seen;
pub(crate) use text::{Age, plain};

use crate::decision::{Reason, Standing};

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    pub subject: Subject,
    /// As `kubectl get` shows it: the phase, or `Terminating`.
    pub state: &'static str,
    /// The whole answer in one sentence: the link that matters most.
    pub sentence: String,
    /// The worst of the chain's.
    pub standing: Standing,
    /// Who waits for whom, the subject first. Never empty.
    pub chain: Vec<Link>,
    /// What to do, the most useful first. Empty when there is nothing to do.
    pub fix: Vec<String>,
    /// What could not be looked at, so that the answer may be less than the truth.
    pub unseen: Vec<Unseen>,
}

impl Explanation {
    /// Whether all is as it should be.
    pub fn healthy(&self) -> bool {
        self.standing == Standing::Settled && !matches!(self.state, "Terminating" | "Lost" | "Failed")
    }

    /// What everything before it waits for: the last of those that are worst off.
    pub fn root(&self) -> Option<&Link> {
        self.chain.iter().rev().find(|link| link.standing == self.standing)
    }
}

/// One who waits, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub subject: Subject,
    /// How many wait between the explained object and this one; those of one depth wait beside each other.
    pub depth: usize,
    /// Which decision gave the reason.
    pub step: Step,
    /// The reason's code, unique within its step.
    pub code: &'static str,
    pub standing: Standing,
    pub sentence: String,
    /// What was seen that shows it.
    pub evidence: Vec<String>,
    fix: Vec<String>,
}

/// Somebody in a chain: mostly an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The kind of the object, or `Provisioner`.
    pub kind: &'static str,
    pub namespace: Option<Box<str>>,
    pub name: Box<str>,
}

impl Subject {
    pub(crate) fn of(kind: &'static str, key: &Key) -> Self {
        Self { kind, namespace: key.namespace().map(Into::into), name: key.name().into() }
    }

    fn claim(key: &Key) -> Self {
        Self::of(api::Kind::CLAIM.kind, key)
    }

    fn volume(name: &str) -> Self {
        Self::of(api::Kind::VOLUME.kind, &Key::cluster(name))
    }

    fn provisioner(name: &str) -> Self {
        Self::of("Provisioner", &Key::cluster(name))
    }
}

/// The decision that a reason comes from: a module of this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Bind,
    Provision,
    /// A creation that was begun.
    Intent,
    Release,
    /// The end of what a volume is made of.
    Delete,
    Protect,
    Ephemeral,
    Schedule,
    Attach,
    /// What an agent does on its node.
    Node,
    /// What no controller of ours decides.
    Around,
}

impl Step {
    pub fn name(self) -> &'static str {
        match self {
            Self::Bind => "bind",
            Self::Provision => "provision",
            Self::Intent => "intent",
            Self::Release => "release",
            Self::Delete => "delete",
            Self::Protect => "protect",
            Self::Ephemeral => "ephemeral",
            Self::Schedule => "schedule",
            Self::Attach => "attach",
            Self::Node => "node",
            Self::Around => "around",
        }
    }
}

/// Explains a claim.
pub fn claim(picture: &Picture, claim: &Claim) -> Explanation {
    let mut trail = Trail::new(picture);
    let state = match claim.meta.is_deleting() {
        true => {
            going::claim(&mut trail, claim);
            "Terminating"
        }
        false => {
            bind::claim(&mut trail, claim);
            around::namespace(&mut trail, claim);
            claim.phase.name()
        }
    };
    around::unwritten(&mut trail, api::Kind::CLAIM, &claim.meta);
    trail.end(Subject::claim(claim.key()), state)
}

/// Explains a volume.
pub fn volume(picture: &Picture, volume: &Volume) -> Explanation {
    let mut trail = Trail::new(picture);
    let state = match volume.meta.is_deleting() {
        true => {
            going::volume(&mut trail, volume);
            "Terminating"
        }
        false => volume.phase.name(),
    };
    // What the binder says of a volume stands beside what holds it.
    trail.depth = 0;
    release::volume(&mut trail, volume);
    around::unwritten(&mut trail, api::Kind::VOLUME, &volume.meta);
    let claim = volume.claim.as_ref().and_then(|reference| picture.claim(&reference.key).found());
    let claim = claim.filter(|claim| *claim.volume_name == *volume.name());
    // A claim whose turn it is has told of its volume already.
    if !trail.links.iter().any(|link| link.step == Step::Bind) {
        trail.depth = 1;
        condition::volume(&mut trail, claim, volume);
    }
    trail.end(Subject::volume(volume.name()), state)
}

/// Explains a pod: what each of its volumes waits for.
pub fn pod(picture: &Picture, pod: &Pod) -> Explanation {
    let mut trail = Trail::new(picture);
    let state = match pod.meta.is_deleting() {
        true => {
            pod::going(&mut trail, pod);
            "Terminating"
        }
        false => {
            pod::coming(&mut trail, pod);
            pod.phase.name()
        }
    };
    around::unwritten(&mut trail, api::Kind::POD, &pod.meta);
    trail.end(Subject::of(api::Kind::POD.kind, &pod.meta.key), state)
}

/// A chain that is being followed.
struct Trail<'a> {
    picture: &'a Picture,
    links: Vec<Link>,
    depth: usize,
}

/// What is told about a reason beside the reason itself.
#[derive(Debug, Default)]
struct Told {
    evidence: Vec<String>,
    fix: Vec<String>,
}

impl Told {
    fn evidence(evidence: impl IntoIterator<Item = String>) -> Self {
        Self { evidence: evidence.into_iter().collect(), fix: Vec::new() }
    }

    fn fixed(mut self, fix: impl IntoIterator<Item = String>) -> Self {
        self.fix.extend(fix);
        self
    }
}

impl<'a> Trail<'a> {
    fn new(picture: &'a Picture) -> Self {
        Self { picture, links: Vec::new(), depth: 0 }
    }

    /// What is pushed from now on is what the last link waits for.
    fn deeper(&mut self) {
        self.depth += 1;
    }

    /// What was said of a pod before is said here instead, so that it stands below whoever waits for it, and once.
    fn push(&mut self, subject: Subject, step: Step, reason: &dyn Reason, told: Told) {
        let sentence = text::plain(&reason.to_string());
        if subject.kind == api::Kind::POD.kind {
            self.links.retain(|link| {
                (link.step, link.code, &link.sentence, &link.subject) != (step, reason.code(), &sentence, &subject)
            });
        }
        self.links.push(Link {
            subject,
            depth: self.depth,
            step,
            code: reason.code(),
            standing: reason.standing(),
            sentence,
            evidence: told.evidence.iter().map(|line| text::plain(line)).collect(),
            fix: told.fix,
        });
    }

    fn find(&mut self, subject: Subject, finding: &Finding, evidence: Vec<String>) {
        let told = Told { evidence, fix: finding.fix() };
        self.push(subject, Step::Around, finding, told);
    }

    /// The last of those that are worst off is what everything before it waits for.
    fn end(self, subject: Subject, state: &'static str) -> Explanation {
        let standing = self.links.iter().map(|link| link.standing).max().unwrap_or(Standing::Settled);
        let worst = || self.links.iter().rev().filter(|link| link.standing == standing);
        let root = worst().next();
        let why = root.map_or("", |link| link.sentence.as_str());
        let stop = if why.ends_with(['.', '!']) { "" } else { "." };
        let sentence = format!("{subject} is {state}: {why}{stop}");
        let mut fix: Vec<String> = Vec::new();
        let others = self.links.iter().filter(|link| link.standing == standing);
        for advice in root.into_iter().chain(others).flat_map(|link| &link.fix) {
            if !fix.contains(advice) {
                fix.push(advice.clone());
            }
        }
        let unseen = self.picture.unseen();
        Explanation { subject, state, sentence, standing, chain: self.links, fix, unseen }
    }
}
