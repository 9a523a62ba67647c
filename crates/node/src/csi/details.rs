//! What a volume's object says about how it is mounted: read for one operation, never kept.

use api::{AccessModes, Kind, Pairs, Uid};
use csi::v1::volume_capability::MountVolume;
use lifecycle::migration;
use lifecycle::node::because::Stage;
use lifecycle::node::selinux::Label;
use lifecycle::node::terms::{self, WireMode};
use serde::Deserialize;
use serde_json::Value;

use super::{Asked, Values};
use crate::Agent;
use crate::actual::What;
use crate::desired::Wish;
use crate::pods::{VolumeSource, attributes};
use crate::reconcile::Failure;
use csi::v1::node_service_capability::rpc::Type as NodeRpc;

/// Names a secret.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(default)]
pub(crate) struct SecretRef {
    pub(crate) name: Box<str>,
    pub(crate) namespace: Box<str>,
}

/// How a volume is mounted.
#[derive(Debug, Default)]
pub(crate) struct Details {
    pub(crate) fs_type: String,
    pub(crate) attributes: Values,
    pub(crate) options: Vec<String>,
    pub(crate) access: AccessModes,
    /// What of that the claim asks for.
    pub(crate) asked: AccessModes,
    pub(crate) stage_secret: Option<SecretRef>,
    pub(crate) publish_secret: Option<SecretRef>,
    pub(crate) expand_secret: Option<SecretRef>,
}

#[derive(Deserialize)]
struct Wire {
    spec: WireSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    csi: Option<WireCsi>,
    #[serde(default)]
    mount_options: Option<Vec<String>>,
    #[serde(default)]
    access_modes: AccessModes,
    claim_ref: Option<WireClaim>,
}

#[derive(Deserialize)]
struct WireClaim {
    uid: Option<Uid>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireCsi {
    driver: Box<str>,
    volume_handle: Box<str>,
    fs_type: Option<String>,
    #[serde(default)]
    volume_attributes: Pairs,
    node_stage_secret_ref: Option<SecretRef>,
    node_publish_secret_ref: Option<SecretRef>,
    node_expand_secret_ref: Option<SecretRef>,
}

impl Details {
    /// What a driver is told about the filesystem. `group` is there if the driver lets the group in by itself.
    pub(crate) fn mount(&self, group: Option<u32>, context: Option<&Label>) -> MountVolume {
        MountVolume {
            fs_type: self.fs_type.clone(),
            mount_flags: self.options.iter().cloned().chain(context.map(Label::mount_option)).collect(),
            volume_mount_group: group.map(|group| group.to_string()).unwrap_or_default(),
        }
    }

    pub(crate) fn mode(&self, asked: &Asked) -> WireMode {
        terms::access_mode(self.access, self.asked, asked.can(NodeRpc::SingleNodeMultiWriter))
    }
}

impl Agent {
    /// Reads how a volume is mounted: from its object as the server has it, or from the pod it stands in.
    pub(crate) async fn details(&self, wish: &Wish, stage: Stage) -> Result<Details, Failure> {
        let Some(key) = &wish.volume_key else { return inline(wish, stage) };
        let object: Value =
            self.context.client.get(Kind::VOLUME, key).await.map_err(|error| Failure::transient(stage, error))?;
        let spec = read(object, wish, stage)?;
        let owner = spec.claim_ref.as_ref().and_then(|claim| claim.uid.as_ref());
        if owner.is_none() || owner != wish.claim.as_ref().map(|(_, uid)| uid) {
            return Err(Failure::transient(stage, format!("the volume {key} does not belong to the claim any more")));
        }
        let changed = || Failure::transient(stage, format!("the volume {key} is made of something else now"));
        details_of(spec, wish).ok_or_else(changed)
    }
}

/// What a volume's object says, in the words of its driver.
fn read(object: Value, wish: &Wish, stage: Stage) -> Result<WireSpec, Failure> {
    let object = match wish.migrated {
        true => migration::volume_to_csi(&object).map_err(|error| Failure::transient(stage, error))?,
        false => object,
    };
    let wire: Wire = serde_json::from_value(object).map_err(|error| Failure::transient(stage, error))?;
    Ok(wire.spec)
}

/// `None` if the volume is not the one that the wish is about.
fn details_of(spec: WireSpec, wish: &Wish) -> Option<Details> {
    let What::Csi { driver, handle, .. } = &wish.what else { return None };
    let csi = spec.csi.filter(|csi| *csi.driver == *driver.as_str() && csi.volume_handle == *handle)?;
    Some(Details {
        fs_type: csi.fs_type.unwrap_or_default(),
        attributes: attributes(&csi.volume_attributes),
        options: spec.mount_options.unwrap_or_default(),
        access: spec.access_modes,
        asked: wish.asked,
        stage_secret: csi.node_stage_secret_ref,
        publish_secret: csi.node_publish_secret_ref,
        expand_secret: csi.node_expand_secret_ref,
    })
}

/// A volume that stands in the pod itself (NODE-12).
fn inline(wish: &Wish, stage: Stage) -> Result<Details, Failure> {
    let volume = wish.pod.volumes.iter().find(|volume| volume.name == wish.volume);
    let csi = match volume.map(|volume| &volume.source) {
        Some(VolumeSource::Csi(csi)) => csi,
        Some(VolumeSource::Migrated(volume)) => return taken_over(volume, wish, stage),
        _ => return Err(Failure::transient(stage, "the pod's volume is not a driver's")),
    };
    let secret = csi.node_publish_secret_ref.as_ref();
    Ok(Details {
        fs_type: csi.fs_type.as_deref().unwrap_or_default().to_owned(),
        attributes: attributes(&csi.volume_attributes),
        publish_secret: secret
            .map(|secret| SecretRef { name: secret.name.clone(), namespace: wish.pod.namespace().into() }),
        ..Details::default()
    })
}

/// A volume of an in-tree plugin that stands in the pod, as the driver knows it that took it over.
fn taken_over(volume: &Value, wish: &Wish, stage: Stage) -> Result<Details, Failure> {
    let object = migration::inline_to_csi(volume, wish.pod.namespace());
    let object = object.map_err(|error| Failure::transient(stage, error))?;
    let wire: Wire = serde_json::from_value(object).map_err(|error| Failure::transient(stage, error))?;
    let changed = || Failure::transient(stage, "the pod's volume is made of something else now");
    details_of(wire.spec, wish).ok_or_else(changed)
}
