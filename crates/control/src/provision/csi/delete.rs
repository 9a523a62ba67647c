//! DeleteVolume, and what has to be so before it (PROVISION-2.11.4).

use std::sync::Arc;

use api::keys::annotation;
use api::{Class, Key, Source, Volume};
use csi::v1;
use lifecycle::migration;
use lifecycle::outcome::Retry;
use lifecycle::provision::csi::ability::{self, Ability};
use lifecycle::provision::csi::secrets::{self, ClaimNames, Names, Purpose, Reference};
use runtime::csi::CallError;

use super::detached::Publishing;
use super::secret::SecretError;
use super::waiting::What;
use super::wire::{self, Values};
use super::{Inner, secret};
use crate::capacity::Changed;
use crate::provision::Failed;

fn later(message: impl Into<String>) -> Failed {
    Failed::Refused { message: message.into(), retry: Retry::Later }
}

impl Inner {
    pub(super) async fn delete(self: &Arc<Self>, volume: &Volume) -> Result<(), Failed> {
        let (provisioner, handle) = self.backing(volume)?;
        let Some(facts) = self.driver.facts() else {
            self.waiting.volume(What::Driver, volume.name());
            return Err(Failed::Unknown { message: "the driver is not connected".to_owned() });
        };
        self.reaches(volume).await?;
        let abilities = wire::abilities(&facts.capabilities);
        ability::basic(&abilities).map_err(|lacking| later(lacking.to_string()))?;
        let secrets = self.deletion_values(volume).await?;
        let publishing = match abilities.contains(&Ability::Publish) {
            true => Publishing::Yes,
            false => Publishing::No,
        };
        self.check_detached(volume, &handle, publishing).await?;
        let request = v1::DeleteVolumeRequest { volume_id: handle, secrets };
        match self.driver_for(&provisioner).delete_volume(request, self.options.timeout).await {
            Ok(_) => {
                self.refresh(&Changed::Volume(volume));
                Ok(())
            }
            Err(error) => {
                if let CallError::NotConnected { .. } = error {
                    self.waiting.volume(What::Driver, volume.name());
                }
                Err(wire::not_deleted(&error))
            }
        }
    }

    /// Whose volume it is, and what the driver calls it.
    fn backing(&self, volume: &Volume) -> Result<(String, String), Failed> {
        let not_ours = |message: String| Failed::NotOurs { message };
        let (driver, handle) = match &volume.source {
            Source::Csi { driver, handle } => (driver.to_string(), handle.to_string()),
            _ => match migration::csi_source(volume).map_err(|error| later(error.to_string()))? {
                Some(source) => (source.driver, source.volume_handle),
                None => return Err(not_ours(format!("the volume {} is not one of a CSI driver", volume.name()))),
            },
        };
        if driver != *self.name() {
            return Err(not_ours(format!("the volume {} is of the driver {driver}", volume.name())));
        }
        let provisioner = match volume.source {
            Source::Csi { .. } => driver,
            _ => volume.provisioned_by().unwrap_or_default().to_owned(),
        };
        Ok((provisioner, handle))
    }

    /// In node mode only the node that can reach a volume deletes it.
    async fn reaches(&self, volume: &Volume) -> Result<(), Failed> {
        let Some(node) = &self.options.node else {
            return Ok(());
        };
        let place = self.places.own(&self.driver, self.options.timeout).await;
        let place = place.map_err(|error| Failed::Unknown { message: error.to_string() })?;
        match volume.reachable_from(&node.name, &place.0.iter().collect()) {
            true => Ok(()),
            false => {
                Err(Failed::NotOurs { message: format!("{} cannot be reached from {}", volume.name(), node.name) })
            }
        }
    }

    /// The values that DeleteVolume gets. A secret that is gone does not keep a volume alive: the driver decides. One that
    /// cannot be read at the moment is asked for again.
    async fn deletion_values(&self, volume: &Volume) -> Result<Values, Failed> {
        let Some(reference) = self.deletion_secret(volume).await? else {
            return Ok(Values::new());
        };
        match secret::read(&self.context.client, &reference).await {
            Ok(values) => Ok(values),
            Err(error @ SecretError::Unread { .. }) => Err(later(error.to_string())),
            Err(error @ (SecretError::Missing { .. } | SecretError::NotText { .. })) => {
                tracing::warn!(volume = volume.name(), %error, "deleting without the secret");
                Ok(Values::new())
            }
        }
    }

    async fn deletion_secret(&self, volume: &Volume) -> Result<Option<Reference>, Failed> {
        let noted = |key| volume.meta.annotation(key);
        let name = noted(annotation::DELETION_SECRET_NAME);
        let namespace = noted(annotation::DELETION_SECRET_NAMESPACE);
        if let (Some(name), Some(namespace)) = (name, namespace) {
            let reference = Reference { namespace: namespace.to_owned(), name: name.to_owned() };
            return Ok(
                Some(reference).filter(|reference| !reference.name.is_empty() && !reference.namespace.is_empty())
            );
        }
        let (Some(class), Some(claim)) = (self.class_of(volume).await?, volume.claim.as_ref()) else {
            return Ok(None);
        };
        let claim = ClaimNames {
            namespace: claim.key.namespace().unwrap_or_default(),
            name: claim.key.name(),
            annotations: None,
        };
        let names = Names { volume: volume.name(), claim: Some(claim) };
        secrets::resolve(&class.parameters, Purpose::Provision, &names).map_err(|bad| later(bad.to_string()))
    }

    /// The class of a volume, asked from the server if the cache lacks it.
    async fn class_of(&self, volume: &Volume) -> Result<Option<Arc<Class>>, Failed> {
        let name = volume.class().text();
        if name.is_empty() {
            return Ok(None);
        }
        let key = Key::cluster(name);
        if let Some(class) = self.context.cache::<Class>().get(&key) {
            return Ok(Some(class));
        }
        match self.context.read::<Class>(&key).await {
            Ok(crate::Live::Found(class)) => Ok(Some(class)),
            Ok(crate::Live::Absent) => Ok(None),
            Err(error) => Err(later(format!("cannot read the class {name}: {error}"))),
        }
    }
}
