//! Directories on a mounted share as volumes.
//!
//! Each volume is a directory, `<namespace>-<claim>-<volume>` unless its class has a `pathPattern`. Who owns which
//! directory is recorded on the share itself, in [`RECORDS`]: two claims never get the same directory, however a pattern
//! is written, and what becomes of a directory is known after its class is gone.
//!
//! Calls to the share block, which keeps this example short. Where a share may hang, they belong on threads of their own.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use api::{Claim, Source, Volume, VolumeMode};
use control::provision::{Attempt, Failed, Made, Provisioner, Unplanned, Wish};
use lifecycle::outcome::Retry;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The directory of the records, one file per directory that is somebody's.
const RECORDS: &str = ".orlop-volumes";

/// A share: where it is mounted here, and how others find it.
#[derive(Debug)]
pub(crate) struct Share {
    names: Vec<String>,
    root: PathBuf,
    server: String,
    export: String,
}

/// What becomes of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnDelete {
    /// It is renamed to `archived-<its name>`.
    Archive,
    Delete,
    Retain,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    directory: String,
    record: Record,
    /// The object, without its source.
    body: Value,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    volume: String,
    on_delete: OnDelete,
}

impl Share {
    pub(crate) fn new(name: &str, root: &Path, server: &str, export: &str) -> Self {
        let export = export.trim_end_matches('/').to_owned();
        Self { names: vec![name.to_owned()], root: root.to_owned(), server: server.to_owned(), export }
    }

    fn record_of(&self, directory: &str) -> PathBuf {
        // A directory may be nested; its record is one file.
        self.root.join(RECORDS).join(directory.replace('%', "%25").replace('/', "%2F"))
    }

    /// Writes down whose the directory is. Only one volume can.
    fn own(&self, plan: &Plan) -> Result<(), Failed> {
        let path = self.record_of(&plan.directory);
        let text = serde_json::to_string(&plan.record).map_err(|error| unknown("writing the record", &error))?;
        fs::create_dir_all(self.root.join(RECORDS)).map_err(|error| unknown("making room for records", &error))?;
        match fs::OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => file
                .write_all(text.as_bytes())
                .and_then(|()| file.sync_all())
                .map_err(|error| unknown("writing the record", &error)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match self.read(&plan.directory)? {
                Some(record) if record.volume == plan.record.volume => Ok(()),
                Some(record) => Err(Failed::Refused {
                    message: format!("directory {:?} belongs to volume {}", plan.directory, record.volume),
                    retry: Retry::Changed,
                }),
                // We died while writing it: nobody can have been told of it.
                None => fs::write(&path, text).map_err(|error| unknown("writing the record", &error)),
            },
            Err(error) => Err(unknown("writing the record", &error)),
        }
    }

    /// The record of a directory. None if there is none, or an unfinished one.
    fn read(&self, directory: &str) -> Result<Option<Record>, Failed> {
        match fs::read_to_string(self.record_of(directory)) {
            Ok(text) if text.is_empty() => Ok(None),
            Ok(text) => serde_json::from_str(&text).map(Some).map_err(|error| unknown("reading the record", &error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unknown("reading the record", &error)),
        }
    }

    /// The directory of a volume, if it is one of this share's.
    fn directory_of(&self, volume: &Volume) -> Result<String, Failed> {
        let foreign = |message: String| Failed::Refused { message, retry: Retry::Changed };
        let Source::Nfs { server, path } = &volume.source else {
            return Err(foreign("the volume is not on NFS".to_owned()));
        };
        let inside = path.strip_prefix(&*self.export).and_then(|path| path.strip_prefix('/'));
        match inside {
            Some(inside) if **server == *self.server => plain(inside).map_err(foreign),
            _ => Err(foreign(format!("{server}:{path} is not below {}:{}", self.server, self.export))),
        }
    }
}

impl Provisioner for Share {
    type Plan = Plan;

    fn names(&self) -> &[String] {
        &self.names
    }

    async fn plan(&self, wish: &Wish) -> Result<Plan, Unplanned> {
        let refused = |message: String| Unplanned::Refused { message, retry: Retry::Changed };
        let Wish { claim, class, volume_name, .. } = wish;
        if claim.mode == VolumeMode::Block {
            return Err(refused("a directory cannot be a block device; use volumeMode Filesystem".to_owned()));
        }
        if claim.selector.is_some() {
            return Err(refused("claim Selector is not supported".to_owned()));
        }
        let directory = match class.parameters.get("pathPattern") {
            Some(pattern) => expand(pattern, claim),
            None => Ok(format!("{}-{}-{volume_name}", claim.namespace(), claim.name())),
        };
        let directory = directory.and_then(|path| plain(&path)).map_err(refused)?;
        let on_delete = on_delete(&class.parameters).map_err(refused)?;
        let record = Record { volume: volume_name.clone(), on_delete };
        Ok(Plan { directory, record, body: wish.volume(&self.names[0]) })
    }

