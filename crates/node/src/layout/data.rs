//! `vol_data.json`: what must be known about a volume when there is nobody to ask (NODE-2.1).
//!
//! A flat object of strings on one line, as a kubelet writes and reads it. Ours has three more keys: a
//! version, a checksum, and the boot in which it was written. A kubelet passes over them, and a file of a kubelet is believed
//! without them.
//!
//! # Invariants
//! 1. A file is replaced whole or not at all, and only when what it says changes (NODE-31.1, NODE-31.30).
//! 2. A file that cannot be understood is [`Stored::Damaged`], never absent: what it describes may be mounted. Its path
//!    still says which driver, and can confirm a handle ([`super::Staged::is_of`]).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use super::names::hex_digest;
use crate::host::{Host, HostError};

pub const FILE: &str = "vol_data.json";

const MODE: u32 = 0o600;

const DRIVER: &str = "driverName";
const HANDLE: &str = "volumeHandle";
const VOLUME: &str = "specVolID";
const NODE: &str = "nodeName";
const ATTACHMENT: &str = "attachmentID";
const LIFECYCLE: &str = "volumeLifecycleMode";
const SELINUX: &str = "seLinuxMountContext";
const VERSION: &str = "orlopVersion";
const BOOT: &str = "orlopBootID";
const CHECKSUM: &str = "orlopChecksum";

/// The form of the file. A reader passes over the keys of later forms.
const CURRENT: &str = "1";

/// Whether a volume lives longer than its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifecycle {
    Persistent,
    /// An inline volume.
    Ephemeral,
}

impl Lifecycle {
    pub fn text(self) -> &'static str {
        match self {
            Lifecycle::Persistent => "Persistent",
            Lifecycle::Ephemeral => "Ephemeral",
        }
    }
}

/// What a file says. The file of a staged volume says only the first two and its boot; that of a block volume has no lifecycle.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VolumeData {
    pub driver: String,
    pub handle: String,
    /// The PersistentVolume, or the pod's name of an inline volume.
    pub volume: Option<String>,
    pub node: Option<String>,
    /// The VolumeAttachment's name, also for what is never attached.
    pub attachment: Option<String>,
    pub lifecycle: Option<Lifecycle>,
    /// Only if it was mounted with one.
    pub selinux: Option<String>,
    /// The boot in which the volume was last asked for. A file of a kubelet or of an earlier version has none.
    pub boot: Option<String>,
}

impl VolumeData {
    /// Whether the file is surely of another boot than this one: no mount and no device that is there now was made for it.
    pub fn is_of_earlier_boot(&self, now: Option<&str>) -> bool {
        self.boot.as_deref().zip(now).is_some_and(|(written, now)| written != now)
    }
}

/// Why a file says nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    #[error("it is not an object of strings: {0}")]
    NotJson(String),
    #[error("it has no {0}")]
    Missing(&'static str),
    #[error("its checksum is wrong")]
    Checksum,
}

impl VolumeData {
    /// One line, the keys in order, empty ones left out.
    pub fn encode(&self) -> Vec<u8> {
        let optional = [
            (VOLUME, self.volume.as_deref()),
            (NODE, self.node.as_deref()),
            (ATTACHMENT, self.attachment.as_deref()),
            (LIFECYCLE, self.lifecycle.map(Lifecycle::text)),
            (SELINUX, self.selinux.as_deref()),
            (BOOT, self.boot.as_deref()),
        ];
        let mut keys = BTreeMap::from([(DRIVER, self.driver.as_str()), (HANDLE, &self.handle), (VERSION, CURRENT)]);
        keys.extend(optional.into_iter().filter_map(|(key, value)| Some((key, value?))));
        let checksum = checksum(keys.iter().map(|(key, value)| (*key, *value)));
        keys.insert(CHECKSUM, &checksum);
        let object = keys.into_iter().map(|(key, value)| (key.to_owned(), value.into()));
        let mut line = serde_json::Value::Object(object.collect()).to_string().into_bytes();
        line.push(b'\n');
        line
    }

    /// Keys that are not known are passed over, and an empty value is a missing one.
    pub fn decode(bytes: &[u8]) -> Result<VolumeData, Damage> {
        let mut keys: BTreeMap<String, String> =
            serde_json::from_slice(bytes).map_err(|error| Damage::NotJson(error.to_string()))?;
        if let Some(written) = keys.remove(CHECKSUM)
            && written != checksum(keys.iter().map(|(key, value)| (key.as_str(), value.as_str())))
        {
            return Err(Damage::Checksum);
        }
        let mut take = |key| keys.remove(key).filter(|value| !value.is_empty());
        Ok(VolumeData {
            driver: take(DRIVER).ok_or(Damage::Missing(DRIVER))?,
            handle: take(HANDLE).ok_or(Damage::Missing(HANDLE))?,
            volume: take(VOLUME),
            node: take(NODE),
            attachment: take(ATTACHMENT),
            lifecycle: match take(LIFECYCLE).as_deref() {
                Some("Persistent") => Some(Lifecycle::Persistent),
                Some("Ephemeral") => Some(Lifecycle::Ephemeral),
                _ => None,
            },
            selinux: take(SELINUX),
            boot: take(BOOT),
        })
    }
}

/// Of every key and value, each ended by what cannot be in it.
fn checksum<'a>(keys: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let text = keys.fold(String::new(), |text, (key, value)| format!("{text}{key}\0{value}\0"));
    hex_digest(&[&text])
}

/// What is in the place of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored {
    Absent,
    Good(VolumeData),
    /// There was something, and its volume may be mounted.
    Damaged(Damage),
}

pub async fn load(host: &dyn Host, path: &Path) -> Result<Stored, HostError> {
    Ok(match host.read(path).await? {
        None => Stored::Absent,
        Some(bytes) => VolumeData::decode(&bytes).map_or_else(Stored::Damaged, Stored::Good),
    })
}

/// Removes a file, and what attempts to write it have left when the machine went down.
pub async fn remove(host: &dyn Host, path: &Path) -> Result<(), HostError> {
    host.remove_file(path).await?;
    let Some(directory) = path.parent() else { return Ok(()) };
    for entry in host.list(directory).await? {
        if is_leftover(&entry.name) {
            host.remove_file(&directory.join(entry.name)).await?;
        }
    }
    Ok(())
}

/// Whether a file is what an attempt to write metadata has left.
pub fn is_leftover(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with(linux::durable::TEMP_PREFIX) && name.ends_with(FILE)
}

/// Whether a file had to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrote {
    Yes,
    /// It said so already, whoever wrote it.
    Unchanged,
}

/// Makes sure that a file says this. Its directory is there.
pub async fn store(host: &dyn Host, path: &Path, data: &VolumeData) -> Result<Wrote, HostError> {
    match load(host, path).await? {
        Stored::Good(stored) if stored == *data => Ok(Wrote::Unchanged),
        Stored::Absent | Stored::Good(_) | Stored::Damaged(_) => {
            host.write(path, &data.encode(), MODE).await?;
            Ok(Wrote::Yes)
        }
    }
}
