//! `vsphere-volume`: paths. The driver hands out ids, so that it has to be told to remember a new volume's path.

use api::keys::parameter;
use api::{AccessMode, Class};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::class::Turn;
use super::keys::topology::{VSPHERE_REGION, VSPHERE_ZONE};
use super::source::{self, Back, CsiSource, Inline, Synthetic};
use super::volume::Parts;
use super::{Translator, Untranslatable, class, topology};

const DRIVER: &str = "csi.vsphere.vmware.com";
const FIELD: &str = "vsphereVolume";
const POLICY: &str = "storagepolicyname";
const PATH: &str = "initialvolumefilepath";

/// Parameters of the plugin and what the driver calls them.
const PARAMETERS: [(&str, &str); 10] = [
    ("fstype", parameter::FSTYPE.text()),
    (POLICY, POLICY),
    ("datastore", "datastore-migrationparam"),
    ("diskformat", "diskformat-migrationparam"),
    ("hostfailurestotolerate", "hostfailurestotolerate-migrationparam"),
    ("forceprovisioning", "forceprovisioning-migrationparam"),
    ("cachereservation", "cachereservation-migrationparam"),
    ("diskstripes", "diskstripes-migrationparam"),
    ("objectspacereservation", "objectspacereservation-migrationparam"),
    ("iopslimit", "iopslimit-migrationparam"),
];

pub(super) struct Vsphere;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Disk {
    volume_path: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    fs_type: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    storage_policy_name: String,
}

fn csi(source: &Value) -> Result<CsiSource, Untranslatable> {
    let disk: Disk = source::read(FIELD, source)?;
    let mut csi = CsiSource::new(DRIVER, disk.volume_path);
    csi.fs_type = disk.fs_type;
    Ok(match disk.storage_policy_name.is_empty() {
        true => csi,
        false => csi.attribute(POLICY, disk.storage_policy_name),
    })
}

impl Translator for Vsphere {
    fn short(&self) -> &'static str {
        "vsphere-volume"
    }

    fn driver(&self) -> &'static str {
        DRIVER
    }

    fn field(&self) -> &'static str {
        FIELD
    }

    fn class(&self, mut class: Class) -> Result<Class, Untranslatable> {
        class::rename(&mut class, |_, lower| {
            let known = PARAMETERS.iter().find(|(name, _)| *name == lower);
            known.map_or(Turn::Drop, |(_, renamed)| Turn::As(renamed))
        });
        class.parameters.insert("csimigration".into(), "true".into());
        class::topologies(&mut class, VSPHERE_ZONE);
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

    /// Without the attribute the plugin's volume has no path: the driver's id means nothing to it.
    fn back(&self, csi: &CsiSource) -> Result<Back, Untranslatable> {
        let volume_path = csi.volume_attributes.get(PATH).cloned().unwrap_or_default();
        let disk = Disk { volume_path, fs_type: csi.fs_type.clone(), storage_policy_name: String::new() };
        source::write(FIELD, &disk).map(Back::of)
    }

    fn parts_to_csi(&self, parts: &mut Parts) {
        topology::zones_and_regions_to_csi(parts, VSPHERE_ZONE, VSPHERE_REGION);
    }

    fn parts_to_in_tree(&self, parts: &mut Parts) -> Result<(), Untranslatable> {
        topology::zones_and_regions_to_in_tree(parts, VSPHERE_ZONE, VSPHERE_REGION);
        Ok(())
    }
}
