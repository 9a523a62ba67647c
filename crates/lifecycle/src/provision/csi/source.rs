//! Where a new volume's content comes from: clones, snapshots, and grants across namespaces (PROVISION-2.8).

use api::keys::{annotation, finalizer};
use api::{
    Claim, ClaimPhase, Class, ClassName, DataSource, Grant, Key, Kind, Snapshot, SnapshotContent, Source, Volume,
    VolumePhase,
};
use serde::{Deserialize, Serialize};

use crate::decision::Lookup;

/// What content a claim asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    Nothing,
    /// Of another claim's volume.
    Clone(Key),
    Snapshot(Key),
}

impl Wanted {
    /// The object that the content comes from.
    pub fn key(&self) -> Option<&Key> {
        match self {
            Wanted::Nothing => None,
            Wanted::Clone(key) | Wanted::Snapshot(key) => Some(key),
        }
    }
}

/// Content as the driver names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    Volume(String),
    Snapshot(String),
}

/// An object that must not go away while content is copied from it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Origin {
    Claim { namespace: String, name: String },
    Snapshot { namespace: String, name: String },
}

impl Origin {
    pub fn of(wanted: &Wanted) -> Option<Origin> {
        let parts = |key: &Key| (key.namespace().unwrap_or_default().to_owned(), key.name().to_owned());
        match wanted {
            Wanted::Nothing => None,
            Wanted::Clone(key) => Some(parts(key)).map(|(namespace, name)| Origin::Claim { namespace, name }),
            Wanted::Snapshot(key) => Some(parts(key)).map(|(namespace, name)| Origin::Snapshot { namespace, name }),
        }
    }

    pub fn key(&self) -> Key {
        match self {
            Origin::Claim { namespace, name } | Origin::Snapshot { namespace, name } => {
                Key::namespaced(namespace, name)
            }
        }
    }
}

/// Whether sources may be in other namespaces (`CrossNamespaceVolumeDataSource`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Crossing {
    #[default]
    Off,
    On,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSource {
    #[error("the claim's dataSource has no name")]
    Nameless,
    #[error("the claim's dataSource is a VolumeSnapshot of the group {group:?}; it must be snapshot.storage.k8s.io")]
    Group { group: String },
    #[error(
        "the claim's dataSourceRef names the namespace {namespace:?}, and the feature CrossNamespaceVolumeDataSource is off"
    )]
    CrossingOff { namespace: String },
    #[error("no ReferenceGrant in the namespace {namespace:?} lets the claim use its {kind} {name:?}")]
    NotGranted { namespace: String, kind: String, name: String },
}

/// How a claim's source is treated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Normal {
    Ours(Wanted),
    /// Another kind: an external populator makes the volume.
    Populator {
        group: String,
        kind: String,
        name: String,
    },
}

/// The namespace of a claim's source, if it is another one and may be: its grants have to be asked for.
pub fn crosses(claim: &Claim, crossing: Crossing) -> Option<&str> {
    let namespace = claim.source.as_deref()?.namespace.as_deref()?;
    (crossing == Crossing::On && namespace != claim.namespace()).then_some(namespace)
}

/// The source that a claim asks for, wherever it says so. `grants` are those of [`crosses`].
pub fn normalise(claim: &Claim, crossing: Crossing, grants: &[Grant]) -> Result<Normal, BadSource> {
    let Some(source) = claim.source.as_deref() else {
        return Ok(Normal::Ours(Wanted::Nothing));
    };
    let namespace = source.namespace.as_deref().unwrap_or(claim.namespace());
    if let Some(namespace) = &source.namespace
        && crossing == Crossing::Off
    {
        return Err(BadSource::CrossingOff { namespace: namespace.to_string() });
    }
    if namespace != claim.namespace() && !grants.iter().any(|grant| allows(grant, claim, source)) {
        return Err(BadSource::NotGranted {
            namespace: namespace.to_owned(),
            kind: source.kind.to_string(),
            name: source.name.to_string(),
        });
    }
    if source.name.is_empty() {
        return Err(BadSource::Nameless);
    }
    let key = Key::namespaced(namespace, &source.name);
    if *source.kind == *Kind::SNAPSHOT.kind {
        return match *source.group == *Kind::SNAPSHOT.group {
            true => Ok(Normal::Ours(Wanted::Snapshot(key))),
            false => Err(BadSource::Group { group: source.group.to_string() }),
        };
    }
    if source.group.is_empty() && *source.kind == *Kind::CLAIM.kind {
        return Ok(Normal::Ours(Wanted::Clone(key)));
    }
    let (group, kind, name) = (source.group.to_string(), source.kind.to_string(), source.name.to_string());
    Ok(Normal::Populator { group, kind, name })
}

/// Whether a grant in the source's namespace lets claims of the claim's namespace use the source.
pub fn allows(grant: &Grant, claim: &Claim, source: &DataSource) -> bool {
    let from =
        grant.spec.from.iter().any(|from| {
            from.group.is_empty() && *from.kind == *Kind::CLAIM.kind && *from.namespace == *claim.namespace()
        });
    let to = grant.spec.to.iter().any(|to| {
        let named = to.name.as_deref().is_none_or(|name| name.is_empty() || name == &*source.name);
        to.group == source.group && to.kind == source.kind && named
    });
    from && to
}

/// Why content cannot be taken from where it should come; all of it may change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot use {what} as the source: {why}")]
pub struct NoContent {
    pub what: String,
    pub why: String,
}

