//! What plugins of this process do: provision (BIND-4.9, internal path), delete and recycle (BIND-4.10).
//!
//! A plugin's work may take long, so everything is looked at again after it: the object is deleted only under its uid, and
//! given back only at its revision.

use std::sync::Arc;

use api::keys::{annotation, finalizer};
use api::{Claim, Class, Key, Volume, VolumePhase};
use lifecycle::Notice;
use lifecycle::bind::claim::Target;
use runtime::client::Error;

use super::{Inner, patches};
use crate::Live;
use crate::provision::Wish;

/// Why a plugin's work did not end well.
pub(super) enum Trouble {
    /// The server did not take a write, or did not answer.
    Api(Error),
    /// The plugin could not; it was told to users.
    Plugin(String),
    /// Not now: somebody still uses it, and their end wakes us.
    NotNow,
    /// The volume is not what was decided about any more: decide again.
    Changed,
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Api(error)
    }
}

/// Makes a volume for a claim and stores it, reserved for the claim.
pub(super) async fn provision(inner: &Inner, claim: &Arc<Claim>, class: &Arc<Class>) -> Result<(), Trouble> {
    let Some(plugin) = inner.plugins.named(&class.provisioner) else {
        return Err(Trouble::Plugin(format!("nothing here provisions {:?} volumes", class.provisioner)));
    };
    inner.metrics.asked(claim, &class.provisioner);
    let wish = Wish {
        claim: claim.clone(),
        class: class.clone(),
        node: claim.selected_node().map(Into::into),
        volume_name: format!("pvc-{}", claim.uid()),
    };
    let made = match plugin.provision(&wish).await {
        Ok(made) => made,
        Err(error) => return Err(not_provisioned(inner, claim, runtime::causes(&error)).await),
    };
    let name = wish.volume_name;
    match inner.context.create::<Volume>(None, &made).await {
        Ok(_) => {
            let text = format!("Successfully provisioned volume {name} using {}", plugin.name());
            inner.notices.always(&**claim, &Notice::normal("ProvisioningSucceeded", text));
            Ok(())
        }
        // An earlier attempt stored it, or this one did and the answer was lost.
        Err(error) => match inner.context.reconsider::<Volume>(&Key::cluster(&name), error).await {
            Ok(()) => Ok(()),
            Err(error) => {
                let text = format!("Error creating provisioned PV object for claim {}: {error}", claim.key());
                inner.notices.say(&**claim, Notice::warning("ProvisioningFailed", text));
                Err(Trouble::Api(error))
            }
        },
    }
}

/// Tells users, and lets the scheduler choose another node where one was chosen.
async fn not_provisioned(inner: &Inner, claim: &Claim, why: String) -> Trouble {
    let text = format!("Failed to provision volume: {why}");
    inner.notices.say(claim, Notice::warning("ProvisioningFailed", text.clone()));
    if claim.meta.annotation(annotation::SELECTED_NODE).is_some() {
        let patch = patches::unselect(claim);
        if let Err(error) = inner.context.patch::<Claim>(claim.key(), &patch).await {
            return Trouble::Api(error);
        }
    }
    Trouble::Plugin(text)
}

/// Before data is destroyed: the server itself says that the volume is still as it was judged. A cache that lags would not
/// show that somebody has just changed its policy to keep it (BIND-4.10).
async fn confirm(inner: &Inner, volume: &Volume) -> Result<(), Trouble> {
    match inner.context.read::<Volume>(&volume.meta.key).await? {
        Live::Found(now) if now.meta.uid == volume.meta.uid && now.meta.revision == volume.meta.revision => Ok(()),
        Live::Found(_) | Live::Absent => Err(Trouble::Changed),
    }
}

/// Deletes what a volume is made of, then its finalizer, then the volume itself.
pub(super) async fn delete(inner: &Inner, volume: &Volume) -> Result<(), Trouble> {
    confirm(inner, volume).await?;
    inner.metrics.deleting(volume);
    let deleted = match inner.plugins.of(volume) {
        Some(plugin) => plugin.delete(volume).await.map_err(|error| runtime::causes(&error)),
        None => Err("nothing here deletes it".to_owned()),
    };
    if let Err(why) = deleted {
        return Err(failed(inner, volume, "VolumeFailedDelete", why).await);
    }
    let (context, key) = (&inner.context, &volume.meta.key);
    // The finalizer falls only now: until here it kept the object as the memory of what has to be deleted.
    if volume.meta.has_finalizer(finalizer::PV_CONTROLLER) {
        let patch = patches::maintain(volume, lifecycle::migration::Mark::Right, None, &[finalizer::PV_CONTROLLER]);
        context.patch::<Volume>(key, &patch).await?;
    }
    match volume.meta.is_deleting() {
        // Somebody asked for its end already; who else holds it lets go of it by themselves.
        true => Ok(()),
        false => Ok(context.delete::<Volume>(&volume.meta).await?),
    }
}

/// Empties a volume and gives it back.
pub(super) async fn recycle(inner: &Inner, volume: &Volume) -> Result<(), Trouble> {
    let users = users(inner, volume);
    if !users.is_empty() {
        let text = format!("Volume is used by pods: {}", users.join(","));
        inner.notices.say(volume, Notice::normal("VolumeFailedRecycle", text));
        return Err(Trouble::NotNow);
    }
    confirm(inner, volume).await?;
    let Some(plugin) = inner.plugins.of(volume) else {
        return Err(failed(
            inner,
            volume,
            "VolumeFailedRecycle",
            "No recycler plugin found for the volume!".to_owned(),
        )
        .await);
    };
    if let Err(error) = plugin.recycle(volume).await {
        return Err(failed(
            inner,
            volume,
            "VolumeFailedRecycle",
            format!("Recycle failed: {}", runtime::causes(&error)),
        )
        .await);
    }
    inner.notices.always(volume, &Notice::normal("VolumeRecycled", "Volume recycled"));
    let target = Target::of(&volume.meta);
    let patch = match volume.bound_by_controller() {
        true => patches::erase(&target),
        false => patches::clear_uid(&target),
    };
    inner.context.patch::<Volume>(&volume.meta.key, &patch).await?;
    Ok(())
}

/// Pods that still use the claim the volume had. A claim of that name that exists is another one, and its pods are not
/// ours to wait for.
fn users(inner: &Inner, volume: &Volume) -> Vec<String> {
    let Some(reference) = &volume.claim else { return Vec::new() };
    if inner.claims.get(&reference.key).is_some() {
        return Vec::new();
    }
    let pods = inner.pods.all(&reference.key.to_string());
    pods.iter().filter(|pod| !pod.terminated()).map(|pod| format!("{}/{}", pod.namespace(), pod.name())).collect()
}

/// The phase says that it did not work, and the message why.
async fn failed(inner: &Inner, volume: &Volume, reason: &'static str, why: String) -> Trouble {
    inner.notices.say(volume, Notice::warning(reason, why.clone()));
    if volume.phase != VolumePhase::Failed || volume.message.as_deref() != Some(&*why) {
        let patch = patches::phase(&Target::of(&volume.meta), VolumePhase::Failed.name(), &why);
        if let Err(error) = inner.context.patch_status::<Volume>(&volume.meta.key, &patch).await {
            return Trouble::Api(error);
        }
    }
    Trouble::Plugin(why)
}
