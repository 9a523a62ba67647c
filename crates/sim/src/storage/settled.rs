//! What must be true when nothing has gone wrong for a while.
//!
//! The judge lets the same functions decide that the controllers use, with the truth in place of caches. If one of them
//! still says that something is to be done, somebody has missed it.

use std::sync::Arc;

use api::{Claim, ClassName, Pod, ReclaimPolicy, Volume, VolumePhase};
use lifecycle::bind::claim::{self, Because, ClassSeen, Seen, Supply, VolumeSeen};
use lifecycle::bind::shelf::Shelf;
use lifecycle::release::volume::{self as release, ClaimSeen};
use lifecycle::{Lookup, Reason as _, Standing, protect};

use super::Company;
use super::witness::{Truth, handle_of};
use crate::driver::{self, BAD_PARAMETER};
use crate::keys;

/// Everything that is not as it should be.
pub(crate) fn judge(truth: &Truth, backend: &[driver::Volume], company: Company) -> Vec<String> {
    let mut found = Vec::new();
    found.extend(backend.iter().filter_map(|volume| leaked(truth, volume)));
    found.extend(truth.volumes.values().filter_map(|volume| hollow(truth, volume, backend)));
    let mut shelf = Shelf::default();
    truth.volumes.values().for_each(|volume| shelf.put(volume.clone()));
    found.extend(truth.claims.values().filter_map(|claim| unexplained(truth, claim, &shelf, company)));
    found.extend(truth.volumes.values().filter_map(|volume| unreleased(truth, volume)));
    found.extend(left_intents(truth));
    found
}

/// Intents in the journal that nothing will ever end: their claim is gone, or has its volume.
fn left_intents(truth: &Truth) -> Vec<String> {
    let open = truth.intents.values().flatten();
    let left = open.filter(|uid| truth.claim_of(uid).is_none_or(|claim| claim.fully_bound()));
    left.map(|uid| format!("left intent: the journal has an intent for claim {uid}, which is gone or bound")).collect()
}

/// A volume of the driver that nobody knows of.
fn leaked(truth: &Truth, volume: &driver::Volume) -> Option<String> {
    let driver::Volume { id, name, .. } = volume;
    if truth.is_known(id) {
        return None;
    }
    let uid = name.strip_prefix("pvc-").unwrap_or(name);
    if !truth.has_intent(uid) {
        return Some(format!(
            "leaked: the driver has {id}, named {name}, and no PersistentVolume or intent knows of it"
        ));
    }
    match truth.claims.values().any(|claim| claim.uid().as_str() == uid) {
        true => None,
        false => Some(format!("leaked: {id}, named {name}, has an intent that nobody brings to its end")),
    }
}

/// A volume that a claim has and that stands for nothing.
fn hollow(truth: &Truth, volume: &Volume, backend: &[driver::Volume]) -> Option<String> {
    let handle = handle_of(volume)?;
    let uid = volume.claim.as_ref()?.uid.as_ref()?;
    truth.claim_of(uid).filter(|claim| &*claim.volume_name == volume.name())?;
    match backend.iter().any(|held| held.id == handle) {
        true => None,
        false => Some(format!("hollow: volume {} stands for {handle}, which the driver does not have", volume.name())),
    }
}

