//! Why a way is as far as it is: what `orlop explain` says of its claim, its volume or its pods.

use serde::Serialize;

use super::station::Tone;
use super::way::{Parts, WayId, parts};
use crate::decision::Standing;
use crate::explain::{self, Explanation, Picture};

/// How many pods of a way are explained.
const EXPLAINED: usize = 4;

/// The explanation that matters most on a way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Why {
    pub tone: Tone,
    /// The command that says the same, such as `orlop explain pvc/data -n shop`.
    pub command: String,
    pub sentence: String,
    pub fix: Vec<String>,
    pub chain: Vec<Reason>,
    /// What could not be looked at, and why.
    pub unseen: Vec<String>,
}

/// One link of the chain of who waits for whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    pub subject: String,
    pub depth: usize,
    pub tone: Tone,
    pub sentence: String,
    pub evidence: Vec<String>,
}

/// Explains a way; nothing if it is gone.
pub fn explain(picture: &Picture, id: &WayId) -> Option<Why> {
    let parts = parts(picture, id)?;
    let worst = explanations(picture, id, &parts).into_iter().reduce(|worst, next| {
        // What comes first is nearer to the cause: the claim before its pods.
        if tone(&next.0) > tone(&worst.0) { next } else { worst }
    });
    worst.map(|(explanation, command)| why(&explanation, command))
}

fn explanations(picture: &Picture, id: &WayId, parts: &Parts<'_>) -> Vec<(Explanation, String)> {
    let mut all = Vec::new();
    match (id, parts.claim, parts.volume) {
        (WayId::Claim(key), Some(claim), _) => {
            let command = format!("orlop explain pvc/{}{}", key.name(), namespace(key.namespace()));
            all.push((explain::claim(picture, claim), command));
        }
        (WayId::Volume(name), None, Some(volume)) => {
            all.push((explain::volume(picture, volume), format!("orlop explain pv/{name}")));
        }
        _ => {}
    }
    for pod in parts.users.iter().take(EXPLAINED) {
        let command = format!("orlop explain pod/{}{}", pod.name(), namespace(Some(pod.namespace())));
        all.push((explain::pod(picture, pod), command));
    }
    all
}

fn namespace(name: Option<&str>) -> String {
    name.map(|name| format!(" -n {name}")).unwrap_or_default()
}

fn why(explanation: &Explanation, command: String) -> Why {
    let reasons = explanation.chain.iter().map(|link| Reason {
        subject: link.subject.to_string(),
        depth: link.depth,
        tone: of(link.standing),
        sentence: link.sentence.clone(),
        evidence: link.evidence.clone(),
    });
    Why {
        tone: tone(explanation),
        command,
        sentence: explanation.sentence.clone(),
        fix: explanation.fix.clone(),
        chain: reasons.collect(),
        unseen: explanation.unseen.iter().map(|unseen| format!("{}: {}", unseen.what, unseen.why)).collect(),
    }
}

fn tone(explanation: &Explanation) -> Tone {
    match of(explanation.standing) {
        // What ends is not at rest before it is gone.
        Tone::Settled if !explanation.healthy() => Tone::Moving,
        tone => tone,
    }
}

fn of(standing: Standing) -> Tone {
    match standing {
        Standing::Settled => Tone::Settled,
        Standing::Moving => Tone::Moving,
        Standing::Waiting => Tone::Waiting,
        Standing::Stuck => Tone::Stuck,
    }
}
