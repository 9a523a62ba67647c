//! `gce-pd`: handles with project and zone, which are unknown until the node is, and access modes that were never checked.

use api::keys::label;
use api::{AccessMode, Class};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::keys::topology::GCE_ZONE;
use super::source::{self, Back, CsiSource, Inline, Synthetic, is_false, is_zero};
use super::volume::Parts;
use super::{Translator, Untranslatable, class, topology};

const DRIVER: &str = "pd.csi.storage.gke.io";
const FIELD: &str = "gcePersistentDisk";
const UNSPECIFIED: &str = "UNSPECIFIED";
const HANDLE_FORM: &str = "projects/PROJECT/zones/ZONE/disks/DISK or projects/PROJECT/regions/REGION/disks/DISK";
const NODE_FORM: &str = "projects/PROJECT/zones/ZONE/instances/NAME";

pub(super) struct GcePd;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Disk {
    pd_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    fs_type: String,
    #[serde(skip_serializing_if = "is_zero")]
    partition: i32,
    #[serde(skip_serializing_if = "is_false")]
    read_only: bool,
}

fn csi(disk: &Disk, handle: String) -> CsiSource {
    let partition = if disk.partition == 0 { String::new() } else { disk.partition.to_string() };
    let csi = CsiSource::new(DRIVER, handle).attribute("partition", partition);
    CsiSource { read_only: disk.read_only, fs_type: disk.fs_type.clone(), ..csi }
}

fn zonal(project: &str, zone: &str, disk: &str) -> String {
    format!("projects/{project}/zones/{zone}/disks/{disk}")
}

fn regional(project: &str, region: &str, disk: &str) -> String {
    format!("projects/{project}/regions/{region}/disks/{disk}")
}

/// A zone is `LOCALE-REGION-ZONE`.
fn region_of(zone: &str) -> Option<String> {
    match zone.split('-').collect::<Vec<_>>().as_slice() {
        [locale, region, _] => Some(format!("{locale}-{region}")),
        _ => None,
    }
}

fn region(zones: &[String]) -> Result<String, Untranslatable> {
    topology::one_region(zones, region_of)
}

/// The parts of `projects/P/KIND/PLACE/WORD/NAME`; more may follow.
fn parts_of(id: &str) -> Option<[&str; 4]> {
    match id.split('/').collect::<Vec<_>>().as_slice() {
        [_, project, kind, place, _, name, ..] => Some([project, kind, place, name]),
        _ => None,
    }
}

fn malformed(handle: &str) -> Untranslatable {
    Untranslatable::Handle { handle: handle.to_owned(), form: HANDLE_FORM }
}

impl Translator for GcePd {
    fn short(&self) -> &'static str {
        "gce-pd"
    }

    fn driver(&self) -> &'static str {
        DRIVER
    }

    fn field(&self) -> &'static str {
        FIELD
    }

    fn class(&self, mut class: Class) -> Result<Class, Untranslatable> {
        class::zones(&mut class, GCE_ZONE)?;
        class::rename(&mut class, class::fstype);
        Ok(class)
    }

    /// The zone comes from the label only: a volume from before labels has none.
    fn source(&self, parts: &Parts, source: &Value) -> Result<CsiSource, Untranslatable> {
        let disk: Disk = source::read(FIELD, source)?;
        let label = |key: api::keys::Label| parts.labels.get(key.text()).filter(|zones| !zones.is_empty());
        let zones = label(label::BETA_ZONE).or_else(|| label(label::ZONE));
        let zones = zones.map(|zones| topology::zones_of_label(zones)).unwrap_or_default();
        let handle = match zones.as_slice() {
            [] => zonal(UNSPECIFIED, UNSPECIFIED, &disk.pd_name),
            [zone] => zonal(UNSPECIFIED, zone, &disk.pd_name),
            several => regional(UNSPECIFIED, &region(several)?, &disk.pd_name),
        };
        Ok(csi(&disk, handle))
    }

    fn inline(&self, inline: &Inline<'_>) -> Result<Synthetic, Untranslatable> {
        let disk: Disk = source::read(FIELD, inline.source)?;
        Ok(Synthetic {
            name: format!("{DRIVER}-{}", disk.pd_name),
            csi: csi(&disk, zonal(UNSPECIFIED, UNSPECIFIED, &disk.pd_name)),
            access: if disk.read_only { AccessMode::ReadOnlyMany } else { AccessMode::ReadWriteOnce },
        })
    }

    fn back(&self, csi: &CsiSource) -> Result<Back, Untranslatable> {
        let [_, _, _, name] = parts_of(&csi.volume_handle).ok_or_else(|| malformed(&csi.volume_handle))?;
        let disk = Disk {
            pd_name: name.to_owned(),
            fs_type: csi.fs_type.clone(),
            partition: csi.partition()?,
            read_only: csi.read_only,
        };
        source::write(FIELD, &disk).map(Back::of)
    }

    fn parts_to_csi(&self, parts: &mut Parts) {
        topology::zones_to_csi(parts, GCE_ZONE);
        squash(&mut parts.access_modes);
    }

    fn parts_to_in_tree(&self, parts: &mut Parts) -> Result<(), Untranslatable> {
        topology::zones_to_in_tree(parts, GCE_ZONE, Some(region))
    }

    fn repair(&self, handle: &str, node_id: &str) -> Result<String, Untranslatable> {
        let [project, kind, place, disk] = parts_of(handle).ok_or_else(|| malformed(handle))?;
        if project != UNSPECIFIED {
            return Ok(handle.to_owned());
        }
        let wrong_node = || Untranslatable::NodeId { id: node_id.to_owned(), form: NODE_FORM };
        let [project, _, node_zone, _] = parts_of(node_id).ok_or_else(wrong_node)?;
        match (kind, place) {
            ("zones", UNSPECIFIED) => Ok(zonal(project, node_zone, disk)),
            ("zones", zone) => Ok(zonal(project, zone, disk)),
            ("regions", UNSPECIFIED) => Ok(regional(project, &region(&[node_zone.to_owned()])?, disk)),
            ("regions", region) => Ok(regional(project, region, disk)),
            _ => Err(malformed(handle)),
        }
    }
}

/// The plugin took any modes and mounted once for writing, unless reading was all that was asked for.
fn squash(modes: &mut Vec<String>) {
    if modes.is_empty() {
        return;
    }
    let read_only = modes.iter().any(|mode| mode == AccessMode::ReadOnlyMany.name());
    let writes = [AccessMode::ReadWriteOnce, AccessMode::ReadWriteMany].map(AccessMode::name);
    let writes = modes.iter().any(|mode| writes.contains(&mode.as_str()));
    let one = if read_only && !writes { AccessMode::ReadOnlyMany } else { AccessMode::ReadWriteOnce };
    *modes = vec![one.name().to_owned()];
}