fn unexplained(truth: &Truth, held: &Arc<Claim>, shelf: &Shelf, company: Company) -> Option<String> {
    let pods: Vec<&Pod> = truth.pods.values().map(|pod| &**pod).collect();
    let guard = protect::claim(held, protect::Pods::Live(&pods));
    if !guard.is_rest() {
        return Some(format!("unexplained: claim {} should be protected or let go ({:?})", held.key(), guard.because));
    }
    let verdict = decide(truth, held, shelf, company);
    let (key, because) = (held.key(), &verdict.because);
    if !verdict.is_rest() {
        return Some(format!("unexplained: for claim {key} there is still to do {:?}: {because}", verdict.actions));
    }
    let served = match because {
        Because::AwaitingProvisioner { provisioner, class } if **provisioner == *keys::DRIVER => {
            let class = truth.classes.get(class)?;
            !(class.parameters.contains_key(BAD_PARAMETER) || held.source.is_some() || held.selector.is_some())
        }
        _ => false,
    };
    let warned = truth.warned.get(held.uid()).is_some_and(|reasons| reasons.contains("ProvisioningFailed"));
    match because.standing() {
        Standing::Moving => Some(format!("unexplained: claim {key} is still on its way: {because}")),
        _ if served => Some(format!("unexplained: claim {key} waits for a driver that could serve it: {because}")),
        Standing::Waiting
            if matches!(because, Because::AwaitingProvisioner { provisioner, .. } if **provisioner == *keys::DRIVER)
                && !warned =>
        {
            Some(format!("unexplained: claim {key} waits, and no event says why: {because}"))
        }
        Standing::Settled | Standing::Waiting | Standing::Stuck => None,
    }
}

fn decide(truth: &Truth, held: &Claim, shelf: &Shelf, company: Company) -> claim::Verdict {
    let volume = match &*held.volume_name {
        "" => VolumeSeen::Open(shelf.offer(held)),
        name => VolumeSeen::Named(truth.volumes.get(name).map_or(Lookup::Absent, |volume| Lookup::Found(&**volume))),
    };
    let class = match held.class() {
        ClassName::Unset => {
            let default = claim::default_class(truth.classes.values().map(|class| &**class));
            ClassSeen::Unset { default }
        }
        ClassName::None => ClassSeen::None,
        ClassName::Named(name) => match truth.classes.get(name) {
            None => ClassSeen::Missing { name },
            Some(class) if class.provisioner.starts_with(api::keys::provisioner::IN_TREE_PREFIX) => {
                ClassSeen::Found { class, supply: Supply::Nobody }
            }
            Some(class) if company == Company::Together && &*class.provisioner == keys::DRIVER => {
                ClassSeen::Found { class, supply: Supply::Beside }
            }
            Some(class) => ClassSeen::Found { class, supply: Supply::External },
        },
    };
    let uses = |pod: &&Arc<Pod>| pod.claims().any(|name| *name == *held.name());
    let waiting = truth.pods.values().filter(|pod| !pod.scheduled() && !pod.terminated()).filter(uses);
    let pods: Vec<Box<str>> = waiting.map(|pod| pod.name().into()).collect();
    claim::decide(&Seen { claim: held, volume, class, pods: &pods })
}

fn unreleased(truth: &Truth, volume: &Volume) -> Option<String> {
    let name = volume.name();
    let guard = protect::volume(volume);
    if !guard.is_rest() {
        return Some(format!("unexplained: volume {name} should be protected or let go ({:?})", guard.because));
    }
    let reference = volume.claim.as_deref();
    let claim = match reference.filter(|reference| reference.uid.is_some()) {
        None => ClaimSeen::Unnamed,
        Some(reference) => {
            let claim = truth.claims.get(&reference.key);
            ClaimSeen::Live(claim.map_or(Lookup::Absent, |claim| Lookup::Found(&**claim)))
        }
    };
    let verdict = release::decide(&release::Seen { volume, claim, plugins: &[] });
    let wakes = matches!(verdict.actions.first(), Some(release::Action::WakeClaim { .. }));
    if !verdict.is_rest() && !wakes {
        let (actions, because) = (&verdict.actions, &verdict.because);
        return Some(format!("unexplained: for volume {name} there is still to do {actions:?}: {because}"));
    }
    let ours = handle_of(volume).is_some() && volume.provisioned_by() == Some(keys::DRIVER);
    let over = volume.phase == VolumePhase::Released && volume.reclaim == ReclaimPolicy::Delete;
    match ours && over {
        true => Some(format!("unexplained: volume {name} is released, and its driver has not deleted it")),
        false => None,
    }
}
