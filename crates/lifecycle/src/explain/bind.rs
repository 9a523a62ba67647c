//! A claim that lives: what the binder says of it, and whom it waits for.

use std::sync::Arc;

use api::{Claim, ClaimPhase, Class, ClassName, Volume};

use super::text::{said, wish};
use super::{
    Finding, Picture, Step, Subject, Told, Trail, advice, around, condition, growing, near, place, pods, presence,
    provision,
};
use crate::bind::claim::{Because, ClassSeen, Seen, Supply, Verdict, VolumeSeen, decide, default_class};
use crate::bind::shelf::Shelf;
use crate::decision::Lookup;
use crate::migration;
use crate::outcome::Call;

/// Follows a claim from the binder's reason on.
pub(super) fn claim(trail: &mut Trail<'_>, claim: &Claim) {
    let picture = trail.picture;
    let subject = Subject::claim(claim.key());
    let verdict = match judge(picture, claim) {
        Ok(verdict) => verdict,
        Err(finding) => return blind(trail, claim, &finding),
    };
    let told = Told::evidence(evidence(picture, claim, &verdict.because)).fixed(advice::bind(claim, &verdict.because));
    trail.push(subject, Step::Bind, &verdict.because, told);
    trail.deeper();
    follow(trail, claim, &verdict.because);
}

/// What decides could not be looked at: what can be seen is told, which is more than nothing.
fn blind(trail: &mut Trail<'_>, claim: &Claim, finding: &Finding) {
    let picture = trail.picture;
    let about = (api::Kind::CLAIM, &claim.meta);
    let subject = || Subject::claim(claim.key());
    trail.find(subject(), finding, vec![wish(claim)]);
    trail.deeper();
    if let Finding::SaidBound { volume } = finding {
        return around::in_use(trail, claim, volume);
    }
    pods::unscheduled(trail, claim, &waiting(picture, claim));
    if let Some((finding, evidence)) = presence::last_call(picture, Call::CreateVolume, about) {
        return trail.find(subject(), &finding, vec![evidence]);
    }
    let last = picture.events.items().iter().filter(|event| event.about.is(about.0, about.1));
    if let Some(event) = last.max_by_key(|event| event.last) {
        let finding = Finding::Said { by: event.by.as_str().into(), message: event.message.clone() };
        trail.find(subject(), &finding, vec![said(picture, event)]);
    }
}

/// Pods that use the claim and have no node.
fn waiting(picture: &Picture, claim: &Claim) -> Vec<Box<str>> {
    let waiting = picture.users(claim).filter(|pod| !pod.scheduled() && !pod.terminated());
    waiting.map(|pod| pod.name().into()).collect()
}

/// What the binder would decide from this picture.
fn judge(picture: &Picture, claim: &Claim) -> Result<Verdict, Finding> {
    let volume = match &*claim.volume_name {
        "" => VolumeSeen::Open(shelf(picture).offer(claim)),
        name => match picture.volume(name) {
            // The binder would ask the server. We did, and were not answered.
            Lookup::NotCached if claim.phase == ClaimPhase::Bound && claim.bind_completed() => {
                return Err(Finding::SaidBound { volume: name.into() });
            }
            Lookup::NotCached => return Err(Finding::Blind { what: "persistentvolumes" }),
            found => VolumeSeen::Named(found),
        },
    };
    // The binder asks for the class only of a claim that still has to find its volume.
    let asks = claim.volume_name.is_empty() && !claim.bind_completed();
    let blind = Finding::Blind { what: "storageclasses" };
    let class = match claim.class() {
        // Without a class only a volume that exists can be had, and whether one does was not seen.
        ClassName::None if asks && !picture.volumes.is_seen() => {
            return Err(Finding::Blind { what: "persistentvolumes" });
        }
        ClassName::None => ClassSeen::None,
        ClassName::Unset if asks && !picture.classes.is_seen() => return Err(blind),
        ClassName::Unset => ClassSeen::Unset { default: default_class(picture.classes.items()) },
        ClassName::Named(name) => match picture.class(name) {
            Lookup::Found(class) => ClassSeen::Found { class, supply: supply(picture, claim, class) },
            Lookup::NotCached if asks => return Err(blind),
            Lookup::NotCached | Lookup::Absent => ClassSeen::Missing { name },
        },
    };
    Ok(decide(&Seen { claim, volume, class, pods: &waiting(picture, claim) }))
}

fn shelf(picture: &Picture) -> Shelf {
    let mut shelf = Shelf::default();
    picture.volumes.items().iter().cloned().for_each(|volume: Volume| shelf.put(Arc::new(volume)));
    shelf
}

/// Who makes volumes of a class (BIND-P2 to BIND-P5), as far as it shows from outside.
fn supply(picture: &Picture, claim: &Claim, class: &Class) -> Supply {
    let name = migration::driver_of(&class.provisioner).unwrap_or(&class.provisioner);
    if name.starts_with(api::keys::provisioner::IN_TREE_PREFIX) {
        Supply::Nobody
    } else if picture.begun(claim).is_some() {
        // What was begun without an annotation was asked for within one process.
        Supply::Beside
    } else {
        Supply::External
    }
}

