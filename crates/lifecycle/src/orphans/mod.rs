//! Orphans: what a driver has against what the cluster knows, and what of it may be deleted.
//!
//! A volume is known if a PersistentVolume names it. One that nobody names may still be on its way to its object: its
//! intent is open, or a claim waits for the driver, whoever provisions. So a volume is deleted only when nothing at all
//! could still mean it; doubt keeps it, and says why.
//!
//! # Invariants
//! 1. The driver was asked before and after the cluster. An orphan was there before, so that its object, if it has one, was
//!    seen; what is gone was missing after, so that it was not just made.
//! 2. What could not be looked at keeps everything that depends on it ([`Keep::Unsure`]).
//! 3. A volume that an object names, also a retained one, is never an orphan.

mod render;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use api::{Claim, Key, Kind, ReclaimPolicy, SnapshotContent, Volume};
use serde_json::Value;

use crate::attach::Target;
use crate::explain::{Begun, Listing, Picture, Unseen};

/// What came of asking a driver for a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed<T> {
    All(Vec<T>),
    /// The driver has no such call.
    CannotList,
    Failed(String),
}

impl<T> Listed<T> {
    fn items(&self) -> &[T] {
        match self {
            Self::All(items) => items,
            Self::CannotList | Self::Failed(_) => &[],
        }
    }
}

/// A driver, and what it says it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Driver {
    pub name: Box<str>,
    pub volumes: Listed<Held>,
    pub snapshots: Listed<Held>,
    /// The labels of the place that it runs in, if it says so: it lists what is there, and not what is on other machines.
    pub place: Option<BTreeMap<String, String>>,
}

/// A volume or snapshot of a driver.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Held {
    pub handle: Box<str>,
    /// Zero where the driver does not say.
    pub bytes: i64,
    /// Nodes that a volume is published to, as the driver names them.
    pub nodes: Vec<Box<str>>,
    /// The volume that a snapshot is of.
    pub source: Option<Box<str>>,
    /// The group that a snapshot belongs to.
    pub group: Option<Box<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    Volume,
    Snapshot,
}

impl What {
    pub fn name(self) -> &'static str {
        match self {
            Self::Volume => "volume",
            Self::Snapshot => "snapshot",
        }
    }
}

/// Something that a driver has and nothing names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    pub what: What,
    pub held: Held,
    /// Why it is not deleted; empty if it may be.
    pub keep: Vec<Keep>,
}

/// Why an orphan stays.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keep {
    /// The driver says that nodes have it.
    Published { nodes: Vec<Box<str>> },
    /// An attachment names it, though no volume does.
    Attached { attachment: Box<str> },
    /// A creation was begun, and it may be what came of it.
    Begun { volume: Box<str>, claim: Option<Key> },
    /// A claim waits for a volume of the driver, and this may be the one.
    ClaimWaits { claim: Key },
    /// A snapshot is being taken, and this may be the one.
    ContentWaits { content: Box<str> },
    /// It goes with its group.
    InGroup { group: Box<str> },
    /// What could name it could not be looked at.
    Unsure { what: &'static str },
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Published { nodes } => write!(f, "the driver says that it is published to {}", nodes.join(", ")),
            Self::Attached { attachment } => write!(f, "VolumeAttachment {attachment:?} names it"),
            Self::Begun { volume, claim: Some(claim) } => {
                write!(f, "the creation of {volume:?} for claim {claim} was begun and not ended; it may be this one")
            }
            Self::Begun { volume, claim: None } => {
                write!(f, "the creation of {volume:?} was begun and not ended; it may be this one")
            }
            Self::ClaimWaits { claim } => {
                write!(f, "claim {claim} waits for a volume of this driver; it may be this one")
            }
            Self::ContentWaits { content } => {
                write!(f, "VolumeSnapshotContent {content:?} waits for its snapshot; it may be this one")
            }
            Self::InGroup { group } => write!(f, "it belongs to the group snapshot {group:?}"),
            Self::Unsure { what } => write!(f, "{what} could not be looked at, and one of them may name it"),
        }
    }
}

