//! Whole PersistentVolumes, and volumes inside pods.

use std::collections::BTreeMap;

use api::{AccessMode, AccessModes, Source, Volume};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::source::{self, CsiSource, Inline};
use super::topology::{Expression, Term};
use super::{Untranslatable, of_driver, of_members};

/// What translation reads and changes of a volume beside its source.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Parts {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub claim_namespace: Option<String>,
    pub access_modes: Vec<String>,
    pub terms: Vec<Term>,
}

impl Parts {
    pub(super) fn expressions(&self) -> impl Iterator<Item = &Expression> {
        self.terms.iter().flat_map(|term| &term.match_expressions)
    }

    fn read(pv: &Value) -> Result<Self, Untranslatable> {
        let wire: WirePv = source::read("metadata and spec", pv)?;
        let terms = wire.spec.node_affinity.unwrap_or_default().required.unwrap_or_default().node_selector_terms;
        Ok(Self {
            name: wire.metadata.name,
            labels: wire.metadata.labels.unwrap_or_default(),
            annotations: wire.metadata.annotations.unwrap_or_default(),
            claim_namespace: wire.spec.claim_ref.map(|claim| claim.namespace),
            access_modes: wire.spec.access_modes.unwrap_or_default(),
            terms: terms.unwrap_or_default(),
        })
    }

    /// Writes what differs from `before` back into a volume.
    fn write(self, before: &Self, pv: &mut Value) {
        if self.labels != before.labels {
            pv["metadata"]["labels"] = json!(self.labels);
        }
        if self.annotations != before.annotations {
            pv["metadata"]["annotations"] = json!(self.annotations);
        }
        if self.access_modes != before.access_modes {
            pv["spec"]["accessModes"] = json!(self.access_modes);
        }
        if self.terms != before.terms {
            pv["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"] = json!(self.terms);
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WirePv {
    metadata: WireMeta,
    spec: WireSpec,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireMeta {
    name: String,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    claim_ref: Option<WireClaimRef>,
    access_modes: Option<Vec<String>>,
    node_affinity: Option<WireAffinity>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireClaimRef {
    namespace: String,
}

#[derive(Deserialize, Serialize, Default)]
#[serde(default)]
struct WireAffinity {
    required: Option<WireSelector>,
}

#[derive(Deserialize, Serialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireSelector {
    node_selector_terms: Option<Vec<Term>>,
}

/// A PersistentVolume of an in-tree plugin as its driver's volume. The object is as the API sends it.
pub fn volume_to_csi(pv: &Value) -> Result<Value, Untranslatable> {
    let spec = pv.get("spec").unwrap_or(&Value::Null);
    let translator = of_members(spec).ok_or_else(|| not_migrated(pv))?;
    let before = Parts::read(pv)?;
    let csi = translator.source(&before, spec.get(translator.field()).unwrap_or(&Value::Null))?;
    let mut parts = before.clone();
    translator.parts_to_csi(&mut parts);
    let mut translated = pv.clone();
    parts.write(&before, &mut translated);
    replace(&mut translated, translator.field(), "csi", json!(csi));
    Ok(translated)
}

/// A driver's PersistentVolume as one of the plugin that the driver took over from.
pub fn volume_to_in_tree(pv: &Value) -> Result<Value, Untranslatable> {
    let source = pv.pointer("/spec/csi").ok_or_else(|| not_migrated(pv))?;
    let csi: CsiSource = source::read("csi", source)?;
    let translator = of_driver(&csi.driver).ok_or_else(|| not_migrated(pv))?;
    let back = translator.back(&csi)?;
    let before = Parts::read(pv)?;
    let mut parts = before.clone();
    translator.parts_to_in_tree(&mut parts)?;
    parts.annotations.extend(back.annotations);
    let mut translated = pv.clone();
    parts.write(&before, &mut translated);
    replace(&mut translated, "csi", translator.field(), back.source);
    Ok(translated)
}

fn not_migrated(pv: &Value) -> Untranslatable {
    let name = pv.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    Untranslatable::NotMigrated { what: format!("volume {name:?}") }
}

fn replace(pv: &mut Value, old: &str, new: &str, source: Value) {
    if let Some(spec) = pv.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove(old);
        spec.insert(new.to_owned(), source);
    }
}

/// A pod's inline volume as a PersistentVolume that is never stored: VolumeAttachments carry it as `inlineVolumeSpec`.
/// `namespace` is the pod's.
pub fn inline_to_csi(volume: &Value, namespace: &str) -> Result<Value, Untranslatable> {
    let name = volume.get("name").and_then(Value::as_str).unwrap_or_default();
    let unknown = || Untranslatable::NotMigrated { what: format!("inline volume {name:?}") };
    let translator = of_members(volume).ok_or_else(unknown)?;
    let source = volume.get(translator.field()).unwrap_or(&Value::Null);
    let synthetic = translator.inline(&Inline { name, namespace, source })?;
    Ok(json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": synthetic.name},
        "spec": {
            "accessModes": [synthetic.access.name()],
            // A pod cannot ask for a block device inline.
            "volumeMode": "Filesystem",
            "csi": synthetic.csi,
        },
    }))
}

/// The access modes of an in-tree volume in the words of the driver that took it over.
pub fn csi_access(driver: &str, modes: AccessModes) -> AccessModes {
    let Some(translator) = of_driver(driver) else { return modes };
    let access_modes = modes.iter().map(|mode| mode.name().to_owned()).collect();
    let mut parts = Parts { access_modes, ..Parts::default() };
    translator.parts_to_csi(&mut parts);
    let modes: Vec<AccessMode> = parts.access_modes.iter().filter_map(|mode| AccessMode::parse(mode)).collect();
    AccessModes::of(&modes)
}

/// The driver's source of a volume that it took over, from what a cache holds of it; none if the volume is no such one.
pub fn csi_source(volume: &Volume) -> Result<Option<CsiSource>, Untranslatable> {
    let (field, value) = match &volume.source {
        Source::Other { field, value } => (field, value),
        Source::Csi { .. } | Source::HostPath { .. } | Source::Local { .. } | Source::Nfs { .. } | Source::Missing => {
            return Ok(None);
        }
    };
    let members = Value::Object(Map::from_iter([(field.to_string(), (**value).clone())]));
    let Some(translator) = of_members(&members) else { return Ok(None) };
    let owned = |pairs: &api::Pairs| pairs.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let parts = Parts {
        name: volume.name().to_owned(),
        labels: owned(&volume.meta.labels),
        annotations: owned(&volume.meta.annotations),
        claim_namespace: volume.claim.as_ref().and_then(|claim| claim.key.namespace().map(str::to_owned)),
        ..Parts::default()
    };
    translator.source(&parts, value).map(Some)
}
