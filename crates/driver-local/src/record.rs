//! Records: what is written down about each object, sealed so that damage is seen.
//!
//! A record file is one header line and a JSON body: `orlop-record 1 <crc32c of the body> <length of the body>`. The
//! version is of the format as a whole. A newer version is refused and never rewritten; within one version fields may be
//! added, and a program that does not know one keeps it when it rewrites the record. A damaged record is an error that names
//! the file, and nothing here ever removes one.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use driver_sdk::{AccessMode, StringMap};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use linux::fs::FsType;

/// Version of the record format and of the pool's layout.
pub const VERSION: u32 = 1;
const MAGIC: &str = "orlop-record";
/// The field that says which variant of an enum a part of a record is.
const VARIANT: &str = "state";

/// Larger than any record can grow by legal requests; anything above is damage.
const LARGEST: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("there is no record at {0}")]
    Missing(PathBuf),
    #[error(
        "the record at {path} is damaged ({why}); the data beside it is untouched: restore the record from a backup"
    )]
    Damaged { path: PathBuf, why: String },
    #[error(
        "the record at {path} has format version {found} and this program knows up to {VERSION}: use the newer program"
    )]
    Newer { path: PathBuf, found: u32 },
    #[error("reading the record at {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The bytes of a record file.
pub fn seal<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec_pretty(value)?;
    let mut bytes = format!("{MAGIC} {VERSION} {:08x} {}\n", crc32c::crc32c(&body), body.len()).into_bytes();
    bytes.extend_from_slice(&body);
    Ok(bytes)
}

/// The bytes of a record file that takes the place of another. Fields of the old one that this program does not know
/// were written by a newer program under the same format version; they are carried over.
pub fn seal_over<T: Serialize + DeserializeOwned>(value: &T, path: &Path) -> io::Result<Vec<u8>> {
    let mut body = serde_json::to_value(value)?;
    if let Ok(old) = read::<Value>(path)
        && let Ok(known) = serde_json::from_value::<T>(old.clone()).and_then(serde_json::to_value)
    {
        carry_over(&old, &known, &mut body);
    }
    seal(&body)
}

/// Copies into `new` each field of `old` that is missing in `known`, which is `old` as this program understands it. A part
/// that `new` does not have, or has as another variant, keeps nothing of the old one.
fn carry_over(old: &Value, known: &Value, new: &mut Value) {
    let (Value::Object(old), Value::Object(known), Value::Object(new)) = (old, known, new) else { return };
    if old.get(VARIANT) != new.get(VARIANT) {
        return;
    }
    for (key, before) in old {
        match (known.get(key), new.get_mut(key)) {
            (None, None) => drop(new.insert(key.clone(), before.clone())),
            (Some(known), Some(now)) => carry_over(before, known, now),
            (None, Some(_)) | (Some(_), None) => {}
        }
    }
}

/// Reads and checks a record file.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<T, ReadError> {
    let io_error = |source| ReadError::Io { path: path.to_owned(), source };
    let bytes = match fs::metadata(path)
        .and_then(|meta| if meta.len() > LARGEST { Ok(None) } else { fs::read(path).map(Some) })
    {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Err(ReadError::Damaged { path: path.to_owned(), why: "it is far too large".to_owned() }),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Err(ReadError::Missing(path.to_owned()));
        }
        Err(error) => return Err(io_error(error)),
    };
    open(&bytes).map_err(|fault| match fault {
        Fault::Damaged(why) => ReadError::Damaged { path: path.to_owned(), why },
        Fault::Newer(found) => ReadError::Newer { path: path.to_owned(), found },
    })
}

enum Fault {
    Damaged(String),
    Newer(u32),
}

fn open<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Fault> {
    let damaged = |why: &str| Fault::Damaged(why.to_owned());
    let end = bytes.iter().position(|&byte| byte == b'\n').ok_or_else(|| damaged("no header line"))?;
    let header = std::str::from_utf8(&bytes[..end]).map_err(|_| damaged("the header is not text"))?;
    let body = &bytes[end + 1..];
    let words: Vec<&str> = header.split(' ').collect();
    let [magic, version, sum, length] = words[..] else { return Err(damaged("the header has not four words")) };
    if magic != MAGIC {
        return Err(damaged("it does not begin with the record mark"));
    }
    let version: u32 = version.parse().map_err(|_| damaged("the version is not a number"))?;
    if version > VERSION {
        return Err(Fault::Newer(version));
    }
    if length.parse() != Ok(body.len()) {
        return Err(Fault::Damaged(format!("{} bytes where the header says {length}", body.len())));
    }
    if u32::from_str_radix(sum, 16) != Ok(crc32c::crc32c(body)) {
        return Err(damaged("the checksum does not match"));
    }
    serde_json::from_slice(body).map_err(|error| Fault::Damaged(error.to_string()))
}