/// An object whose volume or snapshot the driver does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    pub what: What,
    /// The name of the PersistentVolume or VolumeSnapshotContent.
    pub object: Box<str>,
    pub handle: Box<str>,
    /// The claim or snapshot that it belongs to.
    pub user: Option<Key>,
    pub reclaim: Option<ReclaimPolicy>,
}

/// An object whose volume or snapshot is on another machine, or may be: this driver cannot tell whether it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnOtherMachine {
    pub what: What,
    /// The name of the PersistentVolume or VolumeSnapshotContent.
    pub object: Box<str>,
    pub handle: Box<str>,
    /// The nodes that the volume can be reached from; empty where that is not known.
    pub machines: Vec<Box<str>>,
}

/// What came of comparing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub driver: Box<str>,
    /// How many volumes and snapshots the driver has; `None` where it was not told.
    pub volumes: Option<usize>,
    pub snapshots: Option<usize>,
    pub orphans: Vec<Orphan>,
    pub gone: Vec<Gone>,
    /// What cannot be judged from the driver's machine.
    pub elsewhere: Vec<OnOtherMachine>,
    /// Lists that the driver did not give, and why.
    pub unlisted: Vec<(What, String)>,
    pub unseen: Vec<Unseen>,
}

impl Report {
    /// Whether driver and cluster agree, as far as could be seen.
    pub fn agrees(&self) -> bool {
        self.orphans.is_empty() && self.gone.is_empty()
    }

    /// What may be deleted.
    pub fn deletable(&self) -> impl Iterator<Item = &Orphan> {
        self.orphans.iter().filter(|orphan| orphan.keep.is_empty())
    }

    /// What an earlier look found deletable as well: one that is only just made is seen by one look at most.
    pub fn deletable_since<'a>(&'a self, earlier: &'a Self) -> impl Iterator<Item = &'a Orphan> {
        let same = |one: &Orphan, other: &Orphan| (one.what, &one.held.handle) == (other.what, &other.held.handle);
        self.deletable().filter(move |orphan| earlier.deletable().any(|before| same(before, orphan)))
    }
}

/// What a driver had before and after the cluster was looked at.
#[derive(Debug, Clone, Copy)]
pub struct Twice<'a> {
    pub before: &'a Driver,
    pub after: &'a Driver,
}

/// Compares what a driver has with what was seen of the cluster in between.
pub fn compare(driver: Twice<'_>, picture: &Picture, contents: &Listing<SnapshotContent>) -> Report {
    let Twice { before, after } = driver;
    let driver = &Driver {
        name: before.name.clone(),
        volumes: both(&before.volumes, &after.volumes),
        snapshots: both(&before.snapshots, &after.snapshots),
        place: after.place.clone(),
    };
    let mut report = Report {
        driver: driver.name.clone(),
        volumes: count(&driver.volumes),
        snapshots: count(&driver.snapshots),
        orphans: Vec::new(),
        gone: Vec::new(),
        elsewhere: Vec::new(),
        unlisted: Vec::new(),
        unseen: picture.unseen(),
    };
    report.unseen.extend(contents.unseen(Kind::SNAPSHOT_CONTENT.plural));
    volumes(&mut report, driver, picture);
    snapshots(&mut report, driver, contents);
    // What came in between the two lists, or went, is not gone.
    let had = |what: What, handle: &str| {
        let lists = match what {
            What::Volume => [&before.volumes, &after.volumes],
            What::Snapshot => [&before.snapshots, &after.snapshots],
        };
        lists.into_iter().flat_map(Listed::items).any(|held| *held.handle == *handle)
    };
    report.gone.retain(|gone| !had(gone.what, &gone.handle));
    for (what, why) in [(What::Volume, unlisted(&driver.volumes)), (What::Snapshot, unlisted(&driver.snapshots))] {
        report.unlisted.extend(why.map(|why| (what, why)));
    }
    report
}

