//! A volume: who has it, and what becomes of it when nobody has.

use api::{Kind, Source, Volume};

use super::{Finding, Step, Subject, Told, Trail, advice, around, presence};
use crate::decision::Lookup;
use crate::outcome::Call;
use crate::provision::backing::is_same_backing;
use crate::provision::{Names, delete};
use crate::release::volume::{Because, ClaimSeen, Seen, decide};

/// Follows a volume from the binder's reason on.
pub(super) fn volume(trail: &mut Trail<'_>, volume: &Volume) {
    let picture = trail.picture;
    let named = volume.claim.as_ref().filter(|reference| reference.uid.is_some());
    let claim = named.map_or(ClaimSeen::Unnamed, |reference| ClaimSeen::Live(picture.claim(&reference.key)));
    if let ClaimSeen::Live(Lookup::NotCached) = claim {
        let finding = Finding::Blind { what: Kind::CLAIM.plural };
        return trail.find(Subject::volume(volume.name()), &finding, evidence(volume));
    }
    let because = decide(&Seen { volume, claim, plugins: &[] }).because;
    let told = Told::evidence(evidence(volume)).fixed(advice::release(volume, &because));
    trail.push(Subject::volume(volume.name()), Step::Release, &because, told);
    trail.deeper();
    follow(trail, volume, &because);
}

fn evidence(volume: &Volume) -> Vec<String> {
    let size = volume.capacity.as_ref().map_or("no size", api::Amount::text);
    let made_of = match &volume.source {
        Source::Csi { driver, handle } => format!("volume {handle:?} of driver {driver}"),
        Source::HostPath { path } => format!("the directory {path} of whatever node it is used on"),
        Source::Local { path } => format!("{path} of one node"),
        Source::Nfs { server, path } => format!("{path} of the NFS server {server}"),
        Source::Other { field, .. } => format!("a volume of the plugin {field}"),
        Source::Missing => "nothing that it names".to_owned(),
    };
    let mut lines = vec![format!("it has {size}, reclaim policy {}, and is {made_of}", volume.reclaim.name())];
    let message = volume.message.as_ref().filter(|message| !message.is_empty());
    lines.extend(message.map(|message| format!("its status says: {message}")));
    lines
}

fn follow(trail: &mut Trail<'_>, volume: &Volume, because: &Because) {
    match because {
        Because::DeletedElsewhere { by } => deleted(trail, volume, by),
        // The next write is the binder's.
        Because::Maintenance
        | Because::ClaimGone { .. }
        | Because::ClaimElsewhere { .. }
        | Because::NeverGiven { .. } => around::binder(trail),
        Because::ClaimsTurn { claim } => {
            if let Lookup::Found(claim) = trail.picture.claim(claim) {
                super::bind::claim(trail, claim);
            }
        }
        Because::Unclaimed
        | Because::Reserved { .. }
        | Because::CacheMayLag { .. }
        | Because::Bound { .. }
        | Because::ModeMismatch { .. }
        | Because::Retained { .. }
        | Because::NoDeleter { .. }
        | Because::NoRecycler
        | Because::UnknownPolicy => {}
    }
}

/// Somebody else deletes it: what that one says, whether it runs, and why it failed last.
fn deleted(trail: &mut Trail<'_>, volume: &Volume, by: &str) {
    let picture = trail.picture;
    let claim = volume.claim.as_ref().map_or(Lookup::Absent, |reference| picture.claim(&reference.key));
    let names = [by.to_owned()];
    let (seen, backing) = (delete::VolumeSeen::Live(volume), delete::Backing::Unknown);
    let twin = picture
        .volumes
        .items()
        .iter()
        .find(|twin| twin.name() != volume.name() && is_same_backing(twin, volume) && delete::keeps(twin));
    let twins = twin.map_or(delete::TwinsSeen::None, delete::TwinsSeen::Kept);
    let seen = delete::Seen { volume: seen, claim, names: Names(&names), backing, twins };
    let because = delete::decide(&seen).because;
    let told = Told::default().fixed(advice::delete(volume, &because));
    trail.push(Subject::provisioner(by), Step::Delete, &because, told);
    trail.deeper();
    presence::look(trail, by, (Kind::VOLUME, &volume.meta));
    if let Some((finding, evidence)) = presence::last_call(picture, Call::DeleteVolume, (Kind::VOLUME, &volume.meta)) {
        trail.find(Subject::provisioner(by), &finding, vec![evidence]);
    }
}
