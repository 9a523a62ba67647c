//! `aws-ebs`: ids that may come as `aws://ZONE/ID`, and regions that have to be cut out of zones' names.

use api::{AccessMode, Class};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::keys::topology::EBS_ZONE;
use super::source::{self, Back, CsiSource, Inline, Synthetic, is_false, is_zero};
use super::volume::Parts;
use super::{Translator, Untranslatable, class, topology};

const DRIVER: &str = "ebs.csi.aws.com";
const FIELD: &str = "awsElasticBlockStore";

pub(super) struct AwsEbs;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Disk {
    #[serde(rename = "volumeID")]
    volume_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    fs_type: String,
    #[serde(skip_serializing_if = "is_zero")]
    partition: i32,
    #[serde(skip_serializing_if = "is_false")]
    read_only: bool,
}

fn csi(source: &Value) -> Result<CsiSource, Untranslatable> {
    let disk: Disk = source::read(FIELD, source)?;
    let csi = CsiSource::new(DRIVER, id_of(&disk.volume_id)?).attribute("partition", disk.partition.to_string());
    Ok(CsiSource { read_only: disk.read_only, fs_type: disk.fs_type, ..csi })
}

/// The id in `aws://ZONE/ID`, which must look like one then. Anything else is taken as it is.
fn id_of(id: &str) -> Result<String, Untranslatable> {
    let Some(rest) = id.strip_prefix("aws://") else { return Ok(id.to_owned()) };
    let path = rest.split_once('/').map_or("", |(_, path)| path);
    let path = path.split(['?', '#']).next().unwrap_or_default().trim_matches('/');
    match path.starts_with("vol-") && !path.contains('/') {
        true => Ok(path.to_owned()),
        false => Err(Untranslatable::Handle { handle: id.to_owned(), form: "aws://ZONE/vol-ID" }),
    }
}

/// `us-west-2a`, `us-gov-east-1a`, `us-west-2-lax-1a` (a local zone) and `us-east-1-wl1-bos-wlz-1` (Wavelength).
fn region_of(zone: &str) -> Option<String> {
    let words: Vec<&str> = zone.split('-').collect();
    match words.len() {
        3 | 4 if words.last().is_some_and(|last| last.len() == 2) => {
            let cut = zone.char_indices().next_back().map_or(0, |(at, _)| at);
            Some(zone[..cut].to_owned())
        }
        5 | 7 => Some(words[..3].join("-")),
        _ => None,
    }
}

fn region(zones: &[String]) -> Result<String, Untranslatable> {
    topology::one_region(zones, region_of)
}

impl Translator for AwsEbs {
    fn short(&self) -> &'static str {
        "aws-ebs"
    }

    fn driver(&self) -> &'static str {
        DRIVER
    }

    fn field(&self) -> &'static str {
        FIELD
    }

    fn class(&self, mut class: Class) -> Result<Class, Untranslatable> {
        class::zones(&mut class, EBS_ZONE)?;
        class::rename(&mut class, class::fstype);
        // The plugin raised too few operations per second to what AWS takes; the driver does so only if it is told.
        if class.parameters.keys().any(|name| name.eq_ignore_ascii_case("iopsPerGB")) {
            class.parameters.insert("allowautoiopspergbincrease".into(), "true".into());
        }
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
        let disk = Disk {
            volume_id: csi.volume_handle.clone(),
            fs_type: csi.fs_type.clone(),
            partition: csi.partition()?,
            read_only: csi.read_only,
        };
        source::write(FIELD, &disk).map(Back::of)
    }

    fn parts_to_csi(&self, parts: &mut Parts) {
        topology::zones_to_csi(parts, EBS_ZONE);
    }

    fn parts_to_in_tree(&self, parts: &mut Parts) -> Result<(), Untranslatable> {
        topology::zones_to_in_tree(parts, EBS_ZONE, Some(region))
    }
}