/// What is in both lists, as the later one has it.
fn both(before: &Listed<Held>, after: &Listed<Held>) -> Listed<Held> {
    match (before, after) {
        (Listed::All(before), Listed::All(after)) => {
            let was = |held: &&Held| before.iter().any(|earlier| earlier.handle == held.handle);
            Listed::All(after.iter().filter(was).cloned().collect())
        }
        (Listed::All(_), unlisted) | (unlisted, _) => unlisted.clone(),
    }
}

fn count<T>(listed: &Listed<T>) -> Option<usize> {
    match listed {
        Listed::All(items) => Some(items.len()),
        Listed::CannotList | Listed::Failed(_) => None,
    }
}

fn unlisted<T>(listed: &Listed<T>) -> Option<String> {
    match listed {
        Listed::All(_) => None,
        Listed::CannotList => Some("the driver cannot list them".to_owned()),
        Listed::Failed(why) => Some(why.clone()),
    }
}

fn volumes(report: &mut Report, driver: &Driver, picture: &Picture) {
    let named = picture.volumes.items().iter().filter_map(|volume| {
        let target = Target::of_volume(volume).ok().flatten()?;
        (*target.driver == *driver.name).then_some((target.handle, volume))
    });
    let named: BTreeMap<Box<str>, &Volume> = named.collect();
    let pending = on_the_way(&driver.name, picture);
    for held in driver.volumes.items().iter().filter(|held| !named.contains_key(&held.handle)) {
        let mut keep = pending.clone();
        if !held.nodes.is_empty() {
            keep.push(Keep::Published { nodes: held.nodes.clone() });
        }
        keep.extend(attachments(&driver.name, &held.handle, picture));
        keep.sort();
        report.orphans.push(Orphan { what: What::Volume, held: held.clone(), keep });
    }
    let Listed::All(all) = &driver.volumes else { return };
    for (handle, volume) in named {
        // One that is being deleted may be gone before its object.
        if all.iter().any(|held| held.handle == handle) || volume.meta.is_deleting() {
            continue;
        }
        let object = volume.name().into();
        if is_elsewhere(driver, volume) {
            let machines = machines_of(volume, picture);
            report.elsewhere.push(OnOtherMachine { what: What::Volume, object, handle, machines });
            continue;
        }
        report.gone.push(Gone {
            what: What::Volume,
            object,
            handle,
            user: volume.claim.as_ref().map(|reference| reference.key.clone()),
            reclaim: Some(volume.reclaim),
        });
    }
}

/// Whether a volume cannot be reached from the place where the driver runs.
fn is_elsewhere(driver: &Driver, volume: &Volume) -> bool {
    let place = driver.place.as_ref().filter(|place| !place.is_empty());
    place.is_some_and(|place| !volume.reachable_from("", &place.iter().collect()))
}

/// The nodes that a volume can be reached from.
fn machines_of(volume: &Volume, picture: &Picture) -> Vec<Box<str>> {
    let nodes = picture.nodes.items().iter();
    let reaching = nodes.filter(|node| volume.reachable_from(node.name(), &node.meta.labels));
    reaching.map(|node| node.name().into()).collect()
}

/// What any volume of the driver that nobody names could turn out to be.
fn on_the_way(driver: &str, picture: &Picture) -> Vec<Keep> {
    let open = |begun: &&Begun| may_be_of(driver, begun, picture) && !picture.stored(begun);
    let begun = picture.intents.items().iter().filter(open);
    let mut keep: Vec<Keep> =
        begun.map(|begun| Keep::Begun { volume: begun.volume.clone(), claim: begun.key.clone() }).collect();
    let waits = picture.claims.items().iter().filter(|claim| waits_for(driver, claim, picture));
    keep.extend(waits.map(|claim| Keep::ClaimWaits { claim: claim.key().clone() }));
    let translated = picture.volumes.items().iter().all(|volume| Target::of_volume(volume).is_ok());
    let unseen = [
        (picture.volumes.is_seen(), Kind::VOLUME.plural),
        (translated, "volumes of a plugin that cannot be said in CSI's words"),
        (picture.claims.is_seen(), Kind::CLAIM.plural),
        (picture.intents.is_seen(), Kind::CONFIG_MAP.plural),
        (picture.attachments.is_seen(), Kind::ATTACHMENT.plural),
    ];
    keep.extend(unseen.into_iter().filter(|(seen, _)| !seen).map(|(_, what)| Keep::Unsure { what }));
    keep
}

