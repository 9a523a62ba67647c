//! `portworx-volume`: the id as it is, and one secret for everything.

use api::keys::annotation::{PORTWORX_SECRET_NAME, PORTWORX_SECRET_NAMESPACE};
use api::keys::{Parameter, parameter};
use api::{AccessMode, Class, Word};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::source::{self, Back, CsiSource, Inline, SecretReference, Synthetic, is_false};
use super::volume::Parts;
use super::{Translator, Untranslatable};

const DRIVER: &str = "pxd.portworx.com";
const FIELD: &str = "portworxVolume";

/// The secrets that a class names, all of them the same one.
const SECRETS: [Parameter; 6] = [
    parameter::PROVISIONER_SECRET,
    parameter::CONTROLLER_PUBLISH_SECRET,
    parameter::NODE_PUBLISH_SECRET,
    parameter::NODE_STAGE_SECRET,
    parameter::CONTROLLER_EXPAND_SECRET,
    parameter::NODE_EXPAND_SECRET,
];

pub(super) struct Portworx;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Disk {
    #[serde(rename = "volumeID")]
    volume_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    fs_type: String,
    #[serde(skip_serializing_if = "is_false")]
    read_only: bool,
}

/// Read-only is not passed on.
fn csi(disk: &Disk) -> CsiSource {
    CsiSource { fs_type: disk.fs_type.clone(), ..CsiSource::new(DRIVER, disk.volume_id.as_str()) }
}

impl Translator for Portworx {
    fn short(&self) -> &'static str {
        "portworx-volume"
    }

    fn driver(&self) -> &'static str {
        DRIVER
    }

    fn field(&self) -> &'static str {
        FIELD
    }

    fn class(&self, mut class: Class) -> Result<Class, Untranslatable> {
        for (name, value) in std::mem::take(&mut class.parameters) {
            let suffix = match name.to_ascii_lowercase() {
                lower if lower == PORTWORX_SECRET_NAME.text() => "-name",
                lower if lower == PORTWORX_SECRET_NAMESPACE.text() => "-namespace",
                _ => {
                    class.parameters.insert(name, value);
                    continue;
                }
            };
            for secret in SECRETS {
                class.parameters.insert(format!("{secret}{suffix}").into(), value.clone());
            }
        }
        class.provisioner = Word::new(DRIVER);
        Ok(class)
    }

    fn source(&self, parts: &Parts, source: &Value) -> Result<CsiSource, Untranslatable> {
        let disk: Disk = source::read(FIELD, source)?;
        let annotation = |key: api::keys::Annotation| parts.annotations.get(key.text()).cloned();
        let secret = match (annotation(PORTWORX_SECRET_NAME), annotation(PORTWORX_SECRET_NAMESPACE)) {
            (Some(name), Some(namespace)) => Some(SecretReference { name, namespace }),
            _ => None,
        };
        Ok(CsiSource {
            controller_publish_secret_ref: secret.clone(),
            node_stage_secret_ref: secret.clone(),
            node_publish_secret_ref: secret.clone(),
            controller_expand_secret_ref: secret.clone(),
            node_expand_secret_ref: secret,
            ..csi(&disk)
        })
    }

    fn inline(&self, inline: &Inline<'_>) -> Result<Synthetic, Untranslatable> {
        let disk: Disk = source::read(FIELD, inline.source)?;
        Ok(Synthetic {
            name: format!("{DRIVER}-{}", disk.volume_id),
            csi: csi(&disk),
            access: if disk.read_only { AccessMode::ReadOnlyMany } else { AccessMode::ReadWriteOnce },
        })
    }

    fn back(&self, csi: &CsiSource) -> Result<Back, Untranslatable> {
        let disk =
            Disk { volume_id: csi.volume_handle.clone(), fs_type: csi.fs_type.clone(), read_only: csi.read_only };
        source::write(FIELD, &disk).map(Back::of)
    }
}