    async fn create(&self, plan: &Plan, _: Attempt) -> Result<Made, Failed> {
        self.own(plan)?;
        let path = self.root.join(&plan.directory);
        fs::create_dir_all(&path).map_err(|error| unknown("making the directory", &error))?;
        // Pods of any user mount it, as they would a fresh disk.
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(&path, open).map_err(|error| unknown("opening the directory", &error))?;
        let mut volume = plan.body.clone();
        volume["spec"]["nfs"] = json!({"server": self.server, "path": format!("{}/{}", self.export, plan.directory)});
        Ok(Made { volume })
    }

    async fn delete(&self, volume: &Volume) -> Result<(), Failed> {
        let directory = self.directory_of(volume)?;
        // Without a record it was deleted before; somebody else's record means somebody else's directory.
        let Some(record) = self.read(&directory)? else { return Ok(()) };
        if record.volume != volume.name() {
            return Ok(());
        }
        let path = self.root.join(&directory);
        let removed = match record.on_delete {
            OnDelete::Delete => fs::remove_dir_all(&path),
            OnDelete::Archive => fs::rename(&path, self.root.join(format!("archived-{}", directory.replace('/', "-")))),
            OnDelete::Retain => Ok(()),
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unknown("removing the directory", &error)),
            // The record goes last: as long as it is there, this is repeated.
            Ok(()) | Err(_) => {
                fs::remove_file(self.record_of(&directory)).map_err(|error| unknown("removing the record", &error))
            }
        }
    }
}

/// A failure of the share says nothing about what was done.
fn unknown(doing: &str, error: &dyn std::error::Error) -> Failed {
    Failed::Unknown { message: format!("{doing}: {error}") }
}

fn on_delete(parameters: &BTreeMap<Box<str>, Box<str>>) -> Result<OnDelete, String> {
    let given = |name: &str| parameters.get(name).map(|value| &**value);
    match (given("onDelete"), given("archiveOnDelete")) {
        (Some("delete"), _) => Ok(OnDelete::Delete),
        (Some("retain"), _) => Ok(OnDelete::Retain),
        (Some(other), _) => Err(format!("onDelete is {other:?}; it must be delete or retain")),
        (None, None | Some("true")) => Ok(OnDelete::Archive),
        (None, Some("false")) => Ok(OnDelete::Delete),
        (None, Some(other)) => Err(format!("archiveOnDelete is {other:?}; it must be true or false")),
    }
}

/// Puts the claim's values into `${.PVC.namespace}`, `${.PVC.name}`, `${.PVC.labels.KEY}` and `${.PVC.annotations.KEY}`.
fn expand(pattern: &str, claim: &Claim) -> Result<String, String> {
    let mut path = String::new();
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once("${") {
        path.push_str(before);
        let (name, after) =
            after.split_once('}').ok_or_else(|| format!("pathPattern {pattern:?} lacks a closing brace"))?;
        let value = match name.strip_prefix(".PVC.") {
            Some("namespace") => Some(claim.namespace()),
            Some("name") => Some(claim.name()),
            Some(field) => match field.split_once('.') {
                Some(("labels", key)) => Some(claim.meta.label(key).unwrap_or_default()),
                Some(("annotations", key)) => Some(claim.meta.annotation(key).unwrap_or_default()),
                _ => None,
            },
            None => None,
        };
        path.push_str(value.ok_or_else(|| format!("pathPattern {pattern:?} uses {name:?}, which no claim has"))?);
        rest = after;
    }
    path.push_str(rest);
    Ok(path)
}

/// A path below the share, or why it is none: users write parts of it.
fn plain(path: &str) -> Result<String, String> {
    let mut parts = Vec::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(part) => parts.push(part.to_str().unwrap_or_default()),
            _ => return Err(format!("{path:?} is not a plain path below the share")),
        }
    }
    match parts.first() {
        None => Err("the path of the directory is empty".to_owned()),
        Some(first) if *first == RECORDS => Err(format!("{RECORDS} is not for volumes")),
        Some(_) => Ok(parts.join("/")),
    }
}