/// An intent says its provisioner in the letters that labels have, so that only another driver's own name proves that it is
/// not this one's.
fn may_be_of(driver: &str, begun: &Begun, picture: &Picture) -> bool {
    let others = picture.drivers.items().iter().map(|other| other.meta.key.name());
    *begun.by == *driver || !others.into_iter().any(|other| other != driver && *begun.by == *other)
}

/// Also a claim that is being deleted: its volume may have been asked for before.
fn waits_for(driver: &str, claim: &Claim, picture: &Picture) -> bool {
    let class = picture.classes.items().iter().find(|class| class.name() == claim.class().text());
    let asked = [claim.provisioner(), claim.migrated_to(), class.map(|class| &*class.provisioner)];
    claim.volume_name.is_empty() && asked.into_iter().flatten().any(|name| name == driver)
}

/// Attachments that name a handle past any volume: by their hash, or as a volume inside of a pod.
fn attachments(driver: &str, handle: &str, picture: &Picture) -> Vec<Keep> {
    let of_driver = picture.attachments.items().iter().filter(|attachment| *attachment.attacher == *driver);
    let names = of_driver.filter(|attachment| {
        let inline = attachment.inline.as_ref().and_then(|spec| spec.pointer("/csi/volumeHandle"));
        let by_hash = crate::attach::attachment_name(driver, handle, &attachment.node);
        attachment.name() == by_hash || inline.and_then(Value::as_str) == Some(handle)
    });
    names.map(|attachment| Keep::Attached { attachment: attachment.name().into() }).collect()
}

fn snapshots(report: &mut Report, driver: &Driver, contents: &Listing<SnapshotContent>) {
    let ours: Vec<&SnapshotContent> =
        contents.items().iter().filter(|content| *content.driver == *driver.name).collect();
    let handle = |content: &SnapshotContent| content.handle.clone().or_else(|| content.given_handle.clone());
    let mut pending: Vec<Keep> = Vec::new();
    let waits = ours.iter().filter(|content| handle(content).is_none());
    pending.extend(waits.map(|content| Keep::ContentWaits { content: content.meta.key.name().into() }));
    if !contents.is_seen() {
        pending.push(Keep::Unsure { what: Kind::SNAPSHOT_CONTENT.plural });
    }
    for held in driver.snapshots.items() {
        if ours.iter().any(|content| handle(content).as_ref() == Some(&held.handle)) {
            continue;
        }
        let mut keep = pending.clone();
        keep.extend(held.group.clone().map(|group| Keep::InGroup { group }));
        keep.sort();
        report.orphans.push(Orphan { what: What::Snapshot, held: held.clone(), keep });
    }
    let Listed::All(all) = &driver.snapshots else { return };
    for content in ours.iter().filter(|content| !content.meta.is_deleting()) {
        let Some(handle) = handle(content).filter(|handle| all.iter().all(|held| held.handle != *handle)) else {
            continue;
        };
        let (object, user) = (content.meta.key.name().into(), Some(content.snapshot.clone()));
        // A content does not say where its snapshot is. Where the driver has volumes on other machines, it may be there.
        if report.elsewhere.iter().any(|other| other.what == What::Volume) {
            let (what, machines) = (What::Snapshot, Vec::new());
            report.elsewhere.push(OnOtherMachine { what, object, handle, machines });
            continue;
        }
        report.gone.push(Gone { what: What::Snapshot, object, handle, user, reclaim: None });
    }
}
