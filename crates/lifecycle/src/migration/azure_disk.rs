//! `azure-disk`: managed disks by their URI. A volume's topology stays as it is, since the labels are the same on both sides.

use api::{AccessMode, Class};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::keys::topology::AZURE_DISK_ZONE;
use super::source::{self, Back, CsiSource, Inline, Synthetic};
use super::volume::Parts;
use super::{Translator, Untranslatable, class};

const DRIVER: &str = "disk.csi.azure.com";
const FIELD: &str = "azureDisk";
const MANAGED: &str = "Managed";
const CACHING: &str = "cachingmode";
const FSTYPE: &str = "fstype";
const MANAGED_FORM: &str = ".../subscriptions/ID/resourceGroups/NAME/providers/Microsoft.Compute/disks/DISK";

pub(super) struct AzureDisk;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Disk {
    disk_name: String,
    #[serde(rename = "diskURI")]
    disk_uri: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    caching_mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fs_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    read_only: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
}

fn read(source: &Value) -> Result<Disk, Untranslatable> {
    let disk: Disk = source::read(FIELD, source)?;
    match disk.kind {
        Some(kind) if !kind.eq_ignore_ascii_case(MANAGED) => Err(Untranslatable::Unmanaged { kind }),
        _ => Ok(disk),
    }
}

fn csi(disk: Disk) -> CsiSource {
    let mut csi = CsiSource::new(DRIVER, disk.disk_uri).attribute("kind", MANAGED);
    csi.read_only = disk.read_only.unwrap_or_default();
    if let Some(caching) = disk.caching_mode {
        csi = csi.attribute(CACHING, caching);
    }
    if let Some(fstype) = disk.fs_type {
        csi = csi.attribute(FSTYPE, fstype.as_str());
        csi.fs_type = fstype;
    }
    csi
}

/// The disk's name at the end of its URI: of a managed disk, or of a blob.
fn name_of(uri: &str) -> Result<String, Untranslatable> {
    let blob = uri.len() > 4 && uri.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("http"));
    let (found, form) = match blob {
        true => (blob_name(uri), "http://HOST/vhds/NAME"),
        false => (managed_name(uri), MANAGED_FORM),
    };
    let wrong = || Untranslatable::Handle { handle: uri.to_owned(), form };
    found.filter(|name| !name.is_empty()).map(str::to_owned).ok_or_else(wrong)
}

fn managed_name(uri: &str) -> Option<&str> {
    let (above, name) = uri.rsplit_once("/providers/Microsoft.Compute/disks/")?;
    let (_, group) = above.split_once("/subscriptions/")?;
    group.contains("/resourceGroups/").then_some(name)
}

fn blob_name(uri: &str) -> Option<&str> {
    let (_, rest) = uri.split_once("://")?;
    rest.rsplit_once("/vhds/").map(|(_, name)| name)
}

impl Translator for AzureDisk {
    fn short(&self) -> &'static str {
        "azure-disk"
    }

    fn driver(&self) -> &'static str {
        DRIVER
    }

    fn field(&self) -> &'static str {
        FIELD
    }

    /// The driver reads `fstype` itself. A number is how the plugin said "no zone": the driver says it with nothing.
    fn class(&self, mut class: Class) -> Result<Class, Untranslatable> {
        class::zones(&mut class, AZURE_DISK_ZONE)?;
        let expressions = class.allowed_topologies.iter_mut().flat_map(|term| &mut term.match_label_expressions);
        for value in expressions.filter(|e| &*e.key == AZURE_DISK_ZONE).flat_map(|e| &mut e.values) {
            if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
                *value = Box::default();
            }
        }
        Ok(class)
    }

    fn source(&self, _: &Parts, source: &Value) -> Result<CsiSource, Untranslatable> {
        read(source).map(csi)
    }

    fn inline(&self, inline: &Inline<'_>) -> Result<Synthetic, Untranslatable> {
        let mut disk = read(inline.source)?;
        // Inline, an empty mode is no mode; a volume passes it on.
        disk.caching_mode = disk.caching_mode.filter(|mode| !mode.is_empty());
        Ok(Synthetic { name: disk.disk_uri.clone(), csi: csi(disk), access: AccessMode::ReadWriteOnce })
    }

    fn back(&self, csi: &CsiSource) -> Result<Back, Untranslatable> {
        let attribute = |name: &str| {
            let found = csi.volume_attributes.iter().find(|(held, _)| held.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.clone()).filter(|value| !value.is_empty())
        };
        let disk = Disk {
            disk_name: name_of(&csi.volume_handle)?,
            disk_uri: csi.volume_handle.clone(),
            caching_mode: attribute(CACHING),
            fs_type: Some(attribute(FSTYPE).unwrap_or_else(|| csi.fs_type.clone())),
            read_only: Some(csi.read_only),
            kind: Some(MANAGED.to_owned()),
        };
        source::write(FIELD, &disk).map(Back::of)
    }
}
