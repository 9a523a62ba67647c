//! One object on a way: what it is called, how it is, and what is worth knowing about it.

use api::node::{PodPhase, Readiness};
use api::{Attachment, Claim, ClaimPhase, ClassName, Key, Node, Pod, Source, Volume, VolumePhase};
use serde::Serialize;

use crate::health::TroubleKind;

/// How an object is, for who draws it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tone {
    Settled,
    Moving,
    Waiting,
    Stuck,
}

/// An object on a way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Station {
    pub name: Box<str>,
    /// One word or two, such as `Bound`.
    pub state: String,
    pub tone: Tone,
    /// Name and value, the most useful first.
    pub facts: Vec<(&'static str, String)>,
}

impl Station {
    fn new(name: &str, state: impl Into<String>, tone: Tone) -> Self {
        Self { name: name.into(), state: state.into(), tone, facts: Vec::new() }
    }

    fn fact(mut self, name: &'static str, value: impl Into<String>) -> Self {
        let value = value.into();
        if !value.is_empty() {
            self.facts.push((name, value));
        }
        self
    }
}

fn modes(access: api::AccessModes) -> String {
    access.iter().map(api::AccessMode::name).collect::<Vec<_>>().join(", ")
}

fn class(class: ClassName<'_>) -> String {
    class.text().to_owned()
}

pub(super) fn claim(claim: &Claim) -> Station {
    let (state, tone) = match (claim.meta.is_deleting(), claim.phase) {
        (true, _) => ("Terminating", Tone::Moving),
        (false, ClaimPhase::Pending) => ("Pending", Tone::Waiting),
        (false, ClaimPhase::Bound) => ("Bound", Tone::Settled),
        (false, ClaimPhase::Lost) => ("Lost", Tone::Stuck),
    };
    let amount = |amount: &Option<api::Amount>| amount.as_ref().map(ToString::to_string).unwrap_or_default();
    Station::new(claim.name(), state, tone)
        .fact("namespace", claim.namespace())
        .fact("asks for", amount(&claim.request))
        .fact("has", amount(&claim.status.capacity))
        .fact("access", modes(claim.access))
        .fact("mode", claim.mode.name())
        .fact("class", class(claim.class()))
        .fact("resize", claim.status.resize.as_deref().unwrap_or_default())
}

/// A claim that pods name and that does not exist.
pub(super) fn missing(key: &Key) -> Station {
    Station::new(key.name(), "missing", Tone::Stuck).fact("namespace", key.namespace().unwrap_or_default())
}

pub(super) fn volume(volume: &Volume) -> Station {
    let (state, tone) = match (volume.meta.is_deleting(), volume.phase) {
        (true, _) => ("Terminating", Tone::Moving),
        (false, VolumePhase::Pending) => ("Pending", Tone::Moving),
        (false, phase @ (VolumePhase::Available | VolumePhase::Bound)) => (phase.name(), Tone::Settled),
        (false, VolumePhase::Released) => ("Released", Tone::Waiting),
        (false, VolumePhase::Failed) => ("Failed", Tone::Stuck),
    };
    let (made_of, handle) = match &volume.source {
        Source::Csi { driver, handle } => (driver.to_string(), handle.to_string()),
        Source::HostPath { path } => ("hostPath".to_owned(), path.to_string()),
        Source::Local { path } => ("local".to_owned(), path.to_string()),
        Source::Nfs { server, path } => ("nfs".to_owned(), format!("{server}:{path}")),
        Source::Other { field, .. } => (field.to_string(), String::new()),
        Source::Missing => ("nothing".to_owned(), String::new()),
    };
    Station::new(volume.name(), state, tone)
        .fact("size", volume.capacity.as_ref().map(ToString::to_string).unwrap_or_default())
        .fact("driver", made_of)
        .fact("handle", handle)
        .fact("class", class(volume.class()))
        .fact("access", modes(volume.access))
        .fact("reclaim", volume.reclaim.name())
        .fact("message", volume.message.as_deref().unwrap_or_default())
}