/// What is known of a clone's source.
#[derive(Debug)]
pub struct CloneSeen<'a> {
    pub claim: &'a Claim,
    pub class: &'a Class,
    pub driver: &'a str,
    pub source: Lookup<'a, Claim>,
    /// The volume that the source names, asked from the server.
    pub volume: Lookup<'a, Volume>,
}

/// The volume to clone.
pub fn clone(seen: &CloneSeen<'_>, key: &Key) -> Result<Content, NoContent> {
    let no = |why: String| NoContent { what: format!("the claim {key}"), why };
    let source = seen.source.found().ok_or_else(|| no("it does not exist".to_owned()))?;
    check_clone_claim(seen.claim, source).map_err(no)?;
    let volume = seen.volume.found().ok_or_else(|| no(format!("its volume {} does not exist", source.volume_name)))?;
    let Source::Csi { driver, handle } = &volume.source else {
        return Err(no(format!("its volume {} is not one of a CSI driver", volume.name())));
    };
    if **driver != *seen.driver {
        return Err(no(format!(
            "its volume is of the driver {driver}, and the class {} is of {}",
            seen.class.name(),
            seen.driver
        )));
    }
    let theirs = volume.claim.as_ref().is_some_and(|held| held.uid.is_some() && held.designates(source));
    if !theirs {
        return Err(no(format!("the volume {} does not belong to it", volume.name())));
    }
    if volume.phase != VolumePhase::Bound {
        return Err(no(format!("its volume {} is {}, not Bound", volume.name(), volume.phase.name())));
    }
    if source.mode != seen.claim.mode {
        return Err(no(format!(
            "it has the volume mode {}, and the new claim {}",
            source.mode.name(),
            seen.claim.mode.name()
        )));
    }
    Ok(Content::Volume(handle.to_string()))
}

fn check_clone_claim(claim: &Claim, source: &Claim) -> Result<(), String> {
    if source.phase != ClaimPhase::Bound || source.volume_name.is_empty() {
        return Err(format!("it is {}, not Bound to a volume", source.phase.name()));
    }
    if source.meta.is_deleting() {
        return Err("it is being deleted".to_owned());
    }
    let classless = |claim: &Claim| !matches!(claim.class(), ClassName::Named(_));
    if classless(source) || classless(claim) {
        return Err("both claims need a storage class".to_owned());
    }
    if claim.size() < source.size() {
        return Err(format!(
            "it asks for {} bytes, and the new claim for only {}",
            source.request_bytes(),
            claim.request_bytes()
        ));
    }
    Ok(())
}

/// Whether a volume may be restored with another mode than it had (`--prevent-volume-mode-conversion`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ModeChange {
    #[default]
    Guarded,
    Free,
}

/// What is known of a snapshot to restore, both asked from the server.
#[derive(Debug)]
pub struct SnapshotSeen<'a> {
    pub claim: &'a Claim,
    pub driver: &'a str,
    pub modes: ModeChange,
    pub snapshot: Lookup<'a, Snapshot>,
    pub content: Lookup<'a, SnapshotContent>,
}

/// The snapshot to restore.
pub fn snapshot(seen: &SnapshotSeen<'_>, key: &Key) -> Result<Content, NoContent> {
    let no = |why: String| NoContent { what: format!("the snapshot {key}"), why };
    let snapshot = seen.snapshot.found().ok_or_else(|| no("it does not exist".to_owned()))?;
    // With our guard on it, a restore began before its end was asked for, and is finished.
    if snapshot.meta.is_deleting() && !snapshot.meta.has_finalizer(finalizer::SNAPSHOT_SOURCE_PROTECTION) {
        return Err(no("it is being deleted".to_owned()));
    }
    let Some(bound) = &snapshot.content else {
        return Err(no("it is not bound to a content yet".to_owned()));
    };
    let content = seen.content.found().ok_or_else(|| no(format!("its content {bound} does not exist")))?;
    check_content(seen, snapshot, content).map_err(no)
}

fn check_content(seen: &SnapshotSeen<'_>, snapshot: &Snapshot, content: &SnapshotContent) -> Result<Content, String> {
    let name = content.meta.key.name();
    if content.snapshot != snapshot.meta.key || content.snapshot_uid != snapshot.meta.uid {
        return Err(format!("its content {name} belongs to another snapshot"));
    }
    if *content.driver != *seen.driver {
        return Err(format!("its content is of the driver {}, and the class of {}", content.driver, seen.driver));
    }
    if !snapshot.ready {
        return Err("it is not ready to use".to_owned());
    }
    let Some(handle) = content.handle.as_deref().filter(|handle| !handle.is_empty()) else {
        return Err(format!("its content {name} has no handle yet"));
    };
    if let Some(size) = &snapshot.restore_size
        && seen.claim.size() < *size
    {
        let request = seen.claim.request_bytes();
        return Err(format!("it needs {} bytes, and the claim asks for only {request}", size.bytes()));
    }
    check_modes(seen, content)?;
    Ok(Content::Snapshot(handle.to_owned()))
}

fn check_modes(seen: &SnapshotSeen<'_>, content: &SnapshotContent) -> Result<(), String> {
    let allowed = content.meta.annotation(annotation::ALLOW_VOLUME_MODE_CHANGE).is_some_and(is_true);
    match (seen.modes, content.mode) {
        (ModeChange::Guarded, Some(mode)) if mode != seen.claim.mode && !allowed => Err(format!(
            "it was taken of a volume of mode {}, and the claim asks for {}; annotate its content with {}=true to allow that",
            mode.name(),
            seen.claim.mode.name(),
            annotation::ALLOW_VOLUME_MODE_CHANGE
        )),
        _ => Ok(()),
    }
}

/// As Go reads a boolean.
fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "true" | "True" | "TRUE")
}
