//! A small provisioner on the model driver (temporary).

use std::collections::BTreeMap;
use std::time::Duration;

use api::keys::{annotation, finalizer};
use api::{Kind, Volume};
use control::provision::{Failed, Made, Provisioner, Unplanned, Wish};
use csi::v1;
use lifecycle::outcome::{Call, Code, Outcome, outcome};
use runtime::csi::{CallError, Driver};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::witness::handle_of;
use crate::keys;

pub(super) struct Plain {
    pub(super) driver: Driver,
    pub(super) names: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Plan {
    name: String,
    namespace: String,
    claim: String,
    uid: String,
    class: String,
    bytes: i64,
    modes: Vec<String>,
    mode: String,
    reclaim: String,
    parameters: BTreeMap<String, String>,
}

fn failed(call: Call, error: &CallError) -> Failed {
    let message = error.to_string();
    let Some(code) = error.code() else { return Failed::Unknown { message } };
    match outcome(call, Code::from_number(code as i32)) {
        Outcome::Refused(retry) => Failed::Refused { message, retry },
        Outcome::Done | Outcome::Unknown => Failed::Unknown { message },
    }
}

const WAIT: Duration = Duration::from_secs(10);

impl Provisioner for Plain {
    type Plan = Plan;

    fn names(&self) -> &[String] {
        &self.names
    }

    async fn plan(&self, wish: &Wish) -> Result<Plan, Unplanned> {
        let class = &wish.class;
        Ok(Plan {
            name: wish.volume_name.clone(),
            namespace: wish.claim.namespace().to_owned(),
            claim: wish.claim.name().to_owned(),
            uid: wish.claim.uid().to_string(),
            class: class.name().to_owned(),
            bytes: wish.claim.request_bytes(),
            modes: wish.claim.access.iter().map(|mode| mode.name().to_owned()).collect(),
            mode: format!("{:?}", wish.claim.mode),
            reclaim: class.reclaim_policy.map_or("Delete", |policy| policy.name()).to_owned(),
            parameters: class.parameters.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
        })
    }

    async fn create(&self, plan: &Plan) -> Result<Made, Failed> {
        let request = v1::CreateVolumeRequest {
            name: plan.name.clone(),
            capacity_range: Some(v1::CapacityRange { required_bytes: plan.bytes, limit_bytes: 0 }),
            volume_capabilities: vec![v1::VolumeCapability::default()],
            parameters: plan.parameters.clone(),
            ..Default::default()
        };
        let made =
            self.driver.create_volume(request, WAIT).await.map_err(|error| failed(Call::CreateVolume, &error))?;
        let made = made.volume.unwrap_or_default();
        let volume = json!({
            "apiVersion": "v1", "kind": Kind::VOLUME.kind,
            "metadata": {
                "name": plan.name, "annotations": {annotation::PROVISIONED_BY.text(): keys::DRIVER},
                "finalizers": if plan.reclaim == "Delete" { vec![finalizer::EXTERNAL_PROVISIONER.text()] } else { vec![] },
            },
            "spec": {
                "capacity": {"storage": made.capacity_bytes.to_string()}, "accessModes": plan.modes,
                "volumeMode": plan.mode, "storageClassName": plan.class, "persistentVolumeReclaimPolicy": plan.reclaim,
                "csi": {"driver": keys::DRIVER, "volumeHandle": made.volume_id},
                "claimRef": {"kind": "PersistentVolumeClaim", "apiVersion": "v1",
                    "namespace": plan.namespace, "name": plan.claim, "uid": plan.uid},
            },
        });
        Ok(Made { volume })
    }

    async fn delete(&self, volume: &Volume) -> Result<(), Failed> {
        let volume_id = handle_of(volume).unwrap_or_default().to_owned();
        let request = v1::DeleteVolumeRequest { volume_id, ..Default::default() };
        self.driver.delete_volume(request, WAIT).await.map(drop).map_err(|error| failed(Call::DeleteVolume, &error))
    }
}