/// The volume of a claim, which knows what the driver says of it.
pub(super) fn claimed_volume(held: &Volume, claim: &Claim) -> Station {
    let drawn = volume(held);
    let Some(said) = claim.status.abnormal.as_deref().filter(|_| *claim.volume_name == *held.name()) else {
        return drawn;
    };
    let (state, tone) = match TroubleKind::of(&said.message).0 {
        TroubleKind::WritesLost => ("lost writes", Tone::Stuck),
        TroubleKind::PoolMissing => ("pool missing", Tone::Stuck),
        TroubleKind::PoolFull => ("pool full", Tone::Stuck),
        TroubleKind::PoolNearlyFull => ("pool nearly full", Tone::Waiting),
        TroubleKind::Other => ("abnormal", Tone::Waiting),
    };
    Station { state: state.to_owned(), tone, ..drawn.fact("condition", crate::explain::plain(&said.message)) }
}

pub(super) fn attachment(attachment: &Attachment) -> Station {
    let (state, tone) = match (attachment.meta.is_deleting(), attachment.attached, attachment.error()) {
        (true, _, None) => ("detaching", Tone::Moving),
        (true, _, Some(_)) => ("detach failed", Tone::Stuck),
        (false, true, _) => ("attached", Tone::Settled),
        (false, false, None) => ("attaching", Tone::Moving),
        (false, false, Some(_)) => ("attach failed", Tone::Stuck),
    };
    Station::new(attachment.name(), state, tone)
        .fact("attacher", &*attachment.attacher)
        .fact("node", &*attachment.node)
        .fact("error", attachment.error().map(|error| error.message.to_string()).unwrap_or_default())
}

/// For a driver that attaches nothing.
pub(super) fn not_attached(driver: &str) -> Station {
    Station::new("", "not needed", Tone::Settled).fact("driver", driver)
}

/// Absent means that the pod names a node that does not exist.
pub(super) fn node(name: &str, node: Option<&Node>) -> Station {
    let (state, tone) = match node.map(|node| node.ready) {
        Some(Readiness::Ready) => ("Ready", Tone::Settled),
        Some(Readiness::NotReady) => ("not ready", Tone::Stuck),
        Some(Readiness::Unknown) if node.is_some_and(Node::is_lost) => ("lost", Tone::Stuck),
        Some(Readiness::Unknown) => ("unknown", Tone::Waiting),
        None => ("gone", Tone::Stuck),
    };
    Station::new(name, state, tone)
}

/// A node that could not be looked at.
pub(super) fn unseen_node(name: &str) -> Station {
    Station::new(name, "not seen", Tone::Waiting)
}

pub(super) fn pod(pod: &Pod) -> Station {
    let (state, tone) = pod_state(pod);
    let told = pod.volumes_ready.as_ref().filter(|said| !said.ready);
    Station::new(pod.name(), state, tone)
        .fact("namespace", pod.namespace())
        .fact("node", &*pod.node)
        .fact("agent", told.map(|said| said.message.to_string()).unwrap_or_default())
}

fn pod_state(pod: &Pod) -> (&'static str, Tone) {
    let ready = pod.volumes_ready.as_ref().map(|said| said.ready);
    match (pod.meta.is_deleting(), pod.scheduled()) {
        (true, _) => ("Terminating", Tone::Moving),
        (false, false) => ("no node", Tone::Waiting),
        (false, true) => match (ready, pod.phase) {
            (_, PodPhase::Running) => ("Running", Tone::Settled),
            (Some(true), _) => ("mounted", Tone::Settled),
            (_, PodPhase::Succeeded | PodPhase::Failed) => (pod.phase.name(), Tone::Settled),
            (Some(false) | None, _) => ("mounting", Tone::Moving),
        },
    }
}

/// Whether a pod has its volumes.
pub(super) fn is_mounted(pod: &Pod) -> bool {
    pod.phase == PodPhase::Running || pod.volumes_ready.as_ref().is_some_and(|said| said.ready)
}