/// Identity of a pool: its first file, and the proof that a directory is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRecord {
    pub uuid: String,
    /// Another driver's pool is refused.
    pub driver: String,
}

/// How an object's data is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// A file `image`, shown through a loop device.
    Image,
    /// A directory `data`.
    Directory,
    /// A btrfs subvolume `data`.
    Subvolume,
}

/// What a workload sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AccessKind {
    Block,
    Mount,
}

/// What is on an image, as far as we put it there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum Format {
    /// Never formatted by us: raw block, or a mount volume before its first stage.
    Blank {
        #[serde(with = "fs_name::optional")]
        fs: Option<FsType>,
    },
    /// mkfs was about to run; it may have run in part. Never mounted since.
    Making {
        #[serde(with = "fs_name")]
        fs: FsType,
    },
    /// Formatted, and mounted at least once or about to be.
    Made {
        #[serde(with = "fs_name")]
        fs: FsType,
        /// Size of the device when the filesystem last filled it; a larger device means that it must grow.
        filled: u64,
    },
    /// Holds the filesystem of its source, with the source's identity; gets its own at the first stage.
    Inherited {
        #[serde(with = "fs_name")]
        fs: FsType,
    },
}

impl Format {
    pub fn fs(&self) -> Option<FsType> {
        match self {
            Self::Blank { fs } => *fs,
            Self::Making { fs } | Self::Made { fs, .. } | Self::Inherited { fs } => Some(*fs),
        }
    }