/// What shows that a reason is so.
fn evidence(picture: &Picture, claim: &Claim, because: &Because) -> Vec<String> {
    let mut lines = Vec::new();
    match because {
        Because::Bound { volume } | Because::StatusBehind { volume } => {
            lines.extend(picture.volume(volume).found().map(backing));
        }
        Because::NamedUnsuitable { volume, mismatch } | Because::ReservedUnsuitable { volume, mismatch } => {
            let found = picture.volume(volume).found();
            lines.extend(found.map(|volume| near::against(claim, volume, *mismatch)));
        }
        Because::Taken { volume, holder } => {
            let holder = holder.as_ref().map(|holder| format!("volume {volume:?} belongs to claim {holder}"));
            lines.extend(holder);
        }
        Because::TakenFromUs { volume } | Because::Misbound { volume } => {
            let reference = picture.volume(volume).found().and_then(|volume| volume.claim.as_ref());
            lines.extend(reference.map(|reference| format!("volume {volume:?} names claim {}", reference.key)));
        }
        Because::NoClass => {
            lines.push(wish(claim));
            lines.extend(no_default(picture, claim));
            lines.extend(near::misses(picture, claim));
        }
        Because::ClassMissing { .. } => {
            let names: Vec<&str> = picture.classes.items().iter().map(Class::name).collect();
            lines.push(match names.as_slice() {
                [] => "there are no storage classes in the cluster".to_owned(),
                names => format!("the storage classes here are {}", names.join(", ")),
            });
            lines.extend(near::misses(picture, claim));
        }
        Because::NoProvisioner { .. }
        | Because::SwitchedOff { .. }
        | Because::NothingFits { .. }
        | Because::AwaitingProvisioner { .. }
        | Because::NoPod
        | Because::PodUnscheduled { .. } => {
            lines.push(wish(claim));
            lines.extend(near::misses(picture, claim));
        }
        Because::LostPointer | Because::LostVolume { .. } | Because::NamedMissing { .. } => {
            lines.push(wish(claim));
            let names_it =
                |volume: &&Volume| volume.claim.as_ref().is_some_and(|held| held.uid.as_ref() == Some(claim.uid()));
            let named = picture.volumes.items().iter().filter(names_it);
            lines.extend(named.map(|volume| format!("volume {:?} still names this very claim", volume.name())));
            let lost = picture.last_event(api::Kind::CLAIM, &claim.meta, &["ClaimLost"]);
            lines.extend(lost.map(|event| said(picture, event)));
        }
        Because::CacheMayLag { volume } => lines.push(format!("volume {volume:?} could not be looked at")),
        Because::NoBindingMode { .. }
        | Because::Migration
        | Because::Fits { .. }
        | Because::Named { .. }
        | Because::Designated { .. }
        | Because::DefaultClass { .. }
        | Because::ClaimGoing => {}
    }
    lines.push(format!("the claim is {} old", picture.age(claim.meta.created)));
    lines
}

/// Why no default class was filled in.
fn no_default(picture: &Picture, claim: &Claim) -> Option<String> {
    match claim.class() {
        ClassName::Unset => Some(match picture.classes.items().len() {
            0 => "there are no storage classes in the cluster".to_owned(),
            count => format!("there are storage classes ({count}), and none is the default"),
        }),
        ClassName::None => {
            let default = default_class(picture.classes.items())?;
            Some(format!("storageClassName is \"\", so the default class {:?} is not filled in", default.name()))
        }
        ClassName::Named(_) => None,
    }
}

fn backing(volume: &Volume) -> String {
    let maker = volume.provisioned_by().map(|maker| format!(", made by {maker}")).unwrap_or_default();
    let size = volume.capacity.as_ref().map_or("no size", api::Amount::text);
    format!("volume {:?} has {size}, reclaim policy {}{maker}", volume.name(), volume.reclaim.name())
}

/// Whom the claim waits for.
fn follow(trail: &mut Trail<'_>, claim: &Claim, because: &Because) {
    match because {
        Because::NoPod => pods::passed_over(trail, claim),
        Because::PodUnscheduled { pods } => {
            pods::passed_over(trail, claim);
            pods::unscheduled(trail, claim, pods);
            place::nowhere(trail, claim);
            place::room(trail, claim);
        }
        Because::NothingFits { provisioner, .. } | Because::AwaitingProvisioner { provisioner, .. } => {
            provision::claim(trail, claim, provisioner);
        }
        Because::Bound { volume } => {
            growing::look(trail, claim);
            pods::not_owned(trail, claim);
            around::in_use(trail, claim, volume);
            if let Lookup::Found(volume) = trail.picture.volume(volume) {
                condition::volume(trail, Some(claim), volume);
            }
        }
        // The next write is the binder's.
        Because::Migration
        | Because::Fits { .. }
        | Because::Named { .. }
        | Because::Designated { .. }
        | Because::StatusBehind { .. }
        | Because::DefaultClass { .. } => around::binder(trail),
        // Nobody else has to move.
        Because::CacheMayLag { .. }
        | Because::ClaimGoing
        | Because::ReservedUnsuitable { .. }
        | Because::NamedUnsuitable { .. }
        | Because::NamedMissing { .. }
        | Because::Taken { .. }
        | Because::TakenFromUs { .. }
        | Because::NoBindingMode { .. }
        | Because::NoClass
        | Because::ClassMissing { .. }
        | Because::NoProvisioner { .. }
        | Because::SwitchedOff { .. }
        | Because::LostPointer
        | Because::LostVolume { .. }
        | Because::Misbound { .. } => {}
    }
}
