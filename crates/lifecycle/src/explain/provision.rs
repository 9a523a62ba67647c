//! A claim that waits for a provisioner: whether it was asked, whether it runs, and what stops it.

use api::{Claim, Kind};

use super::{Finding, Step, Subject, Told, Trail, advice, around, place, presence, source};
use crate::decision::Lookup;
use crate::migration;
use crate::outcome::{Call, Code};
use crate::provision::Names;
use crate::provision::claim::{Because, Beside, ClaimSeen, Seen, decide};
use crate::provision::intent;

/// How volumes are named unless a provisioner was told otherwise.
const PREFIX: &str = "pvc-";

/// The code of the finding that a provisioner runs.
const RUNS: &str = "provisioner_runs";

/// Follows a claim to its provisioner.
pub(super) fn claim(trail: &mut Trail<'_>, claim: &Claim, provisioner: &str) {
    let picture = trail.picture;
    let name = migration::driver_of(provisioner).unwrap_or(provisioner);
    let about = (Kind::CLAIM, &claim.meta);
    presence::look(trail, name, about);
    let last = presence::last_call(picture, Call::CreateVolume, about);
    match picture.begun(claim) {
        Some(_) => begun(trail, claim, name),
        // A binder in the provisioner's own process asks without an annotation; that a call was made shows that it did.
        None if claim.provisioner().is_none() && last.is_some() => {}
        // A populator asks for the volume itself, under another claim.
        None if source::is_foreign(claim) => {}
        None => wanted(trail, claim, name),
    }
    trail.deeper();
    if last.is_some() {
        // That it runs is evidence now; what it said last tells what to do.
        trail.links.iter_mut().filter(|link| link.code == RUNS).for_each(|link| link.fix.clear());
    }
    // What a provisioner says without having asked its driver may be what is wrong with the source, in other words.
    let (early, late) = match last {
        Some((finding @ Finding::CallFailed { code: Code::None, .. }, evidence)) => (Some((finding, evidence)), None),
        last => (None, last),
    };
    let tell = |trail: &mut Trail<'_>, told: Option<(Finding, String)>| {
        if let Some((finding, evidence)) = told {
            trail.find(Subject::provisioner(name), &finding, vec![evidence]);
        }
    };
    tell(trail, early);
    source::look(trail, claim);
    place::look(trail, claim, name);
    tell(trail, late);
}

/// A creation that was begun is decided about by itself.
fn begun(trail: &mut Trail<'_>, claim: &Claim, name: &str) {
    let picture = trail.picture;
    let Some(begun) = picture.begun(claim) else { return };
    let seen = intent::Seen {
        uid: claim.uid(),
        volume_name: &begun.volume,
        claim: Some(claim),
        stored: picture.volume(&begun.volume).found(),
        twin: None,
        origin: intent::IntentOrigin::Here,
        attempt: intent::Attempt::Open,
    };
    let because = intent::decide(&seen).because;
    let node = begun.node.as_ref().map(|node| format!(" for node {node:?}")).unwrap_or_default();
    let line = format!("the creation of volume {:?}{node} was begun and written down by {}", begun.volume, begun.by);
    let told = Told::evidence([line]).fixed(advice::intent(&because));
    trail.push(Subject::provisioner(name), Step::Intent, &because, told);
}

fn wanted(trail: &mut Trail<'_>, claim: &Claim, name: &str) {
    let picture = trail.picture;
    let mut names = vec![name.to_owned()];
    names.extend(migration::plugin_of(name));
    let class = match picture.class(claim.class().text()) {
        Lookup::Found(class) => Some(class),
        Lookup::NotCached | Lookup::Absent => None,
    };
    let volume = format!("{PREFIX}{}", claim.uid());
    let seen = Seen {
        claim: ClaimSeen::Live(claim),
        class,
        namesake: picture.volume(&volume).found(),
        names: Names(&names),
        beside: Beside::NotAsked,
        held: None,
    };
    let because = decide(&seen).because;
    let told = Told::evidence(evidence(claim, &because)).fixed(advice::provision(&because));
    trail.push(Subject::provisioner(name), Step::Provision, &because, told);
    match because {
        Because::NotAsked | Because::Provisioned { .. } => around::binder(trail),
        _ => {}
    }
}

fn evidence(claim: &Claim, because: &Because) -> Vec<String> {
    match because {
        Because::NotAsked => match claim.provisioner() {
            Some(asked) => vec![format!("the claim's annotation asks provisioner {asked:?}")],
            None => vec!["the claim has no annotation yet that asks a provisioner".to_owned()],
        },
        Because::Wanted { .. } => {
            let node = claim.selected_node().map(|node| format!("node {node:?} was chosen for the claim"));
            node.into_iter().collect()
        }
        Because::ClaimGone
        | Because::ClaimGoing
        | Because::HeldBack { .. }
        | Because::HasVolume { .. }
        | Because::NoClass
        | Because::ClassMissing { .. }
        | Because::ClassOfAnother { .. }
        | Because::NoNode { .. }
        | Because::Provisioned { .. }
        | Because::NameTaken { .. }
        | Because::CacheMayLag { .. } => Vec::new(),
    }
}