    /// What a copy of an image in this state holds.
    pub fn inherited(&self) -> Self {
        match self {
            Self::Blank { fs } => Self::Blank { fs: *fs },
            // A copy of an image that was being formatted holds half a filesystem: it is formatted anew.
            Self::Making { fs } => Self::Making { fs: *fs },
            Self::Made { fs, .. } | Self::Inherited { fs } => Self::Inherited { fs: *fs },
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Provisioning {
    Thin,
    Thick,
}

impl From<Provisioning> for linux::image::Provisioning {
    fn from(provisioning: Provisioning) -> Self {
        match provisioning {
            Provisioning::Thin => Self::Thin,
            Provisioning::Thick => Self::Thick,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SourceRef {
    Snapshot(String),
    Volume(String),
}

/// What may change while a volume lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tuning {
    pub provisioning: Provisioning,
    pub direct_io: bool,
    pub read_ahead_kib: Option<u32>,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeRecord {
    pub id: String,
    /// The caller's name, compared on every repeat: ids are hashes of names.
    pub name: String,
    pub created_ms: u64,
    pub size: u64,
    pub kind: Kind,
    pub access: AccessKind,
    pub format: Format,
    /// Logical block size of the loop device; fixed for life, since a filesystem remembers it.
    pub block_size: u32,
    pub tuning: Tuning,
    pub source: Option<SourceRef>,
    /// The request as it was, to tell a repeat from a conflict.
    pub asked_parameters: StringMap,
    pub asked_mutable: StringMap,
    /// Set for inline volumes.
    pub inline: Option<Inline>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inline {
    pub target: PathBuf,
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotRecord {
    pub id: String,
    pub name: String,
    pub source: String,
    pub created_ms: u64,
    pub size: u64,
    pub kind: Kind,
    pub access: AccessKind,
    pub format: Format,
    pub block_size: u32,
    pub group: Option<String>,
}

/// Snapshots cut at one moment. The members live in the group's directory and appear with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupRecord {
    pub id: String,
    pub name: String,
    pub created_ms: u64,
    pub sources: Vec<String>,
    pub members: Vec<String>,
    pub parameters: StringMap,
}

/// To which nodes a volume is attached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachments {
    pub nodes: BTreeMap<String, Attachment>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    pub read_only: bool,
    pub access: AccessKind,
    #[serde(with = "mode_name")]
    pub mode: AccessMode,
}

/// What this node was asked to do with a volume. Hints: the kernel knows what is really there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeNotes {
    /// Of another boot: everything below is history.
    pub boot_id: String,
    pub staged: Option<Staged>,
    pub published: BTreeMap<PathBuf, Published>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Staged {
    pub path: PathBuf,
    /// Hash of the capability it was staged with.
    pub capability: String,
    pub read_only: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Published {
    #[serde(with = "mode_name")]
    pub mode: AccessMode,
    pub read_only: bool,
    pub fingerprint: String,
}

/// A copy under way in `.tmp`: enough to go on after a restart, and to see that going on would be wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CopyIntent {
    /// Id of the volume or snapshot that is copied.
    pub request: String,
    /// Stamp of the source image when the copy began.
    pub stamp: SourceStamp,
    /// Bytes from the start that are surely on disk in the copy.
    pub copied: u64,
    /// Moment of the cut.
    pub created_ms: u64,
}

/// A source that still has this stamp has not been written since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceStamp {
    pub inode: u64,
    pub size: u64,
    pub modified_ns: i128,
    pub changed_ns: i128,
}

mod fs_name {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    use linux::fs::FsType;

    pub(super) fn serialize<S: Serializer>(fs: &FsType, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(fs.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<FsType, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }

    pub(super) mod optional {
        use super::*;

        pub(crate) fn serialize<S: Serializer>(fs: &Option<FsType>, out: S) -> Result<S::Ok, S::Error> {
            match fs {
                Some(fs) => out.serialize_some(fs.name()),
                None => out.serialize_none(),
            }
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<FsType>, D::Error> {
            let name = Option::<String>::deserialize(from)?;
            name.map(|name| name.parse().map_err(D::Error::custom)).transpose()
        }
    }
}

mod mode_name {
    use driver_sdk::AccessMode;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(mode: &AccessMode, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(mode.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<AccessMode, D::Error> {
        let name = String::deserialize(from)?;
        let found = AccessMode::ALL.into_iter().find(|mode| mode.name() == name);
        found.ok_or_else(|| D::Error::custom(format!("unknown access mode {name:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> PoolRecord {
        PoolRecord { uuid: "u".to_owned(), driver: "d".to_owned() }
    }

    #[test]
    fn a_sealed_record_reads_back() {
        let bytes = seal(&sample()).unwrap();
        assert!(matches!(open::<PoolRecord>(&bytes), Ok(record) if record == sample()));
    }

    /// Rule: LOCAL-F.10
    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let bytes = seal(&sample()).unwrap();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << bit;
                assert!(!matches!(open::<PoolRecord>(&bad), Ok(record) if record != sample()), "byte {at} bit {bit}");
            }
            assert!(open::<PoolRecord>(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    /// Rule: LOCAL-R29
    #[test]
    fn a_rewrite_keeps_fields_that_this_program_does_not_know() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("attach.json");
        let newer = serde_json::json!({
            "nodes": {
                "a": {"readOnly": false, "access": "block", "mode": "SINGLE_NODE_WRITER", "lane": 3},
                "b": {"readOnly": false, "access": "block", "mode": "SINGLE_NODE_WRITER", "lane": 4},
            },
            "epoch": {"number": 7},
        });
        fs::write(&path, seal(&newer).unwrap()).unwrap();
        let mut known: Attachments = read(&path).unwrap();
        known.nodes.remove("b");
        known.nodes.get_mut("a").unwrap().read_only = true;
        fs::write(&path, seal_over(&known, &path).unwrap()).unwrap();
        let want = serde_json::json!({
            "nodes": {"a": {"readOnly": true, "access": "block", "mode": "SINGLE_NODE_WRITER", "lane": 3}},
            "epoch": {"number": 7},
        });
        assert_eq!(read::<Value>(&path).unwrap(), want, "what was removed stays removed, what is unknown stays");
    }

    #[test]
    fn an_unknown_field_of_one_variant_does_not_pass_to_another() {
        let rows = [
            (
                Format::Made { fs: FsType::Ext4, filled: 2 },
                serde_json::json!({"state": "made", "fs": "ext4", "filled": 2, "x": 1}),
            ),
            (Format::Making { fs: FsType::Ext4 }, serde_json::json!({"state": "making", "fs": "ext4"})),
        ];
        for (now, want) in rows {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("record.json");
            let old = serde_json::json!({"state": "made", "fs": "ext4", "filled": 1, "x": 1});
            fs::write(&path, seal(&old).unwrap()).unwrap();
            fs::write(&path, seal_over(&now, &path).unwrap()).unwrap();
            assert_eq!(read::<Value>(&path).unwrap(), want);
        }
    }

    /// Rule: LOCAL-R29
    #[test]
    fn a_newer_format_is_refused_as_newer_and_not_as_damaged() {
        let bytes = seal(&sample()).unwrap();
        let text = String::from_utf8(bytes).unwrap().replacen("orlop-record 1", "orlop-record 2", 1);
        assert!(matches!(open::<PoolRecord>(text.as_bytes()), Err(Fault::Newer(2))));
    }
}
