//! What a driver said about a new volume: whether it is what was asked for, and the PersistentVolume of it
//! (PROVISION-2.8, PROVISION-2.9, PROVISION-2.10).

use std::collections::BTreeMap;

use api::keys::{annotation, finalizer, parameter};
use api::{Amount, Kind};
use serde_json::{Map, Value, json};

use super::plan::{Plan, Shape};
use super::secrets::Reference;
use super::source::Content;
use super::topology::Term;
use crate::driver_limits::{self, TooLarge};

/// A volume as the driver describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    pub id: String,
    /// 0 if the driver does not say.
    pub bytes: i64,
    pub context: BTreeMap<String, String>,
    pub content: Option<Content>,
    /// From where it can be reached.
    pub places: Vec<Term>,
}

/// Why a volume is not what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    #[error("the driver answered with a volume that has no id")]
    NoId,
    #[error("the driver made a volume of {got} bytes although {asked} were asked for")]
    TooSmall { asked: i64, got: i64 },
    #[error("the driver made an empty volume although content was asked for")]
    Empty,
    #[error("the driver made a volume that cannot be stored: {0}")]
    TooLarge(#[from] TooLarge),
}

/// Whether the volume is what was asked for.
pub fn judge(plan: &Plan, answer: &Answer) -> Result<(), Wrong> {
    if answer.id.is_empty() {
        return Err(Wrong::NoId);
    }
    if plan.content.is_some() && answer.content.is_none() {
        return Err(Wrong::Empty);
    }
    if answer.bytes != 0 && answer.bytes < plan.bytes {
        return Err(Wrong::TooSmall { asked: plan.bytes, got: answer.bytes });
    }
    driver_limits::check("volume_id", answer.id.len(), driver_limits::VOLUME_ID)?;
    driver_limits::check("volume_context", driver_limits::size_of(&answer.context), driver_limits::CONTEXT)?;
    let places = answer.places.iter().map(|place| driver_limits::size_of(&place.0)).sum();
    driver_limits::check("accessible_topology", places, driver_limits::TOPOLOGY)?;
    Ok(())
}

/// The PersistentVolume to store. `identity` tells which run of the provisioner made it.
pub fn persistent_volume(plan: &Plan, answer: &Answer, identity: &str) -> Value {
    let bytes = if answer.bytes == 0 { plan.bytes } else { answer.bytes };
    let mut spec = Map::new();
    spec.insert("capacity".into(), json!({"storage": Amount::from_bytes(bytes).text()}));
    spec.insert("accessModes".into(), json!(plan.modes));
    let mode = match plan.shape {
        Shape::Block => "Block",
        Shape::Mount { .. } => "Filesystem",
    };
    spec.insert("volumeMode".into(), json!(mode));
    if !plan.mount_options.is_empty() {
        spec.insert("mountOptions".into(), json!(plan.mount_options));
    }
    if let Some(reclaim) = &plan.reclaim {
        spec.insert("persistentVolumeReclaimPolicy".into(), json!(reclaim));
    }
    spec.insert("storageClassName".into(), json!(plan.class));
    spec.insert(
        "claimRef".into(),
        json!({
            "apiVersion": Kind::CLAIM.api_version(), "kind": Kind::CLAIM.kind, "namespace": plan.claim.namespace,
            "name": plan.claim.name, "uid": plan.claim.uid, "resourceVersion": plan.claim.revision,
        }),
    );
    if let Some(class) = &plan.attributes_class {
        spec.insert("volumeAttributesClassName".into(), json!(class));
    }
    if let Some(affinity) = affinity(&answer.places).filter(|_| plan.placed) {
        spec.insert("nodeAffinity".into(), affinity);
    }
    spec.insert("csi".into(), csi(plan, answer, identity));
    json!({
        "apiVersion": Kind::VOLUME.api_version(), "kind": Kind::VOLUME.kind,
        "metadata": {
            "name": plan.volume,
            "annotations": annotations(plan),
            "finalizers": [finalizer::EXTERNAL_PROVISIONER.text()],
        },
        "spec": spec,
    })
}

/// From which nodes a volume can be reached. Entries without segments say nothing: a selector without terms, which the
/// API refuses, is not written (PROVISION-2.9 [BUG]).
fn affinity(places: &[Term]) -> Option<Value> {
    let expressions = |term: &Term| -> Vec<Value> {
        term.0.iter().map(|(key, value)| json!({"key": key, "operator": "In", "values": [value]})).collect()
    };
    let terms: Vec<Value> = places
        .iter()
        .filter(|term| !term.0.is_empty())
        .map(|term| json!({"matchExpressions": expressions(term)}))
        .collect();
    (!terms.is_empty()).then(|| json!({"required": {"nodeSelectorTerms": terms}}))
}

fn csi(plan: &Plan, answer: &Answer, identity: &str) -> Value {
    let mut attributes = BTreeMap::from([(parameter::PROVISIONER_IDENTITY.to_owned(), identity.to_owned())]);
    attributes.extend(answer.context.clone());
    let mut csi = Map::new();
    csi.insert("driver".into(), json!(plan.driver));
    csi.insert("volumeHandle".into(), json!(answer.id));
    csi.insert("volumeAttributes".into(), json!(attributes));
    if let Shape::Mount { fstype: Some(fstype) } = &plan.shape {
        csi.insert("fsType".into(), json!(fstype));
    }
    if plan.read_only {
        csi.insert("readOnly".into(), json!(true));
    }
    let secrets = &plan.secrets;
    let references = [
        ("controllerPublishSecretRef", &secrets.controller_publish),
        ("nodeStageSecretRef", &secrets.node_stage),
        ("nodePublishSecretRef", &secrets.node_publish),
        ("controllerExpandSecretRef", &secrets.controller_expand),
        ("nodeExpandSecretRef", &secrets.node_expand),
    ];
    for (field, reference) in references {
        if let Some(Reference { namespace, name }) = reference {
            csi.insert(field.into(), json!({"namespace": namespace, "name": name}));
        }
    }
    Value::Object(csi)
}

fn annotations(plan: &Plan) -> BTreeMap<&'static str, String> {
    let deletion = plan.secrets.provision.as_ref();
    let mut all = BTreeMap::from([
        (annotation::PROVISIONED_BY.text(), plan.provisioner.clone()),
        // Always there, also when there is none: a missing one means that the class has to be asked at deletion.
        (annotation::DELETION_SECRET_NAME.text(), deletion.map_or_else(String::new, |secret| secret.name.clone())),
        (
            annotation::DELETION_SECRET_NAMESPACE.text(),
            deletion.map_or_else(String::new, |secret| secret.namespace.clone()),
        ),
    ]);
    if let Some(secret) = &plan.secrets.controller_modify {
        all.insert(annotation::MODIFY_SECRET_NAME.text(), secret.name.clone());
        all.insert(annotation::MODIFY_SECRET_NAMESPACE.text(), secret.namespace.clone());
    }
    all
}
