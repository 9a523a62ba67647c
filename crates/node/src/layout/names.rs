//! Names that become parts of paths, and names that are computed from others.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

use sha2::{Digest as _, Sha256};

/// What one component of a path may be at most, in bytes.
const LONGEST: usize = 255;

/// A name that cannot be a directory of the agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    #[error("{0:?} cannot be the name of a directory: it is empty, `.`, `..`, longer than 255 bytes, or has a `/`")]
    Unusable(String),
    /// The directory of this name is shared by all volumes.
    #[error("a block volume cannot be named {0:?}: its directory is taken; give the PersistentVolume another name")]
    Reserved(String),
}

/// A name that is exactly one component of a path: a pod's uid, a volume's name, a driver's, a container's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<str>);

impl Name {
    pub fn new(name: &str) -> Result<Name, BadName> {
        let unusable = name.is_empty() || matches!(name, "." | "..") || name.contains(['/', '\0']);
        if unusable || name.len() > LONGEST {
            return Err(BadName::Unusable(name.to_owned()));
        }
        Ok(Name(name.into()))
    }

    /// The name of a directory that was found on disk; `None` if none of ours is called so.
    pub fn found(name: &OsStr) -> Option<Name> {
        Name::new(name.to_str()?).ok()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<Path> for Name {
    fn as_ref(&self) -> &Path {
        Path::new(&*self.0)
    }
}

/// The handle of an inline CSI volume, the same at every attempt (NODE-2.2, NODE-12).
pub fn inline_handle(pod_uid: &str, volume: &str) -> String {
    format!("csi-{}", hex_digest(&[pod_uid, volume]))
}

/// The unique name of a volume that belongs to one pod and is never attached or staged.
pub fn per_pod_name(plugin: super::Plugin, pod_uid: &str, volume: &str) -> String {
    format!("{}/{pod_uid}-{volume}", plugin.name())
}

/// Splits a unique name into the plugin and what the plugin calls the volume.
pub fn split_unique_name(unique: &str) -> Option<(&str, &str)> {
    let (at, _) = unique.match_indices('/').nth(1)?;
    Some((&unique[..at], &unique[at + 1..]))
}

/// The hexadecimal SHA-256 of texts that follow each other without anything between.
pub(super) fn hex_digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    let digest: [u8; 32] = hash.finalize().into();
    digest.iter().fold(String::with_capacity(64), |text, byte| text + &format!("{byte:02x}"))
}
