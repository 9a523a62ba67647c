//! CreateVolume, and what is done with its answer (PROVISION-2.7, PROVISION-2.8, PROVISION-2.10).

use csi::v1;
use lifecycle::attach::unique_name;
use lifecycle::migration;
use lifecycle::outcome::Retry;
use lifecycle::provision::csi::Plan;
use lifecycle::provision::csi::answer::{self, Wrong};
use runtime::csi::CallError;
use serde_json::Value;

use super::waiting::What;
use super::wire::{self, Values};
use super::{Inner, secret};
use crate::handles;
use crate::provision::{Attempt, Failed, Made};

impl Inner {
    pub(super) async fn create(&self, plan: &Plan, attempt: Attempt) -> Result<Made, Failed> {
        // After a restart the plan comes from the journal: its source is held again.
        self.holds.take(plan);
        let secrets = match &plan.secrets.provision {
            None => Values::new(),
            Some(reference) => secret::read(&self.context.client, reference)
                .await
                .map_err(|error| wire::not_sent(attempt, error.to_string()))?,
        };
        let request = wire::create_request(plan, secrets.clone());
        let response = match self.driver_for(&plan.provisioner).create_volume(request, self.options.timeout).await {
            Ok(response) => response,
            Err(error) => {
                if let CallError::NotConnected { .. } = error {
                    self.waiting.claim(What::Driver, &plan.claim.uid.as_str().into());
                }
                let has = self.driver.facts().map(|facts| wire::abilities(&facts.capabilities)).unwrap_or_default();
                return Err(wire::not_created(attempt, &error, &has));
            }
        };
        let answer = wire::answer(response);
        if let Err(wrong @ Wrong::NoId) = answer::judge(plan, &answer) {
            return Err(Failed::Unknown { message: wrong.to_string() });
        }
        let volume = answer::judge(plan, &answer)
            .map_err(|wrong| wrong.to_string())
            .and_then(|()| in_its_words(plan, answer::persistent_volume(plan, &answer, &self.identity)));
        match volume {
            Ok(volume) => Ok(Made { volume }),
            Err(wrong) => Err(self.undo(&answer.id, secrets, &wrong).await),
        }
    }

    /// Deletes a volume that is not what was asked for. Only if that surely worked there is surely nothing.
    async fn undo(&self, id: &str, secrets: Values, wrong: &str) -> Failed {
        // The driver may answer with a volume that another object owns; that volume must not be deleted.
        match handles::live_owner(&self.context, &unique_name(self.name(), id)).await {
            Ok(None) => {}
            Ok(Some(owner)) => {
                let message =
                    format!("{wrong}; it was not deleted, because PersistentVolume {:?} stands for it", owner.name());
                return Failed::Refused { message, retry: Retry::Later };
            }
            Err(error) => {
                let message =
                    format!("{wrong}, and whether another PersistentVolume stands for it is not known: {error}");
                return Failed::Unknown { message };
            }
        }
        let request = v1::DeleteVolumeRequest { volume_id: id.to_owned(), secrets };
        match self.driver.delete_volume(request, self.options.timeout).await {
            Ok(_) => Failed::Refused { message: format!("{wrong}; it was deleted"), retry: Retry::Later },
            Err(error) => Failed::Unknown { message: format!("{wrong}, and it could not be deleted: {error}") },
        }
    }
}

/// A volume for a class of a plugin that the driver took over is stored in the plugin's words (SIDECAR-1.10).
fn in_its_words(plan: &Plan, volume: Value) -> Result<Value, String> {
    match plan.provisioner == plan.driver {
        true => Ok(volume),
        false => migration::volume_to_in_tree(&volume).map_err(|error| error.to_string()),
    }
}
