//! `cinder`: the id as it is. A zone does not tell its region here.

use api::{AccessMode, Class};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::keys::topology::CINDER_ZONE;
use super::source::{self, Back, CsiSource, Inline, Synthetic, is_false};
use super::volume::Parts;
use super::{Translator, Untranslatable, class, topology};

const DRIVER: &str = "cinder.csi.openstack.org";
const FIELD: &str = "cinder";

pub(super) struct Cinder;

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

fn csi(source: &Value) -> Result<CsiSource, Untranslatable> {
    let disk: Disk = source::read(FIELD, source)?;
    let csi = CsiSource::new(DRIVER, disk.volume_id);
    Ok(CsiSource { read_only: disk.read_only, fs_type: disk.fs_type, ..csi })
}

impl Translator for Cinder {
    fn short(&self) -> &'static str {
        "cinder"
    }

    fn driver(&self) -> &'static str {
        DRIVER
    }

    fn field(&self) -> &'static str {
        FIELD
    }

    /// The driver reads `availability` itself, so that it is no topology.
    fn class(&self, mut class: Class) -> Result<Class, Untranslatable> {
        class::topologies(&mut class, CINDER_ZONE);
        class::rename(&mut class, class::fstype);
        Ok(class)
    }

    fn source(&self, _: &Parts, source: &Value) -> Result<CsiSource, Untranslatable> {
        csi(source)
    }

    fn inline(&self, inline: &Inline<'_>) -> Result<Synthetic, Untranslatable> {
        let csi = csi(inline.source)?;
        let name = format!("{DRIVER}-{}", csi.volume_handle);
        Ok(Synthetic { name, csi, access: AccessMode::ReadWriteOnce })
    }

    fn back(&self, csi: &CsiSource) -> Result<Back, Untranslatable> {
        let disk =
            Disk { volume_id: csi.volume_handle.clone(), fs_type: csi.fs_type.clone(), read_only: csi.read_only };
        source::write(FIELD, &disk).map(Back::of)
    }

    fn parts_to_csi(&self, parts: &mut Parts) {
        topology::zones_to_csi(parts, CINDER_ZONE);
    }

    fn parts_to_in_tree(&self, parts: &mut Parts) -> Result<(), Untranslatable> {
        topology::zones_to_in_tree(parts, CINDER_ZONE, None)
    }
}
